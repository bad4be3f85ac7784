"""Auto-encoders as a user meets them: train, killed and resumed; reconstruct, compare, bench upsample.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (TrainingTest, epochs_of, png, read, run, start, take_arguments, weights_of,
                     write, write_bytes)

RECIPE = """
task = "auto-encoding"
epochs = 3
batch = 8
seed = 3
checkpoint_steps = 1

[model.config]
encoder = "{encoder}"
decoder = "{decoder}"
widths = [8, 16, 16]
heads = 4

[data]
path = "{data}"
val_count = 6

[preprocess]
resize = 32
crop = [32, 32]

[optimizer]
lr = 0.003
lr_batch = 0
weight_decay = 0

[schedule]
kind = "constant"
"""

NETWORKS = {"qna": ("ln_qna", "ln_uqna"), "bilinear": ("conv_in_max", "bilinear_conv_in"),
            "transposed": ("conv_s2_in", "conv_transposed_in")}


class AutoEncoder(TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.images = cls.path("images")
        os.mkdir(cls.images)
        dice = random.Random(5)
        for i in range(30):
            colors = [[dice.randrange(256) for _ in range(3)] for _ in range(4)]
            pixels = [c for y in range(36) for x in range(40)
                      for c in colors[2 * (y >= 18) + (x >= 20)]]
            write_bytes(f"{cls.images}/{i:02}.png", png(pixels, 40, 36))
        for name, (encoder, decoder) in NETWORKS.items():
            recipe = write(cls.path(f"{name}.toml"),
                           RECIPE.format(encoder=encoder, decoder=decoder, data=cls.images))
            result = run("train", recipe, "-o", cls.path(name))
            assert result.returncode == 0, result.stderr
            cls.printed = result.stdout
        cls.recipe = cls.path("qna.toml")
        cls.best = cls.path("qna/best.safetensors")

    def test_every_epoch_shows_the_four_metrics(self):
        lines = [line for line in self.printed.splitlines() if line.startswith("epoch")]
        self.assertEqual(len(lines), 3)
        for line in lines:
            self.expect_words(line, "L1 0.", "MSE 0.", "PSNR ", "SSIM ", "grid2 ")
        self.assertIn("qna reconstruct", self.printed)
        self.assertIn("Originals", read(self.path("qna/report.html")))

    def test_killed_and_resumed_to_the_same_weights(self):
        process = start(*self.training("killed"))
        log = self.path("killed/log.jsonl")
        while not (os.path.exists(log) and '"kind":"epoch"' in read(log)):
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            time.sleep(0.005)
        process.kill()
        process.communicate()
        resumed = self.succeed(*self.training("killed", "--resume"))
        self.assertRegex(resumed.stderr, "going on with epoch [0-9], step ([2-9]|1[0-9])")
        self.assertEqual(weights_of(self.path("qna")), weights_of(self.path("killed")))

    def test_eval_gives_the_numbers_of_the_log(self):
        metrics = epochs_of(self.path("qna"))[-1]["metrics"]
        done = self.succeed("eval", self.path("qna/last.safetensors"), self.images, "--last", "6",
                            "--json")
        numbers = json.loads(done.stdout)
        self.assertEqual(numbers.pop("pictures"), 6)
        factors = [numbers.pop(f"SSIM_{name}") for name in ("light", "contrast", "structure")]
        self.assertTrue(all(numbers["SSIM"] < factor <= 1 for factor in factors), factors)
        self.assertEqual(numbers.keys(), metrics.keys())
        for name, value in metrics.items():
            self.assertAlmostEqual(numbers[name], value, places=4)
        self.expect_failure(run("eval", self.best, self.images, "--last", "31"),
                            "'last' must be at most 30")
        self.expect_failure(run("eval", self.best, self.images, "--annotations", "a.json"),
                            "for detectors")

    def test_reconstruct(self):
        out = self.path("again")
        result = self.succeed("reconstruct", self.best, self.images, "-o", out)
        self.assertEqual(len(os.listdir(out)), 30)
        self.assertEqual(result.stdout.count("PSNR"), 30)

    def test_a_broken_image_is_named_and_the_others_are_made(self):
        broken = write(self.path("broken.png"), "no image")
        out = self.path("some")
        self.expect_failure(run("reconstruct", self.best, f"{self.images}/00.png", broken, "-o", out),
                            "broken.png", "1 of 2", status=1)
        self.assertEqual(os.listdir(out), ["00.png"])

    def test_the_images_are_never_replaced(self):
        self.expect_failure(run("reconstruct", self.best, self.images, "-o", self.images), "--out",
                            status=1)

    def test_preview(self):
        out = self.path("preview.png")
        self.succeed("data", "preview", self.recipe, "-o", out, "--pictures", "3")
        self.expect_png(out)

    def test_info(self):
        result = self.succeed("info", self.best)
        self.expect_words(result.stdout, "an auto-encoder", "code: ", "encoder.0", "decoder.0", "= all",
                          "memory:")
        toml = run("info", self.best, "--toml").stdout
        self.assertIn("ln_uqna", toml)
        path = write(self.path("network.toml"), toml)
        self.assertEqual(run("info", path, "--toml").stdout, toml)
        self.assertIn("random weights", run("info", path, "--size", "48x32").stdout)

    def test_files_of_other_kinds_are_refused_by_name(self):
        self.expect_failure(run("predict", self.best, self.images), "auto-encoder", "qna reconstruct",
                            status=1)

    def test_compare(self):
        page, sheet = self.path("page.html"), self.path("sheet.png")
        self.succeed("compare", *map(self.path, NETWORKS), "-o", page, "--images",
                     f"{self.images}/00.png", "--sheet", sheet)
        self.expect_words(read(page), "L1", "MSE", "PSNR", "SSIM", *NETWORKS)
        self.assertGreater(os.path.getsize(sheet), 1000)
        self.expect_failure(run("compare", self.folder, "-o", self.path("none.html")), status=1)
        self.assertFalse(os.path.exists(self.path("none.html")))

    def test_bad_recipes_say_what_is_wrong(self):
        for setting, *words in (("model.config.encoder='conv'", "model.config", "conv_in_max"),
                                ("model.config.widths=[8]", "widths"),
                                ("data.val_count=30", "data.val_count", "1 to 29", "30"),
                                ("data.path='absent'", "absent"),
                                ("model.name='vae'", "name"),
                                ("preprocess.crop=0", "crop"),
                                ("preprocess.crop=[6,6]", "crop", "7")):
            with self.subTest(setting):
                self.expect_failure(run(*self.training("never", "--set", setting)), *words, status=1)
                self.assertFalse(os.path.exists(self.path("never")))


if __name__ == "__main__":
    take_arguments()
    unittest.main()

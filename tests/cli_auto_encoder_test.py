"""Auto-encoders as a user meets them: train, killed and resumed; reconstruct, compare, bench upsample.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import png, read_safetensors, run, start, take_arguments

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


class AutoEncoder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        cls.pictures = cls.path("pictures")
        os.mkdir(cls.pictures)
        dice = random.Random(5)
        for i in range(30):
            colors = [[dice.randrange(256) for _ in range(3)] for _ in range(4)]
            pixels = [c for y in range(36) for x in range(40)
                      for c in colors[2 * (y >= 18) + (x >= 20)]]
            with open(os.path.join(cls.pictures, f"{i:02}.png"), "wb") as file:
                file.write(png(pixels, 40, 36))
        for name, (encoder, decoder) in NETWORKS.items():
            with open(cls.path(name + ".toml"), "w", encoding="utf-8") as file:
                file.write(RECIPE.format(encoder=encoder, decoder=decoder, data=cls.pictures))
            result = run("train", cls.path(name + ".toml"), "-o", cls.path(name))
            assert result.returncode == 0, result.stderr
            cls.printed = result.stdout

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    def best(self, name="qna"):
        return os.path.join(self.path(name), "best.safetensors")

    def test_every_epoch_shows_the_four_metrics(self):
        lines = [line for line in self.printed.splitlines() if line.startswith("epoch")]
        self.assertEqual(len(lines), 3)
        for line in lines:
            for metric in ("L1 0.", "MSE 0.", "PSNR ", "SSIM ", "grid2 "):
                self.assertIn(metric, line)
        self.assertIn("qna reconstruct", self.printed)
        with open(os.path.join(self.path("qna"), "report.html"), encoding="utf-8") as file:
            self.assertIn("Originals", file.read())

    def test_killed_and_resumed_to_the_same_weights(self):
        recipe, folder = self.path("qna.toml"), self.path("killed")
        process = start("train", recipe, "-o", folder)
        log = os.path.join(folder, "log.jsonl")

        def has_epoch():
            if not os.path.exists(log):
                return False
            with open(log, encoding="utf-8") as file:
                return '"kind":"epoch"' in file.read()

        while not has_epoch():
            self.assertIsNone(process.poll(), "it ended before it could be killed")
            time.sleep(0.005)
        process.kill()
        process.communicate()
        resumed = run("train", recipe, "-o", folder, "--resume")
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertRegex(resumed.stderr, "going on with epoch [0-9], step ([2-9]|1[0-9])")
        _, expected = read_safetensors(os.path.join(self.path("qna"), "last.safetensors"))
        _, actual = read_safetensors(os.path.join(folder, "last.safetensors"))
        self.assertEqual(expected, actual)

    def test_eval_gives_the_numbers_of_the_log(self):
        with open(os.path.join(self.path("qna"), "log.jsonl"), encoding="utf-8") as file:
            epochs = [line for line in map(json.loads, file) if line["kind"] == "epoch"]
        done = run("eval", os.path.join(self.path("qna"), "last.safetensors"), self.pictures,
                   "--last", "6", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = json.loads(done.stdout)
        self.assertEqual(numbers.pop("pictures"), 6)
        self.assertEqual(numbers.keys(), epochs[-1]["metrics"].keys())
        for name, value in epochs[-1]["metrics"].items():
            self.assertAlmostEqual(numbers[name], value, places=4)
        done = run("eval", self.best(), self.pictures, "--last", "31")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--last must be at most 30", done.stderr)
        done = run("eval", self.best(), self.pictures, "--annotations", "a.json")
        self.assertIn("no detector", done.stderr)

    def test_reconstruct(self):
        out = self.path("again")
        result = run("reconstruct", self.best(), self.pictures, "-o", out)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(os.listdir(out)), 30)
        self.assertEqual(result.stdout.count("PSNR"), 30)

    def test_a_broken_picture_is_named_and_the_others_are_made(self):
        broken = self.path("broken.png")
        with open(broken, "wb") as file:
            file.write(b"no picture")
        out = self.path("some")
        result = run("reconstruct", self.best(), os.path.join(self.pictures, "00.png"), broken,
                     "-o", out)
        self.assertEqual(result.returncode, 1)
        self.assertIn("broken.png", result.stderr)
        self.assertIn("1 of 2", result.stderr)
        self.assertEqual(os.listdir(out), ["00.png"])

    def test_the_pictures_are_never_replaced(self):
        result = run("reconstruct", self.best(), self.pictures, "-o", self.pictures)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--out", result.stderr)

    def test_preview(self):
        out = self.path("preview.png")
        result = run("data", "preview", self.path("qna.toml"), "-o", out, "--pictures", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(out, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")

    def test_info(self):
        result = run("info", self.best())
        self.assertEqual(result.returncode, 0, result.stderr)
        for words in ("an auto-encoder", "code: ", "encoder.0", "decoder.0", "= all", "memory:"):
            self.assertIn(words, result.stdout)
        path = self.path("network.toml")
        toml = run("info", self.best(), "--toml").stdout
        self.assertIn("ln_uqna", toml)
        with open(path, "w", encoding="utf-8") as file:
            file.write(toml)
        self.assertEqual(run("info", path, "--toml").stdout, toml)
        self.assertIn("random weights", run("info", path, "--size", "48x32").stdout)

    def test_files_of_other_kinds_are_refused_by_name(self):
        result = run("predict", self.best(), self.pictures)
        self.assertEqual(result.returncode, 1)
        self.assertIn("auto-encoder", result.stderr)
        self.assertIn("qna reconstruct", result.stderr)

    def test_compare(self):
        page, sheet = self.path("page.html"), self.path("sheet.png")
        runs = [self.path(name) for name in NETWORKS]
        result = run("compare", *runs, "-o", page, "--images", os.path.join(self.pictures, "00.png"),
                     "--sheet", sheet)
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        for word in ("L1", "MSE", "PSNR", "SSIM", *NETWORKS):
            self.assertIn(word, text)
        self.assertTrue(os.path.getsize(sheet) > 1000)
        result = run("compare", self.folder, "-o", self.path("none.html"))
        self.assertEqual(result.returncode, 1)
        self.assertFalse(os.path.exists(self.path("none.html")))

    def test_bad_recipes_say_what_is_wrong(self):
        for setting, words in (("model.config.encoder='conv'", ["model.config", "conv_in_max"]),
                               ("model.config.widths=[8]", ["widths"]),
                               ("data.val_count=30", ["data.val_count", "1 to 29", "30"]),
                               ("data.path='absent'", ["absent"]),
                               ("model.name='vae'", ["name"]),
                               ("preprocess.crop=0", ["crop"]),
                               ("preprocess.crop=[6,6]", ["crop", "7"])):
            with self.subTest(setting):
                result = run("train", self.path("qna.toml"), "--set", setting, "-o",
                             self.path("never"))
                self.assertEqual(result.returncode, 1)
                for word in words:
                    self.assertIn(word, result.stderr)
                self.assertFalse(os.path.exists(self.path("never")))


if __name__ == "__main__":
    take_arguments()
    unittest.main()

"""Fine-tuning on one's own pictures, as a user meets it: qna finetune on a folder, without a recipe.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import shutil
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (ProgramTest, png, read, run, settings, start, state_of, take_arguments,
                     weights_of, write_bytes, write_json)

COLORS = {"blue": (40, 60, 220), "green": (30, 200, 60), "red": (220, 50, 40)}
# Small pictures, and few epochs: seconds, not minutes.
QUICK = ["--minutes", "0.5", "--threads", "1",
         *settings("epochs=4", "preprocess.resize=32", "preprocess.crop=[32, 32]", "augment.size=32")]


def square(numbers, color, side=32):
    """A square of this colour somewhere on noise: its pixels, and its box."""
    size = numbers.randint(10, 16)
    left, top = numbers.randint(0, side - size), numbers.randint(0, side - size)
    pixels = []
    for y in range(side):
        for x in range(side):
            inside = left <= x < left + size and top <= y < top + size
            pixels += color if inside else [numbers.randint(90, 160)] * 3
    return pixels, [left, top, size, size]


def make_classes(folder, count=12):
    numbers = random.Random(5)
    for name, color in COLORS.items():
        os.makedirs(os.path.join(folder, name))
        for i in range(count):
            write_bytes(os.path.join(folder, name, f"{i}.png"), png(square(numbers, color)[0], 32, 32))


def make_boxes(folder, count=12):
    numbers = random.Random(6)
    os.makedirs(folder)
    truth = {"images": [], "annotations": [],
             "categories": [{"id": i + 1, "name": name} for i, name in enumerate(COLORS)]}
    for i in range(count):
        category = i % len(COLORS)
        pixels, box = square(numbers, list(COLORS.values())[category])
        write_bytes(os.path.join(folder, f"{i}.png"), png(pixels, 32, 32))
        truth["images"].append({"id": i, "file_name": f"{i}.png", "width": 32, "height": 32})
        truth["annotations"].append({"id": i, "image_id": i, "category_id": category + 1, "bbox": box})
    write_json(os.path.join(folder, "boxes.json"), truth)


class Classes(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.path("squares")
        make_classes(cls.data)
        cls.whole = cls.path("whole")
        cls.done = run("finetune", cls.data, "-o", cls.whole, *QUICK)

    def test_says_what_it_found_and_does(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.expect_words(self.done.stdout, "class folders", "3 classes", "36 pictures", "32 pixels",
                          "plan", "classifier.safetensors", "head first", "pictures/s", "epoch   4/4",
                          "Next: qna predict", "qna eval", "report.html")
        for name in ("best.safetensors", "recipe.toml", "report.html"):
            self.assertTrue(os.path.exists(os.path.join(self.whole, name)), name)

    def test_learns(self):
        weights = os.path.join(self.whole, "best.safetensors")
        measured = json.loads(self.succeed("eval", weights, self.data, "--json").stdout)
        self.assertEqual(measured["pictures"], 12)  # 0.3 of each class
        self.assertAlmostEqual(measured["top1"], state_of(weights)["best"], places=9)

    def test_the_recipe_does_the_same_again(self):
        again = self.path("again")
        self.succeed("train", os.path.join(self.whole, "recipe.toml"), "-o", again, "--threads", "1",
                     "--quiet")
        self.assertEqual(weights_of(again), weights_of(self.whole))

    def test_dry_run_writes_nothing(self):
        out = self.path("none")
        done = self.succeed("finetune", self.data, "-o", out, "--dry-run", *QUICK)
        self.expect_words(done.stdout, "plan", "epochs", "set       epochs=4")
        self.assertFalse(os.path.exists(out))

    def test_random_weights(self):
        done = self.succeed("finetune", self.data, "--dry-run", "--weights", "none", *QUICK)
        self.expect_words(done.stdout, "random weights", "all at once")

    def test_stopped_and_resumed(self):
        # The plan depends on the speed; the settings make it the same in all that decides the weights.
        out = self.path("killed")
        process = start("finetune", self.data, "-o", out, *QUICK, *settings("checkpoint_steps=1"))
        checkpoint = os.path.join(out, "last.safetensors")
        self.wait_until(lambda: os.path.exists(checkpoint) and state_of(checkpoint)["step"] >= 2,
                        "no checkpoint was written")
        process.send_signal(signal.SIGKILL)
        process.communicate()
        refused = run("finetune", self.data, "-o", out, *QUICK)
        self.expect_failure(refused, "there is a run already", "--resume")
        self.succeed("finetune", self.data, "-o", out, "--resume", "--threads", "1")
        again = self.path("killed_again")
        self.succeed("train", os.path.join(out, "recipe.toml"), "-o", again, "--threads", "1", "--quiet")
        self.assertEqual(weights_of(out), weights_of(again))

    def test_interrupt_says_how_to_go_on(self):
        out = self.path("interrupted")
        process = start("finetune", self.data, "-o", out, *QUICK,
                        *settings("epochs=1000", "patience=0", "checkpoint_steps=1"))
        checkpoint = os.path.join(out, "last.safetensors")
        self.wait_until(lambda: os.path.exists(checkpoint) and state_of(checkpoint)["step"] >= 2,
                        "no checkpoint was written")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.expect_words(errors, "the run is saved", f"qna finetune {self.data} --out {out} --resume")

    def test_what_is_wrong_is_told(self):
        data = self.path("wrong")
        shutil.copytree(self.data, data)
        shutil.copy(os.path.join(data, "red", "0.png"), os.path.join(data, "blue", "red.png"))
        write_bytes(os.path.join(data, "red", "broken.png"), b"\x89PNG no more")
        done = self.succeed("finetune", data, "--dry-run", *QUICK)
        self.expect_words(done.stdout, "broken", "broken.png")
        self.expect_words(done.stderr, "warning: 1 picture is there twice", "Remove one")

    def test_mistakes(self):
        self.expect_refusal(run("finetune", self.path("squarez")), "squarez", "did you mean",
                            "squares")
        self.expect_failure(run("finetune", os.path.join(self.data, "red")), "one folder per class")
        self.expect_failure(run("finetune", self.data, "--weights", "nothing.safetensors"),
                            "nothing.safetensors")
        self.expect_failure(run("finetune", self.data, *settings("epoch=3")), "unknown key 'epoch'")
        self.expect_failure(run("finetune", self.data, "--minutes", "0"), "--minutes")


class Boxes(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.path("boxes")
        make_boxes(cls.data)

    def test_a_detector(self):
        out = self.path("run")
        sizes = settings("epochs=2", "preprocess.resize=48", "preprocess.longest=64",
                         "augment.shorter=[48]", "augment.longest=64")
        done = self.succeed("finetune", self.data, "-o", out, "--minutes", "0.5", "--threads", "1",
                            *sizes)
        self.expect_words(done.stdout, "COCO's JSON", "12 boxes", "held back", "detection",
                          "detector.safetensors", "Next: qna detect", "--annotations")
        weights = os.path.join(out, "best.safetensors")
        measured = json.loads(self.succeed("eval", weights, self.data, "--annotations",
                                           os.path.join(out, "val.json"), "--json").stdout)
        self.assertEqual(measured["pictures"], 4)
        self.expect_words(read(os.path.join(out, "recipe.toml")), "val.json", "train.json")
        again = self.path("again")
        self.succeed("train", os.path.join(out, "recipe.toml"), "-o", again, "--threads", "1", "--quiet")
        self.assertEqual(weights_of(again), weights_of(out))


if __name__ == "__main__":
    take_arguments()
    unittest.main(verbosity=1)

"""A new user with pictures of their own: what stopped such people, each a test.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import program
from program import (SMALL_NETWORK, ProgramTest, TrainingTest, noisy_png, read, read_bytes, run,
                     settings, start, state_of, take_arguments, write, write_bytes)

REPOSITORY = ""

RECIPE = """
epochs = 4
batch = 8
seed = 3
ema = 0.998

""" + SMALL_NETWORK + """drop_path = 0

[data]
path = "{data}"
workers = 1
{more}

[preprocess]
resize = 0
crop = [16, 16]

[optimizer]
lr = 0.004
lr_batch = 0
"""

COLORS = {"blue": (40, 60, 220), "green": (30, 200, 60), "red": (220, 50, 40)}


def make_pictures(folder, count, names=COLORS):
    numbers = random.Random(5)
    for name, color in COLORS.items():
        os.makedirs(os.path.join(folder, names[name] if isinstance(names, dict) and
                                 isinstance(names[name], str) else name))
        for i in range(count):
            target = names[name] if isinstance(names[name], str) else name
            write_bytes(os.path.join(folder, target, f"{i}.png"), noisy_png(color, numbers, 20, 18))


class Pictures(TrainingTest):
    """Class folders without a split of their own, of which a share is held back."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.path("mine")
        make_pictures(cls.data, 16)
        cls.recipe = write(cls.path("mine.toml"), RECIPE.format(
            data=cls.data, more="val_fraction = 0.25\nsplit_seed = 7"))
        cls.done = run("train", cls.recipe, "-o", cls.path("run"))
        cls.weights = cls.path("run/best.safetensors")

    def evaluate(self, *arguments):
        done = self.succeed("eval", *arguments, "--json")
        return json.loads(done.stdout), done.stderr


class HeldBack(Pictures):
    def test_eval_measures_what_was_held_back(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        measured, notes = self.evaluate(self.weights, self.data)
        self.assertEqual(measured["pictures"], 12)
        self.assertAlmostEqual(measured["top1"], state_of(self.weights)["best"], places=9)
        self.assertIn("held back", notes)
        self.assertEqual(self.evaluate(self.weights, self.data, "--split", "train")[0]["pictures"], 36)
        self.assertEqual(self.evaluate(self.weights, self.data, "--split", "")[0]["pictures"], 48)

    def test_attention_is_that_of_pictures_as_large_as_in_training(self):
        page = self.path("page.html")
        self.succeed("attend", "--explore", self.weights, f"{self.data}/red/0.png", "-o", page)
        seen = re.search(r"saw (\d+ x \d+) pixels", read(page)).group(1)
        self.assertEqual(seen, "16 x 17")

    def test_an_exported_file_knows_it_too(self):
        out = self.path("out.safetensors")
        self.succeed("export", self.weights, "-o", out)
        self.assertEqual(self.evaluate(out, self.data)[0]["pictures"], 12)

    def test_other_pictures_are_told(self):
        other = self.path("more")
        shutil.copytree(self.data, other)
        shutil.copy(f"{other}/red/1.png", f"{other}/red/new.png")
        self.assertIn("may have been trained on", self.evaluate(self.weights, other)[1])
        # A data set with a split of its own is measured by that.
        shutil.copytree(self.data, self.path("split/val"))
        self.assertEqual(self.evaluate(self.weights, self.path("split"))[0]["pictures"], 48)

    def test_the_running_mean_keeps_up_in_a_short_run(self):
        # 20 steps with a decay of 0.998: without a warm-up it would be 96 % random weights.
        loss = json.loads(self.succeed("eval", self.weights, self.data, "--json").stdout)["loss"]
        done = self.train_with("ema_warmup=false")
        self.assertEqual(done.returncode, 0, done.stderr)
        without = [word for word in done.stdout.split() if word.endswith("best.safetensors")][0]
        cold = json.loads(self.succeed("eval", without, self.data, "--json").stdout)["loss"]
        self.assertLess(loss, 0.9 * cold)


class Classes(Pictures):
    """What folders are called decides, not their order."""

    def copy(self, name, *pairs):
        """The pictures of classes under other names."""
        for old, new in pairs:
            shutil.copytree(f"{self.data}/{old}", self.path(name, "val", new))
        return self.path(name)

    def test_a_part_of_the_classes(self):
        whole, _ = self.evaluate(self.weights, self.data, "--split", "")
        part, notes = self.evaluate(self.weights, self.copy("part", ("green", "green"), ("red", "red")))
        self.assertIn("2 of the model's 3 classes", notes)
        of_class = {row["name"]: row for row in whole["classes"]}
        self.assertEqual([row["name"] for row in part["classes"]], ["green", "red"])
        for row in part["classes"]:
            self.assertEqual(row["recall"], of_class[row["name"]]["recall"])
            self.assertEqual(row["pictures"], 16)

    def test_people_s_names_and_those_of_folders(self):
        recipe = write(self.path("named.toml"), RECIPE.format(
            data=self.data, more='val_fraction = 0.25\nclass_names = ["z sky", "m grass", "a blood"]'))
        self.succeed("train", recipe, "-o", self.path("named"))
        weights = self.path("named/best.safetensors")
        expected, _ = self.evaluate(weights, self.data, "--split", "")
        # The folders of training, the names for people, in whose order they are the other way round.
        for name, pairs in (("by_folder", [(c, c) for c in COLORS]),
                            ("by_name", [("blue", "z sky"), ("green", "m grass"), ("red", "a blood")])):
            measured, notes = self.evaluate(weights, self.copy(name, *pairs))
            self.assertEqual(measured["top1"], expected["top1"], notes)
            self.assertNotIn("in order", notes)

    def test_names_that_are_not_known(self):
        other = self.copy("strange", ("blue", "1st"), ("green", "2nd"), ("red", "3rd"))
        measured, notes = self.evaluate(self.weights, other)
        self.expect_words(notes, "taken in order", "'1st' for 'blue'")
        self.assertEqual(measured["top1"], self.evaluate(self.weights, self.data, "--split", "")[0]["top1"])
        mixed = self.copy("mixed", ("blue", "blue"), ("green", "gren"), ("red", "red"))
        self.expect_failure(run("eval", self.weights, mixed), "'gren'", "did you mean 'green'?")
        more = self.copy("more", ("blue", "a"), ("green", "b"), ("red", "c"), ("red", "d"))
        self.expect_failure(run("eval", self.weights, more), "3 of the model", "got 4")

    def test_a_table_of_the_classes(self):
        text = self.succeed("eval", self.weights, self.data, "--threads", "1").stdout
        self.expect_words(text, "recall", "precision", "green", "4 ")


class Kinds(Pictures):
    """Files that are no JPEG, PNG or WebP."""

    def test_they_are_counted_and_named(self):
        folder = self.path("kinds")
        shutil.copytree(self.data, folder)
        write(f"{folder}/red/a.gif", "GIF89a")
        write(f"{folder}/red/b.heic", "")
        write(f"{folder}/red/notes.txt", "")
        words = ["3 files are left out", "1 GIF", "1 HEIC", "notes.txt"]
        done = self.succeed("predict", self.weights, f"{folder}/red", "--top", "1")
        self.expect_words(done.stderr, *words)
        self.expect_words(self.evaluate(self.weights, folder, "--split", "")[1], *words)
        done = self.train_with(f"data.path={folder}", "epochs=1")
        self.expect_words(done.stdout, *words)
        self.expect_failure(run("predict", self.weights, f"{folder}/red/a.gif"), "format GIF")

    def test_standard_input(self):
        path = f"{self.data}/red/1.png"
        with open(path, "rb") as file:
            done = self.succeed("predict", self.weights, "-", "--json", stdin=file)
        expected = self.succeed("predict", self.weights, path, "--json")
        self.assertEqual(json.loads(done.stdout)["predictions"],
                         json.loads(expected.stdout)["predictions"])
        self.expect_failure(run("predict", self.weights, "-", input=""), "standard input")


class Runs(Pictures):
    def test_a_finished_run_goes_on(self):
        shutil.copytree(self.path("run"), self.path("longer"))
        done = self.succeed("train", self.recipe, "-o", self.path("longer"), "--resume", "--set",
                            "epochs=6")
        self.assertIn("had 4 epochs and now has 6", done.stderr)
        self.assertEqual(state_of(self.path("longer/last.safetensors"))["epoch"], 6)

    def test_the_hint_to_go_on_is_the_command(self):
        process = start("train", self.recipe, "-o", self.path("stopped"),
                        *settings("epochs=1000", "checkpoint_steps=1", "clip=1.5"))
        last = self.path("stopped/last.safetensors")
        self.wait_until(lambda: os.path.exists(last) and state_of(last)["step"] > 1, "no step")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.expect_words(errors, "--set epochs=1000", "--set clip=1.5", "report.html")
        self.assertIn("not finished", read(self.path("stopped/report.html")))

    def test_a_run_that_failed_at_once_does_not_block_its_folder(self):
        broken = self.path("broken")
        shutil.copytree(self.data, broken)
        for name in os.listdir(f"{broken}/red"):
            os.truncate(f"{broken}/red/{name}", 100)
        arguments = ["train", self.recipe, "-o", self.path("again"), "--set", "epochs=1"]
        self.expect_failure(run(*arguments, "--set", f"data.path={broken}"), "data.broken=skip")
        self.succeed(*arguments)

    def test_a_recipe_by_its_name_from_anywhere(self):
        done = run("train", "imagenette", "--set", "data.path=/none/there", cwd=self.folder)
        self.expect_failure(done, "/none/there")
        done = run("train", "imagenete", cwd=self.folder)
        self.expect_failure(done, "did you mean 'imagenette'?", "qna recipes")
        done = self.succeed("data", "preview", "bccd_detr", "--help")
        for line in json.loads(self.succeed("recipes", "--json").stdout):
            self.assertTrue(line["what"] and line["budget"] and line["expect"], line)
        # Weights that a recipe names lie beside it.
        done = run("train", "bccd_detr", "--set", "data.path=/none/there", cwd=self.folder)
        self.expect_failure(done, "/none/there")
        # And data, from wherever the recipe is run.
        os.makedirs(self.path("elsewhere"))
        recipe = write(self.path("beside.toml"), RECIPE.format(data="mine", more="val_fraction = 0.25"))
        self.succeed("train", recipe, "-o", self.path("beside"), "--set", "epochs=1",
                     cwd=self.path("elsewhere"))
        self.assertIn(self.data, read(self.path("beside/recipe.toml")))


class Words(ProgramTest):
    """Mistypes, and what is there to be typed."""

    def test_did_you_mean(self):
        picture_file = write_bytes(self.path("cat.png"), noisy_png((1, 2, 3), random.Random(1), 20, 18))
        for arguments, words in (
                (["predcit", picture_file], ["unknown verb 'predcit'", "did you mean 'predict'?"]),
                (["data", "preveiw"], ["'preveiw'", "did you mean 'preview'?", "qna data --help"]),
                (["predict", picture_file, "--tpo", "1"], ["unknown option '--tpo'", "'--top'?"]),
                (["predict", self.path("cta.png")], ["no such file", "cat.png'?"]),
                (["info", "qna_vit_tinny"], ["did you mean 'qna_vit_tiny'?"]),
                (["info", "detr_r05"], ["did you mean 'detr_r50'?"]),
                (["info", self.path("bets.safetensors")], ["No such file"])):
            with self.subTest(arguments):
                self.expect_failure(run(*arguments), *words)

    def test_weights_that_are_none(self):
        text = write(self.path("notes.txt"), "these are my notes of today")
        self.expect_failure(run("info", text), "not a safetensors file")
        shutil.copy(os.path.join(REPOSITORY, "weights/classifier.safetensors"),
                    self.path("best.safetensors"))
        self.expect_failure(run("info", self.folder), "folder", "best.safetensors")
        self.expect_failure(run("predict", self.folder, "cat.png"), "holds weights", "best.safetensors")

    def test_help(self):
        for verb in ("predict", "train", "data"):
            self.assertEqual(self.succeed("help", verb).stdout, self.succeed(verb, "--help").stdout)
        self.assertEqual(self.succeed("help").stdout, self.succeed("--help").stdout)

    def complete(self, *words):
        """What bash offers for the last word."""
        script = write(self.path("qna.bash"), self.succeed("completion", "bash").stdout)
        line = " ".join(f"'{word}'" for word in words)
        command = (f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _qna; "
                   'echo "${COMPREPLY[*]}"')
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_completion(self):
        self.expect_words(self.complete("qna", ""), "predict", "train", "recipes")
        self.assertEqual(self.complete("qna", "pre"), ["predict"])
        self.assertEqual(self.complete("qna", "predict", "--th"), ["--threads"])
        self.assertEqual(self.complete("qna", "train", "x.toml", "--res"), ["--resume"])
        self.assertEqual(self.complete("qna", "data", "preview", "--var"), ["--variants"])
        self.expect_words(self.complete("qna", "bench", ""), "layer", "model")
        self.assertEqual(self.complete("qna", "predict", "ca"), [])  # files, by the shell
        text = self.succeed("completion", "zsh").stdout
        self.expect_words(text, "#compdef qna", "'--threads:Threads", "'predict:Say what")
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n", write(self.path("_qna"), text)], check=True)

    def test_threads_everywhere(self):
        for verb in ("predict", "detect", "reconstruct", "features", "attend", "eval", "coco-eval",
                     "train"):
            self.assertIn("--threads", self.succeed(verb, "--help").stdout, verb)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main(verbosity=1)

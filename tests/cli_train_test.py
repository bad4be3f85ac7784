"""Training as a user meets it: train, eval, data preview, export; killed, resumed and divided.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (floats, free_port, gradients, png, read_safetensors, relative_difference,
                     run, start, take_arguments)

REPOSITORY = ""

RECIPE = """
epochs = 3
batch = 8
seed = 3
ema = 0.9
checkpoint_steps = 2
clip = 1.0

[model]
name = "qna_vit_pico"

[model.config]
base_dim = 8
drop_path = 0.2
stages = [
  {{ qna_blocks = 1, qna_heads = 2 }},
  {{ attention_blocks = 1, attention_heads = 2, qna_heads = 2, window = 4 }},
]

[data]
path = "{data}"
workers = 2

[preprocess]
resize = 0
crop = [16, 16]

[augment]
size = 16
crop_scale = [0.5, 1]
erase = 0.3
color_jitter = 0.2

[augment.rand_augment]

[mix]
mixup = 0.4
cutmix = 1.0

[loss]
label_smoothing = 0.1

[optimizer]
lr = 0.004
lr_batch = 0

[[optimizer.group]]
match = "*relative_bias"
weight_decay = 0

[schedule]
warmup_epochs = 1
"""

COLORS = {"blue": (40, 60, 220), "green": (30, 200, 60), "red": (220, 50, 40)}


def make_data(folder, train=9, val=5):
    """Noise around one colour per class: easy to learn, not to be learned at once."""
    numbers = random.Random(5)
    for split, count in (("train", train), ("val", val)):
        for name, color in COLORS.items():
            os.makedirs(os.path.join(folder, split, name))
            for i in range(count):
                pixels = [min(255, max(0, int(numbers.gauss(color[p % 3], 60))))
                          for p in range(3 * 20 * 18)]
                with open(os.path.join(folder, split, name, f"{i}.png"), "wb") as file:
                    file.write(png(pixels, 20, 18))


class Training(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.data = os.path.join(cls.folder, "data")
        make_data(cls.data)
        cls.recipe = os.path.join(cls.folder, "small.toml")
        with open(cls.recipe, "w") as file:
            file.write(RECIPE.format(data=cls.data))
        cls.whole = os.path.join(cls.folder, "whole")
        begin = time.monotonic()
        cls.done = run("train", cls.recipe, "-o", cls.whole)
        cls.seconds = time.monotonic() - begin

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def expect_same_run(self, folder):
        expected_metadata, expected = read_safetensors(f"{self.whole}/last.safetensors")
        metadata, tensors = read_safetensors(f"{folder}/last.safetensors")
        self.assertEqual(tensors.keys(), expected.keys())
        different = [name for name in expected if tensors[name] != expected[name]]
        self.assertEqual(different, [])
        state, expected_state = (json.loads(m["training"])["state"]
                                 for m in (metadata, expected_metadata))
        state.pop("seconds")
        expected_state.pop("seconds")
        self.assertEqual(state, expected_state)

    def steps(self, folder):
        with open(f"{folder}/log.jsonl") as file:
            lines = [json.loads(line) for line in file]
        return [(line["kind"], line["step"], line.get("loss")) for line in lines]


class Whole(Training):
    def test_files(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn("best.safetensors", self.done.stdout)
        names = os.listdir(self.whole)
        for name in ("recipe.toml", "last.safetensors", "best.safetensors", "log.jsonl",
                     "report.html"):
            self.assertIn(name, names)
        self.assertTrue(any(name.startswith("events.out.tfevents") for name in names))
        self.assertFalse([name for name in names if name.endswith(".part")])
        with open(f"{self.whole}/report.html") as file:
            page = file.read()
        for word in ("<svg", "green", "data:image/png", "qna_vit_pico"):
            self.assertIn(word, page)

    def test_the_folder_keeps_a_recipe_that_runs(self):
        again = self.path("again")
        done = run("train", f"{self.whole}/recipe.toml", "-o", again, "--quiet")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.expect_same_run(again)

    def test_eval_and_predict(self):
        weights = f"{self.whole}/best.safetensors"
        done = run("eval", weights, self.data, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        measured = json.loads(done.stdout)
        state = json.loads(read_safetensors(weights)[0]["training"])["state"]
        self.assertEqual(measured["pictures"], 15)
        self.assertAlmostEqual(measured["top1"], state["best"], places=9)
        answers = run("predict", weights, f"{self.data}/val/red", "--json", "--top", "1")
        self.assertEqual(answers.returncode, 0, answers.stderr)
        self.assertIn(json.loads(answers.stdout.splitlines()[0])["predictions"][0]["label"],
                      COLORS)

    def test_eval_refuses_other_classes(self):
        other = self.path("other")
        os.makedirs(f"{other}/val")
        shutil.copytree(f"{self.data}/val/red", f"{other}/val/red")
        self.expect_failure(run("eval", f"{self.whole}/best.safetensors", other), "3 classes")

    def test_export(self):
        out = self.path("small.safetensors")
        done = run("export", f"{self.whole}/best.safetensors", "-o", out)
        self.assertEqual(done.returncode, 0, done.stderr)
        metadata, tensors = read_safetensors(out)
        self.assertNotIn(self.folder, json.dumps(metadata))  # nobody's paths
        self.assertFalse([name for name in tensors if name.startswith("training/")])
        full = json.loads(run("eval", f"{self.whole}/best.safetensors", self.data, "--json").stdout)
        half = json.loads(run("eval", out, self.data, "--json").stdout)
        self.assertAlmostEqual(full["loss"], half["loss"], delta=0.01)

    def test_half_precision(self):
        out = self.path("half")
        done = run("train", self.recipe, "-o", out, "--set", "precision=bfloat16")
        self.assertEqual(done.returncode, 0, done.stderr)
        state = json.loads(read_safetensors(f"{out}/last.safetensors")[0]["training"])["state"]
        self.assertEqual(state["bad_steps"], 0)

    def test_preview(self):
        out = self.path("preview.png")
        done = run("data", "preview", self.recipe, "-o", out, "--pictures", "2", "--variants", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(out, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")


class Resumed(Training):
    def test_a_run_is_not_overwritten(self):
        done = run("train", self.recipe, "-o", self.whole)
        self.expect_failure(done, "--resume", self.whole)

    def test_killed_at_any_moment(self):
        # Moments inside a whole run, from its start-up on; a resumed run is shorter, and may end.
        folder = self.path("killed")
        moments = random.Random(7)
        for _ in range(6):
            process = start("train", self.recipe, "-o", folder, "--resume")
            try:
                process.communicate(timeout=self.seconds * moments.uniform(0.3, 0.9))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        done = run("train", self.recipe, "-o", folder, "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_same_run(folder)
        self.assertEqual(self.steps(folder), self.steps(self.whole))
        self.assertFalse([name for name in os.listdir(folder) if name.endswith(".part")])

    def test_killed_at_a_known_step(self):
        # Wherever timing puts the kills of the other test, this one stops inside an epoch.
        folder = self.path("step")
        process = start("train", self.recipe, "-o", folder, "--set", "data.workers=1")
        self.wait_for_step(folder, 1)
        process.kill()
        process.communicate()
        self.assertEqual(run("train", self.recipe, "-o", folder, "--resume").returncode, 0)
        self.expect_same_run(folder)

    def wait_for_step(self, folder, step):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                metadata, _ = read_safetensors(f"{folder}/last.safetensors")
                if json.loads(metadata["training"])["state"]["step"] >= step:
                    return
            except FileNotFoundError:
                pass
            time.sleep(0.005)
        self.fail("no checkpoint was written")

    def test_interrupt_saves_and_leaves(self):
        for kind in (signal.SIGINT, signal.SIGTERM):
            folder = self.path(f"interrupted{int(kind)}")
            process = start("train", self.recipe, "-o", folder, "--set", "epochs=1000")
            self.wait_for_step(folder, 2)
            process.send_signal(kind)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1)
            self.assertIn("the run is saved", errors)
            self.assertIn("--resume", errors)

    def test_another_recipe_is_refused(self):
        done = run("train", self.recipe, "-o", self.whole, "--resume", "--set",
                   "optimizer.lr=0.1")
        self.expect_failure(done, "optimizer.lr", "another recipe")

    def test_full_disk(self):
        folder = self.path("full")
        process = start("train", self.recipe, "-o", folder)
        self.wait_for_step(folder, 2)
        process.kill()
        process.communicate()
        with open(f"{folder}/last.safetensors", "rb") as file:
            before = file.read()

        def little_space():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))

        done = run("train", self.recipe, "-o", folder, "--resume", preexec_fn=little_space)
        self.expect_failure(done, "cannot write", folder)
        with open(f"{folder}/last.safetensors", "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(run("train", self.recipe, "-o", folder, "--resume").returncode, 0)
        self.expect_same_run(folder)


class Divided(Training):
    """Two processes on this machine, started by hand."""

    # Nothing random that differs between processes, and nothing that depends on the rest of a batch.
    ONE_STEP = ["--set", "model.config.drop_path=0", "--set", "epochs=1", "--set", "batch=64",
                "--set", "ema=0", "--set", "clip=0", "--threads", "1"]

    def start_all(self, ranks, *arguments):
        port = free_port()
        return [start(*arguments, RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=port) for rank in range(ranks)]

    def finish(self, processes, timeout=120):
        results = [process.communicate(timeout=timeout) for process in processes]
        return [(process.returncode, out, errors)
                for process, (out, errors) in zip(processes, results)]

    def test_gradients_are_those_of_one_process(self):
        one, two = self.path("one"), self.path("two")
        self.assertEqual(run("train", self.recipe, "-o", one, *self.ONE_STEP).returncode, 0)
        for code, _, errors in self.finish(
                self.start_all(2, "train", self.recipe, "-o", two, *self.ONE_STEP)):
            self.assertEqual(code, 0, errors)
        expected = gradients(f"{one}/last.safetensors")
        self.assertGreater(len(expected), 20)
        self.assertLess(relative_difference(expected, gradients(f"{two}/last.safetensors")), 1e-6)

    def test_processes_started_by_the_program(self):
        by_hand, by_option = self.path("by_hand"), self.path("by_option")
        settings = [*self.ONE_STEP, "--set", "batch=8"]
        for code, _, errors in self.finish(
                self.start_all(2, "train", self.recipe, "-o", by_hand, *settings)):
            self.assertEqual(code, 0, errors)
        done = run("train", self.recipe, "-o", by_option, "--processes", "2", *settings)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 processes", done.stdout)
        self.assertEqual(read_safetensors(f"{by_hand}/last.safetensors")[1],
                         read_safetensors(f"{by_option}/last.safetensors")[1])

    def test_processes_started_by_the_program_end_together(self):
        folder = self.path("together")
        process = start("train", self.recipe, "-o", folder, "--set", "epochs=100000",
                        "--processes", "2", "--timeout", "20")
        until = time.monotonic() + 60
        while not os.path.exists(f"{folder}/log.jsonl") and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1)
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            (child,) = file.read().split()
        os.kill(int(child), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("process 1: ended by signal 'Killed'", errors)
        done = run("train", self.recipe, "-o", self.path("none"), "--processes", "2", "--set",
                   "data.path=nowhere")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("nowhere"), 1, done.stderr)

    def test_uneven_shares(self):
        # 27 pictures in batches of 8: the last one has 3, for three processes one each; and 15 to
        # validate, of which one batch of 7 is shared unevenly.
        one, three = self.path("one3"), self.path("three")
        settings = ["--set", "model.config.drop_path=0", "--set", "epochs=2", "--threads", "1",
                    "--set", "mix.mixup=0", "--set", "mix.cutmix=0"]
        self.assertEqual(run("train", self.recipe, "-o", one, *settings).returncode, 0)
        for code, _, errors in self.finish(
                self.start_all(3, "train", self.recipe, "-o", three, *settings)):
            self.assertEqual(code, 0, errors)
        states = [json.loads(read_safetensors(f"{folder}/last.safetensors")[0]["training"])["state"]
                  for folder in (one, three)]
        self.assertEqual(states[0]["step"], states[1]["step"])
        self.assertAlmostEqual(states[0]["metrics"]["loss"], states[1]["metrics"]["loss"], places=3)

    def test_accumulation_gives_the_same_gradients(self):
        one, parts = self.path("one_part"), self.path("parts")
        self.assertEqual(run("train", self.recipe, "-o", one, *self.ONE_STEP).returncode, 0)
        self.assertEqual(run("train", self.recipe, "-o", parts, *self.ONE_STEP, "--set",
                             "accumulate=5").returncode, 0)
        _, expected = read_safetensors(f"{one}/last.safetensors")
        _, tensors = read_safetensors(f"{parts}/last.safetensors")
        for name in expected:
            if "/exp_avg/" not in name:
                continue
            a, b = floats(expected[name]), floats(tensors[name])
            scale = max(map(abs, a)) + 1e-12
            self.assertLess(max(abs(x - y) for x, y in zip(a, b)) / scale, 1e-4, name)

    def test_a_dead_process_ends_the_other(self):
        folder = self.path("dead")
        processes = self.start_all(2, "train", self.recipe, "-o", folder, "--set", "epochs=100000",
                                   "--timeout", "20")
        until = time.monotonic() + 60
        while not os.path.exists(f"{folder}/log.jsonl") and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1)
        processes[1].kill()
        begin = time.monotonic()
        (code, _, errors), _ = self.finish(processes, timeout=60)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertNotEqual(code, 0)
        self.assertIn("lost contact", errors)
        self.assertIn("--resume", errors)

    def test_a_hanging_process_ends_the_other(self):
        folder = self.path("hanging")
        processes = self.start_all(2, "train", self.recipe, "-o", folder, "--set", "epochs=100000",
                                   "--timeout", "5")
        until = time.monotonic() + 60
        while not os.path.exists(f"{folder}/log.jsonl") and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(1)
        processes[1].send_signal(signal.SIGSTOP)
        try:
            _, errors = processes[0].communicate(timeout=60)
        finally:
            processes[1].kill()
            processes[1].communicate()
        self.assertNotEqual(processes[0].returncode, 0)
        self.assertIn("lost contact", errors)

    def test_environment_is_checked(self):
        process = start("train", self.recipe, "-o", self.path("none"), RANK=0, WORLD_SIZE=2)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("MASTER_ADDR is missing", errors)


class BadInput(Training):
    def train(self, *settings, recipe=None):
        arguments = [word for setting in settings for word in ("--set", setting)]
        out = tempfile.mkdtemp(dir=self.folder)
        return run("train", recipe or self.recipe, "-o", os.path.join(out, "run"), *arguments,
                   cwd=REPOSITORY)

    def test_typos(self):
        self.expect_failure(self.train("epoch=3"), "unknown key 'epoch'")
        self.expect_failure(self.train("model.config.base_dims=3"), "base_dims")
        self.expect_failure(self.train("augment.flips=1"), "augment.flips")
        self.expect_failure(self.train("augmentation.flip=1"), "augmentation")
        self.expect_failure(self.train("model.name=qna_vit_tinny"), "qna_vit_tinny", "qna_vit_tiny")
        self.expect_failure(self.train("task=classify"), "task", "classify")

    def test_pattern_without_parameter(self):
        recipe = self.path("pattern.toml")
        with open(recipe, "w") as file:
            file.write(RECIPE.format(data=self.data).replace("*relative_bias", "*rpe_bias"))
        self.expect_failure(self.train(recipe=recipe), "*rpe_bias", "fits no parameter")

    def test_data(self):
        self.expect_failure(self.train("data.path=/none/there"), "/none/there")
        self.expect_failure(self.train('data.class_names=["a", "b"]'), "class_names", "2 names")
        empty = self.path("empty")
        shutil.copytree(self.data, empty)
        os.makedirs(f"{empty}/train/yellow")
        self.expect_failure(self.train(f"data.path={empty}"), "yellow")

    def test_broken_picture(self):
        broken = self.path("broken")
        shutil.copytree(self.data, broken)
        victim = f"{broken}/train/red/3.png"
        with open(victim, "r+b") as file:
            file.truncate(200)
        done = self.train(f"data.path={broken}")
        self.expect_failure(done, "red/3.png")
        done = self.train(f"data.path={broken}", "data.broken=skip")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out", done.stderr)
        self.assertIn("red/3.png", done.stderr)

    def test_numbers_that_are_not_finite_stop_the_run(self):
        # Pixels of 1e38 overflow in the first product.
        done = self.train("preprocess.std=[1e-38, 1e-38, 1e-38]", "max_bad_steps=2")
        self.expect_failure(done, "step 3 skipped", "not finite", "max_bad_steps")
        done = self.train("preprocess.std=[1e-38, 1e-38, 1e-38]", "max_bad_steps=100", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("skipped"), 4)

    def test_recipes_of_the_repository_are_whole(self):
        folder = os.path.join(REPOSITORY, "recipes")
        names = sorted(os.listdir(folder))
        self.assertGreater(len(names), 5)
        for name in names:
            done = self.train("data.path=/none/there", recipe=os.path.join(folder, name))
            # Keys and the model's configuration are checked before the data is looked for.
            self.expect_failure(done, "/none/there")
            self.assertNotIn("recipe: ", done.stderr)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main(verbosity=1)

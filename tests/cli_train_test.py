"""Training as a user meets it: train, eval, data preview, export; killed, resumed and divided.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (SMALL_NETWORK, TrainingTest, free_port, gradients, kill_after,
                     make_class_folders, read, read_bytes, read_lines, read_safetensors,
                     relative_difference, run, settings, start, state_of, take_arguments,
                     weights_of, write)

REPOSITORY = ""

RECIPE = """
epochs = 3
batch = 8
seed = 3
ema = 0.9
checkpoint_steps = 2
clip = 1.0

""" + SMALL_NETWORK + """drop_path = 0.2

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


class Training(TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.path("data")
        make_class_folders(cls.data, COLORS, 20, 18, train=9, val=5)
        cls.recipe = write(cls.path("small.toml"), RECIPE.format(data=cls.data))
        cls.whole = cls.path("whole")
        begin = time.monotonic()
        cls.done = run("train", cls.recipe, "-o", cls.whole)
        cls.seconds = time.monotonic() - begin

    def expect_same_run(self, folder):
        expected, actual = weights_of(self.whole), weights_of(folder)
        self.assertEqual(actual.keys(), expected.keys())
        self.assertEqual([name for name in expected if actual[name] != expected[name]], [])
        states = [state_of(f"{name}/last.safetensors") for name in (self.whole, folder)]
        for state in states:
            state.pop("seconds")
        self.assertEqual(*states)

    def steps(self, folder):
        return [(line["kind"], line["step"], line.get("loss"))
                for line in read_lines(f"{folder}/log.jsonl")]

    def wait_for_log(self, folder):
        """And a second more, in which the processes run."""
        self.wait_until(lambda: os.path.exists(f"{folder}/log.jsonl"), "no log was written")
        time.sleep(1)

    def wait_for_step(self, folder, step):
        path = f"{folder}/last.safetensors"
        self.wait_until(lambda: os.path.exists(path) and state_of(path)["step"] >= step,
                        "no checkpoint was written")


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
        self.expect_words(read(f"{self.whole}/report.html"), "<svg", "green", "data:image/png",
                          "qna_vit_pico", "Look around in one picture")

    def test_the_folder_keeps_a_recipe_that_runs(self):
        again = self.path("again")
        done = self.succeed("train", f"{self.whole}/recipe.toml", "-o", again, "--quiet")
        self.assertEqual(done.stdout, "", done.stderr)
        self.expect_same_run(again)

    def evaluate(self, weights):
        return json.loads(self.succeed("eval", weights, self.data, "--json").stdout)

    def test_eval_and_predict(self):
        weights = f"{self.whole}/best.safetensors"
        measured = self.evaluate(weights)
        self.assertEqual(measured["pictures"], 15)
        self.assertAlmostEqual(measured["top1"], state_of(weights)["best"], places=9)
        answers = self.succeed("predict", weights, f"{self.data}/val/red", "--json", "--top", "1")
        self.assertIn(json.loads(answers.stdout.splitlines()[0])["predictions"][0]["label"],
                      COLORS)

    def test_eval_refuses_other_classes(self):
        other = self.path("other")
        shutil.copytree(f"{self.data}/val/red", f"{other}/val/pink")
        self.expect_failure(run("eval", f"{self.whole}/best.safetensors", other), "the 3 of the model",
                            "'pink'")

    def test_export(self):
        out = self.path("small.safetensors")
        self.succeed("export", f"{self.whole}/best.safetensors", "-o", out)
        metadata, tensors = read_safetensors(out)
        self.assertNotIn(self.folder, json.dumps(metadata))  # nobody's paths
        self.assertFalse([name for name in tensors if name.startswith("training/")])
        self.assertAlmostEqual(self.evaluate(f"{self.whole}/best.safetensors")["loss"],
                               self.evaluate(out)["loss"], delta=0.01)

    def test_half_precision(self):
        self.succeed(*self.training("half", "--set", "precision=bfloat16"))
        self.assertEqual(state_of(self.path("half/last.safetensors"))["bad_steps"], 0)

    def test_preview(self):
        out = self.path("preview.png")
        self.succeed("data", "preview", self.recipe, "-o", out, "--pictures", "2", "--variants", "3")
        self.expect_png(out)


class Resumed(Training):
    def test_a_run_is_not_overwritten(self):
        self.expect_failure(run(*self.training("whole")), "--resume", self.whole)

    def test_killed_at_any_moment(self):
        # Moments inside a whole run, from its start-up on; a resumed run is shorter, and may end.
        folder = self.path("killed")
        moments = random.Random(7)
        for _ in range(6):
            kill_after(self.seconds * moments.uniform(0.3, 0.9), *self.training("killed", "--resume"))
        self.succeed(*self.training("killed", "--resume"))
        self.expect_same_run(folder)
        self.assertEqual(self.steps(folder), self.steps(self.whole))
        self.assertFalse([name for name in os.listdir(folder) if name.endswith(".part")])

    def kill_behind_step(self, step, name, *more):
        process = start(*self.training(name, *more))
        self.wait_for_step(self.path(name), step)
        process.kill()
        process.communicate()

    def test_killed_at_a_known_step(self):
        # Wherever timing puts the kills of the other test, this one stops inside an epoch.
        self.kill_behind_step(1, "step", "--set", "data.workers=1")
        self.succeed(*self.training("step", "--resume"))
        self.expect_same_run(self.path("step"))

    def test_interrupt_saves_and_leaves(self):
        for kind in (signal.SIGINT, signal.SIGTERM):
            name = f"interrupted{int(kind)}"
            process = start(*self.training(name, "--set", "epochs=1000"))
            self.wait_for_step(self.path(name), 2)
            process.send_signal(kind)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1)
            self.expect_words(errors, "the run is saved", "--resume")

    def test_another_recipe_is_refused(self):
        done = run(*self.training("whole", "--resume", "--set", "optimizer.lr=0.1"))
        self.expect_failure(done, "optimizer.lr", "another recipe")

    def test_full_disk(self):
        self.kill_behind_step(2, "full")
        checkpoint = self.path("full/last.safetensors")
        before = read_bytes(checkpoint)

        def little_space():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))

        done = run(*self.training("full", "--resume"), preexec_fn=little_space)
        self.expect_failure(done, "cannot write", self.path("full"))
        self.assertEqual(read_bytes(checkpoint), before)
        self.succeed(*self.training("full", "--resume"))
        self.expect_same_run(self.path("full"))


class Divided(Training):
    """Two processes on this machine, started by hand."""

    # Nothing random that differs between processes, and nothing that depends on the rest of a batch.
    ONE_STEP = [*settings("model.config.drop_path=0", "epochs=1", "batch=64", "ema=0", "clip=0"),
                "--threads", "1"]

    def start_all(self, ranks, *arguments):
        port = free_port()
        return [start(*arguments, RANK=rank, WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1",
                      MASTER_PORT=port) for rank in range(ranks)]

    def finish(self, processes, timeout=120):
        results = [process.communicate(timeout=timeout) for process in processes]
        return [(process.returncode, out, errors)
                for process, (out, errors) in zip(processes, results)]

    def succeed_together(self, ranks, *arguments):
        for code, _, errors in self.finish(self.start_all(ranks, *arguments)):
            self.assertEqual(code, 0, errors)

    def test_gradients_are_those_of_one_process(self):
        self.succeed(*self.training("one", *self.ONE_STEP))
        self.succeed_together(2, *self.training("two", *self.ONE_STEP))
        expected = gradients(self.path("one"))
        self.assertGreater(len(expected), 20)
        self.assertLess(relative_difference(expected, gradients(self.path("two"))), 1e-6)

    def test_the_head_learns_first_on_all_processes(self):
        more = [*self.ONE_STEP, "--set", "freeze_epochs=1"]
        self.succeed(*self.training("head_one", *more))
        self.succeed_together(2, *self.training("head_two", *more))
        expected = gradients(self.path("head_one"))
        for name, numbers in expected.items():
            self.assertEqual(any(numbers), "/head." in name, name)
        self.assertLess(relative_difference(expected, gradients(self.path("head_two"))), 1e-6)

    def test_processes_started_by_the_program(self):
        more = [*self.ONE_STEP, "--set", "batch=8"]
        self.succeed_together(2, *self.training("by_hand", *more))
        done = self.succeed(*self.training("by_option", "--processes", "2", *more))
        self.assertIn("2 processes", done.stdout)
        self.assertEqual(weights_of(self.path("by_hand")), weights_of(self.path("by_option")))

    def test_processes_started_by_the_program_end_together(self):
        process = start(*self.training("together", "--set", "epochs=100000", "--processes", "2",
                                       "--timeout", "20"))
        self.wait_for_log(self.path("together"))
        (child,) = read(f"/proc/{process.pid}/task/{process.pid}/children").split()
        os.kill(int(child), signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("process 1: ended by signal 'Killed'", errors)
        done = run(*self.training("none", "--processes", "2", "--set", "data.path=nowhere"))
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("nowhere"), 1, done.stderr)

    def test_uneven_shares(self):
        # 27 images in batches of 8: the last one has 3, for three processes one each; and 15 to
        # validate, of which one batch of 7 is shared unevenly.
        more = [*settings("model.config.drop_path=0", "epochs=2", "mix.mixup=0", "mix.cutmix=0"),
                "--threads", "1"]
        self.succeed(*self.training("one3", *more))
        self.succeed_together(3, *self.training("three", *more))
        one, three = (state_of(self.path(f"{name}/last.safetensors")) for name in ("one3", "three"))
        self.assertEqual(one["step"], three["step"])
        self.assertAlmostEqual(one["metrics"]["loss"], three["metrics"]["loss"], places=3)

    def test_accumulation_gives_the_same_gradients(self):
        self.succeed(*self.training("one_part", *self.ONE_STEP))
        self.succeed(*self.training("parts", *self.ONE_STEP, "--set", "accumulate=5"))
        actual = gradients(self.path("parts"))
        for name, a in gradients(self.path("one_part")).items():
            scale = max(map(abs, a)) + 1e-12
            self.assertLess(max(abs(x - y) for x, y in zip(a, actual[name])) / scale, 1e-4, name)

    def start_endless(self, name, timeout):
        processes = self.start_all(2, *self.training(name, "--set", "epochs=100000", "--timeout",
                                                     timeout))
        self.wait_for_log(self.path(name))
        return processes

    def test_a_dead_process_ends_the_other(self):
        processes = self.start_endless("dead", 20)
        processes[1].kill()
        begin = time.monotonic()
        (code, _, errors), _ = self.finish(processes, timeout=60)
        self.assertLess(time.monotonic() - begin, 40)
        self.assertNotEqual(code, 0)
        self.expect_words(errors, "lost contact", "--resume")

    def test_a_hanging_process_ends_the_other(self):
        processes = self.start_endless("hanging", 5)
        processes[1].send_signal(signal.SIGSTOP)
        try:
            _, errors = processes[0].communicate(timeout=60)
        finally:
            processes[1].kill()
            processes[1].communicate()
        self.assertNotEqual(processes[0].returncode, 0)
        self.assertIn("lost contact", errors)

    def test_environment_is_checked(self):
        self.expect_failure(run(*self.training("none"), RANK=0, WORLD_SIZE=2), "MASTER_ADDR is missing")


class BadInput(Training):
    def test_typos(self):
        self.expect_bad_settings(("epoch=3", "unknown key 'epoch'"),
                                 ("model.config.base_dims=3", "base_dims"),
                                 ("augment.flips=1", "augment.flips"),
                                 ("augmentation.flip=1", "augmentation", "did you mean 'augment'?",
                                  "augment, data, loss, mix, model, optimizer, preprocess, schedule"),
                                 ("model.name=qna_vit_tinny", "qna_vit_tinny", "qna_vit_tiny"),
                                 ("task=classify", "task", "classify"))

    def test_pattern_without_parameter(self):
        recipe = write(self.path("pattern.toml"),
                       RECIPE.format(data=self.data).replace("*relative_bias", "*rpe_bias"))
        self.expect_failure(self.train_with(recipe=recipe), "*rpe_bias", "fits no parameter")

    def test_data(self):
        empty = self.path("empty")
        shutil.copytree(self.data, empty)
        os.makedirs(f"{empty}/train/yellow")
        self.expect_bad_settings(("data.path=/none/there", "/none/there"),
                                 ('data.class_names=["a", "b"]', "class_names", "2 names"),
                                 (f"data.path={empty}", "yellow"))

    def test_broken_image(self):
        broken = self.path("broken")
        shutil.copytree(self.data, broken)
        os.truncate(f"{broken}/train/red/3.png", 200)
        self.expect_failure(self.train_with(f"data.path={broken}"), "red/3.png")
        done = self.train_with(f"data.path={broken}", "data.broken=skip")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.expect_words(done.stderr, "left out", "red/3.png")

    def test_numbers_that_are_not_finite_stop_the_run(self):
        # Pixels of 1e38 overflow in the first product.
        std = "preprocess.std=[1e-38, 1e-38, 1e-38]"
        self.expect_failure(self.train_with(std, "max_bad_steps=2"), "step 3 skipped", "not finite",
                            "max_bad_steps")
        done = self.train_with(std, "max_bad_steps=100", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("skipped"), 4)

    def test_recipes_of_the_repository_are_whole(self):
        folder = os.path.join(REPOSITORY, "recipes")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
        self.assertGreater(len(names), 5)
        for name in names:
            with self.subTest(name):
                # Keys and the model's configuration are checked before the data is looked for.
                # A teacher's answers are looked for before the pictures.
                taught = ["teacher.targets=/none/there"] if name.startswith("imagenet_taught") else []
                done = self.train_with("data.path=/none/there", *taught,
                                       recipe=os.path.join(folder, name), cwd=REPOSITORY)
                self.expect_failure(done, "/none/there")
                self.assertNotIn("recipe: ", done.stderr)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main(verbosity=1)

"""Sweeps as a user meets them: many runs from one file, killed and gone on with, tables and pages.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import re
import shutil
import signal
import sys
import time
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (SMALL_NETWORK, ProgramTest, kill_after, make_class_folders, read, read_csv,
                     run, settings, start, take_arguments, write, write_json)

REPOSITORY = ""

RECIPE = """
epochs = 2
batch = 8
checkpoint_steps = 2
ema = 0.9

""" + SMALL_NETWORK + """
[data]
path = "{data}"
keep_classes = 3

[preprocess]
resize = 0
crop = [16, 16]

[augment]
size = 16
crop_scale = [0.5, 1]

[optimizer]
lr = 0.004
lr_batch = 0

[schedule]
warmup_epochs = 1
"""

SWEEP = """
base = "small.toml"
seeds = [1, 2, 3]

[question]
title = "Do more queries help?"
text = "Rows with <more> & fewer queries."
paper = "Table 2"
against = ["parameters", "images_per_second"]

[set]
clip = 1.0

[[row]]
name = "one query"
set = { "model.config.stages.*.queries" = 1 }
paper = 80.3

[[row]]
name = "three queries"
set = { "model.config.stages.*.queries" = 3 }
paper = 80.76

[[measure]]
name = "halves"
eval = ["--batch", "4"]
numbers = ["loss"]

[[claim]]
text = "more queries are better"
better = "three queries"
than = "one query"

[[claim]]
text = "both are the same"
same = ["three queries", "one query"]
"""

COLORS = {"black": (0, 0, 0), "blue": (90, 90, 150), "green": (90, 140, 90), "red": (150, 90, 90)}


def without_timing(table):
    timing = {"images_per_second", "minutes", "peak_memory_mb"}
    return [{k: v for k, v in line.items() if k not in timing} for line in table]


class Sweep(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        make_class_folders(cls.path("data"), COLORS, 16, 16, train=6, val=8)
        write(cls.path("small.toml"), RECIPE.format(data="data"))
        cls.sweep = write(cls.path("queries.toml"), SWEEP)
        cls.whole = cls.path("whole")
        begin = time.monotonic()
        cls.done = run("sweep", cls.sweep, "-o", cls.whole, "--threads", 1)
        cls.seconds = time.monotonic() - begin

    def test_table(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        table = read_csv(f"{self.whole}/queries/rows.csv")
        self.assertEqual([line["row"] for line in table], ["one query", "three queries"])
        for line in table:
            self.assertEqual(line["runs"], "3")
            for name in ("top1", "top1_deviation", "loss", "images_per_second", "minutes"):
                float(line[name])
            self.assertGreater(float(line["peak_memory_mb"]), 20)
        self.assertGreater(int(table[1]["parameters"]), int(table[0]["parameters"]))
        runs = read_csv(f"{self.whole}/queries/runs.csv")
        self.assertEqual(len(runs), 6)
        mean = sum(float(line["top1"]) for line in runs if line["row"] == "one query") / 3
        self.assertAlmostEqual(float(table[0]["top1"]), mean, places=3)
        # The numbers are those of the runs' own logs, and of qna eval.
        folder = f"{self.whole}/queries/one-query/seed-1"
        last = [json.loads(line) for line in read(f"{folder}/log.jsonl").splitlines()][-1]
        self.assertAlmostEqual(last["metrics"]["top1"], float(runs[0]["top1"]), places=5)
        self.assertAlmostEqual(last["metrics"]["loss"], float(runs[0]["loss"]), places=5)
        again = self.succeed("eval", f"{folder}/last.safetensors", self.path("data"), "--json")
        self.assertAlmostEqual(json.loads(again.stdout)["loss"], float(runs[0]["loss"]), places=4)
        self.expect_words(self.done.stdout, "6 of 6 runs are left, about", "more queries are better",
                          "both are the same", "beside the first", "80.76", "+0.46")

    def test_page(self):
        page = read(f"{self.whole}/queries/sweep.html")
        xml.etree.ElementTree.fromstring(page.split("\n", 1)[1])
        self.expect_words(page, "Do more queries help?", "&lt;more&gt; &amp; fewer", "6 of 6 runs",
                          "80.76", "here and in the paper", "top1 against parameters", "<svg")

    def test_killed_ten_times_it_gives_the_same_table(self):
        out = self.path("killed")
        moments = random.Random(7)
        for _ in range(10):
            kill_after(moments.uniform(0.2, 0.45 * self.seconds), "sweep", self.sweep, "-o", out,
                       "--threads", 1)
        self.succeed("sweep", self.sweep, "-o", out, "--threads", 1)
        for name in ("rows.csv", "runs.csv"):
            self.assertEqual(without_timing(read_csv(f"{out}/queries/{name}")),
                             without_timing(read_csv(f"{self.whole}/queries/{name}")))

    def test_stopped_it_goes_on_with_two_at_a_time(self):
        out = self.path("stopped")
        process = start("sweep", self.sweep, "-o", out, "--parallel", 2, "--threads", 1)
        self.wait_until(lambda: os.path.exists(f"{out}/queries/three-queries/seed-1/log.jsonl"),
                        "no second run was begun")
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        self.expect_words(errors, "the runs are saved. The same command goes on")
        self.succeed("sweep", self.sweep, "-o", out, "--parallel", 2, "--threads", 1)
        self.assertEqual(without_timing(read_csv(f"{out}/queries/rows.csv")),
                         without_timing(read_csv(f"{self.whole}/queries/rows.csv")))

    def test_finished_runs_stay(self):
        log = f"{self.whole}/queries/one-query/seed-2/log.jsonl"
        before = os.stat(log).st_mtime_ns
        done = self.succeed("sweep", self.sweep, "-o", self.whole, "--threads", 1)
        self.expect_words(done.stdout, "0 of 6 runs are left")
        self.assertEqual(os.stat(log).st_mtime_ns, before)
        os.remove(f"{self.whole}/queries/sweep.html")
        done = self.succeed("sweep", self.sweep, "-o", self.whole, "--report")
        self.assertTrue(os.path.exists(f"{self.whole}/queries/sweep.html"))
        self.assertNotIn("estimated", done.stdout)

    def test_dry_run_of_a_folder(self):
        folder = self.path("many")
        os.makedirs(folder)
        write(os.path.join(folder, "b.toml"),
              'base = "../small.toml"\nseeds = [5]\n[grid]\n"model.config.stages.*.queries" = [1, 2]\n'
              '"model.config.stages.*.kernel_size" = [3, 5]\n')
        write(os.path.join(folder, "a.toml"), SWEEP.replace("small.toml", "../small.toml"))
        out = self.path("dry")
        done = self.succeed("sweep", folder, "--dry-run", "-o", out, "--set", "epochs=3")
        self.expect_words(done.stdout, "one query", "kernel_size 5, queries 2", "4 of 4 runs are left",
                          "2 sweeps, about", "(estimated)")
        self.assertLess(done.stdout.index("a: Do"), done.stdout.index("b: b"))
        self.assertFalse(os.path.exists(f"{out}/a/one-query"))

    def test_mistakes(self):
        def fails(text, *words):
            done = run("sweep", write(self.path("wrong.toml"), text), "-o", self.path("wrong"))
            self.expect_refusal(done, *words)
        fails(SWEEP.replace("seeds", "seed"), "unknown key 'seed'; did you mean 'seeds'?")
        fails(SWEEP.replace('than = "one query"', 'than = "one querry"'), "did you mean 'one query'?")
        fails(SWEEP.replace("stages.*.queries", "stages.9.queries"), "'model.config.stages' is a list of 2")
        fails(SWEEP.replace("stages.*.queries", "stages.*.querys"), "wrong, row 'one query'",
              "did you mean 'queries'?")
        fails(SWEEP.replace('"small.toml"', '"smal"'), "there is no recipe 'smal'")
        self.expect_refusal(run("sweep"), "name a sweep")
        self.expect_refusal(run("sweep", "querries"), "did you mean 'queries'?")

    def test_known_runs_are_not_made_again(self):
        # From a table alone, as it comes from another machine; another row asks for the same run.
        table = self.path("known.csv")
        lines = read(f"{self.whole}/queries/runs.csv").splitlines()
        write(table, "\n".join(lines[:-1]) + "\n")
        twin = SWEEP.replace("one query", "a single one").replace("more queries are", "many are")
        write(self.path("again.toml"), twin)
        out = self.path("known")
        arguments = ["sweep", self.sweep, self.path("again.toml"), "-o", out, "--threads", 1, "--known", table]
        plan = self.succeed(*arguments, "--dry-run").stdout
        self.expect_words(plan, "1 of 6 runs are left", "0 of 6")
        self.assertNotIn("nan", plan)
        self.succeed(*arguments)
        for name in ("queries", "again"):
            self.assertEqual([{**line, "row": ""} for line in without_timing(read_csv(f"{out}/{name}/runs.csv"))],
                             [{**line, "row": ""} for line in
                              without_timing(read_csv(f"{self.whole}/queries/runs.csv"))])
        made = [folder for folder, _, files in os.walk(out) if "log.jsonl" in files]
        self.assertEqual(made, [f"{out}/queries/three-queries/seed-3"])
        # It stays without the table; another recipe does not take it.
        self.expect_words(self.succeed("sweep", self.sweep, "-o", out, "--report").stdout, "both are the same")
        self.expect_failure(run("sweep", self.sweep, "-o", out, "--set", "clip=2.0"), "of another recipe")
        other = write(self.path("other.csv"), "row,top1\nx,1\n")
        self.expect_refusal(run("sweep", self.sweep, "--known", other), "must begin with row,seed,recipe")
        self.expect_refusal(run("sweep", self.sweep, "--known", self.path("data")), "there is no runs.csv")

    def test_two_sweeps_at_work_share_their_runs(self):
        write(self.path("again.toml"), SWEEP)
        out = self.path("shared")
        self.succeed("sweep", self.sweep, self.path("again.toml"), "-o", out, "--seeds", 1, "--parallel", 2,
                     "--threads", 1)
        self.assertEqual(len([folder for folder, _, files in os.walk(out) if "log.jsonl" in files]), 2)
        for name in ("queries", "again"):
            self.assertEqual(len(read_csv(f"{out}/{name}/runs.csv")), 2)

    def test_what_is_trained_is_measured_and_named_by_what_it_was(self):
        out = self.path("unmeasured")
        shutil.copytree(self.whole, out)
        folder = f"{out}/queries/one-query/seed-1"
        os.remove(f"{folder}/measure-halves.json")
        record = json.loads(read(f"{folder}/sweep.json"))
        write_json(f"{folder}/sweep.json", {**record, "recipe": "00000000"})
        self.succeed("sweep", self.sweep, "-o", out, "--known", self.whole, "--threads", 1)
        self.assertFalse(os.path.exists(f"{folder}/taken.json"))
        lines = read_csv(f"{out}/queries/runs.csv")
        self.assertEqual(len(lines), 6)
        self.assertEqual(lines[0]["recipe"], "00000000")

    def test_a_run_of_another_recipe_is_refused(self):
        done = run("sweep", self.sweep, "-o", self.whole, "--set", "clip=2.0")
        self.expect_failure(done, "one-query/seed-1", "was made with another clip", "--out")

    def test_a_failed_run_is_told(self):
        text = SWEEP.replace('set = { "model.config.stages.*.queries" = 3 }',
                             'set = { "optimizer.group" = [{ match = "*nothing*" }] }')
        done = run("sweep", write(self.path("failing.toml"), text), "-o", self.path("failing"))
        self.expect_failure(done, "three queries, seed 2 failed", "*nothing*", "3 runs failed")
        self.assertEqual(read_csv(f"{self.path('failing')}/failing/rows.csv")[0]["runs"], "3")

    def test_the_sweeps_that_come_along(self):
        done = self.succeed("sweep", "--list")
        self.expect_words(done.stdout, "queries", "rows, 3 seeds")
        picture = {"id": 1, "file_name": "train/red/0.png", "width": 16, "height": 16}
        truth = {"images": [picture], "annotations": [], "categories": [{"id": 1, "name": "cell"}]}
        boxes = write_json(self.path("boxes.json"), truth)
        data = self.path("data")
        sets = {"tiny_imagenet": [f"data.path={data}", "data.keep_classes=0"],
                "faces_qna": [f"data.path={data}", "data.val_count=1"],
                "bccd_anchors": [f"data.path={data}", f"data.train={boxes}", "data.train_images=."]}
        sets["bccd_anchors_qna"] = sets["bccd_anchors"]
        for name in sorted(os.listdir(f"{REPOSITORY}/recipes/sweeps")):
            sweep = f"{REPOSITORY}/recipes/sweeps/{name}"
            base = re.search(r'(?m)^base = "../(\w+).toml"', read(sweep)).group(1)
            # Every row is a network that can be trained: only then --report looks for the runs.
            done = run("sweep", sweep, "--report", "-o", self.path("nowhere"), *settings(*sets[base]))
            self.expect_refusal(done, "has the sweep been run?")

    def test_the_papers_numbers(self):
        """They are those of the lists of its ablations and of its detectors."""
        def numbers(text):
            return {float(number) for number in text}
        known = numbers(number for name in ("ablations", "detectors")
                        for number in re.findall(r"\b\d\d\.\d+", read(f"{REPOSITORY}/qna/config/{name}.cc")))
        for name in sorted(os.listdir(f"{REPOSITORY}/recipes/sweeps")):
            text = read(f"{REPOSITORY}/recipes/sweeps/{name}")
            self.assertLessEqual(numbers(re.findall(r"(?m)^paper = ([\d.]+)$", text)), known, name)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main()

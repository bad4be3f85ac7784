"""The command line as a user meets it: exit status, what goes to stdout, what to stderr.

Run by CTest with the path of the program; standard library only.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def run(*arguments, **environment):
    """The finished process; QNA_KERNEL is unset unless given."""
    variables = {k: v for k, v in os.environ.items() if k != "QNA_KERNEL"}
    variables.update(environment)
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=240,
                          env=variables)


BENCH = ["bench", "layer", "--kernel", "3", "--size", "32", "--dim", "16", "--heads", "2",
         "--rounds", "1"]


class Help(unittest.TestCase):
    def test_lists_the_verbs(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "")
        for verb in ("models", "info", "import", "predict", "attend", "features", "kernels", "bench",
                     "coco-eval"):
            self.assertIn(verb, done.stdout)

    def test_every_verb_has_help(self):
        for verb in (["models"], ["info"], ["import"], ["predict"], ["attend"], ["features"],
                     ["kernels"], ["coco-eval"], ["bench"], ["bench", "detect"], ["bench", "layer"],
                     ["bench", "loader"], ["bench", "model"]):
            done = run(*verb, "--help")
            self.assertEqual(done.returncode, 0, verb)
            self.assertIn("--help", done.stdout)
        self.assertIn("--csv", run("bench", "layer", "--help").stdout)


class Mistakes(unittest.TestCase):
    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def test_no_verb(self):
        self.expect_failure(run(), "subcommand")

    def test_unknown_verb(self):
        self.expect_failure(run("fly"), "fly")

    def test_unknown_flag(self):
        self.expect_failure(run("kernels", "--colour"), "--colour")
        self.expect_failure(run(*BENCH, "--kernels", "3"), "--kernels")

    def test_value_out_of_range(self):
        self.expect_failure(run("bench", "layer", "--kernel", "0"), "--kernel")
        self.expect_failure(run("bench", "layer", "--dtype", "int8"), "--dtype", "int8")
        self.expect_failure(run("bench", "layer", "--size", "many"), "--size", "many")

    def test_attend(self):
        self.expect_failure(run("attend", "no.safetensors", "--out", "maps"),
                            "no pictures", "no.safetensors")
        self.expect_failure(run("attend", "no.safetensors", "cat.jpg", "--out", "maps"),
                            "no.safetensors")
        self.expect_failure(run("attend", "no.safetensors", "cat.jpg", "--out", "maps",
                                "--opacity", "3"), "--opacity", "3")

    def test_heads_that_do_not_divide(self):
        self.expect_failure(run("bench", "layer", "--dim", "16", "--heads", "3"), "--heads", "16",
                            "3")

    def test_unknown_kernel_in_the_environment(self):
        done = run("kernels", QNA_KERNEL="nonsense")
        self.expect_failure(done, "QNA_KERNEL", "nonsense", "reference")
        self.expect_failure(run(*BENCH, QNA_KERNEL="nonsense"), "QNA_KERNEL", "nonsense")

    def test_csv_that_cannot_be_written(self):
        done = run(*BENCH, "--csv", "/nonexistent/x.csv")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nonexistent/x.csv", done.stderr)


class Kernels(unittest.TestCase):
    def chosen(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()[1:]
        self.assertEqual(lines[0].split()[0], "reference")
        marked = [line.split()[0] for line in lines if line.rstrip().endswith("*")]
        self.assertEqual(len(marked), 1)
        return marked[0]

    def test_one_is_chosen(self):
        self.assertNotEqual(self.chosen(run("kernels")), "reference")

    def test_environment_chooses(self):
        self.assertEqual(self.chosen(run("kernels", QNA_KERNEL="reference")), "reference")


class BenchLayer(unittest.TestCase):
    def test_table_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.csv")
            done = run(*BENCH, "--threads", "1", "--csv", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "")
            self.assertIn("1x32x32x16", done.stdout)
            self.assertIn(path, done.stdout)
            self.assertEqual(os.listdir(folder), ["layer.csv"])
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        # Forward: qna, composite, conv and two products; training: qna, composite, conv.
        found = sorted((row["pass"], row["subject"]) for row in rows)
        self.assertEqual(found, sorted([("forward", "qna"), ("forward", "composite"),
                                        ("forward", "conv"), ("forward", "gemm"),
                                        ("forward", "gemm"), ("train", "qna"),
                                        ("train", "composite"), ("train", "conv")]))
        for row in rows:
            self.assertNotIn(None, row)  # no more cells than the header has
            self.assertNotIn(None, row.values())  # and no fewer
            self.assertEqual((row["kernel"], row["height"], row["width"], row["dim"], row["heads"],
                              row["threads"]), ("3", "32", "32", "16", "2", "1"))
            self.assertGreater(float(row["min_ms"]), 0)
            self.assertGreaterEqual(float(row["median_ms"]), float(row["min_ms"]))
            if row["subject"] == "qna":
                self.assertNotEqual(row["implementation"], "torch")

    def test_environment_chooses_the_kernel(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.csv")
            done = run(*BENCH, "--peer", "none", "--pass", "forward", "--csv", path,
                       QNA_KERNEL="reference")
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual([row["implementation"] for row in rows], ["reference"])

    def test_lists_multiply(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.csv")
            done = run("bench", "layer", "--kernel", "2,3", "--size", "9,14", "--dim", "6",
                       "--heads", "3", "--rounds", "1", "--threads", "1,2", "--peer", "none",
                       "--csv", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 2 * 2 * 2)  # windows, passes, thread counts
        self.assertEqual({(row["height"], row["width"]) for row in rows}, {("9", "14")})


class Study(unittest.TestCase):
    """The cost study, on the smallest plan and only what needs no Python."""

    def test_worker(self):
        case = ('case {"kernel": 3, "height": 16, "width": 16, "dim": 16, "heads": 8, "queries": 2, '
                '"pass": "train", "file": ""}')
        done = subprocess.run([PROGRAM, "bench", "study-worker", "--subject", "qna", "--threads", "1"],
                              input=f"{case}\nrun 2\nrelease\n", capture_output=True, text=True,
                              timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        for answer, key in zip(answers, ("ready", "case", "seconds", "released"), strict=True):
            self.assertIn(key, answer)
        self.assertGreaterEqual(answers[1]["peak_bytes"], answers[1]["wanted_bytes"])
        self.assertGreaterEqual(answers[1]["wanted_bytes"], 2 * 16 * 16 * 16 * 4)
        self.assertLess(answers[1]["max_difference"], 1e-6)
        done = subprocess.run([PROGRAM, "bench", "study-worker", "--subject", "qna"], input="walk\n",
                              capture_output=True, text=True, timeout=240)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("walk", done.stdout)

    def test_mistakes(self):
        for arguments, words in ((["--figures", "f"], ["--figures", "--study"]),
                                 (["--study", "--kernel", "3"], ["--study", "--kernel"]),
                                 (["--study", "--models"], ["--study", "--models"]),
                                 (["--study", "--subject", "nonsense"], ["nonsense", "py-halo"]),
                                 (["--study", "--resume"], ["--resume", "--csv"]),
                                 (["--study", "--threads", "1,2"], ["--threads"]),
                                 (["--study", "--from", "none.csv"], ["none.csv"]),
                                 (["--study", "--from", __file__], ["no table of the cost study"])):
            done = run("bench", "layer", *arguments)
            self.assertNotEqual(done.returncode, 0, arguments)
            self.assertEqual(done.stdout, "")
            for word in words:
                self.assertIn(word, done.stderr)

    def test_measures_resumes_and_redraws(self):
        with tempfile.TemporaryDirectory() as folder:
            path, figures = os.path.join(folder, "study.csv"), os.path.join(folder, "figures")
            study = ["bench", "layer", "--study", "--quick", "--subject", "qna,sasa", "--pass", "forward",
                     "--rounds", "1", "--csv", path]
            done = run(*study)
            self.assertEqual(done.returncode, 0, done.stderr)
            for words in ("### Claims", "### Growth", "### Window, forward", "| SASA, fused"):
                self.assertIn(words, done.stdout)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual({row["subject"] for row in rows}, {"qna", "sasa"})
            self.assertEqual({row["skipped"] for row in rows}, {""})
            # Everything is there already, so that nothing is measured, and the numbers stay.
            self.assertEqual(run(*study, "--resume").stdout, done.stdout)
            again = run("bench", "layer", "--study", "--from", path, "--figures", figures)
            self.assertEqual(again.stdout, done.stdout)
            self.assertEqual(sorted(os.listdir(figures)),
                             [f"study-{what}-forward.{ending}"
                              for what in ("memory-window", "time-pixels", "time-window")
                              for ending in ("png", "svg")])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()

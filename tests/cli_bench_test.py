"""The benchmarks, as a user meets them: `qna bench`, which is the program qna-bench beside qna.

Run by CTest with the path of the program qna; standard library only.
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
    def test_every_verb_has_help(self):
        for verb in ([], ["detect"], ["layer"], ["loader"], ["model"], ["upsample"]):
            done = run("bench", *verb, "--help")
            self.assertEqual(done.returncode, 0, verb)
            self.assertIn("--help", done.stdout)
            self.assertIn("qna bench", done.stdout)
            self.assertNotIn("worker", done.stdout)  # they are not for people
        self.assertIn("--csv", run("bench", "layer", "--help").stdout)

    def test_version(self):
        self.assertRegex(run("bench", "--version").stdout, r"^qna-bench 0\.1\.0, commit \S+\n$")

    def test_by_its_own_name(self):
        done = subprocess.run([os.path.join(os.path.dirname(PROGRAM), "qna-bench"), "fly"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("qna-bench: unknown verb 'fly'", done.stderr)


class Mistakes(unittest.TestCase):
    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def test_verbs_and_flags(self):
        self.expect_failure(run("bench"), "subcommand")
        self.expect_failure(run("bench", "fly"), "qna: unknown verb 'fly'", "'qna bench --help'")
        self.expect_failure(run(*BENCH, "--kernels", "3"), "--kernels")

    def test_value_out_of_range(self):
        self.expect_failure(run("bench", "layer", "--kernel", "0"), "--kernel")
        self.expect_failure(run("bench", "layer", "--dtype", "int8"), "--dtype", "int8")
        self.expect_failure(run("bench", "layer", "--size", "many"), "--size", "many")

    def test_heads_that_do_not_divide(self):
        self.expect_failure(run("bench", "layer", "--dim", "16", "--heads", "3"), "--heads", "16",
                            "3")

    def test_unknown_kernel_in_the_environment(self):
        self.expect_failure(run(*BENCH, QNA_KERNEL="nonsense"), "QNA_KERNEL", "nonsense")

    def test_csv_that_cannot_be_written(self):
        done = run(*BENCH, "--csv", "/nonexistent/x.csv")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("/nonexistent/x.csv", done.stderr)


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


class BenchModel(unittest.TestCase):
    def test_table_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.csv")
            done = run("bench", "model", "--model", "qna_vit_pico", "--batch", "1,2", "--peer",
                       "none", "--rounds", "1", "--image", "32,40x24", "--csv", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual([(row["batch"], row["image"]) for row in rows],
                         [("1", "32"), ("1", "40x24"), ("2", "32"), ("2", "40x24")])
        for row in rows:
            self.assertEqual(row["subject"], "qna")
            self.assertGreater(float(row["images_per_second"]), 0)
            self.assertGreater(int(row["peak_bytes"]), 0)

    def test_mistakes(self):
        done = run("bench", "model", "--model", "nonsense", "--peer", "none")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("nonsense", done.stderr)


class BenchDetect(unittest.TestCase):
    def test_table_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "detect.csv")
            done = run("bench", "detect", "--model", "detr_qna_tiny", "--peer", "none", "--rounds", "1",
                       "--image", "64", "--threads", "1", "--csv", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual([(row["subject"], row["model"], row["batch"], row["image"]) for row in rows],
                         [("qna-train", "detr_qna_tiny", "2", "64"),
                          ("qna-detect", "detr_qna_tiny", "1", "64")])
        for row in rows:
            self.assertGreater(float(row["images_per_second"]), 0)
            self.assertGreater(int(row["peak_bytes"]), 0)

    def test_mistakes(self):
        for arguments, words in ((["--model", "detr_r9"], ["detr_r9", "detr_r50"]),
                                 (["--pass", "predict"], ["--pass", "predict"]),
                                 (["--image", "64x32"], ["--image", "square", "64x32"])):
            done = run("bench", "detect", *arguments)
            self.assertNotEqual(done.returncode, 0)
            for word in words:
                self.assertIn(word, done.stderr)


class BenchUpsample(unittest.TestCase):
    def test_table_and_csv(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "upsample.csv")
            done = run("bench", "upsample", "--size", "8", "--dim", "16", "--heads", "4", "--factor",
                       "2,3,4", "--rounds", "1", "--csv", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                self.assertEqual(len(file.readlines()), 1 + 3 * 3 * 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()

"""The benchmarks, as a user meets them: `qna bench`, which is the program qna-bench beside qna.

Run by CTest with the path of the program qna; standard library only.
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import program
from program import ProgramTest, read, read_csv, run, take_arguments

LAYER = ["layer", "--kernel", "3", "--size", "32", "--dim", "16", "--heads", "2", "--rounds", "1"]


class Bench(ProgramTest):
    def measure(self, *arguments, **environment):
        """What a benchmark prints, and its rows."""
        path = self.path(f"{self.id()}.csv")
        done = self.succeed("bench", *arguments, "--csv", path, **environment)
        return done, path, read_csv(path)

    def expect_speed_and_memory(self, rows):
        for row in rows:
            self.assertGreater(float(row["images_per_second"]), 0)
            self.assertGreater(int(row["peak_bytes"]), 0)

    def expect_refusals(self, verb, *mistakes):
        for arguments, words in mistakes:
            with self.subTest(arguments):
                self.expect_refusal(run("bench", *verb, *arguments), *words)


class Help(Bench):
    def test_every_verb_has_help(self):
        for verb in ([], ["detect"], ["guard"], ["layer"], ["loader"], ["model"], ["product"], ["upsample"]):
            with self.subTest(verb):
                done = self.succeed("bench", *verb, "--help")
                self.expect_words(done.stdout, "--help", "qna bench")
                self.assertNotIn("worker", done.stdout)  # they are not for people
        self.assertIn("--csv", run("bench", "layer", "--help").stdout)

    def test_version(self):
        self.assertRegex(run("bench", "--version").stdout, r"^qna-bench 0\.1\.0, commit \S+\n$")

    def test_by_its_own_name(self):
        bench = os.path.join(os.path.dirname(program.PATH), "qna-bench")
        self.expect_failure(run("fly", program=bench), "qna-bench: unknown verb 'fly'", status=2)


class Mistakes(Bench):
    def test_verbs_and_flags(self):
        self.expect_refusals([], ([], ["subcommand"]),
                             (["fly"], ["qna: unknown verb 'fly'", "'qna bench --help'"]),
                             ([*LAYER, "--kernels", "3"], ["--kernels"]))

    def test_value_out_of_range(self):
        self.expect_refusals(["layer"], (["--kernel", "0"], ["--kernel"]),
                             (["--dtype", "int8"], ["--dtype", "int8"]),
                             (["--size", "many"], ["--size", "many"]))

    def test_heads_that_do_not_divide(self):
        self.expect_refusals(["layer"], (["--dim", "16", "--heads", "3"], ["--heads", "16", "3"]))

    def test_unknown_kernel_in_the_environment(self):
        self.expect_refusal(run("bench", *LAYER, QNA_KERNEL="nonsense"), "QNA_KERNEL", "nonsense")

    def test_csv_that_cannot_be_written(self):
        self.expect_failure(run("bench", *LAYER, "--csv", "/nonexistent/x.csv"), "/nonexistent/x.csv")


class BenchLayer(Bench):
    def test_table_and_csv(self):
        done, path, rows = self.measure(*LAYER, "--threads", "1")
        self.assertEqual(done.stderr, "")
        self.expect_words(done.stdout, "1x32x32x16", path)
        beside = [name for name in os.listdir(self.folder) if name.startswith(self.id())]
        self.assertEqual(beside, [os.path.basename(path)])
        # Forward: qna, composite, conv and the products by LibTorch and by us; training: one of these less.
        found = sorted((row["pass"], row["subject"]) for row in rows)
        self.assertEqual(found, sorted([("forward", "qna"), ("forward", "composite"),
                                        ("forward", "conv"), ("forward", "gemm"),
                                        ("forward", "gemm"), ("train", "qna"),
                                        ("train", "composite"), ("train", "conv"),
                                        ("train", "gemm")]))
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
        _, _, rows = self.measure(*LAYER, "--peer", "none", "--pass", "forward", QNA_KERNEL="reference")
        self.assertEqual([row["implementation"] for row in rows], ["reference"])

    def test_lists_multiply(self):
        _, _, rows = self.measure("layer", "--kernel", "2,3", "--size", "9,14", "--dim", "6", "--heads",
                                  "3", "--rounds", "1", "--threads", "1,2", "--peer", "none")
        self.assertEqual(len(rows), 2 * 2 * 2)  # windows, passes, thread counts
        self.assertEqual({(row["height"], row["width"]) for row in rows}, {("9", "14")})


class Study(Bench):
    """The cost study, on the smallest plan and only what needs no Python."""

    def test_worker(self):
        case = ('case {"kernel": 3, "height": 16, "width": 16, "dim": 16, "heads": 8, "queries": 2, '
                '"pass": "train", "file": ""}')
        worker = ["bench", "study-worker", "--subject", "qna"]
        done = self.succeed(*worker, "--threads", "1", input=f"{case}\nrun 2\nrelease\n")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        for answer, key in zip(answers, ("ready", "case", "seconds", "released"), strict=True):
            self.assertIn(key, answer)
        self.assertGreaterEqual(answers[1]["peak_bytes"], answers[1]["wanted_bytes"])
        self.assertGreaterEqual(answers[1]["wanted_bytes"], 2 * 16 * 16 * 16 * 4)
        self.assertLess(answers[1]["max_difference"], 1e-6)
        done = run(*worker, input="walk\n")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("walk", done.stdout)

    def test_mistakes(self):
        self.expect_refusals(["layer"], (["--figures", "f"], ["--figures", "--study"]),
                             (["--study", "--kernel", "3"], ["--study", "--kernel"]),
                             (["--study", "--models"], ["--study", "--models"]),
                             (["--study", "--subject", "nonsense"], ["nonsense", "py-halo"]),
                             (["--study", "--resume"], ["--resume", "--csv"]),
                             (["--study", "--threads", "1,2"], ["--threads"]),
                             (["--study", "--from", "none.csv"], ["none.csv"]),
                             (["--study", "--from", __file__], ["no table of the cost study"]))

    def test_measures_resumes_and_redraws(self):
        study = ["layer", "--study", "--quick", "--subject", "qna,sasa", "--pass", "forward", "--rounds",
                 "1"]
        done, path, rows = self.measure(*study)
        self.expect_words(done.stdout, "### Claims", "### Growth", "### Window, forward",
                          "| SASA, fused")
        self.assertEqual({row["subject"] for row in rows}, {"qna", "sasa"})
        self.assertEqual({row["skipped"] for row in rows}, {""})
        # Everything is there already, so that nothing is measured, and the numbers stay.
        self.assertEqual(self.measure(*study, "--resume")[0].stdout, done.stdout)
        figures = self.path("figures")
        again = run("bench", "layer", "--study", "--from", path, "--figures", figures)
        self.assertEqual(again.stdout, done.stdout)
        self.assertEqual(sorted(os.listdir(figures)),
                         [f"study-{what}-forward.svg"
                          for what in ("memory-window", "time-pixels", "time-window")])


class BenchModel(Bench):
    def test_table_and_csv(self):
        _, _, rows = self.measure("model", "--model", "qna_vit_pico", "--batch", "1,2", "--peer",
                                  "none", "--rounds", "1", "--image", "32,40x24")
        self.assertEqual([(row["subject"], row["batch"], row["image"]) for row in rows],
                         [("qna", "1", "32"), ("qna", "1", "40x24"), ("qna", "2", "32"),
                          ("qna", "2", "40x24")])
        self.expect_speed_and_memory(rows)

    def test_weights_in_16_bits(self):
        _, _, rows = self.measure("model", "--model", "qna_vit_pico", "--batch", "1", "--peer", "bfloat16",
                                  "--rounds", "1")
        self.assertEqual([row["subject"] for row in rows], ["qna", "qna-bfloat16"])
        self.expect_speed_and_memory(rows)

    def test_mistakes(self):
        self.expect_failure(run("bench", "model", "--model", "nonsense", "--peer", "none"), "nonsense")
        self.expect_failure(run("bench", "model", "--train", "--peer", "bfloat16"), "--peer", "bfloat16")


class BenchDetect(Bench):
    def test_table_and_csv(self):
        _, _, rows = self.measure("detect", "--model", "detr_qna_tiny", "--peer", "none", "--rounds",
                                  "1", "--image", "64", "--threads", "1")
        self.assertEqual([(row["subject"], row["model"], row["batch"], row["image"]) for row in rows],
                         [("qna-train", "detr_qna_tiny", "2", "64"),
                          ("qna-detect", "detr_qna_tiny", "1", "64")])
        self.expect_speed_and_memory(rows)

    def test_mistakes(self):
        self.expect_refusals(["detect"], (["--model", "detr_r9"], ["detr_r9", "detr_r50"]),
                             (["--pass", "predict"], ["--pass", "predict"]),
                             (["--image", "64x32"], ["--image", "square", "64x32"]))


class BenchUpsample(Bench):
    def test_table_and_csv(self):
        _, path, _ = self.measure("upsample", "--size", "8", "--dim", "16", "--heads", "4", "--factor",
                                  "2,3,4", "--rounds", "1")
        self.assertEqual(len(read(path).splitlines()), 1 + 3 * 3 * 2)


class Product(Bench):
    def test_table_and_csv(self):
        done, _, rows = self.measure("product", "--model", "qna_vit_pico", "--batch", "1", "--rounds", "1")
        self.expect_words(done.stdout, "oneDNN", "geometric mean")
        self.assertGreater(len(rows), 5)
        for row in rows:
            best = min(float(row["mkl_ms"]), float(row["onednn_ms"]))
            self.assertAlmostEqual(float(row["ratio"]), best / float(row["own_ms"]), delta=0.1 * float(row["ratio"]))

    def test_mistakes(self):
        self.expect_refusals(["product"], (["--model", "qna_vit_huge"], ["qna_vit_huge"]))


class Guard(Bench):
    def test_names_what_became_slow(self):
        path = self.path("guard.csv")
        rounds = ["--rounds", "1"]
        self.expect_refusals(["guard"], (["--file", path], [path, "--update"]))
        self.succeed("bench", "guard", "--file", path, "--update", *rounds)
        rows = read(path).splitlines()
        self.assertEqual(rows[1], "case,implementation,threads,speed")
        # As if one case had been a hundred times as fast, and the others slow.
        changed = rows[:2]
        for row in rows[2:]:
            name, speed = row.rsplit(",", 1)
            changed.append(f"{name},{float(speed) * (100 if name.startswith('layer up') else 0.01)}")
        with open(path, "w") as file:
            file.write("\n".join(changed))
        done = run("bench", "guard", "--file", path, *rounds)
        self.expect_failure(done, "slower than 0.85", "layer up")
        self.assertNotIn("sasa", done.stderr)
        with open(path, "w") as file:
            file.write("layer up,avx2")
        self.expect_failure(run("bench", "guard", "--file", path, *rounds), path, "speed")


if __name__ == "__main__":
    take_arguments(folder=False)
    unittest.main()

"""The verb coco-eval, as a user meets it.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
TESTS = ""

NAMES = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]

# What pycocotools 2.0.11 prints.
LINES = """\
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.505
 Average Precision  (AP) @[ IoU=0.50      | area=   all | maxDets=100 ] = 0.697
 Average Precision  (AP) @[ IoU=0.75      | area=   all | maxDets=100 ] = 0.573
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.586
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.519
 Average Precision  (AP) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.501
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=  1 ] = 0.387
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets= 10 ] = 0.594
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.595
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= small | maxDets=100 ] = 0.640
 Average Recall     (AR) @[ IoU=0.50:0.95 | area=medium | maxDets=100 ] = 0.566
 Average Recall     (AR) @[ IoU=0.50:0.95 | area= large | maxDets=100 ] = 0.564
"""


def run(*arguments):
    return subprocess.run([PROGRAM, "coco-eval", *arguments], capture_output=True, text=True,
                          timeout=240)


def coco(name):
    return os.path.join(TESTS, "coco", name)


def val2014():
    return coco("val2014_100_gt.json"), coco("val2014_100_fakebbox_results.json")


def golden(name):
    with open(coco("golden.json")) as file:
        return json.load(file)[name]


class CocoEval(unittest.TestCase):
    def test_lines(self):
        for threads in ("1", "2", "7"):
            done = run(*val2014(), "--threads", threads)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout, LINES)

    def test_per_category(self):
        done = run(coco("small_gt.json"), coco("small_dt.json"), "--per-category")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 12 + 1 + 1 + 4)
        self.assertEqual(lines[13].split(),
                         ["id", "category", "objects", *NAMES[:6], "AR100"])
        expected = golden("small")["categories"]
        for line, value in zip(lines[14:], expected):
            self.assertEqual(line.split()[3], f"{value:.3f}")
        self.assertEqual(lines[14].split()[:2], ["1", "cloud"])
        self.assertIn(" -", lines[14])  # no small object

    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "numbers.json")
            done = run(*val2014(), "--json", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, LINES)
            self.assertEqual(os.listdir(folder), ["numbers.json"])
            with open(path) as file:
                numbers = json.load(file)
        expected = golden("val2014_100")
        for name, value in zip(NAMES, expected["numbers"]):
            self.assertAlmostEqual(numbers[name], value, delta=1e-9)
        self.assertEqual(len(numbers["categories"]), 80)
        for row, value in zip(numbers["categories"], expected["categories"]):
            self.assertAlmostEqual(row["AP"], value, delta=1e-9)
        self.assertEqual(numbers["categories"][79]["name"], "toothbrush")
        self.assertEqual(numbers["categories"][79]["id"], 90)


class Files(unittest.TestCase):
    """What a user's own files can be like."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.truth = {"images": [{"id": 1, "width": 9, "height": 9}],
                      "categories": [{"id": 1, "name": "red\x1b[31m"}],
                      "annotations": [{"id": 0, "image_id": 1, "category_id": 1,
                                       "bbox": [0, 0, 5, 5]}]}
        self.found = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 1}]

    def run_on(self, *options):
        paths = []
        for name, content in (("gt.json", self.truth), ("dt.json", self.found)):
            paths.append(os.path.join(self.folder.name, name))
            with open(paths[-1], "w") as file:
                json.dump(content, file)
        return run(*paths, *options)

    def expect_failure(self, done, *words):
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)

    def test_oddities(self):
        done = self.run_on("--oddities")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gt.json: 1 annotations have the id 0", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 12)
        self.assertEqual(self.run_on().stderr, "")

    def test_names_do_not_steer_the_terminal(self):
        done = self.run_on("--per-category")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("\x1b", done.stdout)
        self.assertIn("red", done.stdout)

    def test_nothing_found(self):
        self.found = []
        done = self.run_on()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("maxDets=100 ] = 0.000", done.stdout)

    def test_unknown_picture(self):
        self.found[0]["image_id"] = 2
        self.expect_failure(self.run_on(), "dt.json: results[0]", "image_id", "2")

    def test_negative_box(self):
        self.truth["annotations"][0]["bbox"] = [0, 0, -1, 4]
        self.expect_failure(self.run_on(), "gt.json: annotations[0] (id 0)", "[0, 0, -1, 4]")

    def test_not_a_number(self):
        self.found[0]["score"] = float("nan")
        self.expect_failure(self.run_on(), "dt.json: results[0]", "JSON")

    def test_files_in_the_wrong_order(self):
        done = run(coco("small_dt.json"), coco("small_gt.json"))
        self.expect_failure(done, "small_dt.json", "images, annotations, categories")

    def test_arguments(self):
        self.expect_failure(run("no.json", "no.json"), "no.json")
        done = run(coco("small_gt.json"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("detections", done.stderr)
        self.assertEqual(self.run_on("--threads", "0").returncode, 2)
        self.expect_failure(self.run_on("--json", "/nonexistent/x.json"), "/nonexistent/x.json")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    TESTS = sys.argv.pop(1)
    unittest.main()

"""The verb coco-eval, as a user meets it.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import program
from program import ProgramTest, read_json, take_arguments, write_json

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
    return program.run("coco-eval", *arguments)


def coco(name):
    return os.path.join(TESTS, "coco", name)


def val2014():
    return coco("val2014_100_gt.json"), coco("val2014_100_fakebbox_results.json")


def golden(name):
    return read_json(coco("golden.json"))[name]


class CocoEval(ProgramTest):
    def test_lines(self):
        for threads in ("1", "2", "7"):
            done = self.succeed("coco-eval", *val2014(), "--threads", threads, stderr="")
            self.assertEqual(done.stdout, LINES)

    def test_per_category(self):
        done = self.succeed("coco-eval", coco("small_gt.json"), coco("small_dt.json"), "--per-category")
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
        path = self.path("numbers.json")
        self.assertEqual(self.succeed("coco-eval", *val2014(), "--json", path).stdout, LINES)
        self.assertEqual(os.listdir(self.folder), ["numbers.json"])
        numbers = read_json(path)
        expected = golden("val2014_100")
        for name, value in zip(NAMES, expected["numbers"]):
            self.assertAlmostEqual(numbers[name], value, delta=1e-9)
        self.assertEqual(len(numbers["categories"]), 80)
        for row, value in zip(numbers["categories"], expected["categories"]):
            self.assertAlmostEqual(row["AP"], value, delta=1e-9)
        self.assertEqual(numbers["categories"][79]["name"], "toothbrush")
        self.assertEqual(numbers["categories"][79]["id"], 90)


class Files(ProgramTest):
    """What a user's own files can be like."""

    def setUp(self):
        self.truth = {"images": [{"id": 1, "width": 9, "height": 9}],
                      "categories": [{"id": 1, "name": "red\x1b[31m"}],
                      "annotations": [{"id": 0, "image_id": 1, "category_id": 1,
                                       "bbox": [0, 0, 5, 5]}]}
        self.found = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 5, 5], "score": 1}]

    def files(self):
        return (write_json(self.path("gt.json"), self.truth), write_json(self.path("dt.json"), self.found))

    def test_oddities(self):
        done = self.succeed("coco-eval", *self.files(), "--oddities")
        self.assertIn("gt.json: 1 annotations have the id 0", done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 12)
        self.assertEqual(run(*self.files()).stderr, "")

    def test_names_do_not_steer_the_terminal(self):
        done = self.succeed("coco-eval", *self.files(), "--per-category")
        self.assertNotIn("\x1b", done.stdout)
        self.assertIn("red", done.stdout)

    def test_nothing_found(self):
        self.found = []
        self.assertIn("maxDets=100 ] = 0.000", self.succeed("coco-eval", *self.files()).stdout)

    def expect_refusal_of_files(self, *words):
        self.expect_refusal(run(*self.files()), *words, status=1)

    def test_unknown_image(self):
        self.found[0]["image_id"] = 2
        self.expect_refusal_of_files("dt.json: results[0]", "image_id", "2")

    def test_negative_box(self):
        self.truth["annotations"][0]["bbox"] = [0, 0, -1, 4]
        self.expect_refusal_of_files("gt.json: annotations[0] (id 0)", "[0, 0, -1, 4]")

    def test_not_a_number(self):
        self.found[0]["score"] = float("nan")
        self.expect_refusal_of_files("dt.json: results[0]", "JSON")

    def test_files_in_the_wrong_order(self):
        done = run(coco("small_dt.json"), coco("small_gt.json"))
        self.expect_refusal(done, "small_dt.json", "images, annotations, categories", status=1)

    def test_arguments(self):
        self.expect_refusal(run("no.json", "no.json"), "no.json", status=1)
        self.expect_failure(run(coco("small_gt.json")), "detections", status=2)
        self.expect_failure(run(*self.files(), "--threads", "0"), status=2)
        self.expect_refusal(run(*self.files(), "--json", "/nonexistent/x.json"), "/nonexistent/x.json",
                            status=1)


if __name__ == "__main__":
    TESTS = take_arguments()
    unittest.main()

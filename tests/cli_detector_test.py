"""The verbs that meet a detector, as a user meets them: models, info, and those that want a classifier.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import detr_shapes

PROGRAM = ""
TESTS = ""


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=240)


class WithDetector(unittest.TestCase):
    """A small detector on disk."""

    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = cls.holder.name
        cls.weights = os.path.join(cls.folder, "detector.safetensors")
        detr_shapes.write_detector(cls.weights)

    @classmethod
    def tearDownClass(cls):
        cls.holder.cleanup()

    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)


class Models(WithDetector):
    def test_both_tables(self):
        done = run("models")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("qna_vit_tiny ", "detr_r50 ", "41,524,768", "35.3", "800 x 1066"):
            self.assertIn(words, done.stdout)

    def test_detectors_alone(self):
        done = run("models", "--detectors", "--size", "320")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("320 x 320", done.stdout)
        self.assertNotIn("qna_vit_tiny ", done.stdout)
        rows = {row["name"]: row for row in json.loads(run("models", "--detectors", "--json").stdout)}
        # The authors of DETR say 86 billion multiply-adds for ResNet-50.
        self.assertAlmostEqual(rows["detr_r50"]["gflops"] / 2, 86, delta=8)
        self.assertEqual(rows["detr_qna_tiny"]["config"]["qna"]["blocks"], 4)

    def test_mistakes(self):
        self.expect_failure(run("models", "--size", "320"), "--size", "--detectors")
        self.expect_failure(run("models", "--detectors", "--ablations"), "--ablations")


class Info(WithDetector):
    def test_by_name(self):
        done = run("info", "detr_qna_tiny", "--size", "64x96")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("detector", "91 classes", "backbone: QnA-ViT", "4 QnA blocks", "100 object queries",
                      "33,145,056", "random weights"):
            self.assertIn(words, done.stdout)

    def test_file(self):
        done = run("info", self.weights, "--size", "64x96")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("small detector", "3 classes", "backbone: ResNet-18, 512 features",
                      "1 encoder and 2 decoder blocks", "5 object queries", '"resize":64',
                      "labels: 3, thing 0 ... thing 2", "category ids: 0 ... 20", "memory:"):
            self.assertIn(words, done.stdout)

    def test_configuration_round_trip(self):
        path = os.path.join(self.folder, "copy.toml")
        with open(path, "w") as file:
            file.write(run("info", "detr_tiny", "--toml").stdout)
        self.assertEqual(run("info", path, "--toml").stdout, run("info", "detr_tiny", "--toml").stdout)

    def test_mistakes(self):
        self.expect_failure(run("info", "detr_r500"), "detr_r500", "detr_r50,")
        broken = os.path.join(self.folder, "broken.safetensors")
        with open(self.weights, "rb") as whole, open(broken, "wb") as part:
            part.write(whole.read(1 << 16))
        self.expect_failure(run("info", broken), "broken.safetensors")


class OtherVerbs(WithDetector):
    def test_a_detector_is_no_classifier(self):
        picture = f"{TESTS}/images/rgb.jpg"
        out = os.path.join(self.folder, "out")
        for arguments in (["predict", self.weights, picture],
                          ["attend", self.weights, picture, "--out", out],
                          ["features", self.weights, picture, "-o", out]):
            done = run(*arguments)
            self.expect_failure(done, "detector.safetensors", "holds a detector", "qna detect")
            self.assertEqual(done.stdout, "")
            self.assertFalse(os.path.exists(out))


class Export(WithDetector):
    def test_in_another_precision(self):
        out = os.path.join(self.folder, "half.safetensors")
        done = run("export", self.weights, "-o", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("half.safetensors", done.stdout)
        self.assertLess(os.path.getsize(out), 0.6 * os.path.getsize(self.weights))
        done = run("info", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("labels: 3, thing 0 ... thing 2", done.stdout)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    TESTS = sys.argv.pop(1)
    unittest.main()

"""The verbs that meet a detector, as a user meets them: models, info, and those that want a classifier.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import detr_shapes
from program import ProgramTest, read_bytes, run, take_arguments, write, write_bytes

TESTS = ""


class WithDetector(ProgramTest):
    """A small detector on disk."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights = cls.path("detector.safetensors")
        detr_shapes.write_detector(cls.weights)


class Models(WithDetector):
    def test_both_tables(self):
        done = self.succeed("models", stderr="")
        self.expect_words(done.stdout, "qna_vit_tiny ", "detr_r50 ", "41,524,768", "35.3", "800 x 1066")

    def test_detectors_alone(self):
        done = self.succeed("models", "--detectors", "--size", "320", stderr="")
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
        done = self.succeed("info", "detr_qna_tiny", "--size", "64x96", stderr="")
        self.expect_words(done.stdout, "detector", "91 classes", "backbone: QnA-ViT", "4 QnA blocks",
                          "100 object queries", "33,145,056", "random weights")

    def test_file(self):
        done = self.succeed("info", self.weights, "--size", "64x96", stderr="")
        self.expect_words(done.stdout, "small detector", "3 classes", "backbone: ResNet-18, 512 features",
                          "1 encoder and 2 decoder blocks", "5 object queries", '"resize":64',
                          "labels: 3, thing 0 ... thing 2", "category ids: 0 ... 20", "memory:")

    def test_configuration_round_trip(self):
        toml = run("info", "detr_tiny", "--toml").stdout
        self.assertEqual(run("info", write(self.path("copy.toml"), toml), "--toml").stdout, toml)

    def test_mistakes(self):
        self.expect_failure(run("info", "detr_r500"), "detr_r500", "detr_r50,")
        broken = write_bytes(self.path("broken.safetensors"), read_bytes(self.weights)[:1 << 16])
        self.expect_failure(run("info", broken), "broken.safetensors")


class OtherVerbs(WithDetector):
    def test_a_detector_is_no_classifier(self):
        image = f"{TESTS}/images/rgb.jpg"
        out = self.path("out")
        for arguments in (["predict", self.weights, image],
                          ["attend", self.weights, image, "--out", out],
                          ["features", self.weights, image, "-o", out]):
            self.expect_refusal(run(*arguments), "detector.safetensors", "holds a detector", "qna detect")
            self.assertFalse(os.path.exists(out))


class Export(WithDetector):
    def test_in_another_precision(self):
        out = self.path("half.safetensors")
        done = self.succeed("export", self.weights, "-o", out, stderr="")
        self.assertIn("half.safetensors", done.stdout)
        self.assertLess(os.path.getsize(out), 0.6 * os.path.getsize(self.weights))
        done = self.succeed("info", out, stderr="")
        self.assertIn("labels: 3, thing 0 ... thing 2", done.stdout)


if __name__ == "__main__":
    TESTS = take_arguments()
    unittest.main()

"""The verbs about models, as a user meets them: models, info, import, predict, features.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import json
import os
import re
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (ProgramTest, read_bytes, run, split_safetensors, take_arguments, write,
                     write_bytes)

TESTS = ""


class WithModel(ProgramTest):
    """A small model, imported from the golden checkpoint, and a few images."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.weights = cls.path("micro.safetensors")
        cls.labels = write(cls.path("labels.txt"), "".join(f"thing {i}\n" for i in range(10)))
        cls.imported = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--config",
                           f"{TESTS}/models/micro.toml", "--labels", cls.labels, "-o", cls.weights)
        cls.images = cls.path("images")
        os.makedirs(f"{cls.images}/below")
        for source, name in (("rgb.jpg", "a.jpg"), ("rgb8.png", "b.PNG"),
                             ("grey_progressive.jpg", "below/c.jpeg")):
            shutil.copy(f"{TESTS}/images/{source}", f"{cls.images}/{name}")


class Models(ProgramTest):
    def test_table(self):
        done = self.succeed("models", stderr="")
        self.expect_words(done.stdout, "qna_vit_tiny ", "15,715,560", "qna_vit_base_384", "qna_vit_pico")

    def test_json(self):
        rows = json.loads(run("models", "--json").stdout)
        self.assertEqual(rows[0]["name"], "qna_vit_tiny")
        self.assertEqual(len(rows[0]["config"]["stages"]), 4)
        kinds = {row["name"]: row["kind"] for row in rows}
        self.assertEqual((kinds["qna_vit_nano"], kinds["detr_tiny"]), ("classifier", "detector"))

    def test_ablations(self):
        done = self.succeed("models", "--ablations", stderr="")
        self.expect_words(done.stdout, "Multiple queries effect", "SASA", "16.440", "NesT",
                          "15.8 M in the paper")
        rows = json.loads(run("models", "--ablations", "--json").stdout)
        self.assertEqual(len({row["table"] for row in rows}), 6)
        sasa = next(row for row in rows if row["row"] == "SASA")
        self.assertEqual(sasa["config"]["local_mixer"], "sasa")


class Info(WithModel):
    def test_by_name_and_size(self):
        done = self.succeed("info", "qna_vit_pico", "--size", "48x30")
        self.expect_words(done.stdout, "24x15", "= stage 4", "memory:")

    def test_weights_kept_as_bfloat16(self):
        def megabytes(*flags):
            text = self.succeed("info", "qna_vit_pico", *flags).stdout
            return float(re.search(r"packed weights ([0-9.]+) MB", text).group(1))

        self.assertLess(megabytes("--weight-type", "bfloat16"), 0.6 * megabytes())

    def test_file(self):
        self.assertIn("labels: 10, thing 0 ... thing 9", self.succeed("info", self.weights).stdout)

    def test_configuration_round_trip(self):
        path = write(self.path("copy.toml"), run("info", "qna_vit_nano", "--toml").stdout)
        self.assertEqual(run("info", path).stdout.splitlines()[2:],
                         run("info", "qna_vit_nano").stdout.splitlines()[2:])

    def test_mistakes(self):
        self.expect_failure(run("info", "qna_vit_huge"), "qna_vit_huge", "qna_vit_tiny")
        self.expect_failure(run("info", "./none.safetensors"), "none.safetensors")
        self.expect_failure(run("info", "qna_vit_pico", "--size", "0x3"), "--size", "0x3")
        bad = write(self.path("bad.toml"), "heads = 3\n[[stages]]\n")
        self.expect_failure(run("info", bad), "bad.toml", "heads")


class Import(WithModel):
    def test_every_tensor_is_listed(self):
        self.assertEqual(self.imported.returncode, 0, self.imported.stderr)
        lines = [line for line in self.imported.stdout.splitlines() if " -> " in line]
        metadata, header, _ = split_safetensors(self.weights)
        self.assertEqual(len(lines), len(header))
        self.assertEqual(json.loads(metadata["labels"])[3], "thing 3")
        self.assertEqual(json.loads(metadata["config"])["classes"], 10)

    def test_another_model_is_refused_and_nothing_written(self):
        out = self.path("no.safetensors")
        done = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--model",
                   "qna_vit_tiny", "-o", out)
        self.expect_failure(done, "does not fit", "stem.conv.weight", "[64, 3, 4, 4]")
        self.assertFalse(os.path.exists(out))

    def test_wrong_number_of_labels(self):
        done = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--config",
                   f"{TESTS}/models/micro.toml", "--labels", write(self.path("short.txt"), "one\n"),
                   "-o", self.path("x.safetensors"))
        self.expect_failure(done, "1 labels", "10 classes")

    def test_not_a_checkpoint(self):
        self.expect_failure(run("import", self.labels, "-o", "/dev/null/x"), "labels.txt")


class Predict(WithModel):
    def test_text(self):
        done = self.succeed("predict", self.weights, f"{self.images}/a.jpg", "--top", "3", stderr="")
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].endswith("a.jpg"))
        self.assertEqual(len(lines), 4)
        self.assertIn("thing", lines[1])

    def test_folder_as_json_in_any_batch(self):
        answers = []
        for batch in (1, 2, 8):
            done = self.succeed("predict", self.weights, self.images, "--json", "--batch", batch)
            answers.append([json.loads(line) for line in done.stdout.splitlines()])
        self.assertEqual(answers[0], answers[1])  # bit by bit: a batch changes nothing
        self.assertEqual(answers[0], answers[2])
        names = [os.path.basename(answer["image"]) for answer in answers[0]]
        self.assertEqual(names, ["a.jpg", "b.PNG", "c.jpeg"])
        for answer in answers[0]:
            probabilities = [row["probability"] for row in answer["predictions"]]
            self.assertEqual(len(probabilities), 5)
            self.assertEqual(probabilities, sorted(probabilities, reverse=True))
            self.assertLessEqual(sum(probabilities), 1.0001)

    def test_weights_kept_as_bfloat16(self):
        def probabilities(*flags):
            lines = self.succeed("predict", self.weights, self.images, "--json", *flags).stdout.splitlines()
            return [{row["class"]: row["probability"] for row in json.loads(line)["predictions"]} for line in lines]

        expected, got = probabilities("--top", "10"), probabilities("--top", "10", "--weight-type", "bfloat16")
        self.assertEqual(probabilities("--top", "10", "--weight-type", "float32"), expected)
        self.assertNotEqual(got, expected)
        for one, other in zip(expected, got, strict=True):
            self.assertLess(max(abs(one[label] - other[label]) for label in range(10)), 0.01)

    def test_broken_image_does_not_stop_the_rest(self):
        whole = read_bytes(f"{TESTS}/images/rgb.jpg")
        broken = write_bytes(self.path("broken.jpg"), whole[:len(whole) // 2])
        done = run("predict", self.weights, broken, f"{self.images}/a.jpg", self.labels, "--json")
        self.expect_failure(done, "broken.jpg", "labels.txt", "2 of 3")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(["error" in row for row in rows], [True, False, True])

    def test_mistakes(self):
        self.expect_failure(run("predict", self.weights, "/none/x.jpg"), "/none/x.jpg")
        self.expect_failure(run("predict", self.labels, self.images), "labels.txt")
        self.expect_failure(run("predict", self.weights, self.images, "--top", "0"), "--top")
        self.expect_failure(run("predict", self.weights, self.images, "--weight-type", "int8"), "--weight-type",
                            "int8")
        os.mkdir(self.path("empty"))
        self.expect_failure(run("predict", self.weights, self.path("empty")), "empty")

    def test_truncated_weights(self):
        cut = write_bytes(self.path("cut.safetensors"), read_bytes(self.weights)[:-100])
        self.expect_failure(run("predict", cut, self.images), "cut.safetensors")


class Features(WithModel):
    def test_vectors_and_maps(self):
        out = self.path("features.safetensors")
        self.succeed("features", self.weights, self.images, "-o", out, stderr="")
        metadata, header, _ = split_safetensors(out)
        self.assertEqual(header["features"]["shape"], [3, 128])
        self.assertEqual(len(json.loads(metadata["images"])), 3)
        self.succeed("features", self.images, "-o", out, stderr="")  # the weights that come along
        self.assertEqual(split_safetensors(out)[1]["features"]["shape"][0], 3)
        self.succeed("features", self.weights, self.images, "-o", out, "--map")
        self.assertEqual(split_safetensors(out)[1]["features"]["shape"], [3, 2, 2, 128])

    def test_nothing_is_written_without_an_image(self):
        out = self.path("none.safetensors")
        self.expect_failure(run("features", self.weights, self.labels, "-o", out), "labels.txt")
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    TESTS = take_arguments()
    unittest.main()

"""The verbs about models, as a user meets them: models, info, import, predict, features.

Run by CTest with the path of the program and of the folder tests/; standard library only.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
TESTS = ""


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=240)


def read_safetensors_header(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size))


class WithModel(unittest.TestCase):
    """A small model, imported from the golden checkpoint, and a few pictures."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.weights = os.path.join(cls.folder, "micro.safetensors")
        cls.labels = os.path.join(cls.folder, "labels.txt")
        with open(cls.labels, "w") as file:
            file.write("\n".join(f"thing {i}" for i in range(10)) + "\n")
        cls.imported = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--config",
                           f"{TESTS}/models/micro.toml", "--labels", cls.labels, "-o", cls.weights)
        cls.photos = os.path.join(cls.folder, "photos")
        os.makedirs(os.path.join(cls.photos, "below"))
        shutil.copy(f"{TESTS}/images/rgb.jpg", os.path.join(cls.photos, "a.jpg"))
        shutil.copy(f"{TESTS}/images/rgb8.png", os.path.join(cls.photos, "b.PNG"))
        shutil.copy(f"{TESTS}/images/grey_progressive.jpg",
                    os.path.join(cls.photos, "below", "c.jpeg"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)


class Models(unittest.TestCase):
    def test_table(self):
        done = run("models")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("qna_vit_tiny ", "15,715,560", "qna_vit_base_384", "qna_vit_pico"):
            self.assertIn(words, done.stdout)

    def test_json(self):
        rows = json.loads(run("models", "--json").stdout)
        self.assertEqual(rows[0]["name"], "qna_vit_tiny")
        self.assertEqual(len(rows[0]["config"]["stages"]), 4)
        kinds = {row["name"]: row["kind"] for row in rows}
        self.assertEqual((kinds["qna_vit_nano"], kinds["detr_tiny"]), ("classifier", "detector"))

    def test_ablations(self):
        done = run("models", "--ablations")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("Multiple queries effect", "SASA", "16.440", "NesT", "15.8 M in the paper"):
            self.assertIn(words, done.stdout)
        rows = json.loads(run("models", "--ablations", "--json").stdout)
        self.assertEqual(len({row["table"] for row in rows}), 6)
        sasa = next(row for row in rows if row["row"] == "SASA")
        self.assertEqual(sasa["config"]["local_mixer"], "sasa")


class Info(WithModel):
    def test_by_name_and_size(self):
        done = run("info", "qna_vit_pico", "--size", "48x30")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("24x15", done.stdout)
        self.assertIn("= stage 4", done.stdout)
        self.assertIn("memory:", done.stdout)

    def test_file(self):
        done = run("info", self.weights)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("labels: 10, thing 0 ... thing 9", done.stdout)

    def test_configuration_round_trip(self):
        path = os.path.join(self.folder, "copy.toml")
        with open(path, "w") as file:
            file.write(run("info", "qna_vit_nano", "--toml").stdout)
        self.assertEqual(run("info", path).stdout.splitlines()[2:],
                         run("info", "qna_vit_nano").stdout.splitlines()[2:])

    def test_mistakes(self):
        self.expect_failure(run("info", "qna_vit_huge"), "qna_vit_huge", "qna_vit_tiny")
        self.expect_failure(run("info", "./none.safetensors"), "none.safetensors")
        self.expect_failure(run("info", "qna_vit_pico", "--size", "0x3"), "--size", "0x3")
        bad = os.path.join(self.folder, "bad.toml")
        with open(bad, "w") as file:
            file.write("heads = 3\n[[stages]]\n")
        self.expect_failure(run("info", bad), "bad.toml", "heads")


class Import(WithModel):
    def test_every_tensor_is_listed(self):
        self.assertEqual(self.imported.returncode, 0, self.imported.stderr)
        lines = [line for line in self.imported.stdout.splitlines() if " -> " in line]
        header = read_safetensors_header(self.weights)
        metadata = header.pop("__metadata__")
        self.assertEqual(len(lines), len(header))
        self.assertEqual(json.loads(metadata["labels"])[3], "thing 3")
        self.assertEqual(json.loads(metadata["config"])["classes"], 10)

    def test_another_model_is_refused_and_nothing_written(self):
        out = os.path.join(self.folder, "no.safetensors")
        done = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--model",
                   "qna_vit_tiny", "-o", out)
        self.expect_failure(done, "does not fit", "stem.conv.weight", "[64, 3, 4, 4]")
        self.assertFalse(os.path.exists(out))

    def test_wrong_number_of_labels(self):
        short = os.path.join(self.folder, "short.txt")
        with open(short, "w") as file:
            file.write("one\n")
        done = run("import", f"{TESTS}/golden/qna_vit_micro.flax.msgpack", "--config",
                   f"{TESTS}/models/micro.toml", "--labels", short, "-o",
                   os.path.join(self.folder, "x.safetensors"))
        self.expect_failure(done, "1 labels", "10 classes")

    def test_not_a_checkpoint(self):
        self.expect_failure(run("import", self.labels, "-o", "/dev/null/x"), "labels.txt")


class Predict(WithModel):
    def test_text(self):
        done = run("predict", self.weights, os.path.join(self.photos, "a.jpg"), "--top", "3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = done.stdout.splitlines()
        self.assertTrue(lines[0].endswith("a.jpg"))
        self.assertEqual(len(lines), 4)
        self.assertIn("thing", lines[1])

    def test_folder_as_json_in_any_batch(self):
        answers = []
        for batch in (1, 2, 8):
            done = run("predict", self.weights, self.photos, "--json", "--batch", batch)
            self.assertEqual(done.returncode, 0, done.stderr)
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

    def test_broken_picture_does_not_stop_the_rest(self):
        broken = os.path.join(self.folder, "broken.jpg")
        with open(f"{TESTS}/images/rgb.jpg", "rb") as file:
            whole = file.read()
        with open(broken, "wb") as file:
            file.write(whole[:len(whole) // 2])
        good = os.path.join(self.photos, "a.jpg")
        done = run("predict", self.weights, broken, good, self.labels, "--json")
        self.expect_failure(done, "broken.jpg", "labels.txt", "2 of 3")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(["error" in row for row in rows], [True, False, True])

    def test_mistakes(self):
        self.expect_failure(run("predict", self.weights, "/none/x.jpg"), "/none/x.jpg")
        self.expect_failure(run("predict", self.labels, self.photos), "labels.txt")
        self.expect_failure(run("predict", self.weights, self.photos, "--top", "0"), "--top")
        empty = os.path.join(self.folder, "empty")
        os.makedirs(empty, exist_ok=True)
        self.expect_failure(run("predict", self.weights, empty), "empty")

    def test_truncated_weights(self):
        cut = os.path.join(self.folder, "cut.safetensors")
        with open(self.weights, "rb") as file:
            whole = file.read()
        with open(cut, "wb") as file:
            file.write(whole[:-100])
        self.expect_failure(run("predict", cut, self.photos), "cut.safetensors")


class Features(WithModel):
    def test_vectors_and_maps(self):
        out = os.path.join(self.folder, "features.safetensors")
        done = run("features", self.weights, self.photos, "-o", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        header = read_safetensors_header(out)
        self.assertEqual(header["features"]["shape"], [3, 128])
        self.assertEqual(len(json.loads(header["__metadata__"]["images"])), 3)
        done = run("features", self.weights, self.photos, "-o", out, "--map")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(read_safetensors_header(out)["features"]["shape"], [3, 2, 2, 128])

    def test_nothing_is_written_without_a_picture(self):
        out = os.path.join(self.folder, "none.safetensors")
        self.expect_failure(run("features", self.weights, self.labels, "-o", out), "labels.txt")
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    TESTS = sys.argv.pop(1)
    unittest.main()

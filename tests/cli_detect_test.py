"""Detection as a user meets it: train, killed, resumed and divided; eval, detect, coco-eval.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (gradients, png, read_safetensors, relative_difference, run, start,
                     take_arguments)

RECIPE = """
task = "detection"
epochs = {epochs}
batch = 4
seed = 3
clip = 0.1
checkpoint_steps = 2
evaluate_every = 2

[model]
name = "{name}"
{backbone}

[model.config]
hidden = 32
heads = 4
encoder_blocks = 3
decoder_blocks = 2
feedforward = 64
queries = 8
dropout = 0.1

[data]
path = "{data}"
train = "train.json"
train_images = "pictures"
val = "val.json"
val_images = "pictures"
workers = 2

[preprocess]
resize = 64
longest = 96

[augment]
shorter = [48, 64]
longest = 96
crop = 0.5
crop_shorter = [64, 72]
crop_size = [40, 64]

[optimizer]
lr = 0.001
lr_batch = 0
weight_decay = 1e-4

[[optimizer.group]]
match = "backbone.*"
lr_scale = 0.1

[schedule]
kind = "step"
step_epoch = 3
"""

GROUP = """
[[optimizer.group]]
match = "backbone.*"
lr_scale = 0.1
"""

BACKBONE = """
[model.config.backbone]
base_dim = 8
stages = [
  { qna_blocks = 1, qna_heads = 2 },
  { attention_blocks = 1, attention_heads = 2, qna_heads = 2, window = 4 },
]
"""

REPOSITORY = ""

COLORS = {3: (220, 50, 40), 7: (40, 60, 220)}  # by category id


def make_data(folder, train=9, val=5):
    """Rectangles of two colours, one to three on a picture; pictures of two sizes."""
    numbers = random.Random(5)
    os.makedirs(os.path.join(folder, "pictures"))
    for split, count in (("train", train), ("val", val)):
        truth = {"images": [], "annotations": [],
                 "categories": [{"id": 3, "name": "red thing"}, {"id": 7, "name": "blue thing"}]}
        for i in range(1, count + 1):
            width, height = ((72, 60), (56, 76))[i % 2]
            pixels = [numbers.randrange(60, 100) for _ in range(3 * width * height)]
            name = f"{split}{i}.png"
            truth["images"].append({"id": i, "file_name": name, "width": width, "height": height})
            for _ in range(numbers.randrange(1, 4)):
                category = numbers.choice(list(COLORS))
                w, h = numbers.randrange(12, 24), numbers.randrange(12, 24)
                x, y = numbers.randrange(width - w), numbers.randrange(height - h)
                for row in range(y, y + h):
                    first = 3 * (row * width + x)
                    pixels[first:first + 3 * w] = list(COLORS[category]) * w
                truth["annotations"].append({
                    "id": len(truth["annotations"]) + 1, "image_id": i, "category_id": category,
                    "bbox": [x, y, w, h], "area": w * h, "iscrowd": 0})
            with open(os.path.join(folder, "pictures", name), "wb") as file:
                file.write(png(pixels, width, height))
        with open(os.path.join(folder, f"{split}.json"), "w") as file:
            json.dump(truth, file)


class Detection(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.data = os.path.join(cls.folder, "data")
        make_data(cls.data)
        cls.recipe = cls.write_recipe("detr_qna_tiny")
        cls.whole = os.path.join(cls.folder, "whole")
        cls.done = run("train", cls.recipe, "-o", cls.whole)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def write_recipe(cls, name, epochs=4, backbone=""):
        path = os.path.join(cls.folder, f"{name}.toml")
        with open(path, "w") as file:
            text = RECIPE.format(name=name, data=cls.data, epochs=epochs, backbone=backbone)
            file.write(text.replace("[data]", BACKBONE + "\n[data]", 1))
        return path

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def weights(self, folder):
        return read_safetensors(f"{folder}/last.safetensors")[1]


class Whole(Detection):
    def test_run(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertIn("9 pictures to train", self.done.stdout)
        self.assertIn("AP50", self.done.stdout)
        self.assertIn("qna detect", self.done.stdout)
        metadata, _ = read_safetensors(f"{self.whole}/best.safetensors")
        self.assertEqual(json.loads(metadata["labels"]), ["red thing", "blue thing"])
        self.assertEqual(json.loads(metadata["category_ids"]), [3, 7])
        with open(f"{self.whole}/log.jsonl") as file:
            epochs = [line for line in map(json.loads, file) if line["kind"] == "epoch"]
        self.assertLess(epochs[-1]["train_loss"], epochs[0]["train_loss"])
        with open(f"{self.whole}/report.html") as file:
            page = file.read()
        for words in ("Precision and recall", "The worst pictures", "Where the model looks"):
            self.assertIn(words, page)

    def test_preview_shows_the_boxes(self):
        sizes = []
        for variants in ("1", "4"):
            out = self.path(f"preview{variants}.png")
            done = run("data", "preview", self.recipe, "-o", out, "--pictures", "3", "--variants", variants)
            self.assertEqual((done.returncode, done.stdout), (0, out + "\n"), done.stderr)
            with open(out, "rb") as file:
                sizes.append(struct.unpack(">II", file.read()[16:24]))
        self.assertGreater(sizes[1][0], 2 * sizes[0][0])  # a column for each epoch

    def test_eval_agrees_with_coco_eval(self):
        found = self.path("results.json")
        truth = f"{self.data}/val.json"
        done = run("eval", f"{self.whole}/last.safetensors", f"{self.data}/pictures",
                   "--annotations", truth, "--json", "--results", found)
        self.assertEqual(done.returncode, 0, done.stderr)
        numbers = json.loads(done.stdout)
        self.assertEqual(numbers["pictures"], 5)
        state = json.loads(
            read_safetensors(f"{self.whole}/last.safetensors")[0]["training"])["state"]
        self.assertAlmostEqual(100 * numbers["AP"], state["metrics"]["AP"], places=4)
        summary = self.path("summary.json")
        done = run("coco-eval", truth, found, "--json", summary)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(summary) as file:
            text = file.read()
        self.assertIn(json.dumps(numbers["AP"])[:10], text)

    def test_eval_finds_the_classes_of_voc_files_by_name(self):
        with open(f"{self.data}/val.json") as file:
            truth = json.load(file)
        names = {c["id"]: c["name"] for c in truth["categories"]}
        folder = self.path("voc")
        os.makedirs(folder)
        for picture in truth["images"]:
            objects = ""
            for a in truth["annotations"]:
                if a["image_id"] != picture["id"]:
                    continue
                x, y, w, h = a["bbox"]
                objects += (f"<object><name>{names[a['category_id']]}</name><bndbox>"
                            f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
                            f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>")
            stem = os.path.splitext(picture["file_name"])[0]
            with open(os.path.join(folder, stem + ".xml"), "w") as file:
                file.write(f"<annotation><filename>{picture['file_name']}</filename><size>"
                           f"<width>{picture['width']}</width><height>{picture['height']}</height>"
                           f"<depth>3</depth></size>{objects}</annotation>")
        found = []
        for name, annotations in (("coco", f"{self.data}/val.json"), ("voc", folder)):
            results = self.path(f"{name}_results.json")
            done = run("eval", f"{self.whole}/last.safetensors", f"{self.data}/pictures",
                       "--annotations", annotations, "--results", results)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(results) as file:
                found.append(json.load(file))
        # VOC has no ids: they are the places of the detector's classes, though "blue" comes first
        # in the alphabet.
        places = {3: 1, 7: 2}
        self.assertEqual(len(found[0]), 5 * 8)
        self.assertEqual([dict(row, category_id=places[row["category_id"]]) for row in found[0]],
                         found[1])

    def test_eval_of_other_categories(self):
        with open(f"{self.data}/val.json") as file:
            truth = json.load(file)
        for category, id in zip(truth["categories"], (3, 8)):
            category.update(id=id, name="thing")
        truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] == 3]
        other = self.path("other.json")
        with open(other, "w") as file:
            json.dump(truth, file)
        arguments = ("eval", f"{self.whole}/last.safetensors", f"{self.data}/pictures",
                     "--annotations", other)
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("category 3 is 'thing'", done.stderr)
        self.assertIn("but 'red thing'", done.stderr)
        truth["categories"] = [{"id": 1, "name": "red thing"}]
        truth["annotations"] = [dict(a, category_id=1) for a in truth["annotations"]]
        with open(other, "w") as file:
            json.dump(truth, file)
        self.expect_failure(run(*arguments), "other.json", "none of the detector's 2 categories")

    def test_ids_of_pictures(self):
        for name in ("7.png", "12.png", "b.png"):
            shutil.copy(f"{self.data}/pictures/val1.png", self.path(name))
        weights = f"{self.whole}/last.safetensors"
        done = run("detect", weights, self.path("12.png"), self.path("7.png"))
        self.assertIn("12.png (id 12)", done.stdout)
        self.assertIn("7.png (id 7)", done.stdout)
        # Places in the list where one of them is no number, so that no id comes twice.
        done = run("detect", weights, self.path("b.png"), self.path("12.png"))
        self.assertIn("b.png (id 1)", done.stdout)
        self.assertIn("12.png (id 2)", done.stdout)

    def test_boxes_are_in_pixels_of_the_annotations(self):
        with open(f"{self.data}/val.json") as file:
            truth = json.load(file)
        for picture in truth["images"]:
            picture["width"] *= 2
            picture["height"] *= 3
        with open(self.path("larger.json"), "w") as file:
            json.dump(truth, file)
        boxes = []
        for name, annotations in (("as", f"{self.data}/val.json"), ("larger", self.path("larger.json"))):
            found = self.path(f"{name}_found.json")
            done = run("detect", f"{self.whole}/last.safetensors", f"{self.data}/pictures/val1.png",
                       "--threshold", "0", "--annotations", annotations, "--json", found)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(found) as file:
                boxes.append([row["bbox"] for row in json.load(file)])
        self.assertEqual(len(boxes[0]), 8)
        for a, b in zip(*boxes):
            for value, larger, scale in zip(a, b, (2, 3, 2, 3)):
                self.assertAlmostEqual(scale * value, larger, places=2)

    def test_detect(self):
        out, found = self.path("found"), self.path("found.json")
        done = run("detect", f"{self.whole}/last.safetensors", f"{self.data}/pictures/val1.png",
                   f"{self.data}/pictures/val2.png", "-o", out, "--json", found, "--threshold",
                   "0", "--annotations", f"{self.data}/val.json", "--attention")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("val1.png (id 1): 8 objects", done.stdout)
        with open(found) as file:
            results = json.load(file)
        self.assertEqual(len(results), 16)
        self.assertEqual({r["image_id"] for r in results}, {1, 2})
        self.assertLessEqual({r["category_id"] for r in results}, {3, 7})
        self.assertIn("val1.png", os.listdir(out))
        self.assertIn("val2.attention-8.png", os.listdir(out))

    def test_detect_bad_input(self):
        weights = f"{self.whole}/last.safetensors"
        picture = f"{self.data}/pictures/val1.png"
        broken = self.path("broken.png")
        with open(picture, "rb") as source, open(broken, "wb") as file:
            file.write(source.read()[:200])
        done = run("detect", weights, broken, picture, "--threshold", "0")
        self.expect_failure(done, "broken.png", "1 of 2 pictures")
        self.assertIn("8 objects", done.stdout)
        self.expect_failure(run("detect", weights, picture, "--attention"), "--out")
        done = run("detect", weights, picture, "--annotations", f"{self.data}/train.json")
        self.expect_failure(done, "--annotations", "val1.png")
        self.expect_failure(run("detect", weights, picture, "--json", "no/such/folder/a.json"),
                            "no/such/folder")
        self.expect_failure(run("predict", weights, picture), "detector")
        self.expect_failure(run("eval", weights, f"{self.data}/pictures"), "--annotations")


class Resumed(Detection):
    def test_killed_and_resumed_to_the_same_bits(self):
        folder = self.path("killed")
        moments = random.Random(7)
        for _ in range(4):
            process = start("train", self.recipe, "-o", folder, "--resume")
            try:
                process.communicate(timeout=moments.uniform(0.5, 2.5))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
        done = run("train", self.recipe, "-o", folder, "--resume", "--set", "data.workers=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.weights(folder), self.weights(self.whole))


class Divided(Detection):
    # Nothing random that differs between processes.
    ONE_STEP = ["--set", "model.config.dropout=0", "--set", "model.config.backbone.drop_path=0",
                "--set", "epochs=1", "--set", "batch=16", "--set", "clip=0", "--threads", "1"]

    def test_gradients_are_those_of_one_process(self):
        runs = {"one": [], "two": ["--processes", "2"], "parts": ["--set", "accumulate=4"]}
        for name, more in runs.items():
            done = run("train", self.recipe, "-o", self.path(name), *self.ONE_STEP, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
        expected = gradients(self.path("one/last.safetensors"))
        self.assertGreater(len(expected), 50)
        for name in ("two", "parts"):
            actual = gradients(self.path(f"{name}/last.safetensors"))
            # Other padding rounds otherwise.
            self.assertLess(relative_difference(expected, actual), 1e-4, name)

    def test_more_processes_than_pictures_of_the_last_batch(self):
        done = run("train", self.recipe, "-o", self.path("three"), "--processes", "3", "--set",
                   "epochs=2")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_half_precision(self):
        done = run("train", self.recipe, "-o", self.path("half"), "--set", "precision=bfloat16",
                   "--set", "epochs=2")
        self.assertEqual(done.returncode, 0, done.stderr)


class Weights(Detection):
    def test_another_number_of_classes_is_told(self):
        with open(f"{self.data}/train.json") as file:
            truth = json.load(file)
        truth["categories"].append({"id": 9, "name": "green thing"})
        for split in ("more_train", "more_val"):
            with open(f"{self.data}/{split}.json", "w") as file:
                json.dump(truth, file)
        done = run("train", self.recipe, "-o", self.path("more"), "--set", "data.train=more_train.json",
                   "--set", "data.val=more_val.json", "--set", "epochs=1", "--set",
                   f"model.weights={self.whole}/last.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("class_embed", done.stdout)
        self.assertIn("newly initialised", done.stdout)

    def test_queries_that_begin_as_boxes(self):
        anchors = ["--set", "model.config.anchors=true", "--set", "model.config.waves=8",
                   "--set", "model.config.temperature=20"]
        for name, more in (("boxes", []), ("boxes2", ["--processes", "2"]),
                           ("boxes3", ["--set", "precision=bfloat16"])):
            done = run("train", self.recipe, "-o", self.path(name), *anchors, "--set", "epochs=2", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("refpoint_embed.weight", self.weights(self.path("boxes")))
        done = run("detect", self.path("boxes/last.safetensors"), f"{self.data}/pictures/val1.png",
                   "-o", self.path("boxes_found"), "--threshold", "0", "--attention")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("8 objects", done.stdout)
        done = run("train", self.recipe, "-o", self.path("mixed"), *anchors, "--set",
                   f"model.weights={self.whole}/last.safetensors")
        self.expect_failure(done, "are vectors", "are boxes", "anchors")

    def test_the_first_stages_of_a_classifier(self):
        done = run("train", self.recipe_without_backbone(), "-o", self.path("cut"), "--set",
                   "model.backbone_stages=2", "--set", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("stages behind number 2: left out", done.stdout)
        names = self.weights(self.path("cut")).keys()
        self.assertTrue(any("exp_avg/transformer" in name for name in names))
        self.assertFalse(any("exp_avg/backbone" in name for name in names))  # frozen
        self.assertFalse(any("body.stages.2" in name for name in names))
        done = run("train", self.recipe_without_backbone(), "-o", self.path("cut2"), "--set",
                   "model.backbone_stages=9")
        self.expect_failure(done, "model.backbone_stages", "from 1 to 4", "9")

    def recipe_without_backbone(self):
        path = self.path("cut.toml")
        with open(path, "w") as file:
            file.write(RECIPE.format(
                name="detr_tiny", data=self.data, epochs=1,
                backbone=f'backbone = "{REPOSITORY}/weights/imagenette.safetensors"\n'
                         'freeze = "backbone"').replace(GROUP, ""))
        return path

    def test_frozen_first_stage(self):
        done = run("train", self.recipe, "-o", self.path("frozen"), "--set",
                   "model.freeze=first_stage", "--set", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        names = self.weights(self.path("frozen")).keys()
        self.assertTrue(any("exp_avg/backbone.0.body.stages.1" in name for name in names))
        self.assertFalse(any("exp_avg/backbone.0.body.stages.0" in name for name in names))
        frozen, started = (self.weights(self.path(name)) for name in ("frozen", "whole"))
        first = "backbone.0.body.stages.0.blocks.0.qna.query"
        self.assertNotEqual(frozen[first], started[first])

    def test_resnet_with_a_frozen_first_stage(self):
        recipe = self.path("resnet.toml")
        with open(recipe, "w") as file:
            file.write(RECIPE.format(name="detr_r18", data=self.data, epochs=1,
                                     backbone='freeze = "first_stage"'))
        done = run("train", recipe, "-o", self.path("resnet"))
        self.assertEqual(done.returncode, 0, done.stderr)
        names = self.weights(self.path("resnet")).keys()
        self.assertTrue(any("exp_avg/backbone.0.body.layer4" in name for name in names))
        self.assertFalse(any("exp_avg/backbone.0.body.layer1" in name for name in names))


class BadInput(Detection):
    def train(self, *settings):
        arguments = [word for setting in settings for word in ("--set", setting)]
        return run("train", self.recipe, "-o", os.path.join(tempfile.mkdtemp(dir=self.folder), "r"),
                   *arguments)

    def write_truth(self, name, change):
        with open(f"{self.data}/train.json") as file:
            truth = json.load(file)
        change(truth)
        with open(f"{self.data}/{name}.json", "w") as file:
            json.dump(truth, file)

    def test_recipe(self):
        self.expect_failure(self.train("model.config.querys=3"), "querys")
        self.expect_failure(self.train("augment.shorter=[0]"), "augment", "shorter")
        self.expect_failure(self.train("loss.no_object=-1"), "loss.no_object", "-1")
        self.expect_failure(self.train("model.name=detr_tinny"), "detr_tinny", "detr_tiny")
        self.expect_failure(self.train("model.freeze=half"), "model.freeze", "first_stage")
        self.expect_failure(self.train("preprocess.crop=[32, 32]"), "crop")
        self.expect_failure(self.train("model.config.classes=2"), "classes")
        self.expect_failure(self.train("model.backbone_stages=2"), "backbone_stages", "model.backbone")

    def test_predictions_that_are_not_finite_leave_the_step_out(self):
        # Pixels of 1e38 overflow in the first product.
        done = self.train("preprocess.std=[1e-38, 1e-38, 1e-38]", "max_bad_steps=2")
        self.expect_failure(done, "step 3 skipped", "not finite", "max_bad_steps")

    def test_annotations(self):
        def unknown_category(truth):
            truth["annotations"][2]["category_id"] = 5
        self.write_truth("unknown", unknown_category)
        self.expect_failure(self.train("data.train=unknown.json"), "unknown.json", "category", "5")
        self.expect_failure(self.train("data.train=none.json"), "none.json")

        def no_objects(truth):
            truth["annotations"] = []
        self.write_truth("empty", no_objects)
        self.expect_failure(self.train("data.val=empty.json"), "empty.json", "no objects")

        def absent(truth):
            truth["images"][0]["file_name"] = "absent.png"
        self.write_truth("absent", absent)
        self.expect_failure(self.train("data.train=absent.json"), "absent.png")
        done = self.train("data.train=absent.json", "data.absent=skip", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("absent.png", done.stdout)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main(verbosity=1)

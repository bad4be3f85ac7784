"""Detection as a user meets it: train, killed, resumed and divided; eval, detect, coco-eval.

Run by CTest with the path of the program and of the repository; standard library only.
"""

import json
import os
import random
import shutil
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import (TrainingTest, epochs_of, gradients, kill_after, png, read, read_bytes,
                     read_json, read_safetensors, relative_difference, run, settings, state_of,
                     take_arguments, weights_of, write, write_bytes, write_json)

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
train_images = "images"
val = "val.json"
val_images = "images"
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
    """Rectangles of two colours, one to three on an image; images of two sizes."""
    numbers = random.Random(5)
    os.makedirs(os.path.join(folder, "images"))
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
            write_bytes(os.path.join(folder, "images", name), png(pixels, width, height))
        write_json(os.path.join(folder, f"{split}.json"), truth)


class Detection(TrainingTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.data = cls.path("data")
        cls.images = cls.path("data/images")
        make_data(cls.data)
        text = cls.recipe_text("detr_qna_tiny", 4)
        cls.recipe = write(cls.path("small.toml"), text.replace("[data]", BACKBONE + "\n[data]", 1))
        cls.whole = cls.path("whole")
        cls.last = cls.path("whole/last.safetensors")
        cls.done = run("train", cls.recipe, "-o", cls.whole)

    @classmethod
    def recipe_text(cls, name, epochs, backbone=""):
        return RECIPE.format(name=name, data=cls.data, epochs=epochs, backbone=backbone)

    def truth(self, split="val"):
        return read_json(f"{self.data}/{split}.json")


class Whole(Detection):
    def make_yolo(self):
        """The same pictures and objects as YOLO has them."""
        root = self.path("yolo")
        write_yaml = "path: /nobody/has/this\ntrain: ../images/train\nval: images/val\nnames:\n" \
                     "  0: blue thing\n  1: red thing\n"
        for split in ("train", "val"):
            truth = self.truth(split)
            for kind in ("images", "labels"):
                os.makedirs(f"{root}/{kind}/{split}")
            for image in truth["images"]:
                name = image["file_name"]
                shutil.copy(f"{self.images}/{name}", f"{root}/images/{split}/{name}")
                lines = []
                for each in truth["annotations"]:
                    if each["image_id"] != image["id"]:
                        continue
                    x, y, w, h = each["bbox"]
                    lines.append(f"{ {7: 0, 3: 1}[each['category_id']]} {(x + w / 2) / image['width']!r} "
                                 f"{(y + h / 2) / image['height']!r} {w / image['width']!r} "
                                 f"{h / image['height']!r}\n")
                write(f"{root}/labels/{split}/{name[:-4]}.txt", "".join(lines))
        write(f"{root}/data.yaml", write_yaml)
        return root

    def test_yolo_labels(self):
        root = self.make_yolo()
        # Classes are found by their names, in whatever order.
        weights = f"{self.whole}/best.safetensors"
        numbers = [json.loads(self.succeed("eval", weights, images, "--annotations", annotations,
                                           "--json").stdout)
                   for images, annotations in ((self.images, f"{self.data}/val.json"),
                                               (f"{root}/images/val", f"{root}/labels/val"))]
        for key in ("AP", "AP50", "AR100", "pictures"):
            self.assertAlmostEqual(numbers[0][key], numbers[1][key], places=6, msg=key)
        self.assertEqual({row["name"]: row["objects"] for row in numbers[0]["classes"]},
                         {row["name"]: row["objects"] for row in numbers[1]["classes"]})
        # A recipe finds what data.yaml tells.
        recipe = "".join(line for line in read(self.recipe).splitlines(keepends=True)
                         if line.split(" ")[0] not in ("train", "train_images", "val", "val_images"))
        own = write(self.path("yolo.toml"), recipe)
        done = self.succeed("train", own, "-o", self.path("yolo_run"),
                            *settings(f"data.path={root}", "epochs=1"))
        self.expect_words(done.stdout, "9 pictures to train", "5 to validate", "2 classes")
        metadata, _ = read_safetensors(self.path("yolo_run/best.safetensors"))
        self.assertEqual(json.loads(metadata["labels"]), ["blue thing", "red thing"])
        write(f"{root}/labels/train/train1.txt", "0 30 20 10 10\n")
        self.expect_failure(run("train", own, "-o", self.path("none"), "--set", f"data.path={root}"),
                            "train1.txt: line 1", "pixels must be divided")

    def test_run(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.expect_words(self.done.stdout, "9 pictures to train", "AP50", "qna detect")
        metadata, _ = read_safetensors(f"{self.whole}/best.safetensors")
        self.assertEqual(json.loads(metadata["labels"]), ["red thing", "blue thing"])
        self.assertEqual(json.loads(metadata["category_ids"]), [3, 7])
        epochs = epochs_of(self.whole)
        self.assertLess(epochs[-1]["train_loss"], epochs[0]["train_loss"])
        self.expect_words(read(f"{self.whole}/report.html"), "Precision and recall",
                          "The worst pictures", "Where the model looks",
                          "Look around in one picture")

    def test_preview_shows_the_boxes(self):
        sizes = []
        for variants in ("1", "4"):
            out = self.path(f"preview{variants}.png")
            done = self.succeed("data", "preview", self.recipe, "-o", out, "--pictures", "3",
                                "--variants", variants)
            self.assertEqual(done.stdout, out + "\n", done.stderr)
            sizes.append(struct.unpack(">II", read_bytes(out)[16:24]))
        self.assertGreater(sizes[1][0], 2 * sizes[0][0])  # a column for each epoch

    def evaluate(self, annotations, *more):
        return self.succeed("eval", self.last, self.images, "--annotations", annotations, *more)

    def test_eval_agrees_with_coco_eval(self):
        found, summary = self.path("results.json"), self.path("summary.json")
        truth = f"{self.data}/val.json"
        numbers = json.loads(self.evaluate(truth, "--json", "--results", found).stdout)
        self.assertEqual(numbers["pictures"], 5)
        self.assertAlmostEqual(100 * numbers["AP"], state_of(self.last)["metrics"]["AP"], places=4)
        self.succeed("coco-eval", truth, found, "--json", summary)
        self.assertIn(json.dumps(numbers["AP"])[:10], read(summary))

    def test_eval_finds_the_classes_of_voc_files_by_name(self):
        truth = self.truth()
        names = {c["id"]: c["name"] for c in truth["categories"]}
        folder = self.path("voc")
        os.makedirs(folder)
        for image in truth["images"]:
            objects = ""
            for a in truth["annotations"]:
                if a["image_id"] != image["id"]:
                    continue
                x, y, w, h = a["bbox"]
                objects += (f"<object><name>{names[a['category_id']]}</name><bndbox>"
                            f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin>"
                            f"<xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox></object>")
            stem = os.path.splitext(image["file_name"])[0]
            write(f"{folder}/{stem}.xml",
                  f"<annotation><filename>{image['file_name']}</filename><size>"
                  f"<width>{image['width']}</width><height>{image['height']}</height>"
                  f"<depth>3</depth></size>{objects}</annotation>")
        found = []
        for name, annotations in (("coco", f"{self.data}/val.json"), ("voc", folder)):
            results = self.path(f"{name}_results.json")
            self.evaluate(annotations, "--results", results)
            found.append(read_json(results))
        # VOC has no ids: they are the places of the detector's classes, though "blue" comes first
        # in the alphabet.
        places = {3: 1, 7: 2}
        self.assertEqual(len(found[0]), 5 * 8)
        self.assertEqual([dict(row, category_id=places[row["category_id"]]) for row in found[0]],
                         found[1])

    def test_eval_of_other_categories(self):
        truth = self.truth()
        for category, id in zip(truth["categories"], (3, 8)):
            category.update(id=id, name="thing")
        truth["annotations"] = [a for a in truth["annotations"] if a["category_id"] == 3]
        done = self.evaluate(write_json(self.path("other.json"), truth))
        self.expect_words(done.stderr, "category 3 is 'thing'", "but 'red thing'")
        truth["categories"] = [{"id": 1, "name": "red thing"}]
        truth["annotations"] = [dict(a, category_id=1) for a in truth["annotations"]]
        other = write_json(self.path("other.json"), truth)
        self.expect_failure(run("eval", self.last, self.images, "--annotations", other), "other.json",
                            "none of the detector's 2 categories")

    def test_ids_of_images(self):
        for name in ("7.png", "12.png", "b.png"):
            shutil.copy(f"{self.images}/val1.png", self.path(name))
        done = run("detect", self.last, self.path("12.png"), self.path("7.png"))
        self.expect_words(done.stdout, "12.png (id 12)", "7.png (id 7)")
        # Places in the list where one of them is no number, so that no id comes twice.
        done = run("detect", self.last, self.path("b.png"), self.path("12.png"))
        self.expect_words(done.stdout, "b.png (id 1)", "12.png (id 2)")

    def test_boxes_are_in_pixels_of_the_annotations(self):
        truth = self.truth()
        for image in truth["images"]:
            image["width"] *= 2
            image["height"] *= 3
        larger = write_json(self.path("larger.json"), truth)
        boxes = []
        for name, annotations in (("as", f"{self.data}/val.json"), ("larger", larger)):
            found = self.path(f"{name}_found.json")
            self.succeed("detect", self.last, f"{self.images}/val1.png", "--threshold", "0",
                         "--annotations", annotations, "--json", found)
            boxes.append([row["bbox"] for row in read_json(found)])
        self.assertEqual(len(boxes[0]), 8)
        for a, b in zip(*boxes):
            for value, larger, scale in zip(a, b, (2, 3, 2, 3)):
                self.assertAlmostEqual(scale * value, larger, places=2)

    def test_detect(self):
        out, found = self.path("found"), self.path("found.json")
        done = self.succeed("detect", self.last, f"{self.images}/val1.png", f"{self.images}/val2.png",
                            "-o", out, "--json", found, "--threshold", "0", "--annotations",
                            f"{self.data}/val.json", "--attention")
        self.assertIn("val1.png (id 1): 8 objects", done.stdout)
        results = read_json(found)
        self.assertEqual(len(results), 16)
        self.assertEqual({r["image_id"] for r in results}, {1, 2})
        self.assertLessEqual({r["category_id"] for r in results}, {3, 7})
        self.expect_words(os.listdir(out), "val1.png", "val2.attention-8.png")

    def test_the_detector_that_comes_along(self):
        done = self.succeed("detect", f"{self.images}/val1.png", "--threshold", "0")
        self.assertIn("val1.png (id 1): 100 objects", done.stdout)
        self.assertIn("person", done.stdout)

    def test_detect_bad_input(self):
        image = f"{self.images}/val1.png"
        broken = write_bytes(self.path("broken.png"), read_bytes(image)[:200])
        done = run("detect", self.last, broken, image, "--threshold", "0")
        self.expect_failure(done, "broken.png", "1 of 2 pictures")
        self.assertIn("8 objects", done.stdout)
        for arguments, *words in ((["detect", self.last, image, "--attention"], "--out"),
                                  (["detect", self.last, image, "--annotations",
                                    f"{self.data}/train.json"], "--annotations", "val1.png"),
                                  (["detect", self.last, image, "--json", "no/such/folder/a.json"],
                                   "no/such/folder"),
                                  (["predict", self.last, image], "detector"),
                                  (["eval", self.last, self.images], "a detector", "annotations")):
            self.expect_failure(run(*arguments), *words)


class Resumed(Detection):
    def test_killed_and_resumed_to_the_same_bits(self):
        moments = random.Random(7)
        for _ in range(4):
            kill_after(moments.uniform(0.5, 2.5), *self.training("killed", "--resume"))
        self.succeed(*self.training("killed", "--resume", "--set", "data.workers=1"))
        self.assertEqual(weights_of(self.path("killed")), weights_of(self.whole))


class Divided(Detection):
    # Nothing random that differs between processes.
    ONE_STEP = [*settings("model.config.dropout=0", "model.config.backbone.drop_path=0", "epochs=1",
                          "batch=16", "clip=0"), "--threads", "1"]

    def test_gradients_are_those_of_one_process(self):
        runs = {"one": [], "two": ["--processes", "2"], "parts": ["--set", "accumulate=4"]}
        for name, more in runs.items():
            self.succeed(*self.training(name, *self.ONE_STEP, *more))
        expected = gradients(self.path("one"))
        self.assertGreater(len(expected), 50)
        for name in ("two", "parts"):
            # Other padding rounds otherwise.
            self.assertLess(relative_difference(expected, gradients(self.path(name))), 1e-4, name)

    def test_more_processes_than_images_of_the_last_batch(self):
        self.succeed(*self.training("three", "--processes", "3", "--set", "epochs=2"))

    def test_half_precision(self):
        self.succeed(*self.training("half", *settings("precision=bfloat16", "epochs=2")))


class Weights(Detection):
    def expect_trained(self, name, *, part, not_part):
        """Names of tensors with the optimiser's numbers in this run's checkpoint."""
        trained = [name for name in weights_of(self.path(name)) if "exp_avg/" in name]
        self.assertTrue([name for name in trained if f"exp_avg/{part}" in name])
        self.assertFalse([name for name in trained if f"exp_avg/{not_part}" in name])

    def test_another_number_of_classes_is_told(self):
        truth = self.truth("train")
        truth["categories"].append({"id": 9, "name": "green thing"})
        for split in ("more_train", "more_val"):
            write_json(f"{self.data}/{split}.json", truth)
        done = self.succeed(*self.training("more", *settings(
            "data.train=more_train.json", "data.val=more_val.json", "epochs=1",
            f"model.weights={self.last}")))
        self.expect_words(done.stdout, "known by name", "1 of 3 classes are new")

    def test_queries_that_begin_as_boxes(self):
        anchors = settings("model.config.anchors=true", "model.config.waves=8",
                           "model.config.temperature=20")
        for name, more in (("boxes", []), ("boxes2", ["--processes", "2"]),
                           ("boxes3", ["--set", "precision=bfloat16"])):
            self.succeed(*self.training(name, *anchors, "--set", "epochs=2", *more))
        self.assertIn("refpoint_embed.weight", weights_of(self.path("boxes")))
        done = self.succeed("detect", self.path("boxes/last.safetensors"), f"{self.images}/val1.png",
                            "-o", self.path("boxes_found"), "--threshold", "0", "--attention")
        self.assertIn("8 objects", done.stdout)
        done = run(*self.training("mixed", *anchors, "--set", f"model.weights={self.last}"))
        self.expect_failure(done, "are vectors", "are boxes", "anchors")

    def test_the_first_stages_of_a_classifier(self):
        backbone = (f'backbone = "{REPOSITORY}/weights/classifier.safetensors"\n'
                    'freeze = "backbone"')
        recipe = write(self.path("cut.toml"),
                       self.recipe_text("detr_tiny", 1, backbone).replace(GROUP, ""))
        done = self.succeed("train", recipe, "-o", self.path("cut"),
                            *settings("model.backbone_stages=1", "epochs=1"))
        self.assertIn("stages behind number 1: left out", done.stdout)
        self.expect_trained("cut", part="transformer", not_part="backbone")  # frozen
        names = weights_of(self.path("cut"))
        self.assertFalse(any("body.stages.1" in name for name in names))
        done = run("train", recipe, "-o", self.path("cut2"), "--set", "model.backbone_stages=9")
        self.expect_failure(done, "model.backbone_stages", "from 1 to 2", "9")

    def test_frozen_first_stage(self):
        self.succeed(*self.training("frozen", *settings("model.freeze=first_stage", "epochs=1")))
        self.expect_trained("frozen", part="backbone.0.body.stages.1",
                            not_part="backbone.0.body.stages.0")
        first = "backbone.0.body.stages.0.blocks.0.qna.query"
        self.assertNotEqual(weights_of(self.path("frozen"))[first], weights_of(self.whole)[first])

    def test_resnet_with_a_frozen_first_stage(self):
        recipe = write(self.path("resnet.toml"),
                       self.recipe_text("detr_r18", 1, 'freeze = "first_stage"'))
        self.succeed("train", recipe, "-o", self.path("resnet"))
        self.expect_trained("resnet", part="backbone.0.body.layer4",
                            not_part="backbone.0.body.layer1")


class BadInput(Detection):
    def write_truth(self, name, change):
        truth = self.truth("train")
        change(truth)
        write_json(f"{self.data}/{name}.json", truth)

    def test_recipe(self):
        self.expect_bad_settings(("model.config.querys=3", "querys"),
                                 ("augment.shorter=[0]", "augment", "shorter"),
                                 ("loss.no_object=-1", "loss.no_object", "-1"),
                                 ("model.name=detr_tinny", "detr_tinny", "detr_tiny"),
                                 ("model.freeze=half", "model.freeze", "first_stage"),
                                 ("preprocess.crop=[32, 32]", "crop"),
                                 ("model.config.classes=2", "classes"),
                                 ("model.backbone_stages=2", "backbone_stages", "model.backbone"))

    def test_predictions_that_are_not_finite_leave_the_step_out(self):
        # Pixels of 1e38 overflow in the first product.
        done = self.train_with("preprocess.std=[1e-38, 1e-38, 1e-38]", "max_bad_steps=2")
        self.expect_failure(done, "step 3 skipped", "not finite", "max_bad_steps")

    def test_annotations(self):
        self.write_truth("unknown", lambda truth: truth["annotations"][2].update(category_id=5))
        self.write_truth("empty", lambda truth: truth.update(annotations=[]))
        self.write_truth("absent", lambda truth: truth["images"][0].update(file_name="absent.png"))
        self.expect_bad_settings(("data.train=unknown.json", "unknown.json", "category", "5"),
                                 ("data.train=none.json", "none.json"),
                                 ("data.val=empty.json", "empty.json", "no objects"),
                                 ("data.train=absent.json", "absent.png"))
        done = self.train_with("data.train=absent.json", "data.absent=skip", "epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("absent.png", done.stdout)


if __name__ == "__main__":
    REPOSITORY = take_arguments()
    unittest.main(verbosity=1)

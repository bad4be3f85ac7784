#!/usr/bin/env python3
"""Writes golden.json beside it: what pycocotools says of the pairs here and of random cases.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install pycocotools==2.0.11 numpy
    /tmp/venv/bin/python tests/coco/make_golden.py

The cases are those of qna/coco/random_case_testonly.h: the same numbers, drawn in the same order.
"""

import contextlib
import io
import json
import pathlib

import numpy
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

FOLDER = pathlib.Path(__file__).parent
CASES = 40


class Random:
    """A linear congruential generator: simple enough to be the same in two languages."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state * 1664525 + 1013904223) % 2**32
        return (self.state >> 8) % limit


SIZES = [0, 8, 32, 64, 96, 128]  # 32 and 96: the limits of the area ranges


def random_case(number):
    """Bits of the number choose what is special; see random_case_testonly.h."""
    crowds, ties, many, unused, zero = (number >> bit & 1 for bit in range(5))
    random = Random(number + 1)
    images = 1 + random.below(10)
    categories = 1 + random.below(2 if many else 5)
    truth = {"images": [{"id": 3 * i + 5} for i in reversed(range(images))],
             "categories": [{"id": 2 * i + 1, "name": f"c{i}"} for i in range(categories)],
             "annotations": []}
    detections = []
    next_id = 0 if zero else 1

    def length():
        if random.below(2):
            return SIZES[random.below(len(SIZES))]
        return (1 + random.below(600)) / 4

    for image in range(images):
        objects = []
        for _ in range(random.below(9)):
            box = [random.below(400) / 4, random.below(400) / 4, length(), length()]
            category = random.below(categories)
            if unused and category == categories - 1 and category > 0:
                category = 0
            crowd = crowds and random.below(4) == 0
            area = box[2] * box[3] * (4 - random.below(2)) / 4
            objects.append((box, category))
            truth["annotations"].append({"id": next_id, "image_id": 3 * image + 5,
                                         "category_id": 2 * category + 1, "bbox": box,
                                         "area": area, "iscrowd": int(crowd)})
            next_id += 1
        for _ in range(random.below(260 if many else 14)):
            if objects and random.below(3):
                (x, y, width, height), category = objects[random.below(len(objects))]
                box = [x + (random.below(9) - 4) / 2, y + (random.below(9) - 4) / 2,
                       max(0, width + (random.below(9) - 4)), max(0, height + (random.below(9) - 4))]
                if random.below(4) == 0:
                    box = [x, y, width, height]
            else:
                box = [random.below(400) / 4, random.below(400) / 4, length(), length()]
                category = random.below(categories)
            category_id = 999 if random.below(20) == 0 else 2 * category + 1
            score = random.below(5) / 4 if ties else random.below(2**20) / 2**20
            detections.append({"image_id": 3 * image + 5, "category_id": category_id,
                               "bbox": box, "score": score})
    return truth, detections


def evaluate(truth, detections):
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = truth
        coco.createIndex()
        if detections:
            found = coco.loadRes(detections)
        else:  # which loadRes cannot do
            found = COCO()
            found.dataset = dict(truth, annotations=[])
            found.createIndex()
        evaluation = COCOeval(coco, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    result = evaluation.eval

    def per_category(k):
        values = result["precision"][:, :, k, 0, 2]
        return float(values[values > -1].mean()) if (values > -1).any() else -1

    def checksum(array):
        """Weights from 1 to 13 by the place, so that a value in the wrong place shows."""
        places = numpy.arange(array.size) % 13 + 1
        return float((array.reshape(-1) * places).sum())

    # [category, area, threshold, recall or limit], as qna::coco::Evaluation has them
    return {"numbers": [float(number) for number in evaluation.stats],
            "categories": [per_category(k) for k in range(result["precision"].shape[2])],
            "precision": checksum(result["precision"][..., 2].transpose(2, 3, 0, 1)),
            "scores": checksum(result["scores"][..., 2].transpose(2, 3, 0, 1)),
            "recall": checksum(result["recall"].transpose(1, 2, 0, 3))}


def load(name):
    return json.loads((FOLDER / name).read_text())


golden = {
    "small": evaluate(load("small_gt.json"), load("small_dt.json")),
    "val2014_100": evaluate(load("val2014_100_gt.json"),
                            load("val2014_100_fakebbox_results.json")),
    "random": [evaluate(*random_case(number)) for number in range(CASES)],
}
rows = ",\n".join(" " + json.dumps(row) for row in golden.pop("random"))
head = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in golden.items())
(FOLDER / "golden.json").write_text(f'{{{head},\n"random": [\n{rows}\n]}}\n')

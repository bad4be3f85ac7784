"""Times `qna coco-eval` beside pycocotools on random files as large as COCO val2017.

  python3 -m venv build/coco-venv && build/coco-venv/bin/pip install pycocotools==2.0.11
  build/coco-venv/bin/python bench/peers/coco_eval.py build/release/qna

Both read the same files, take turns, and must agree to 1e-9. Of qna the whole process is timed, the
reading of the files included; of pycocotools reading and evaluation (evaluate, accumulate, summarize)
are timed apart. Times are those on the clock and, in brackets, those of the processor, which depend
less on what else the machine does.
"""

import argparse
import contextlib
import io
import json
import os
import random
import resource
import statistics
import subprocess
import tempfile
import time

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

NAMES = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]


def make_files(folder, images, categories, objects, detections):
    """Boxes of all sizes; a third of the detections lies near an object."""
    draw = random.Random(20220427)

    def box():
        width, height = (4 * 2 ** draw.uniform(0, 6.5) for _ in "wh")  # up to 362
        return [draw.uniform(0, 640 - width), draw.uniform(0, 480 - height), width, height]

    truth = {
        "images": [{"id": 7 * i + 1, "width": 640, "height": 480} for i in range(images)],
        "categories": [{"id": i + 1 + i // 9, "name": f"c{i}"} for i in range(categories)],
        "annotations": [],
    }
    ids = [category["id"] for category in truth["categories"]]
    inside = {image["id"]: [] for image in truth["images"]}
    for i in range(objects):
        image_id = draw.choice(truth["images"])["id"]
        bbox = box()
        truth["annotations"].append({
            "id": i + 1, "image_id": image_id, "category_id": draw.choice(ids), "bbox": bbox,
            "area": bbox[2] * bbox[3] * draw.uniform(0.5, 1), "iscrowd": int(draw.random() < 0.01)})
        inside[image_id].append(truth["annotations"][-1])
    found = []
    for image_id, here in inside.items():
        for _ in range(detections):
            bbox, category = box(), draw.choice(ids)
            if here and draw.random() < 1 / 3:
                near = draw.choice(here)
                bbox = [value + draw.gauss(0, 0.1) * near["bbox"][2 + i % 2]
                        for i, value in enumerate(near["bbox"])]
                bbox[2:] = [max(1, value) for value in bbox[2:]]
                category = near["category_id"]
            found.append({"image_id": image_id, "category_id": category,
                          "bbox": [round(value, 2) for value in bbox],
                          "score": round(draw.random(), 5)})
    paths = [os.path.join(folder, name) for name in ("gt.json", "dt.json")]
    for path, content in zip(paths, (truth, found)):
        with open(path, "w") as file:
            json.dump(content, file)
    return paths


class Clock:
    """Seconds since it was made: on the clock, and of the processor."""

    def __init__(self, whose):
        self.whose = whose
        self.start = self.now()

    def now(self):
        used = resource.getrusage(self.whose)
        return time.perf_counter(), used.ru_utime + used.ru_stime

    def seconds(self):
        return [now - start for now, start in zip(self.now(), self.start)]


def run_pycocotools(truth, found):
    """Seconds of reading, seconds of evaluation, the twelve numbers."""
    with contextlib.redirect_stdout(io.StringIO()):
        clock = Clock(resource.RUSAGE_SELF)
        ground_truth = COCO(truth)
        results = ground_truth.loadRes(found)
        read = clock.seconds()
        clock = Clock(resource.RUSAGE_SELF)
        evaluation = COCOeval(ground_truth, results, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
        return read, clock.seconds(), list(evaluation.stats)


def run_qna(program, threads, truth, found, folder):
    """Seconds of the whole process, the twelve numbers."""
    path = os.path.join(folder, "numbers.json")
    clock = Clock(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "coco-eval", truth, found, "--threads", str(threads), "--json", path],
                   check=True, stdout=subprocess.DEVNULL)
    seconds = clock.seconds()
    with open(path) as file:
        numbers = json.load(file)
    return seconds, [numbers[name] for name in NAMES]


def median(rounds):
    """Of each kind of seconds."""
    return [statistics.median(kind) for kind in zip(*rounds)]


def text(seconds):
    return "{:.2f} s ({:.2f} s)".format(*seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--pictures", type=int, default=5000)
    parser.add_argument("--categories", type=int, default=80)
    parser.add_argument("--objects", type=int, default=36000)
    parser.add_argument("--detections", type=int, default=100, help="per picture")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    a = parser.parse_args()
    read, evaluated, whole = [], [], {threads: [] for threads in a.threads}
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(folder, a.pictures, a.categories, a.objects, a.detections)
        for _ in range(a.rounds):
            for threads in a.threads:
                seconds, numbers = run_qna(a.program, threads, *files, folder)
                whole[threads].append(seconds)
            reading, evaluating, expected = run_pycocotools(*files)
            read.append(reading)
            evaluated.append(evaluating)
            difference = max(abs(x - y) for x, y in zip(numbers, expected))
            if difference > 1e-9:
                raise SystemExit(f"the numbers differ by {difference}")
    print(f"medians of {a.rounds} rounds; AP {expected[0]:.4f}, difference {difference:.1e}")
    print(f"pycocotools: reading {text(median(read))}, evaluation {text(median(evaluated))}")
    for threads, seconds in whole.items():
        mine = median(seconds)
        ratio = [peer / own for peer, own in zip(median(evaluated), mine)]
        print(f"qna, {threads} threads: {text(mine)} for both; faster than the evaluation alone by "
              "{:.0f} ({:.0f})".format(*ratio))


if __name__ == "__main__":
    main()

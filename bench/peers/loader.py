"""Training pictures as timm and torchvision make them with Pillow, on one core, for `qna bench loader`.

  echo 'run 100' | loader.py --folder pictures --size 224 --count 256

Answers as worker.py does; `run N` is N pictures. See README.md.
"""

import argparse
import json
import os
import sys
import time

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"


def find_pictures(folder, count):
    """`count` pictures, evenly spread over the sorted list, as bench/loader.cc takes them."""
    found = sorted(
        os.path.join(place, name)
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith((".jpg", ".jpeg", ".png"))
    )
    if not found:
        raise ValueError(f"there are no pictures in {folder}")
    count = min(count, len(found))
    return [found[i * len(found) // count] for i in range(count)]


class Loader:
    def __init__(self, folder, size, count):
        import torch

        import torch_subjects

        torch.set_num_threads(1)
        timm = torch_subjects.import_timm()
        import PIL
        import torchvision
        from timm.data import auto_augment, create_transform

        # At the highest magnitude timm asks for 0 bits, which is black; Pillow 13 refuses that.
        posterize = auto_augment.NAME_TO_OP["PosterizeIncreasing"]
        auto_augment.NAME_TO_OP["PosterizeIncreasing"] = (
            lambda image, bits, **rest: posterize(image, max(bits, 1), **rest)
        )
        self.paths = find_pictures(folder, count)
        self.transform = create_transform(
            size,
            is_training=True,
            auto_augment="rand-m9-mstd0.5-inc1",
            interpolation="bicubic",
            re_prob=0.0,
        )
        self.version = (
            f"timm {timm.__version__}, torchvision {torchvision.__version__}, Pillow {PIL.__version__}"
        )
        self.position = 0
        if tuple(self.next().shape) != (3, size, size):
            raise RuntimeError("the pictures have another size than asked for")

    def next(self):
        from PIL import Image

        path = self.paths[self.position % len(self.paths)]
        self.position += 1
        with open(path, "rb") as file:
            return self.transform(Image.open(file).convert("RGB"))


def main():
    stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print goes to stderr
    say = lambda answer: print(json.dumps(answer), file=stdout, flush=True)
    try:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--folder", required=True)
        parser.add_argument("--size", type=int, required=True)
        parser.add_argument("--count", type=int, required=True)
        arguments = parser.parse_args()
        loader = Loader(arguments.folder, arguments.size, arguments.count)
        for _ in loader.paths:  # files into memory
            loader.next()
        say({"ready": True, "version": loader.version})
        for line in sys.stdin:
            words = line.split()
            if words == ["quit"]:
                return
            if len(words) != 2 or words[0] != "run" or not words[1].isdecimal():
                raise ValueError(f"unknown request {line.strip()!r}; there are: run N, quit")
            start = time.perf_counter()
            for _ in range(int(words[1])):
                loader.next()
            say({"seconds": time.perf_counter() - start})
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:
        say({"error": " ".join(f"{type(error).__name__}: {error}".split())[:1000]})
        sys.exit(1)


if __name__ == "__main__":
    main()

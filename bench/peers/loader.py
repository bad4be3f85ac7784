"""Training pictures as timm and torchvision make them with Pillow, on one core, for `qna bench loader`.

  echo 'run 100' | loader.py --folder pictures --size 224 --count 256

Answers as worker.py does; `run N` is N pictures. See README.md.
"""

import os

import protocol

protocol.use_threads(1)


def find_images(folder, count):
    """`count` images, evenly spread over the sorted list, as bench/loader.cc takes them."""
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
        self.paths = find_images(folder, count)
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


def start():
    parser = protocol.Parser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--size", type=protocol.positive, required=True)
    parser.add_argument("--count", type=protocol.positive, required=True)
    arguments = parser.parse_args()
    loader = Loader(arguments.folder, arguments.size, arguments.count)
    for _ in loader.paths:  # files into memory
        loader.next()
    return {"ready": True, "version": loader.version}, {"run": protocol.timed(loader.next)}


if __name__ == "__main__":
    protocol.serve(start)

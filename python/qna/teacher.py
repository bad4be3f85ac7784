"""What another network says of pictures, written to files that `qna train` learns from (`[teacher]` in a recipe).

    python -m qna.teacher --timm tf_efficientnet_lite0 --checkpoint lite0.pth DATA/train -o targets --views 2

or, for any network of yours,

    qna.teacher.write_targets(teacher, "DATA/train", "targets", classes=names)

Every picture is seen in some views: parts of it, some mirrored. The files hold the views beside the answers, so that
the student sees what the teacher saw. A file holds the answers for a few thousand pictures; what is there already is
kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import json
import math
import os
import sys
import time
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import numpy as np
import torch
from torch import Tensor, nn

from qna import _safetensors
from qna._checks import check
from qna._error import Error

__all__ = ["Views", "write_targets"]

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
FORMAT = "1"

# Pictures [B, 3, size, size] to logits [B, classes], or to those and features [B, F].
Teacher = Callable[[Tensor], Union[Tensor, tuple[Tensor, Tensor]]]


@dataclasses.dataclass(frozen=True)
class Views:
    """How pictures are shown to the teacher.

    Args:
        count: views of each picture.
        size: of the teacher's pictures, in pixels.
        scale: share of the picture's area that a view shows, from and to.
        ratio: of a view's width to its height, from and to.
        mean, std: of the teacher's normalisation, for red, green and blue from 0 to 1.
        seed: of the views.
    """

    count: int = 1
    size: int = 224
    scale: tuple[float, float] = (0.25, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    seed: int = 0

    def __post_init__(self) -> None:
        check(self.count >= 1, "Views", "count must be at least 1, got {}", self.count)
        check(1 <= self.size <= 4096, "Views", "size must be from 1 to 4096, got {}", self.size)
        check(0 < self.scale[0] <= self.scale[1] <= 1, "Views", "scale must rise from above 0 to 1, got {}", self.scale)
        check(0 < self.ratio[0] <= self.ratio[1], "Views", "ratio must rise from above 0, got {}", self.ratio)
        check(all(value > 0 for value in self.std), "Views", "std must be above 0, got {}", self.std)

    def of(self, index: int, height: int, width: int) -> np.ndarray:
        """[count, 5]: top, left, height and width in pixels, and whether it is mirrored, for picture `index`."""
        random = np.random.default_rng([self.seed, index])
        return np.array([[*self._part(random, height, width), random.integers(2)] for _ in range(self.count)], np.int32)

    def _part(self, random: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
        for _ in range(10):
            area = height * width * random.uniform(*self.scale)
            ratio = math.exp(random.uniform(*map(math.log, self.ratio)))
            h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
            if 1 <= h <= height and 1 <= w <= width:
                return int(random.integers(height - h + 1)), int(random.integers(width - w + 1)), h, w
        side = min(height, width)
        return (height - side) // 2, (width - side) // 2, side, side


def find_images(root: str) -> list[str]:
    """Names of all pictures below `root`, with their folders, sorted."""
    found = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names
                  if name.lower().endswith(ENDINGS) and not name.startswith(".")]
    if not found:
        raise Error(f"{root}: there is no picture ({', '.join(ENDINGS)}) in this folder")
    return sorted(found)


class _Shown:
    """A picture's views, as pixels; None for a picture that cannot be read."""

    def __init__(self, root: str, views: Views) -> None:
        self.root, self.views = root, views

    def __call__(self, index: int, name: str) -> Optional[tuple[tuple[int, int], np.ndarray, np.ndarray]]:
        from PIL import Image, ImageOps

        try:
            with Image.open(os.path.join(self.root, name)) as file:
                image = ImageOps.exif_transpose(file).convert("RGB")
        except (OSError, ValueError) as problem:
            print(f"left out: {name}: {problem}", file=sys.stderr)
            return None
        parts = self.views.of(index, image.height, image.width)
        shown = np.stack([self._pixels(image, part) for part in parts])
        return (image.height, image.width), parts, shown

    def _pixels(self, image: Any, part: np.ndarray) -> np.ndarray:
        from PIL import Image

        top, left, height, width, mirrored = (int(number) for number in part)
        size = (self.views.size, self.views.size)
        pixels = np.asarray(image.crop((left, top, left + width, top + height)).resize(size, Image.Resampling.BICUBIC))
        return pixels[:, ::-1] if mirrored else pixels


def write_targets(teacher: Teacher, root: str, folder: str, *, classes: Sequence[str], views: Views = Views(),
                  name: str = "teacher", batch: int = 32, images_per_file: int = 8192, threads: int = 2,
                  tell: Callable[[int, int], None] = lambda done, total: None) -> list[str]:
    """Shows all pictures below `root` to `teacher` and writes what it says to files in `folder`.

    Args:
        teacher: pictures [B, 3, size, size], normalised, to logits [B, classes] or to logits and features [B, F].
        root: the folder of the training pictures: the one that has the class folders.
        folder: gets the files, and may have some from before: those are kept.
        classes: names of the teacher's classes, as the folders of a validation set have them.
        views: how pictures are shown.
        name: of the teacher, for people.
        batch: views the teacher sees at once.
        images_per_file: pictures whose answers lie in one file.
        threads: that read pictures.
        tell: called with the number of pictures done, and of all.

    Returns: the paths of the files.
    """
    check(batch >= 1 and images_per_file >= 1 and threads >= 1, "write_targets",
          "batch, images_per_file and threads must be at least 1, got {}, {}, {}", batch, images_per_file, threads)
    check(len(classes) >= 2, "write_targets", "classes must be at least 2 names, got {}", len(classes))
    names = find_images(root)
    os.makedirs(folder, exist_ok=True)
    metadata = {"format": FORMAT, "teacher": name, "classes": json.dumps(list(classes), ensure_ascii=False),
                "views": json.dumps(dataclasses.asdict(views))}
    files = []
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(names), images_per_file):
            path = os.path.join(folder, f"{first // images_per_file:05}.safetensors")
            files.append(path)
            if os.path.exists(path):
                _check_same(path, metadata, names[first])
                continue
            part = range(first, min(first + images_per_file, len(names)))
            shown = _ahead(pool, _Shown(root, views), [(index, names[index]) for index in part], 4 * batch)
            tensors = _answers(teacher, shown, [names[index] for index in part], views, batch, len(classes),
                               lambda done: tell(first + done, len(names)))
            if tensors is None:
                raise Error(f"{root}: none of the pictures from {names[first]} on can be read")
            _safetensors.write(path, tensors, metadata)
    return files


def _check_same(path: str, metadata: dict[str, str], first: str) -> None:
    """A file that is there must be of this run."""
    found, tensors = _safetensors.read(path)
    if found != metadata or bytes(tensors["names"].numpy()).decode().split("\n")[0] > first:
        raise Error(f"{path}: this file was written with other pictures, views, classes or another teacher; "
                    "give another folder, or remove it")


def _ahead(pool: concurrent.futures.Executor, work: Callable[..., Any], items: list[Any], ahead: int) -> Iterator[Any]:
    """work(*item) of all items, in order, at most `ahead` of them before they are asked for."""
    waiting = iter(items)
    futures = [pool.submit(work, *item) for item in itertools.islice(waiting, ahead)]
    while futures:
        yield futures.pop(0).result()
        futures += [pool.submit(work, *item) for item in itertools.islice(waiting, 1)]


def _answers(teacher: Teacher, shown: Iterator[Any], names: list[str], views: Views, batch: int, classes: int,
             tell: Callable[[int], None]) -> Optional[dict[str, Tensor]]:
    """The tensors of a file; None where no picture could be read."""
    kept, sizes, parts, logits, features = [], [], [], [], []
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (views.mean, views.std))
    pixels: list[np.ndarray] = []

    def ask(count: int) -> None:
        images = torch.from_numpy(np.stack(pixels[:count])).permute(0, 3, 1, 2).float().div_(255)
        del pixels[:count]
        with torch.inference_mode():
            answer = teacher(images.sub_(mean).div_(std))
        said = answer if isinstance(answer, tuple) else (answer,)
        if said[0].dim() != 2 or said[0].shape[1] != classes:
            raise Error(f"write_targets: the teacher must give [B, {classes}] logits, one per class, "
                        f"got {list(said[0].shape)}")
        logits.append(said[0].half())
        if len(said) > 1:
            features.append(said[1].half())

    for done, (name, seen) in enumerate(zip(names, shown), start=1):
        if seen is not None:
            kept.append(name)
            sizes.append(seen[0])
            parts.append(seen[1])
            pixels.extend(seen[2])
        while len(pixels) >= batch:
            ask(batch)
        tell(done)
    if pixels:
        ask(len(pixels))
    if not kept:
        return None
    count = len(kept)
    text = np.frombuffer("\n".join(kept).encode(), np.uint8)
    tensors = {"names": torch.from_numpy(text.copy()), "sizes": torch.tensor(sizes, dtype=torch.int32),
               "views": torch.from_numpy(np.stack(parts)), "logits": torch.cat(logits).view(count, views.count, -1)}
    if features:
        tensors["features"] = torch.cat(features).view(count, views.count, -1)
    return tensors


def timm_teacher(name: str, checkpoint: Optional[str], in_order: bool, bfloat16: bool) -> tuple[Teacher, nn.Module]:
    """A classifier of timm that gives logits and pooled features; and the network."""
    import timm

    network = timm.create_model(name, pretrained=checkpoint is None)
    if checkpoint is not None:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        if in_order:
            state = _in_order(network.state_dict(), state)
        network.load_state_dict(state)
    network = network.eval().to(memory_format=torch.channels_last)

    def answer(images: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            features = network.forward_head(network.forward_features(images.contiguous(
                memory_format=torch.channels_last)), pre_logits=True)
            return network.get_classifier()(features).float(), features.float()

    return answer, network


def _in_order(own: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file with other names, if they come in the same order with the same sizes."""
    if [list(tensor.shape) for tensor in own.values()] != [list(tensor.shape) for tensor in given.values()]:
        raise Error(f"--in-order: the checkpoint's {len(given)} tensors must have the sizes of the network's {len(own)}, "
                    "in the same order")
    return dict(zip(own, given.values()))


def _show_progress() -> Callable[[int, int], None]:
    """Prints pictures per second and the time left, about every five seconds."""
    begin = last = time.monotonic()
    first: Optional[int] = None

    def tell(done: int, total: int) -> None:
        nonlocal last, first
        now = time.monotonic()
        if first is None:
            first = done - 1  # what was there already
        if now - last < 5 and done < total:
            return
        last = now
        rate = (done - first) / max(now - begin, 1e-9)
        print(f"{done:,} of {total:,} pictures, {rate:.0f} a second, {(total - done) / rate / 60:.1f} min left",
              file=sys.stderr, flush=True)

    return tell


def main(arguments: Optional[list[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m qna.teacher", description=__doc__.split("\n")[0], epilog="""
        Example: python -m qna.teacher --timm tf_efficientnet_lite0 DATA/train -o targets --views 2""")
    parser.add_argument("root", help="the folder of the training pictures: the one that has the class folders")
    parser.add_argument("--timm", required=True, metavar="NAME", help="a classifier of timm")
    parser.add_argument("--checkpoint", metavar="FILE", help="its weights; without: timm's own, from the hub")
    parser.add_argument("--in-order", action="store_true",
                        help="the file's tensors have other names, but the network's order")
    parser.add_argument("--classes", metavar="FILE",
                        help="a text file with a name per line, as folders of a validation set have them; "
                             "without: 0, 1, 2 ...")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="gets the files")
    parser.add_argument("--views", type=int, default=1, help="of each picture (default: 1)")
    parser.add_argument("--size", type=int, help="the teacher's picture size (default: the network's)")
    parser.add_argument("--scale", type=float, nargs=2, default=(0.25, 1.0), metavar=("FROM", "TO"),
                        help="share of a picture's area that a view shows (default: 0.25 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the views (default: 0)")
    parser.add_argument("--bfloat16", action="store_true", help="products in bfloat16: twice as fast where CPUs have it")
    parser.add_argument("--threads", type=int, default=2, help="that read pictures (default: 2)")
    given = parser.parse_args(arguments)
    try:
        teacher, network = timm_teacher(given.timm, given.checkpoint, given.in_order, given.bfloat16)
        config = network.pretrained_cfg
        views = Views(given.views, given.size or config["input_size"][-1], tuple(given.scale), mean=config["mean"],
                      std=config["std"], seed=given.seed)
        classes = [str(i) for i in range(network.num_classes)]
        if given.classes:
            with open(given.classes, encoding="utf-8") as file:
                classes = file.read().split("\n")
            classes = classes[:-1] if classes and not classes[-1] else classes
        files = write_targets(teacher, given.root, given.out, classes=classes, views=views, name=given.timm,
                              threads=given.threads, tell=_show_progress())
    except (Error, OSError) as problem:
        print(f"qna.teacher: {problem}", file=sys.stderr)
        return 1
    print(f"wrote {len(files)} files to {given.out}; next: targets = \"{given.out}\" in the recipe's [teacher]")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Files of a teacher's targets: what is in them, that a stopped run goes on, and that the trainer learns from them."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch

import qna
from qna import _safetensors, teacher

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

VIEWS = teacher.Views(2, size=8, scale=(0.3, 0.9), seed=3)
CLASSES = ["dark", "light"]


def says(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A teacher that looks at the brightness."""
    mean = images.mean((1, 2, 3))
    return torch.stack([-mean, mean], 1), images.mean((2, 3))


@pytest.fixture
def pictures(tmp_path):
    root = tmp_path / "train"
    random = np.random.default_rng(1)
    for index, name in enumerate(["dark/a.png", "dark/b.png", "light/c.png", "light/d.png", "light/deep/e.png"]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (20 + index, 30, 3), dtype=np.uint8)).save(root / name)
    (root / "light" / "notes.txt").write_text("no picture")
    return str(root)


def read(folder: str) -> list[tuple[dict, dict]]:
    return [_safetensors.read(os.path.join(folder, name)) for name in sorted(os.listdir(folder))]


def test_files_hold_what_the_teacher_said(pictures, tmp_path):
    out = str(tmp_path / "targets")
    done = []
    files = teacher.write_targets(says, pictures, out, classes=CLASSES, views=VIEWS, batch=3, images_per_file=2,
                                  tell=lambda *numbers: done.append(numbers))
    assert len(files) == 3 and done[-1] == (5, 5)
    parts = read(out)
    names = [name for _, tensors in parts for name in bytes(tensors["names"].numpy()).decode().split("\n")]
    assert names == ["dark/a.png", "dark/b.png", "light/c.png", "light/d.png", "light/deep/e.png"]
    metadata, tensors = parts[1]
    assert json.loads(metadata["classes"]) == CLASSES
    assert tensors["sizes"].tolist() == [[22, 30], [23, 30]]
    assert tensors["logits"].shape == (2, 2, 2) and tensors["logits"].dtype == torch.float16
    # What the teacher says of the view that the file names, cut out again here.
    top, left, height, width, mirrored = tensors["views"][0, 1].tolist()
    image = Image.open(os.path.join(pictures, "light/c.png"))
    pixels = np.asarray(image.crop((left, top, left + width, top + height)).resize((8, 8), Image.Resampling.BICUBIC))
    seen = torch.from_numpy((pixels[:, ::-1] if mirrored else pixels).copy()).permute(2, 0, 1) / 255
    seen = (seen - torch.tensor(VIEWS.mean)[:, None, None]) / torch.tensor(VIEWS.std)[:, None, None]
    logits, features = says(seen[None])
    assert torch.allclose(tensors["logits"][0, 1].float(), logits[0], atol=2e-3)
    assert torch.allclose(tensors["features"][0, 1].float(), features[0], atol=2e-3)


def test_a_stopped_run_goes_on(pictures, tmp_path):
    whole, stopped = str(tmp_path / "whole"), str(tmp_path / "stopped")
    options = {"classes": CLASSES, "views": VIEWS, "images_per_file": 2}
    teacher.write_targets(says, pictures, whole, **options)
    calls = 0

    def fails(images):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return says(images)

    with pytest.raises(KeyboardInterrupt):
        teacher.write_targets(fails, pictures, stopped, **options)
    assert os.listdir(stopped) == ["00000.safetensors"]
    teacher.write_targets(fails, pictures, stopped, **options)
    assert calls == 4  # not the first file again
    for (a_metadata, a), (b_metadata, b) in zip(read(whole), read(stopped)):
        assert a_metadata == b_metadata and all(torch.equal(a[name], b[name]) for name in a)
    with pytest.raises(qna.Error, match="other pictures, views, classes"):
        teacher.write_targets(says, pictures, whole, **{**options, "views": teacher.Views(1)})


def test_pictures_that_cannot_be_read_are_left_out(pictures, tmp_path, capsys):
    with open(os.path.join(pictures, "dark", "a.png"), "wb") as file:
        file.write(b"no picture")
    teacher.write_targets(says, pictures, str(tmp_path / "out"), classes=CLASSES, views=VIEWS)
    (_, tensors), = read(str(tmp_path / "out"))
    assert tensors["logits"].shape[0] == 4
    assert "left out: dark/a.png" in capsys.readouterr().err


def test_mistakes(pictures, tmp_path):
    out = str(tmp_path / "out")
    with pytest.raises(qna.Error, match=r"\[B, 3\] logits"):
        teacher.write_targets(says, pictures, out, classes=["a", "b", "c"])
    with pytest.raises(qna.Error, match="no picture"):
        teacher.write_targets(says, str(tmp_path / "train" / "none"), out, classes=CLASSES)
    with pytest.raises(qna.Error, match="batch"):
        teacher.write_targets(says, pictures, out, classes=CLASSES, batch=0)
    for wrong in ({"count": 0}, {"scale": (0, 1)}, {"scale": (0.5, 0.2)}, {"size": 0}, {"std": (0, 1, 1)}):
        with pytest.raises(qna.Error, match=next(iter(wrong))):
            teacher.Views(**wrong)


def test_views_are_parts_of_the_picture():
    for index, (height, width) in enumerate([(20, 30), (1, 1), (2, 500), (300, 3)]):
        views = teacher.Views(50, scale=(0.01, 1)).of(index, height, width)
        top, left, h, w, mirrored = views.T
        assert (top >= 0).all() and (left >= 0).all() and (h >= 1).all() and (w >= 1).all()
        assert (top + h <= height).all() and (left + w <= width).all()
        assert set(mirrored) == {0, 1}

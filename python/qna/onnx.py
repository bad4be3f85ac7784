"""Networks as ONNX files, in standard operators.

    qna.export_onnx("classifier.safetensors", "classifier.onnx")   # the largest difference to PyTorch: 3e-06

Batch, height and width of the images are free. The metadata says what a weights file says: configuration, labels and
preprocessing. The file is run by ONNX Runtime on several sizes before it is given out.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
from typing import Any, Optional, Sequence, Union

import torch
from torch import Tensor

from qna import config as configs
from qna import weights
from qna._error import Error
from qna.detectors import DetrOutput
from qna.models import Network

__all__ = ["export_onnx"]

Path = Union[str, "os.PathLike[str]"]


def export_onnx(
    model: Union[Network, Path],
    path: Path,
    *,
    sizes: Optional[Sequence[tuple[int, int]]] = None,
    tolerance: float = 1e-4,
    opset: int = 20,
) -> float:
    """Writes an ONNX file of a network and checks it in ONNX Runtime.

    Args:
        model: a `QnAViT`, `Detr` or `AutoEncoder`, or the path of a weights file. It is exported as it is in
            evaluation mode, in float32, and does not change.
        path: of the file, which is whole and checked, or absent.
        sizes: heights and widths of the images that it is checked on; None: the trained size, one that is larger and
            one that is smaller, both not square.
        tolerance: the largest difference that is allowed between an output and PyTorch's.
        opset: the version of ONNX's operators, at least 18.

    Returns:
        The largest difference between outputs of ONNX Runtime and of PyTorch.

    The input is `images`, float32 [batch, channels, height, width] (or channels last, as the model has them), already
    normalised. Outputs are `logits` [batch, classes] (without a head `features`); of a detector `logits` [batch,
    queries, classes + 1] and `boxes` [batch, queries, 4] of its last block; of an auto-encoder `reconstruction`.

    Needs the packages onnx and onnxruntime.
    """
    onnx, runtime = _import("onnx"), _import("onnxruntime")
    if opset < 18:
        raise Error(f"export_onnx: opset must be at least 18, got {opset}")
    if not isinstance(model, Network):
        model = weights.load(model)
    model = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        onnx.save(_graph(model, opset), temporary)
        difference = _check(temporary, model, sizes or _usual_sizes(model.config), tolerance, runtime)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return difference


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ImportError(f"qna.export_onnx needs the packages onnx and onnxruntime, and {name} is not installed "
                          "(pip install onnx onnxruntime)") from None


def _graph(model: Network, opset: int) -> Any:
    """The onnx.ModelProto."""
    from qna._onnx_graph import Graph
    from qna._onnx_networks import outputs_of

    graph, channels = Graph(opset), weights.channels_of(model.config)
    if model.channels_first:
        images = graph.input("images", ["batch", channels, "height", "width"]).transpose(0, 2, 3, 1)
    else:
        images = graph.input("images", ["batch", "height", "width", channels])
    outputs = outputs_of(model, images)
    if model.channels_first and "reconstruction" in outputs:
        value, _ = outputs["reconstruction"]
        outputs["reconstruction"] = value.transpose(0, 3, 1, 2), ["batch", channels, "height", "width"]
    return graph.model(outputs, weights.metadata_of(model))


# ---- the check ----


def _usual_sizes(config: configs.Config) -> list[tuple[int, int]]:
    height, width = config.image_size if config.kind == configs.CLASSIFIER else (224, 224)
    return [(height, width), (height * 8 // 7, width * 10 // 7), (height * 3 // 7 + 1, width * 4 // 7 + 3)]


def _images(model: Network, batch: int, height: int, width: int) -> Tensor:
    """Random ones, in the network's layout."""
    generator = torch.Generator().manual_seed(height * width + batch)
    images = torch.randn(batch, weights.channels_of(model.config), height, width, generator=generator)
    return images if model.channels_first else images.permute(0, 2, 3, 1).contiguous()


def _expected(model: Network, images: Tensor) -> tuple[Tensor, ...]:
    with torch.no_grad():
        result = model(images)
    return (result.logits[-1], result.boxes[-1]) if isinstance(result, DetrOutput) else (result,)


def _check(path: Path, model: Network, sizes: Sequence[tuple[int, int]], tolerance: float, runtime: Any) -> float:
    """The largest difference; raises qna.Error where it is above the tolerance."""
    session = runtime.InferenceSession(os.fspath(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    largest = 0.0
    for number, (height, width) in enumerate(sizes):
        images = _images(model, 1 + number % 3, height, width)
        results = session.run(names, {"images": images.numpy()})
        for name, array, ours in zip(names, results, _expected(model, images)):
            theirs, where = torch.from_numpy(array), f"for images of {height} x {width}"
            if theirs.shape != ours.shape:
                raise Error(f"export_onnx: {name} must be {list(ours.shape)} {where}, got {list(theirs.shape)}")
            difference = (theirs - ours).abs().max().item()
            if not difference <= tolerance:  # nor NaN
                raise Error(f"export_onnx: {name} must differ from PyTorch's by at most {tolerance:g} {where}, "
                            f"got {difference:g}")
            largest = max(largest, difference)
    return largest

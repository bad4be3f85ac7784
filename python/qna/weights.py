"""Weights files: networks of every kind from and to the files of the program `qna`.

    model = qna.load("classifier.safetensors")     # in evaluation mode; model.labels, model.preprocess
    qna.save(model, "mine.safetensors", labels=["cat", "dog"])

A file holds a network's configuration, its tensors, and what prediction needs to know beside them: how a picture
becomes the network's input, and the names of the classes. The names of the tensors are those of `state_dict()`.
`load` also reads the flax checkpoints of the paper's authors.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Mapping, Optional, Sequence, Union

import torch
from torch import Tensor

from qna import _safetensors, flax
from qna import config as configs
from qna._error import Error
from qna.config import Config
from qna.models import Network, network

__all__ = ["load", "save"]

Path = Union[str, "os.PathLike[str]"]

_FORMAT = "qna-1"
_TRAINING = "training/"  # tensors of a run beside the network's have names that begin so
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


# ---- reading ----


def load(
    path: Path,
    *,
    num_classes: Optional[int] = None,
    config: Optional[Union[str, Mapping[str, Any]]] = None,
    channels_first: bool = True,
    dtype: torch.dtype = torch.float32,
    device: Optional[Union[str, torch.device]] = None,
) -> Network:
    """A network from a weights file, in evaluation mode.

    Args:
        path: a safetensors file of qna, or a flax checkpoint of the paper's authors.
        num_classes: another number of classes than the file's: the last layer is newly initialised.
        config: for a flax checkpoint, which model it is: a name or a configuration; None: told by its tensors.
        channels_first: whether images are [B, C, H, W] or [B, H, W, C].
        dtype: of the parameters, whatever it is in the file.
        device: of the parameters.

    Returns:
        A `QnAViT`, `Detr` or `AutoEncoder` with `labels`, `preprocess`, `name` and `config` of the file.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise Error(f"load: path must be a path, got {type(path).__name__}")
    if _is_flax(path):
        metadata: dict[str, str] = {}
        metadata["name"], parsed, tensors = _read_flax(path, config)
    elif config is None:
        metadata, tensors = _safetensors.read(path)
        parsed = _read_config(metadata, path)
    else:
        raise Error(f"load: config belongs to flax checkpoints, but {path} is a safetensors file")
    tensors = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor
               for name, tensor in tensors.items() if not name.startswith(_TRAINING)}
    kept = _change_classes(parsed, tensors, num_classes)
    if kept:  # the file's names are those of its own classes
        metadata = {key: text for key, text in metadata.items() if key not in ("labels", "category_ids")}
    model = _filled(parsed, channels_first, tensors, kept, path)
    _read_info(model, metadata, path)
    return model.to(device=device, dtype=dtype).eval()


def _is_flax(path: Path) -> bool:
    """A safetensors file has its JSON behind 8 bytes; a checkpoint is a msgpack map, which its first byte says."""
    with open(path, "rb") as file:
        start = file.read(9)
    return start[8:] != b"{" and len(start) > 0 and (0x80 <= start[0] < 0x90 or start[0] in (0xDE, 0xDF))


def _read_flax(path: Path, config: Optional[Union[str, Mapping[str, Any]]]) -> tuple[str, Config, dict[str, Tensor]]:
    state = flax.read(path)
    if config is None:
        name, parsed = flax.recognize(state, str(path))
    elif isinstance(config, str):
        name, parsed = config, configs.from_json(configs.entry(config)["config"])
    else:
        name, parsed = "", configs.from_json(config)
    return name, parsed, flax.import_state(state, parsed, str(path))


def _json(metadata: Mapping[str, str], key: str, path: Path) -> Any:
    """One entry of the metadata; None where there is none."""
    if key not in metadata:
        return None
    try:
        return json.loads(metadata[key])
    except (json.JSONDecodeError, RecursionError) as problem:
        raise Error(f"{path}: the metadata entry {key!r} is not JSON: {problem}") from None


def _read_config(metadata: Mapping[str, str], path: Path) -> Config:
    file_format = metadata.get("format", _FORMAT)
    if file_format != _FORMAT:
        raise Error(f"{path}: the file's format must be {_FORMAT!r}, got {file_format!r}")
    table = _json(metadata, "config", path)
    if table is None:
        raise Error(f"{path}: there is no model configuration in the file's metadata; was it written by qna?")
    try:
        return configs.from_json(table, metadata.get("kind", configs.CLASSIFIER))
    except Error as problem:
        raise Error(f"{path}: {problem}") from None


def _change_classes(config: Config, tensors: dict[str, Tensor], num_classes: Optional[int]) -> list[str]:
    """The names of tensors that keep their initial values: those of a layer for other classes."""
    if num_classes is None or num_classes == config.classes:
        return []
    if config.kind == configs.AUTO_ENCODER or num_classes < 1 or config.classes == 0:
        raise Error(f"load: num_classes must be at least 1, for a file with classes, got {num_classes}")
    config.classes = num_classes
    layer = "head.fc" if config.kind == configs.CLASSIFIER else "class_embed"
    names = [f"{layer}.weight", f"{layer}.bias"]
    for name in names:
        tensors.pop(name, None)
    return names


def _filled(config: Config, channels_first: bool, tensors: Mapping[str, Tensor], kept: Sequence[str],
            path: Path) -> Network:
    """A network with these tensors: each of its own shape, none missing but the `kept` ones and none left over."""
    with torch.device("meta"):  # a small file cannot ask for a large network
        model = network(config, channels_first)
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name not in kept}
    for name, tensor in wanted.items():
        if name not in tensors:
            raise Error(f"{path}: there is no tensor {name!r}, which the model needs")
        if tensors[name].shape != tensor.shape:
            raise Error(f"{path}: {name!r} must be {list(tensor.shape)}, got {list(tensors[name].shape)}")
        if tensors[name].is_floating_point() != tensor.is_floating_point():
            raise Error(f"{path}: {name!r} must be like {tensor.dtype}, got {tensors[name].dtype}")
    for name in tensors:
        if name not in wanted:
            raise Error(f"{path}: the model has no place for the tensor {name!r}")
    if kept or any(name not in wanted for name, _ in model.named_buffers()):  # what no file holds must be made
        model = network(config, channels_first)
    model.load_state_dict(tensors, strict=False, assign=True)
    return model


def _read_info(model: Network, metadata: Mapping[str, str], path: Path) -> None:
    given = {key: _json(metadata, key, path) for key in ("labels", "category_ids", "preprocess", "training")}
    given["preprocess"] = given["preprocess"] or default_preprocess(model.config)
    _check_info(model.config, given, str(path))
    model.name = metadata.get("name", "")
    model.labels, model.category_ids = given["labels"], given["category_ids"]
    model.preprocess, model.training_record = given["preprocess"], given["training"]


# ---- writing ----


def save(
    model: Network,
    path: Path,
    *,
    labels: Optional[Sequence[str]] = None,
    preprocess: Optional[Mapping[str, Any]] = None,
    name: Optional[str] = None,
    category_ids: Optional[Sequence[int]] = None,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Writes a network to a file that the program and `qna.open` read.

    Args:
        model: a `QnAViT`, `Detr` or `AutoEncoder`.
        path: of the file, which is whole or absent.
        labels: the names of the classes.
        preprocess: how a picture becomes the network's input: `resize`, `longest`, `crop`, `filter`, `mean`, `std`.
        name: of the model.
        category_ids: of a detector's classes, for COCO's JSON.
        dtype: of the numbers in the file: torch.float32, float16 or bfloat16.

    What is not given is that of the model: `model.labels`, `model.preprocess`, ...
    """
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise Error(f"save: dtype must be float32, float16 or bfloat16, got {dtype}")
    metadata = metadata_of(model, labels, preprocess, name, category_ids)
    _safetensors.write(path, _tensors_of(model, dtype), metadata)


def to_bytes(model: Network) -> bytes:
    """What `save` writes, in memory."""
    return b"".join(_safetensors.parts(_tensors_of(model, torch.float32), metadata_of(model)))


def _tensors_of(model: Network, dtype: torch.dtype) -> dict[str, Tensor]:
    tensors = {name: _stored(name, tensor, dtype) for name, tensor in model.state_dict().items()}
    _check_shapes(model, tensors)
    return tensors


def metadata_of(
    model: Network,
    labels: Optional[Sequence[str]] = None,
    preprocess: Optional[Mapping[str, Any]] = None,
    name: Optional[str] = None,
    category_ids: Optional[Sequence[int]] = None,
) -> dict[str, str]:
    """What stands beside the tensors of a file. What is not given is that of the model."""
    if not isinstance(model, Network):
        raise TypeError(f"model must be a QnAViT, Detr or AutoEncoder, got {type(model).__name__}")
    config = model.config
    given = {
        "labels": model.labels if labels is None else list(labels),
        "category_ids": model.category_ids if category_ids is None else list(category_ids),
        "preprocess": dict(preprocess or model.preprocess or default_preprocess(config)),
        "training": model.training_record,
    }
    _check_info(config, given, "save")
    if channels_of(config) not in (1, 3):  # no picture: it is fed by other means
        del given["preprocess"]
    metadata = {"format": _FORMAT, "config": _text(config.to_json())}
    if config.kind != configs.CLASSIFIER:
        metadata["kind"] = config.kind
    if name or model.name:
        metadata["name"] = name or model.name
    metadata.update({key: _text(value) for key, value in given.items() if value})
    return metadata


def _check_shapes(model: Network, tensors: Mapping[str, Tensor]) -> None:
    """A part may have been put in the place of another."""
    with torch.device("meta"):
        wanted = network(model.config).state_dict()
    for name, tensor in wanted.items():
        got = list(tensors[name].shape) if name in tensors else "nothing"
        if got != list(tensor.shape):
            raise Error(f"save: {name!r} must be {list(tensor.shape)} as the configuration says, got {got}")
    for name in tensors:
        if name not in wanted:
            raise Error(f"save: the configuration has no place for the tensor {name!r}")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _stored(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    tensor = tensor.detach().cpu()
    if not tensor.is_floating_point():
        return tensor
    stored = tensor.to(dtype)
    if not stored.isfinite().all():
        odd = tensor[~stored.isfinite()][0]
        raise Error(f"save: {name!r} must be finite in {dtype}, got {odd}")
    return stored


def channels_of(config: Config) -> int:
    """Of its images."""
    if config.kind == configs.DETECTOR:
        return 3
    return config.in_channels if config.kind == configs.CLASSIFIER else config.channels


def default_preprocess(config: Config) -> dict[str, Any]:
    """Pictures of the trained size, normalised as most ImageNet models have them; detectors look at whole ones."""
    grey = channels_of(config) == 1
    normalise = {"mean": [0.5] if grey else _MEAN, "std": [0.5] if grey else _STD}
    if config.kind == configs.DETECTOR:
        return {"resize": 800, "longest": 1333, "crop": [0, 0], "filter": "bilinear", **normalise}
    crop = list(config.image_size) if config.kind == configs.CLASSIFIER else [64, 64]
    return {"resize": round(min(crop) * 8 / 7), "crop": crop, "filter": "bicubic", **normalise}


def _check_info(config: Config, given: Mapping[str, Any], where: str) -> None:
    """What must fit the configuration; messages begin with `where`."""
    for key, what in (("labels", str), ("category_ids", int)):
        values = given[key]
        if not values:
            continue
        if not isinstance(values, list) or not all(isinstance(value, what) for value in values):
            raise Error(f"{where}: {key} must be a list of {what.__name__}, got {values!r}")
        if len(values) != config.classes:
            raise Error(f"{where}: {key} must be one for each of the {config.classes} classes, got {len(values)}")
    preprocess = given["preprocess"]
    if not isinstance(preprocess, dict):
        raise Error(f"{where}: preprocess must be an object, got {preprocess!r}")
    keys = ("resize", "longest", "crop", "filter", "mean", "std")
    for key in preprocess:
        if key not in keys:
            raise Error(f"{where}: preprocess has the unknown key {key!r}; the keys are {', '.join(keys)}")
    channels = channels_of(config)
    for key in ("mean", "std"):
        values = preprocess.get(key, _MEAN)
        if channels in (1, 3) and not _are_numbers(values, channels):
            raise Error(f"{where}: preprocess.{key} must be {channels} numbers, one per channel, got {values!r}")
    if config.kind == configs.DETECTOR and list(preprocess.get("crop", [0, 0])) != [0, 0]:
        raise Error(f"{where}: a detector looks at whole pictures, so preprocess.crop must be [0, 0], "
                    f"got {preprocess['crop']!r}")


def _are_numbers(values: Any, count: int) -> bool:
    return isinstance(values, (list, tuple)) and len(values) == count and all(
        isinstance(value, (int, float)) and math.isfinite(value) for value in values)

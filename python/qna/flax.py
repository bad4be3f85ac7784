"""The checkpoints of the paper's authors (flax.serialization: one msgpack map of maps, whose leaves are arrays)."""

from __future__ import annotations

import math
import os
import struct
from typing import Any, Callable, Iterator, Mapping, Optional, Union

import torch
from torch import Tensor

from qna import config as configs
from qna._error import Error
from qna.blocks import Block
from qna.config import QnAViTConfig
from qna.models import QnAViT

__all__ = ["import_state", "read", "recognize"]

Path = Union[str, "os.PathLike[str]"]
State = dict[str, Tensor]  # by dotted path, "params.QnAStage_0.QnA_Block_1.FusedKQnA_0.Wk"

# ---- msgpack ----

_DEEPEST = 32
_ARRAY, _SCALAR = 1, 3  # Flax's numbers for what msgpack has no type for
_CHUNKED = "__msgpack_chunked_array__"  # marks a map that is one array, cut into flat pieces
_NUMPY_DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
                 "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32, "int16": torch.int16,
                 "int8": torch.int8, "uint8": torch.uint8, "uint32": torch.int64, "bool": torch.bool}


class _Unpacker:
    """Reads one msgpack object; extensions become tensors."""

    # First byte: what follows it, and how many bytes say its length or value.
    NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h",
               0xD2: ">i", 0xD3: ">q"}
    SIZES = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xC7: ">B", 0xC8: ">H", 0xC9: ">I", 0xD9: ">B", 0xDA: ">H",
             0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
    CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}

    def __init__(self, data: memoryview, where: str):
        self.data, self.where, self.at = data, where, 0

    def whole(self, depth: int = 0) -> Any:
        value = self.value(depth)
        if self.at != len(self.data):
            raise Error(f"{self.where}: {len(self.data) - self.at} bytes follow the msgpack data")
        return value

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise Error(f"{self.where}: the msgpack data is cut off after {len(self.data)} bytes")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, layout: str) -> Any:
        return struct.unpack(layout, self.take(struct.calcsize(layout)))[0]

    def text(self, size: int) -> str:
        try:
            return bytes(self.take(size)).decode("utf-8")
        except UnicodeDecodeError:
            raise Error(f"{self.where}: a text is not UTF-8") from None

    def value(self, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Error(f"{self.where}: the msgpack data is nested deeper than {_DEEPEST}")
        kind = self.take(1)[0]
        if kind < 0x80:
            return kind
        if kind >= 0xE0:
            return kind - 0x100
        if kind < 0x90:
            return self.map(kind & 0x0F, depth)
        if kind < 0xA0:
            return self.list(kind & 0x0F, depth)
        if kind < 0xC0:
            return self.text(kind & 0x1F)
        if kind in self.CONSTANTS:
            return self.CONSTANTS[kind]
        if kind in self.NUMBERS:
            return self.number(self.NUMBERS[kind])
        if 0xD4 <= kind <= 0xD8:
            return self.extension(1 << (kind - 0xD4), depth)
        if kind not in self.SIZES:
            raise Error(f"{self.where}: this is not msgpack data")
        size = self.number(self.SIZES[kind])
        if kind <= 0xC6:
            return self.take(size)
        if kind <= 0xC9:
            return self.extension(size, depth)
        if kind <= 0xDB:
            return self.text(size)
        return self.list(size, depth) if kind <= 0xDD else self.map(size, depth)

    def list(self, size: int, depth: int) -> list[Any]:
        return [self.value(depth + 1) for _ in range(size)]

    def map(self, size: int, depth: int) -> Any:
        members: dict[str, Any] = {}
        for _ in range(size):
            key = self.value(depth + 1)
            if not isinstance(key, str) or not key or "." in key or key in members:
                raise Error(f"{self.where}: keys must be different texts without dots, got {key!r}")
            members[key] = self.value(depth + 1)
        return _joined(members, self.where) if _CHUNKED in members else members

    def extension(self, size: int, depth: int) -> Tensor:
        kind = self.number(">b")
        if kind not in (_ARRAY, _SCALAR):
            raise Error(f"{self.where}: an extension's type must be {_ARRAY} or {_SCALAR}, got {kind}")
        return _array(_Unpacker(self.take(size), self.where).whole(depth + 1), self.where)


def _items(value: Any) -> list[Any]:
    """Flax writes a tuple as a map from "0", "1", ..."""
    return [value[str(i)] for i in range(len(value))] if isinstance(value, dict) else list(value)


def _array(triple: Any, where: str) -> Tensor:
    """Of shape, the dtype's name and the bytes."""
    try:
        shape, name, data = triple
        shape = [int(size) for size in _items(shape)]
    except (TypeError, ValueError, KeyError):
        raise Error(f"{where}: an array must be a list of shape, dtype and bytes") from None
    if name not in _NUMPY_DTYPES:
        raise Error(f"{where}: dtype must be one of {', '.join(_NUMPY_DTYPES)}, got {name!r}")
    if name == "uint32":  # a key of random numbers, which no network needs
        return torch.zeros(shape, dtype=torch.int64)
    dtype = _NUMPY_DTYPES[name]
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not isinstance(data, memoryview) or len(data) != needed:
        raise Error(f"{where}: {name} {shape} takes {needed} bytes")
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape) if needed else torch.empty(shape, dtype=dtype)


def _joined(members: dict[str, Any], where: str) -> Tensor:
    try:
        chunks = _items(members["chunks"])
        shape = [int(size) for size in _items(members["shape"])]
        return torch.cat(chunks).reshape(shape)
    except (KeyError, TypeError, ValueError, RuntimeError):
        raise Error(f"{where}: a chunked array must have a shape and the chunks that fill it") from None


def read(path: Path) -> State:
    """The arrays of a checkpoint by dotted path. Raises qna.Error where it is not one."""
    with open(path, "rb") as file:
        root = _Unpacker(memoryview(file.read()), str(path)).whole()
    if not isinstance(root, dict):
        raise Error(f"{path}: a checkpoint must be a map, got {type(root).__name__}")
    return dict(_flat(root, "", str(path)))


def _flat(members: Mapping[str, Any], prefix: str, where: str) -> Iterator[tuple[str, Tensor]]:
    for key, value in members.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.", where)
        elif isinstance(value, (bool, int, float)):
            yield prefix + key, torch.tensor(value)
        elif isinstance(value, Tensor):
            yield prefix + key, value
        elif value is not None:
            raise Error(f"{where}: {prefix}{key} must be a map, an array or a number, got {type(value).__name__}")


# ---- names and layouts ----

Convert = Callable[[Tensor], Tensor]


def _same(a: Tensor) -> Tensor:
    return a


def _transposed(a: Tensor) -> Tensor:
    return a.t()


def _convolution(a: Tensor) -> Tensor:
    return a.permute(3, 2, 0, 1)  # HWIO -> OIHW


def _table(shape: torch.Size) -> Convert:
    """A table whose places of a window are one dimension there, with ones before it or split at the end."""
    return lambda a: a.reshape(shape)


def _query_key_value(heads: int) -> Convert:
    """Columns [heads, (q k v), dim] there, rows [(q k v), heads, dim] here."""

    def convert(a: Tensor) -> Tensor:
        features = a.shape[0]
        return a.reshape(features, heads, 3, features // heads).permute(2, 1, 3, 0).reshape(3 * features, features)

    return convert


class _Rows:
    """One row per tensor of ours: where flax keeps it, its name, and how its layout changes."""

    def __init__(self, model: QnAViT):
        self.rows: list[tuple[str, str, Convert]] = []
        config = model.config
        if config.local_mixer != "qna" or config.downsample != "qna":
            raise Error("import: the authors' models mix and down-sample by QnA, this configuration's do not: "
                        f"local_mixer {config.local_mixer!r}, downsample {config.downsample!r}")
        if config.stem == "efficientnet":
            raise Error("import: the authors' models have the stem patch, conv or resnet, this configuration has "
                        "'efficientnet'")
        patch = config.stem == "patch"
        self.add(f"StemBlock_0.{'conv_1x1' if patch else 'conv_7x7'}.kernel", "stem.conv.weight", _convolution)
        if not patch:
            self.norm("StemBlock_0.BatchNorm_0", "stem.norm")
            for theirs, ours in (("mean", "running_mean"), ("var", "running_var")):
                self.rows.append((f"batch_stats.StemBlock_0.BatchNorm_0.{theirs}", f"stem.norm.{ours}", _same))
        for index, stage in enumerate(model.stages):
            self.stage(index, stage, config.stages[index].attention_blocks)
        if model.head is not None:
            self.norm("ClassificationHead_0.LayerNorm_0", "head.norm")
            if model.head.qna is not None:
                self.qna("ClassificationHead_0", "head", model.head.qna)
            self.linear("ClassificationHead_0.head_logits", "head.fc")

    def add(self, flax: str, name: str, convert: Convert) -> None:
        self.rows.append((f"params.{flax}", name, convert))

    def norm(self, flax: str, name: str) -> None:
        self.add(f"{flax}.scale", f"{name}.weight", _same)
        self.add(f"{flax}.bias", f"{name}.bias", _same)

    def linear(self, flax: str, name: str) -> None:
        self.add(f"{flax}.kernel", f"{name}.weight", _transposed)
        self.add(f"{flax}.bias", f"{name}.bias", _same)

    def qna(self, flax: str, name: str, layer: Any) -> None:
        flax, name = f"{flax}.FusedKQnA_0", f"{name}.qna"
        self.add(f"{flax}.query", f"{name}.query", _same)
        self.add(f"{flax}.Wk", f"{name}.key_weight", _same)
        self.add(f"{flax}.to_v.kernel", f"{name}.value_weight", _same)
        self.add(f"{flax}.to_out.kernel", f"{name}.out_weight", _same)
        self.add(f"{flax}.rpe_bias", f"{name}.relative_bias", _table(layer.relative_bias.shape))
        if layer.attention_scale is not None:
            theirs = "attn_scale_pos" if layer.scale_kind == "ones" else "attn_scale_weights"
            self.add(f"{flax}.{theirs}", f"{name}.attention_scale", _table(layer.attention_scale.shape))

    def attention(self, flax: str, name: str, layer: Any) -> None:
        flax, name = f"{flax}.MultiHeadSelfAttention_0", f"{name}.attention"
        self.add(f"{flax}.to_qkv.kernel", f"{name}.qkv.weight", _query_key_value(layer.heads))
        self.add(f"{flax}.to_out.kernel", f"{name}.proj.weight", _transposed)
        self.add(f"{flax}.RelativePositionalEmbedding_0.rpe_bias", f"{name}.relative_bias",
                 _table(layer.relative_bias.shape))

    def block(self, flax: str, name: str, block: Block) -> None:
        self.norm(f"{flax}.LayerNorm_0", f"{name}.norm1")
        if block.qna is not None:
            self.qna(flax, name, block.qna)
        else:
            self.attention(flax, name, block.attention)
        if block.skip is not None:
            pool = ".AvgPool1x1Conv_0" if block.average_pool_skip else ""
            self.add(f"{flax}{pool}.Conv_0.kernel", f"{name}.skip.weight", _convolution)
        self.norm(f"{flax}.LayerNorm_1", f"{name}.norm2")
        self.linear(f"{flax}.MlpBlock_0.Dense_0", f"{name}.mlp.fc1")
        self.linear(f"{flax}.MlpBlock_0.Dense_1", f"{name}.mlp.fc2")
        if block.scale1 is not None:
            self.add(f"{flax}.LayerScale_0.scale_param", f"{name}.scale1", _same)
            self.add(f"{flax}.LayerScale_1.scale_param", f"{name}.scale2", _same)

    def stage(self, index: int, stage: Any, attention: int) -> None:
        name = f"stages.{index}"
        for i, block in enumerate(stage.blocks):
            flax = f"LSAStage_{index}.MSA_Block_{i + 1}" if i < attention else \
                f"QnAStage_{index}.QnA_Block_{i - attention + 1}"
            self.block(flax, f"{name}.blocks.{i}", block)
        if stage.downsample is not None:
            number = len(stage.blocks) - attention + 1
            self.block(f"QnAStage_{index}.QnA_Block_{number}_stride_2", f"{name}.downsample", stage.downsample)


def import_state(state: Mapping[str, Tensor], config: QnAViTConfig, origin: str) -> State:
    """The tensors of a network with this configuration, by our names.

    Raises qna.Error that lists what is missing, left over or of another shape. What is no weight, such as the state
    of an optimiser, is passed by.
    """
    with torch.device("meta"):
        model = QnAViT(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    problems, used, mapped = [], set(), {}
    for flax, name, convert in _Rows(model).rows:
        if flax not in state:
            problems.append(f"missing: {flax} (for {name})")
            continue
        used.add(flax)
        value = _converted(state[flax], convert, shapes[name])
        if value is None:
            problems.append(f"shape: {flax} is {list(state[flax].shape)}, {name} needs {list(shapes[name])}")
        else:
            mapped[name] = value
    problems += [f"left over: {path} {list(array.shape)}" for path, array in state.items()
                 if path.startswith(("params.", "batch_stats.")) and path not in used]
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:8])
        more = f"\n  and {len(problems) - 8} more" if len(problems) > 8 else ""
        raise Error(f"{origin}: the checkpoint does not fit the model:{shown}{more}")
    for name, shape in shapes.items():  # counts, which their checkpoints do not have
        if name.endswith("num_batches_tracked"):
            mapped[name] = torch.zeros(shape, dtype=torch.int64)
    return mapped


def _converted(array: Tensor, convert: Convert, shape: torch.Size) -> Optional[Tensor]:
    """The array in our layout, or None where it has another shape."""
    try:
        value = convert(array)
    except (IndexError, RuntimeError):
        return None
    return value.contiguous() if value.shape == shape else None


def recognize(state: Mapping[str, Tensor], origin: str) -> tuple[str, QnAViTConfig]:
    """The named model whose tensors these are; raises qna.Error if there is none."""
    logits = state.get("params.ClassificationHead_0.head_logits.bias")
    for row in configs.entries():
        if row["kind"] != configs.CLASSIFIER:
            continue
        config = QnAViTConfig.from_json(row["config"])
        if logits is not None:
            config.classes = logits.numel()
        try:
            import_state(state, config, origin)
            return row["name"], config
        except Error:
            continue  # not this one
    raise Error(f"{origin}: this is none of the named models; give its configuration with config=...")

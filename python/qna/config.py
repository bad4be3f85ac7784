"""What networks are made of, as data: the configurations of the program `qna`, with their checks.

A configuration is a JSON object whose keys are the fields below; what is left out has its default. The
named configurations stand in the file models.json, which the program writes (`qna models --json`).
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import math
import os
import pathlib
from typing import Any, Callable, Mapping, Optional, Union

from qna._error import Error

__all__ = ["AutoEncoderConfig", "DetrConfig", "QnAViTConfig", "ResNetConfig", "StageConfig", "entry", "entries",
           "from_json", "kind_of"]

Pair = tuple[int, int]  # height, width

CLASSIFIER, DETECTOR, AUTO_ENCODER = "classifier", "detector", "auto-encoder"


# ---- fields ----


class _Rule(Exception):
    """What a value must be, and is not."""


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Rule("an integer")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _Rule("a number")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Rule("true or false")
    return value


def _sides(value: Any) -> Pair:
    """Two numbers that are the same may be written as one."""
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise _Rule("one number, or height and width")
        return _integer(value[0]), _integer(value[1])
    return _integer(value), _integer(value)


def _integers(value: Any) -> list[int]:
    if not isinstance(value, (list, tuple)):
        raise _Rule("a list of integers")
    return [_integer(item) for item in value]


def _field(default: Any, read: Callable[[Any], Any]) -> Any:
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata={"read": read})
    return dataclasses.field(default=default, metadata={"read": read})


def _choice(*names: str, default: Optional[str] = None) -> Any:
    """A field that holds one of the names; the default is the first where nothing else is said."""

    def read(value: Any) -> str:
        if value not in names:
            raise _Rule(f"one of {', '.join(names)}")
        return value

    return _field(default or names[0], read)


def _read(kind: type, table: Any, subject: str, path: str = "") -> Any:
    """The dataclass `kind` from a table, every field by its own rule."""
    where = f"{path}." if path else ""
    if not isinstance(table, Mapping):
        raise Error(f"{subject}: {path or 'the whole'} must be a table, got {table!r}")
    fields = {field.name: field for field in dataclasses.fields(kind) if "read" in field.metadata}
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise Error(f"{subject}: unknown key '{where}{key}'; the keys are {', '.join(fields)}")
        try:
            values[key] = fields[key].metadata["read"](value)
        except _Rule as rule:
            raise Error(f"{subject}: {where}{key} must be {rule}, got {value!r}") from None
    return kind(**values)


def _write(config: Any) -> dict[str, Any]:
    """The table that `_read` reads."""
    table = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if "read" not in field.metadata:
            continue
        if isinstance(value, tuple):
            value = value[0] if value[0] == value[1] else list(value)
        table[field.name] = list(value) if isinstance(value, list) else value
    return table


class _Ranges:
    """Checks of numbers; messages begin with the subject."""

    def __init__(self, subject: str):
        self.subject = subject

    def check(self, fits: bool, rule: str, value: Any) -> None:
        if not fits:
            raise Error(f"{self.subject}: {rule}, got {value}")

    def within(self, name: str, value: float, least: float, most: float) -> None:
        fits = math.isfinite(value) and least <= value <= most
        self.check(fits, f"{name} must be from {least} to {most}", value)


# ---- classifiers ----


@dataclasses.dataclass
class StageConfig:
    """Self-attention blocks come first in a stage, then local blocks, then the down-sampling."""

    attention_blocks: int = _field(0, _integer)
    qna_blocks: int = _field(0, _integer)  # the local ones, without the one that down-samples
    attention_heads: int = _field(2, _integer)
    qna_heads: int = _field(8, _integer)
    kernel_size: Pair = _field((3, 3), _sides)  # of the local blocks' windows
    queries: int = _field(2, _integer)
    window: Pair = _field((7, 7), _sides)  # of self-attention; 0: the whole map


@dataclasses.dataclass
class QnAViTConfig:
    """A QnA-ViT. `features(i)` and `stride(i)` are those of the map of stage i."""

    image_size: Pair = _field((224, 224), _sides)  # trained at; any other runs too
    in_channels: int = _field(3, _integer)
    classes: int = _field(1000, _integer)  # 0: no head
    base_dim: int = _field(64, _integer)  # features of the first stage, doubled by each down-sampling
    stem: str = _choice("patch", "conv", "resnet", "efficientnet")
    patch_size: int = _field(4, _integer)
    local_mixer: str = _choice("qna", "sasa", "window", "halo", "conv", "depthwise")
    downsample: str = _choice("qna", "patch_merging", "conv_pool", "sasa", "halo", "conv", "depthwise",
                              "conv_pool_block")
    downsample_skip: str = _choice("conv", "average_pool")
    mlp_ratio: float = _field(4.0, _number)
    activation: str = _choice("gelu_tanh", "gelu", "relu", "relu6", "silu")
    attention_scale: str = _choice("per_tap", "per_query", "ones", "average", "signed", "none")
    normalize_queries: bool = _field(True, _flag)
    normalize_stop_gradient: bool = _field(False, _flag)
    layer_scale: float = _field(0.0, _number)  # initial value of a learned scale; 0: none
    drop_path: float = _field(0.0, _number)  # of the last block; grows linearly from 0
    drop_path_downsample: bool = _field(True, _flag)
    head: str = _choice("gap", "qnav1", "qnav2")
    stages: list[StageConfig] = dataclasses.field(default_factory=list)

    kind = CLASSIFIER
    subject = "model configuration"

    def features(self, stage: int) -> int:
        return self.base_dim << stage

    @property
    def stem_stride(self) -> int:
        return {"patch": self.patch_size, "conv": 2, "resnet": 4, "efficientnet": 16}[self.stem]

    def stride(self, stage: int) -> int:
        """Pixels per position of the stage's map."""
        return self.stem_stride << stage

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> QnAViTConfig:
        """Raises qna.Error for unknown keys, wrong types and values that do not fit together."""
        rest = {key: value for key, value in _mapping(table, cls.subject).items() if key != "stages"}
        config = _read(cls, rest, cls.subject)
        stages = table.get("stages")
        if not isinstance(stages, (list, tuple)):
            raise Error(f"{cls.subject}: stages must be a list of tables, got {stages!r}")
        config.stages = [_read(StageConfig, stage, cls.subject, f"stages[{i}]") for i, stage in enumerate(stages)]
        config.check()
        return config

    def to_json(self) -> dict[str, Any]:
        return {**_write(self), "stages": [_write(stage) for stage in self.stages]}

    def check(self) -> None:
        """Ranges larger than any sensible network."""
        ranges = _Ranges(self.subject)
        ranges.within("image_size (height)", self.image_size[0], 1, 1 << 16)
        ranges.within("image_size (width)", self.image_size[1], 1, 1 << 16)
        ranges.within("in_channels", self.in_channels, 1, 4096)
        ranges.within("classes", self.classes, 0, 1 << 24)
        ranges.within("base_dim", self.base_dim, 1, 1 << 16)
        ranges.within("patch_size", self.patch_size, 1, 1024)
        ranges.within("the number of stages", len(self.stages), 1, 8)
        ranges.within("mlp_ratio", self.mlp_ratio, 0.01, 64)
        ranges.within("layer_scale", self.layer_scale, 0, 1e6)
        ranges.within("drop_path", self.drop_path, 0, 0.999)
        for index, stage in enumerate(self.stages):
            self._check_stage(ranges, index, stage)

    def _check_stage(self, ranges: _Ranges, index: int, stage: StageConfig) -> None:
        where, features = f"stages[{index}].", self.features(index)
        ranges.within(f"{where}attention_blocks", stage.attention_blocks, 0, 1000)
        ranges.within(f"{where}qna_blocks", stage.qna_blocks, 0, 1000)
        ranges.within(f"{where}attention_heads", stage.attention_heads, 1, 1 << 16)
        ranges.within(f"{where}qna_heads", stage.qna_heads, 1, 1 << 16)
        ranges.within(f"{where}queries", stage.queries, 1, 1024)
        for axis in range(2):
            ranges.within(f"{where}kernel_size", stage.kernel_size[axis], 1, 1023)
            ranges.within(f"{where}window", stage.window[axis], 0, 4096)
        ranges.check((stage.window[0] == 0) == (stage.window[1] == 0),
                     f"{where}window must be 0 in both directions or in none", stage.window)
        windows = self.local_mixer == "window" and stage.qna_blocks > 0
        ranges.check(not windows or stage.window[0] > 0,
                     f"{where}window must be above 0 for the local mixer 'window'", stage.window[0])
        ranges.check((stage.attention_blocks == 0 and not windows) or features % stage.attention_heads == 0,
                     f"{where}attention_heads must divide the stage's {features} features", stage.attention_heads)
        ranges.check(features % stage.qna_heads == 0,
                     f"{where}qna_heads must divide the stage's {features} features", stage.qna_heads)
        ranges.check(self.attention_scale != "signed" or stage.queries * stage.qna_heads % 2 == 0,
                     f"{where}queries x qna_heads must be even for the attention scale 'signed'",
                     f"{stage.queries} x {stage.qna_heads}")
        ranges.check(rounded(self.mlp_ratio * features) >= 1,
                     f"mlp_ratio must leave at least 1 of the {features} features of stages[{index}]",
                     self.mlp_ratio)


# ---- detectors ----


@dataclasses.dataclass
class ResNetConfig:
    """A ResNet without its head, as a backbone."""

    depth: int = 50  # 18, 50 or 101
    dilation: bool = False  # the last stage keeps its map's size: "DC5"

    @property
    def basic(self) -> bool:
        """Whether its blocks are two 3 x 3 convolutions."""
        return self.depth < 50

    @property
    def blocks(self) -> tuple[int, ...]:
        return {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}[self.depth]

    @property
    def features(self) -> int:
        return 512 if self.basic else 2048


@dataclasses.dataclass
class EncoderQnAConfig:
    """DETR-QnA: `blocks` QnA blocks stand in for `replaces` encoder blocks from `first` on."""

    blocks: int = _field(0, _integer)
    replaces: int = _field(2, _integer)
    first: int = _field(0, _integer)
    heads: int = _field(8, _integer)
    queries: int = _field(2, _integer)
    kernel_size: Pair = _field((3, 3), _sides)
    mlp_ratio: float = _field(4.0, _number)


@dataclasses.dataclass
class DetrConfig:
    """A DETR on a ResNet or a QnA-ViT."""

    hidden: int = _field(256, _integer)
    heads: int = _field(8, _integer)
    encoder_blocks: int = _field(6, _integer)
    decoder_blocks: int = _field(6, _integer)
    feedforward: int = _field(2048, _integer)
    queries: int = _field(100, _integer)
    classes: int = _field(91, _integer)  # without "no object"
    dropout: float = _field(0.1, _number)
    pre_norm: bool = _field(False, _flag)
    positions: str = _choice("sine", "learned")
    waves: float = _field(1.0, _number)  # of the shortest sine in the image
    temperature: float = _field(10000.0, _number)  # the longest sine is as many times as long
    anchors: bool = _field(False, _flag)  # queries are learned boxes, refined by every block
    aux_loss: bool = _field(True, _flag)  # every decoder block has predictions
    backbone: Union[ResNetConfig, QnAViTConfig] = dataclasses.field(default_factory=ResNetConfig)
    qna: EncoderQnAConfig = dataclasses.field(default_factory=EncoderQnAConfig)

    kind = DETECTOR
    subject = "detector configuration"

    @property
    def backbone_features(self) -> int:
        body = self.backbone
        return body.features if isinstance(body, ResNetConfig) else body.features(len(body.stages) - 1)

    def encoder_layers(self) -> list[bool]:
        """The encoder's layers in their order: true is a QnA block."""
        layers = []
        for i in range(self.encoder_blocks + 1):
            if i == self.qna.first:
                layers += [True] * self.qna.blocks
            replaced = self.qna.blocks > 0 and self.qna.first <= i < self.qna.first + self.qna.replaces
            if i < self.encoder_blocks and not replaced:
                layers.append(False)
        return layers

    def has_encoder_norm(self) -> bool:
        """QnA blocks are pre-norm: behind the last one the sum has not been normalised yet."""
        qna = self.qna
        return self.pre_norm or (qna.blocks > 0 and qna.first + qna.replaces >= self.encoder_blocks)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> DetrConfig:
        """Raises qna.Error for unknown keys, wrong types and values that do not fit together."""
        apart = ("backbone", "dilation", "qna")
        rest = {key: value for key, value in _mapping(table, cls.subject).items() if key not in apart}
        config = _read(cls, rest, cls.subject)
        config.backbone = _backbone(table.get("backbone", "resnet50"), table.get("dilation", False), cls.subject)
        config.qna = _read(EncoderQnAConfig, table.get("qna", {}), cls.subject, "qna")
        config.check()
        return config

    def to_json(self) -> dict[str, Any]:
        table = {**_write(self), "qna": _write(self.qna)}
        if isinstance(self.backbone, ResNetConfig):
            return {**table, "backbone": f"resnet{self.backbone.depth}", "dilation": self.backbone.dilation}
        return {**table, "backbone": self.backbone.to_json()}

    def check(self) -> None:
        ranges = _Ranges(self.subject)
        if isinstance(self.backbone, QnAViTConfig):
            self.backbone.check()
            ranges.check(self.backbone.classes == 0, "the backbone has no head, so its classes must be 0",
                         self.backbone.classes)
        ranges.within("hidden", self.hidden, 4, 1 << 14)
        ranges.within("heads", self.heads, 1, 1 << 14)
        ranges.within("encoder_blocks", self.encoder_blocks, 0, 100)
        ranges.within("decoder_blocks", self.decoder_blocks, 1, 100)
        ranges.within("feedforward", self.feedforward, 1, 1 << 17)
        ranges.within("queries", self.queries, 1, 1 << 16)
        ranges.within("classes", self.classes, 1, 1 << 20)
        ranges.check(0 <= self.dropout < 1, "dropout must be at least 0 and below 1", self.dropout)
        ranges.check(self.hidden % 4 == 0, "hidden must be a multiple of 4, for sine and cosine of both axes",
                     self.hidden)
        ranges.check(self.hidden % self.heads == 0, f"heads must divide hidden ({self.hidden})", self.heads)
        ranges.within("waves", self.waves, 1, 1e6)
        ranges.within("temperature", self.temperature, 1, 1e6)
        sine = self.positions == "sine"
        ranges.check(sine or (self.waves, self.temperature) == (1, 10000),
                     "positions must be sine where waves or temperature are given", self.positions)
        ranges.check(sine or not self.anchors, "positions must be sine for anchors, which lie at any place",
                     self.positions)
        ranges.within("qna.blocks", self.qna.blocks, 0, 100)
        if self.qna.blocks > 0:
            self._check_qna(ranges)

    def _check_qna(self, ranges: _Ranges) -> None:
        qna = self.qna
        ranges.within("qna.replaces", qna.replaces, 0, self.encoder_blocks)
        ranges.within("qna.first", qna.first, 0, self.encoder_blocks - qna.replaces)
        ranges.within("qna.heads", qna.heads, 1, 1 << 14)
        ranges.within("qna.queries", qna.queries, 1, 1024)
        for side in qna.kernel_size:
            ranges.within("qna.kernel_size", side, 1, 1023)
        ranges.check(self.hidden % qna.heads == 0, f"qna.heads must divide hidden ({self.hidden})", qna.heads)
        ranges.within("qna.mlp_ratio", qna.mlp_ratio, 0.25, 64)


_RESNETS = {"resnet18": 18, "resnet50": 50, "resnet101": 101}


def _backbone(value: Any, dilation: Any, subject: str) -> Union[ResNetConfig, QnAViTConfig]:
    """A name of a ResNet or of a classifier, or the table of a QnA-ViT."""
    ranges = _Ranges(subject)
    ranges.check(isinstance(dilation, bool), "dilation must be true or false", repr(dilation))
    if isinstance(value, str) and value in _RESNETS:
        ranges.check(not (dilation and value == "resnet18"), "dilation needs resnet50 or resnet101", value)
        return ResNetConfig(depth=_RESNETS[value], dilation=dilation)
    ranges.check(not dilation, "dilation must be false but for ResNet backbones", dilation)
    if isinstance(value, str):
        names = [row["name"] for row in entries() if row["kind"] == CLASSIFIER]
        ranges.check(value in names, f"backbone must be one of {', '.join([*_RESNETS, *names])}, or a table",
                     repr(value))
        return QnAViTConfig.from_json({**entry(value)["config"], "classes": 0})
    ranges.check(isinstance(value, Mapping), "backbone must be a name or a table", repr(value))
    return QnAViTConfig.from_json({"classes": 0, **value})


# ---- auto-encoders ----


@dataclasses.dataclass
class AutoEncoderConfig:
    """An auto-encoder: layers that shrink the map `factor` times each, and the way back."""

    encoder: str = _choice("conv_s2_in", "conv_in_max", "ln_qna", default="ln_qna")
    decoder: str = _choice("bilinear_conv_in", "conv_transposed_in", "ln_uqna", default="ln_uqna")
    channels: int = _field(3, _integer)
    widths: list[int] = _field([32, 64, 128, 256, 256, 256], _integers)  # before the first layer and behind each
    factor: int = _field(2, _integer)
    heads: int = _field(8, _integer)
    kernel_size: int = _field(3, _integer)

    kind = AUTO_ENCODER
    subject = "auto-encoder"
    classes = 0

    @property
    def stride(self) -> int:
        """Pixels per position of the code."""
        return self.factor ** (len(self.widths) - 1)

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> AutoEncoderConfig:
        """Raises qna.Error for unknown keys, wrong types and values that do not fit together."""
        config = _read(cls, table, cls.subject)
        config.check()
        return config

    def to_json(self) -> dict[str, Any]:
        return _write(self)

    def check(self) -> None:
        ranges = _Ranges(self.subject)
        ranges.within("channels", self.channels, 1, 1024)
        ranges.within("the number of widths", len(self.widths), 2, 17)
        ranges.within("factor", self.factor, 2, 8)
        ranges.check(self.stride <= 65536, "widths must not shrink the map more than 65536 times", self.stride)
        ranges.within("kernel_size", self.kernel_size, 1, 63)
        ranges.check(self.kernel_size % 2 == 1, "kernel_size must be odd", self.kernel_size)
        ranges.check(self.heads >= 1, "heads must be at least 1", self.heads)
        has_qna = self.encoder == "ln_qna" or self.decoder == "ln_uqna"
        for width in self.widths:
            ranges.within("widths", width, 1, 65536)
            ranges.check(not has_qna or width % self.heads == 0,
                         f"widths must be multiples of heads, {self.heads}", width)


# ---- all kinds ----

Config = Union[QnAViTConfig, DetrConfig, AutoEncoderConfig]
_KINDS = {kind.kind: kind for kind in (QnAViTConfig, DetrConfig, AutoEncoderConfig)}


def _mapping(table: Any, subject: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise Error(f"{subject}: the whole must be a table, got {table!r}")
    return table


def kind_of(table: Mapping[str, Any]) -> str:
    """The kind of network that a configuration describes, by a key that only those have."""
    _mapping(table, "configuration")
    return DETECTOR if "backbone" in table else AUTO_ENCODER if "widths" in table else CLASSIFIER


def from_json(table: Mapping[str, Any], kind: Optional[str] = None) -> Config:
    """The configuration of a network of any kind; `kind` is told by the keys where it is not given."""
    kind = kind or kind_of(table)
    if kind not in _KINDS:
        raise Error(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    return _KINDS[kind].from_json(table)


def rounded(value: float) -> int:
    """To the nearest integer, halves away from 0."""
    return math.floor(value + 0.5)


# ---- names ----


@functools.cache
def entries() -> list[dict[str, Any]]:
    """The rows of models.json: name, kind, config, parameters and more of each named model."""
    build = os.environ.get("QNA_PYTHON_BUILD")
    path = pathlib.Path(build or pathlib.Path(__file__).parent, "models.json")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ImportError(f"the list of models cannot be read from {path}: {problem.strerror}") from None


def entry(name: str) -> dict[str, Any]:
    """The row of this name; raises qna.Error that lists the names."""
    for row in entries():
        if row["name"] == name:
            return row
    near = difflib.get_close_matches(name, [row["name"] for row in entries()], 1) if isinstance(name, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise Error(f"there is no model {name!r}{hint}; the models are {', '.join(row['name'] for row in entries())}")

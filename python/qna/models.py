"""QnA-ViT, the network family of "Learned Queries for Efficient Local Attention" (CVPR 2022).

    model = qna.create_model("qna_vit_tiny", num_classes=10)
    logits = model(images)                    # [B, 3, H, W] -> [B, 10]
    features = model.forward_features(images)  # [B, 3, H, W] -> [B, 512, H / 32, W / 32]

Images and maps are [B, C, H, W], as PyTorch's vision models have them, of any height and width; inside a network
they are channels last. With `channels_first=False` images and maps are [B, H, W, C].
"""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from qna import config as configs
from qna._error import Error
from qna.blocks import (Block, ConvPool, Convolution, HaloAttention, WindowSelfAttention, convolution, layer_norm,
                        linear, max_pool_by_two, pad_to, pixels, planes, resize_table)
from qna.composite import ACTIVATIONS
from qna.config import QnAViTConfig
from qna.layers import SASA, QnA

__all__ = ["Network", "QnAViT", "create_model", "list_models"]


# ---- stem ----


class Stem(nn.Module):
    """From pixels to the first map: patches through one product, or a 7 x 7 convolution with stride 2, BatchNorm and
    activation; behind that max-pooling for the stem 'resnet'."""

    def __init__(self, config: QnAViTConfig):
        super().__init__()
        self.kind, self.patch_size, self.activation = config.stem, config.patch_size, config.activation
        patch = config.stem == "patch"
        side = config.patch_size if patch else 7
        self.conv = convolution(config.in_channels, config.base_dim, (side, side),
                                stride=config.patch_size if patch else 2)
        self.norm = None if patch else nn.BatchNorm2d(config.base_dim, eps=1e-5, momentum=0.1)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, channels] -> [B, ceil(H / stride), ceil(W / stride), features]"""
        return self._patches(x) if self.kind == "patch" else self._convolved(x)

    def _patches(self, x: Tensor) -> Tensor:
        side = self.patch_size
        x = pad_to(x, side)
        x = x.unflatten(2, (x.shape[2] // side, side)).unflatten(1, (x.shape[1] // side, side))
        return F.linear(x.transpose(2, 3).flatten(3), self.conv.weight.permute(0, 2, 3, 1).flatten(1))

    def _convolved(self, x: Tensor) -> Tensor:
        # Padding as JAX's 'SAME' has it for even sizes, 2 before and 3 behind; one more behind odd ones.
        bottom, right = 3 + x.shape[1] % 2, 3 + x.shape[2] % 2
        x = self.norm(self.conv(F.pad(planes(x), (2, right, 2, bottom))))
        x = ACTIVATIONS[self.activation](x)
        if self.kind == "resnet":
            x = max_pool_by_two(x)
        return pixels(x).contiguous()


class InvertedResidual(nn.Module):
    """1 x 1 to more features, a convolution of each by itself, 1 x 1 to few again (MobileNetV2). BatchNorms are
    inside the convolutions' weights and biases."""

    def __init__(self, features: int, outputs: int, expansion: int, kernel: int, stride: int):
        super().__init__()
        hidden = expansion * features
        self.expand = nn.Linear(features, hidden) if expansion > 1 else None
        self.depthwise = nn.Conv2d(hidden, hidden, kernel, stride, groups=hidden)
        self.project = nn.Linear(hidden, outputs)
        self.has_skip = stride == 1 and features == outputs

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, features] -> [B, ceil(H / stride), ceil(W / stride), outputs]"""
        wide = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(_pad_and_convolve(wide, self.depthwise)))
        return x + y if self.has_skip else y


class EfficientNetStem(nn.Module):
    """EfficientNet-Lite0 up to its fifth stage, a position for every 16 pixels, and a linear layer; for weights that
    have seen ImageNet (tools/convert_pth.py)."""

    FIRST = 32  # features of the convolution in front
    # Blocks, features, expansion, kernel and stride of each stage.
    STAGES = ((1, 16, 1, 3, 1), (2, 24, 6, 3, 2), (2, 40, 6, 5, 2), (3, 80, 6, 3, 2), (3, 112, 6, 5, 1))

    def __init__(self, config: QnAViTConfig):
        super().__init__()
        self.conv = nn.Conv2d(config.in_channels, self.FIRST, 3, 2)
        self.blocks = nn.ModuleList()
        features = self.FIRST
        for count, outputs, expansion, kernel, stride in self.STAGES:
            for i in range(count):
                self.blocks.append(InvertedResidual(features, outputs, expansion, kernel, stride if i == 0 else 1))
                features = outputs
        self.out = nn.Linear(features, config.base_dim)
        for layer in self.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, channels] -> [B, ceil(H / 16), ceil(W / 16), features]"""
        x = F.relu6(_pad_and_convolve(x, self.conv))
        for block in self.blocks:
            x = block(x)
        return self.out(x).contiguous()


def efficientnet_padding(conv: nn.Conv2d) -> tuple[int, int]:
    """Zeros before and behind the rows and columns of a map of any size: those before do not depend on it."""
    kernel = conv.kernel_size[0]
    before = (kernel - conv.stride[0]) // 2
    return before, kernel - 1 - before


def _pad_and_convolve(x: Tensor, conv: nn.Conv2d) -> Tensor:
    return pixels(conv(F.pad(planes(x), 2 * efficientnet_padding(conv))))


# ---- stages ----


class PatchMerging(nn.Module):
    """Swin's down-sampling: 2 x 2 neighbours side by side, LayerNorm, a product to twice the features."""

    def __init__(self, features: int):
        super().__init__()
        self.norm = layer_norm(4 * features)
        self.reduction = linear(4 * features, 2 * features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, features] -> [B, ceil(H / 2), ceil(W / 2), 2 * features]"""
        x = pad_to(x, 2)
        x = x.unflatten(2, (x.shape[2] // 2, 2)).unflatten(1, (x.shape[1] // 2, 2))
        # Swin's order of the four: by column, then by row.
        return self.reduction(self.norm(x.permute(0, 1, 3, 4, 2, 5).flatten(3)))


def _block(mixer: nn.Module, config: QnAViTConfig, stage: int, drop_path: float, stride: int = 1,
           kernel_size: tuple[int, int] = (1, 1)) -> Block:
    features = config.features(stage)
    return Block(mixer, features, features * stride, kernel_size=kernel_size, stride=(stride, stride),
                 average_pool_skip=config.downsample_skip == "average_pool", mlp_ratio=config.mlp_ratio,
                 activation=config.activation, layer_scale=config.layer_scale, drop_path=drop_path)


def _attention_block(config: QnAViTConfig, stage: int, drop_path: float, shifted: bool = False) -> Block:
    options = config.stages[stage]
    window, whole = options.window, options.window[0] == 0
    if whole:  # the table is made for the trained size
        window = tuple(-(-side // config.stride(stage)) for side in config.image_size)
    shift = (window[0] // 2, window[1] // 2) if shifted else (0, 0)
    mixer = WindowSelfAttention(config.features(stage), options.attention_heads, window, whole, shift)
    return _block(mixer, config, stage, drop_path)


def _mixer(config: QnAViTConfig, stage: int, kind: str, stride: int) -> nn.Module:
    """What mixes neighbours: with stride 2 it doubles features and heads."""
    options, features = config.stages[stage], config.features(stage)
    shape = {"out_features": features * stride, "kernel_size": options.kernel_size, "stride": (stride, stride)}
    heads = options.qna_heads * stride
    if kind == "qna":
        return QnA(features, heads=heads, queries=options.queries, attention_scale=config.attention_scale,
                   normalize_queries=config.normalize_queries,
                   normalize_stop_gradient=config.normalize_stop_gradient, **shape)
    if kind == "sasa":
        return SASA(features, heads=heads, **shape)
    if kind == "halo":
        return HaloAttention(features, heads=heads, **shape)
    return Convolution(features, depthwise=kind == "depthwise", **shape)


def _local_block(config: QnAViTConfig, stage: int, number: int, drop_path: float) -> Block:
    """The local block `number` of a stage; windows are shifted in every second one."""
    if config.local_mixer == "window":
        return _attention_block(config, stage, drop_path, shifted=number % 2 == 1)
    mixer = _mixer(config, stage, config.local_mixer, 1)
    return _block(mixer, config, stage, drop_path, kernel_size=config.stages[stage].kernel_size)


def _downsampling(config: QnAViTConfig, stage: int, drop_path: float) -> nn.Module:
    features, kind = config.features(stage), config.downsample
    if kind == "patch_merging":
        return PatchMerging(features)
    if kind == "conv_pool":
        return ConvPool(features, 2 * features)
    if kind == "conv_pool_block":
        return _block(ConvPool(features, 2 * features), config, stage, drop_path, 2, (3, 3))
    return _block(_mixer(config, stage, kind, 2), config, stage, drop_path, 2, config.stages[stage].kernel_size)


class Stage(nn.Module):
    """Blocks of one map size, and the way to the next. drop_path: one rate per block, and the down-sampling's."""

    def __init__(self, config: QnAViTConfig, index: int, drop_path: Sequence[float]):
        super().__init__()
        attention = config.stages[index].attention_blocks
        self.blocks = nn.ModuleList(
            _attention_block(config, index, rate) if i < attention
            else _local_block(config, index, i - attention, rate)
            for i, rate in enumerate(drop_path[:-1]))
        last = index == len(config.stages) - 1
        self.downsample = None if last else _downsampling(config, index, drop_path[-1])


def drop_path_rates(config: QnAViTConfig) -> list[list[float]]:
    """Of every stage the rates of its blocks and of its down-sampling.

    Stochastic depth grows linearly over all blocks; the down-sampling ones count when they have a rate of their own.
    """
    last = len(config.stages) - 1
    counts = [stage.attention_blocks + stage.qna_blocks for stage in config.stages]
    own = [config.drop_path_downsample and i != last for i in range(len(counts))]
    total = sum(counts) + sum(own)
    steps = iter(config.drop_path * i / (total - 1) if total > 1 else 0.0 for i in range(total))
    return [[next(steps) for _ in range(count)] + [next(steps) if has_rate else 0.0]
            for count, has_rate in zip(counts, own)]


# ---- head ----


class ClassificationHead(nn.Module):
    """LayerNorm, a mean over the positions ('gap'), a QnA layer over the whole map ('qnav1') or both ('qnav2'), and a
    linear layer."""

    def __init__(self, config: QnAViTConfig):
        super().__init__()
        last = len(config.stages) - 1
        features = config.features(last)
        self.kind = config.head
        self.norm = layer_norm(features)
        self.qna = None
        if config.head != "gap":  # one window over the whole map of the trained size
            window = tuple(-(-side // config.stride(last)) for side in config.image_size)
            self.qna = QnA(features, heads=config.stages[last].qna_heads, kernel_size=window, padding=0)
        self.fc = linear(features, config.classes)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, features] -> [B, classes]"""
        return self.fc(self.pool(x))

    def pool(self, x: Tensor) -> Tensor:
        """x [B, H, W, features] -> [B, features]"""
        normed = self.norm(x)
        pooled = None if self.qna is None else self._attend(normed)
        if self.kind == "qnav1":
            return pooled
        mean = normed.mean((1, 2))
        return mean if pooled is None else pooled + mean

    def _attend(self, x: Tensor) -> Tensor:
        """One window over the whole map, whose tables are resized to it: [B, H, W, C] -> [B, C]"""
        layer = self.qna
        score_weight, value_weight, _, out_weight, _, bias, tap_weights = layer.parameters_for_layer()
        height, width = x.shape[1:3]
        scores = torch.einsum("bijc,clh->bijlh", x, score_weight)
        weights = (scores + resize_table(bias, height, width)).flatten(1, 2).softmax(1)
        weights = weights * resize_table(tap_weights, height, width).flatten(0, 1)
        values = torch.einsum("bijc,chd->bijhd", x, value_weight).flatten(1, 2)
        mixed = torch.einsum("bnlh,bnhd->bhd", weights, values)
        return mixed.flatten(1) @ out_weight.flatten(0, 1)


# ---- network ----


class Network(nn.Module):
    """What networks of all kinds share: their configuration, and what weights files say beside the tensors."""

    config: configs.Config

    def __init__(self, config: configs.Config, channels_first: bool):
        super().__init__()
        self.config = config
        self.channels_first = channels_first
        self.name = ""  # of the model, as the weights file says
        self.labels: Optional[list[str]] = None  # of the classes
        self.category_ids: Optional[list[int]] = None  # of a detector's classes, for COCO's JSON
        self.preprocess: Optional[dict[str, Any]] = None  # from a picture to the network's input
        self.training_record: Any = None  # how the weights came about

    def _pixels(self, images: Tensor, channels: int) -> Tensor:
        """The images channels last, checked."""
        name = type(self).__name__
        layout = f"batch, {channels}, height, width" if self.channels_first else f"batch, height, width, {channels}"
        if not isinstance(images, Tensor):
            raise TypeError(f"{name}: images must be a tensor [{layout}], got {type(images).__name__}")
        if images.dim() != 4 or images.shape[1 if self.channels_first else 3] != channels:
            raise Error(f"{name}: images must be [{layout}], got {list(images.shape)}")
        if min(images.shape[2:] if self.channels_first else images.shape[1:3]) < 1:
            raise Error(f"{name}: height and width of images must be at least 1, got {list(images.shape)}")
        if not images.is_floating_point():
            raise Error(f"{name}: images must be of a floating type, got {images.dtype}")
        return pixels(images) if self.channels_first else images

    def _laid_out(self, x: Tensor) -> Tensor:
        """A map [B, H, W, C] as users of this network have it."""
        return planes(x) if self.channels_first else x


class QnAViT(Network):
    """A QnA-ViT of any configuration.

    Args:
        config: the JSON object of a configuration (as in `qna models --json` and in weights files), or a
            `qna.config.QnAViTConfig`.
        channels_first: whether images and maps are [B, C, H, W] or [B, H, W, C].
    """

    def __init__(self, config: Union[Mapping[str, Any], QnAViTConfig], channels_first: bool = True):
        if not isinstance(config, QnAViTConfig):
            config = QnAViTConfig.from_json(config)
        config.check()
        super().__init__(config, channels_first)
        self.checkpointing = False
        self.stem = EfficientNetStem(config) if config.stem == "efficientnet" else Stem(config)
        self.stages = nn.ModuleList(Stage(config, i, rates) for i, rates in enumerate(drop_path_rates(config)))
        self.head = ClassificationHead(config) if config.classes > 0 else None

    @property
    def num_classes(self) -> int:
        return self.config.classes

    @property
    def num_features(self) -> int:
        """Of the last map."""
        return self.config.features(len(self.stages) - 1)

    def set_checkpointing(self, wanted: bool = True) -> None:
        """Blocks keep only their input for the backward pass and compute the rest again there."""
        self.checkpointing = wanted

    def _run(self, block: nn.Module, x: Tensor) -> Tensor:
        if self.checkpointing and torch.is_grad_enabled():
            return checkpoint(block, x, use_reentrant=False)
        return block(x)

    def _run_stages(self, images: Tensor, count: Optional[int] = None, wanted: Sequence[int] = ()
                    ) -> tuple[Tensor, dict[int, Tensor]]:
        """The map of the last of the first `count` stages, and those of the `wanted` ones; channels last."""
        x = self.stem(self._pixels(images, self.config.in_channels))
        maps, downsample = {}, None
        for i, stage in enumerate(self.stages[:count]):
            if downsample is not None:
                x = self._run(downsample, x)
            for block in stage.blocks:
                x = self._run(block, x)
            if i in wanted:
                maps[i] = x
            downsample = stage.downsample
        return x, maps

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] -> logits [B, classes]; without a head the mean of the last map, [B, features]."""
        return self._head(self._run_stages(x)[0])

    def forward_features(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] -> the last stage's map [B, features, h, w]."""
        return self._laid_out(self._run_stages(x)[0])

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The last stage's map [B, features, h, w] -> logits [B, classes], or what they are made of, [B, features]."""
        return self._head(pixels(x) if self.channels_first else x, pre_logits)

    def _head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        if self.head is None:
            return x.mean((1, 2))
        return self.head.pool(x) if pre_logits else self.head(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: Optional[Union[int, Sequence[int]]] = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Union[list[Tensor], tuple[Tensor, list[Tensor]]]:
        """The maps of several stages, as timm's networks give them.

        Args:
            x: images [B, C, H, W].
            indices: of the stages, from 0; a number n: the last n; None: all.
            norm: apply the head's norm to the last stage's map.
            stop_early: do not run stages behind the last index.
            output_fmt: "NCHW" or "NHWC", of the intermediate maps.
            intermediates_only: return the list alone.

        Returns:
            The last map that was run and the list of maps, or the list alone.
        """
        if output_fmt not in ("NCHW", "NHWC"):
            raise Error(f"QnAViT: output_fmt must be NCHW or NHWC, got {output_fmt!r}")
        taken = self._stage_indices(indices)
        x, maps = self._run_stages(x, max(taken) + 1 if stop_early else None, taken)
        last = len(self.stages) - 1
        if norm and self.head is not None and last in maps:
            maps[last] = self.head.norm(maps[last])
        intermediates = [planes(maps[i]) if output_fmt == "NCHW" else maps[i] for i in taken]
        return intermediates if intermediates_only else (self._laid_out(x), intermediates)

    def _stage_indices(self, indices: Optional[Union[int, Sequence[int]]]) -> list[int]:
        count = len(self.stages)
        if indices is None:
            return list(range(count))
        if isinstance(indices, int):
            indices = range(count - indices, count)
        taken = [i + count if i < 0 else i for i in indices]
        if not taken or not all(0 <= i < count for i in taken):
            raise Error(f"QnAViT: indices must be of the {count} stages, got {list(indices)}")
        return taken


# ---- by name ----


def list_models(kind: Optional[str] = None) -> list[str]:
    """The names that `create_model` knows, of one kind ("classifier", "detector") or of all."""
    return [row["name"] for row in configs.entries() if kind is None or row["kind"] == kind]


def network(config: configs.Config, channels_first: bool = True) -> Network:
    """A network of any kind with this configuration."""
    from qna.auto_encoder import AutoEncoder
    from qna.detectors import Detr

    kinds = {configs.CLASSIFIER: QnAViT, configs.DETECTOR: Detr, configs.AUTO_ENCODER: AutoEncoder}
    return kinds[config.kind](config, channels_first)


def create_model(name: str, num_classes: Optional[int] = None, *, channels_first: bool = True,
                 **changes: Any) -> Network:
    """A network with random weights.

    Args:
        name: one of `list_models()`.
        num_classes: of the head; None: as the named configuration has it.
        channels_first: whether images are [B, C, H, W] or [B, H, W, C].
        changes: keys of the configuration with other values, such as `drop_path=0.1` or `image_size=96`.
    """
    row = configs.entry(name)
    table = {**row["config"], **changes}
    if num_classes is not None:
        table["classes"] = num_classes
    model = network(configs.from_json(table, row["kind"]), channels_first)
    model.name = name
    return model

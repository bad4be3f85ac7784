"""The layers as modules: `QnA`, `QnA1d` for sequences and `SASA`, its rival with a query for every pixel.

Parameters have the names, shapes and initialisation of the C++ modules, and of weights files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qna import ops
from qna._checks import (
    check,
    check_floating,
    check_mask,
    check_same_device,
    check_sizes,
    check_tensor,
    check_windows,
    numbers,
    whole_number,
)

Size = int | Sequence[int]

_SCALES = ("per_tap", "per_query", "ones", "average", "signed", "none")


def truncated_normal_(tensor: Tensor, stddev: float) -> Tensor:
    """Fills with a normal distribution, cut off at -2 and 2, times stddev."""
    edge = math.erf(2 / math.sqrt(2))
    with torch.no_grad():
        return tensor.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2) * stddev).clamp_(-2 * stddev, 2 * stddev)


def lecun_normal_(tensor: Tensor, fan_in: int) -> Tensor:
    """Fills with a truncated normal distribution whose standard deviation, after the cut, is sqrt(1 / fan_in)."""
    return truncated_normal_(tensor, math.sqrt(1 / fan_in) / 0.87962566103423978)


def same_padding(kernel_size: Sequence[int], dilation: Sequence[int] = (1, 1)) -> tuple[int, int, int, int]:
    """(top, bottom, left, right): half the window, so that stride 1 keeps the size.

    An even window gets its extra row and column at the bottom and right.
    """
    rows, columns = ((kernel - 1) * step for kernel, step in zip(kernel_size, dilation))
    return rows // 2, rows - rows // 2, columns // 2, columns - columns // 2


def _features(value: int | None, name: str, caller: str) -> int:
    """0 for None, which stands for a default as 0 does."""
    if value is None:
        return 0
    check(not isinstance(value, int) or value >= 0, caller, "{} must be at least 1 (or None), got {}", name, value)
    return whole_number(value, name, 0, caller)


def _check_heads(heads: int, features: int, caller: str) -> None:
    whole_number(heads, "heads", 0, caller)
    check(
        heads >= 1 and features % heads == 0,
        caller,
        "heads must be at least 1 and divide features ({}), got {}",
        features,
        heads,
    )


def _check_map(layer: nn.Module, x: Tensor, mask: Tensor | None, caller: str) -> None:
    """That x is a map for the layer, and the mask one for x."""
    axis = 1 if layer.channels_first else 3
    if not isinstance(x, Tensor) or x.dim() != 4 or x.shape[axis] != layer.in_features:
        features = layer.in_features
        sizes = f"[batch, {features}, height, width]" if axis == 1 else f"[batch, height, width, {features}]"
        check_tensor(x, sizes, "x", caller)
        check(False, caller, "x must be {}, got {}", sizes, x.shape)
    check_floating(x, "x", caller)
    batch, height, width = (x.shape[0], *x.shape[2:]) if axis == 1 else x.shape[:3]
    check_windows(height, width, layer.kernel_size, layer.padding, layer.dilation, caller)
    if mask is not None:
        check_mask(mask, (batch, height, width), caller)
        check_same_device(x, "x", {"mask": mask}, caller)


class QnA(nn.Module):
    """Attention in overlapping windows with learned queries, as in "Learned Queries for Efficient Local Attention".

    Maps [B, H, W, in_features] to [B, OH, OW, out_features], for any height and width. With a stride it down-samples,
    with `upsample` it up-samples.

    Args:
        in_features: channels of the input.
        features: channels inside the layer; None: as out_features.
        out_features: channels of the output; None: as features, or as in_features.
        heads: must divide features.
        queries: learned queries; their attention maps are summed. With upsample = s always s * s.
        kernel_size, stride, dilation: a number, or (height, width).
        padding: (top, bottom, left, right); None: half the window, so that stride 1 keeps the size.
        upsample: s: the map grows s times, each window's s * s queries fill a block.
        normalize_queries: queries are divided by their lengths, which with normalize_stop_gradient count as constant.
        relative_bias: whether a learned bias by tap is added to the scores.
        attention_scale: how the maps of several queries are weighted before they are summed: "per_tap" (learned, the
            paper's), "per_query" (learned), "ones" (learned, from 1), "average", "signed" or "none" (fixed). With
            upsample it is "none".
        bias: biases of keys, values and output.
        channels_first: maps are [B, C, H, W]; nothing is copied if they are in PyTorch's channels_last format.
        device, dtype: of the parameters. A map of another floating dtype is computed with them in float32 (float64 in
            float64), and the result has the map's dtype.

    Parameters: query [queries, features], key_weight and value_weight [in_features, features], out_weight [features,
    out_features], key_bias, value_bias and out_bias, relative_bias and attention_scale [kh, kw, queries, heads]
    ("per_query": [queries, heads]); those that the options exclude are None.
    """

    def __init__(
        self,
        in_features: int,
        features: int | None = None,
        out_features: int | None = None,
        heads: int = 8,
        queries: int = 2,
        kernel_size: Size = 3,
        stride: Size = 1,
        dilation: Size = 1,
        padding: Size | None = None,
        upsample: int = 1,
        normalize_queries: bool = True,
        normalize_stop_gradient: bool = False,
        relative_bias: bool = True,
        attention_scale: str = "per_tap",
        bias: bool = False,
        channels_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        caller = type(self).__name__
        whole_number(in_features, "in_features", 1, caller)
        features = _features(features, "features", caller)
        out_features = _features(out_features, "out_features", caller) or features or in_features
        features = features or out_features
        _check_heads(heads, features, caller)
        whole_number(upsample, "upsample", 0, caller)
        whole_number(queries, "queries", 0, caller)
        check(1 <= upsample <= 64, caller, "upsample must be from 1 to 64, got {}", upsample)
        check(
            attention_scale in _SCALES,
            caller,
            "attention_scale must be one of {}, got {!r}",
            ", ".join(_SCALES),
            attention_scale,
        )
        if upsample > 1:
            needed = upsample * upsample
            check(
                queries in (0, 2, needed),  # 2, the default, fits no factor
                caller,
                "up-sampling by {} needs {} queries, got {}",
                upsample,
                needed,
                queries,
            )
            queries, attention_scale = needed, "none"
        check(queries >= 1, caller, "queries must be at least 1, got {}", queries)
        check(
            attention_scale != "signed" or queries * heads % 2 == 0,
            caller,
            "a signed attention scale needs an even number of queries x heads, got {} x {}",
            queries,
            heads,
        )
        self.in_features, self.features, self.out_features = in_features, features, out_features
        self.heads, self.queries, self.upsample = heads, queries, upsample
        self.kernel_size = numbers(kernel_size, 2, "kernel_size", 1, caller)
        self.stride = numbers(stride, 2, "stride", 1, caller)
        self.dilation = numbers(dilation, 2, "dilation", 1, caller)
        self.padding = (
            same_padding(self.kernel_size, self.dilation)
            if padding is None
            else numbers(padding, 4, "padding", 0, caller)
        )
        self.normalize_queries, self.normalize_stop_gradient = normalize_queries, normalize_stop_gradient
        self.scale_kind, self.channels_first = attention_scale, channels_first

        def parameter(name: str, *sizes: int, wanted: bool = True) -> None:
            value = nn.Parameter(torch.empty(sizes, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, value)

        table = (*self.kernel_size, queries, heads)
        parameter("query", queries, features)
        parameter("key_weight", in_features, features)
        parameter("key_bias", features, wanted=bias)
        parameter("value_weight", in_features, features)
        parameter("value_bias", features, wanted=bias)
        parameter("out_weight", features, out_features)
        parameter("out_bias", out_features, wanted=bias)
        parameter("relative_bias", *table, wanted=relative_bias)
        if attention_scale in ("per_tap", "ones"):
            parameter("attention_scale", *table)
        else:
            parameter("attention_scale", queries, heads, wanted=attention_scale == "per_query")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises as the paper's authors do."""
        truncated_normal_(self.query, math.sqrt(self.heads / self.features))
        for weight in (self.key_weight, self.value_weight, self.out_weight):
            lecun_normal_(weight, weight.shape[0])
        for zero in (self.key_bias, self.value_bias, self.out_bias, self.relative_bias):
            if zero is not None:
                nn.init.zeros_(zero)
        if self.scale_kind == "ones":
            nn.init.ones_(self.attention_scale)
        elif self.attention_scale is not None:
            nn.init.normal_(self.attention_scale, 0, 0.02)

    def _fixed_scale(self) -> Tensor | None:
        """[kh, kw, queries, heads], where the scale is neither learned nor 1. No buffer: modules that are made on the
        meta device and filled from a file would not have it."""
        table = (*self.kernel_size, self.queries, self.heads)
        if self.scale_kind == "average":
            return self.out_weight.new_full(table, 1 / self.queries)
        if self.scale_kind == "signed":
            half = self.out_weight.new_ones(self.queries * self.heads // 2)
            return torch.cat((half, -half)).view(self.queries, self.heads).expand(table).contiguous()
        return None

    def tap_weights(self) -> Tensor | None:
        """[kh, kw, queries, heads] that multiply the attention, or None: all 1."""
        scale = self.attention_scale
        if scale is None:
            return self._fixed_scale()
        return scale.expand(*self.kernel_size, -1, -1) if self.scale_kind == "per_query" else scale

    def parameters_for_layer(
        self, norm_scale: Tensor | None = None, norm_shift: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        """score_weight, value_weight, value_bias, out_weight, out_bias, bias and tap_weights of `functional.qna_layer`.

        norm_scale, norm_shift: [in_features], of a LayerNorm before the layer, or None; they go into the weights.
        """
        p = self._parameters  # a third of the time of self.query and the like
        score_weight, value_weight, value_bias = ops.fold_qna_layer(
            p["query"], p["key_weight"], p["key_bias"], p["value_weight"], p["value_bias"], norm_scale, norm_shift,
            self.heads, self.normalize_queries, self.normalize_stop_gradient,
        )  # fmt: skip
        out_weight = p["out_weight"].view(self.heads, -1, self.out_features)
        return score_weight, value_weight, value_bias, out_weight, p["out_bias"], p["relative_bias"], self.tap_weights()

    def geometry(self) -> tuple[tuple[int, ...], ...]:
        """kernel_size, stride, padding and dilation."""
        return self.kernel_size, self.stride, self.padding, self.dilation

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, H, W, in_features], mask [B, H, W] bool or None (true takes part) -> [B, OH, OW, out_features].

        With upsample = s the result has s times the rows and columns; with channels_first features are dimension 1.
        """
        _check_map(self, x, mask, "QnA")
        if self.channels_first:
            x = x.permute(0, 2, 3, 1)
        y = ops.qna_layer(
            x, *self.parameters_for_layer(), mask,
            self.kernel_size, self.stride, self.padding, self.dilation, self.upsample,
        )  # fmt: skip
        return y.permute(0, 3, 1, 2) if self.channels_first else y

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_features} -> {self.out_features}",
            f"heads={self.heads}",
            f"queries={self.queries}",
            f"kernel_size={self.kernel_size[0]}x{self.kernel_size[1]}",
            f"stride={self.stride[0]}x{self.stride[1]}",
        ]
        if self.upsample > 1:
            parts.append(f"upsample={self.upsample}")
        if self.channels_first:
            parts.append("channels_first=True")
        return ", ".join(parts)


class QnA1d(QnA):
    """`QnA` for sequences, such as motion and audio: [B, T, in_features] -> [B, OT, out_features].

    It is a QnA over a map of height 1, and its parameters are those: tables are [1, kernel_size, queries, heads].

    Args:
        kernel_size, stride, dilation: numbers of steps.
        padding: a number, or (before, behind); None: half the window, so that stride 1 keeps the length.
        channels_first: sequences are [B, C, T].

    Other arguments as for `QnA`.
    """

    def __init__(
        self,
        in_features: int,
        features: int | None = None,
        out_features: int | None = None,
        heads: int = 8,
        queries: int = 2,
        kernel_size: int = 3,
        stride: int = 1,
        dilation: int = 1,
        padding: Size | None = None,
        normalize_queries: bool = True,
        normalize_stop_gradient: bool = False,
        relative_bias: bool = True,
        attention_scale: str = "per_tap",
        bias: bool = False,
        channels_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        one = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
        for name, value in one.items():
            check(isinstance(value, int), "QnA1d", "{} must be a whole number, got {}", name, value)
        super().__init__(
            in_features,
            features,
            out_features,
            heads,
            queries,
            kernel_size=(1, kernel_size),
            stride=(1, stride),
            dilation=(1, dilation),
            padding=None if padding is None else (0, 0, *numbers(padding, 2, "padding", 0, "QnA1d")),
            normalize_queries=normalize_queries,
            normalize_stop_gradient=normalize_stop_gradient,
            relative_bias=relative_bias,
            attention_scale=attention_scale,
            bias=bias,
            channels_first=channels_first,
            device=device,
            dtype=dtype,
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, T, in_features], mask [B, T] bool or None (true takes part) -> [B, OT, out_features]."""
        features = self.in_features
        sizes = f"[batch, {features}, time]" if self.channels_first else f"[batch, time, {features}]"
        check_tensor(x, sizes, "x", "QnA1d")
        axis = 1 if self.channels_first else 2
        check(x.dim() == 3 and x.shape[axis] == features, "QnA1d", "x must be {}, got {}", sizes, x.shape)
        if mask is not None:
            check_sizes(mask, (x.shape[0], x.shape[3 - axis]), "[batch, time]", "mask", "QnA1d")
        y = super().forward(
            x.unsqueeze(2) if self.channels_first else x.unsqueeze(1), None if mask is None else mask.unsqueeze(1)
        )
        return y.squeeze(2 if self.channels_first else 1)


class SASA(nn.Module):
    """Stand-alone self-attention: every pixel has a query, made from its own features, and attends to its window.

    Maps [B, H, W, in_features] to [B, OH, OW, out_features].

    Args:
        in_features: channels of the input.
        out_features: channels inside the layer and of the output; None: as in_features.
        heads: must divide out_features.
        kernel_size, stride, dilation: a number, or (height, width).
        padding: (top, bottom, left, right), at most half the window, which None stands for.
        relative_bias: whether a learned bias by tap is added to the scores.
        channels_first: maps are [B, C, H, W].

    Parameters: qkv.weight [3 * out_features, in_features], proj.weight, relative_bias [kh, kw, heads] or None.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int | None = None,
        heads: int = 8,
        kernel_size: Size = 3,
        stride: Size = 1,
        dilation: Size = 1,
        padding: Size | None = None,
        relative_bias: bool = True,
        channels_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        whole_number(in_features, "in_features", 1, "SASA")
        out_features = _features(out_features, "out_features", "SASA") or in_features
        _check_heads(heads, out_features, "SASA")
        self.in_features, self.out_features, self.heads = in_features, out_features, heads
        self.kernel_size = numbers(kernel_size, 2, "kernel_size", 1, "SASA")
        self.stride = numbers(stride, 2, "stride", 1, "SASA")
        self.dilation = numbers(dilation, 2, "dilation", 1, "SASA")
        self._half = same_padding(self.kernel_size, self.dilation)
        self.padding = self._half if padding is None else numbers(padding, 4, "padding", 0, "SASA")
        for side, half in zip(self.padding, self._half):
            check(side <= half, "SASA", "padding must be from 0 to half the window ({}), got {}", half, side)
        self.channels_first = channels_first
        self.qkv = nn.Linear(in_features, 3 * out_features, bias=False, device=device, dtype=dtype)
        self.proj = nn.Linear(out_features, out_features, bias=False, device=device, dtype=dtype)
        table = torch.empty((*self.kernel_size, heads), device=device, dtype=dtype) if relative_bias else None
        self.relative_bias = None if table is None else nn.Parameter(table)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises as the paper's authors do."""
        lecun_normal_(self.qkv.weight, self.in_features)
        lecun_normal_(self.proj.weight, self.out_features)
        if self.relative_bias is not None:
            nn.init.zeros_(self.relative_bias)

    def _by_dim(self, weight: Tensor, groups: int) -> Tensor:
        """Rows [groups, heads, dim] of a weight as [groups, dim, heads]."""
        rows = weight.unflatten(0, (groups, self.heads, -1))
        return rows.transpose(1, 2).flatten(0, 2)

    def _window_centers(self, x: Tensor) -> Tensor:
        """The pixels in the middle of the windows: a view."""
        top, bottom, left, right = (half - side for half, side in zip(self._half, self.padding))
        return x[:, top : x.shape[1] - bottom : self.stride[0], left : x.shape[2] - right : self.stride[1]]

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, whose channels lie as [dim, heads]: that is how the kernels want them."""
        features = self.out_features
        weight = self._by_dim(self.qkv.weight, 3)
        scaled = weight[:features] * (1 / math.sqrt(features // self.heads))
        centers = self._window_centers(x)
        if centers.shape == x.shape:
            parts = F.linear(x, torch.cat((scaled, weight[features:]))).chunk(3, -1)
        else:
            parts = (F.linear(centers, scaled), *F.linear(x, weight[features:]).chunk(2, -1))
        return tuple(part.unflatten(3, (-1, self.heads)).transpose(3, 4) for part in parts)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x [B, H, W, in_features], mask [B, H, W] bool or None (true takes part) -> [B, OH, OW, out_features].

        What the mask excludes counts as 0, whatever stands there. With channels_first features are dimension 1.
        """
        _check_map(self, x, mask, "SASA")
        if self.channels_first:
            x = x.permute(0, 2, 3, 1)
        if mask is not None:
            x = x.masked_fill(~mask.to(torch.bool)[..., None], 0)
        mixed = ops.sasa(
            *self._project(x), self.relative_bias, mask, self.kernel_size, self.stride, self.padding, self.dilation
        )
        y = F.linear(mixed.transpose(3, 4).flatten(3), self._by_dim(self.proj.weight.t(), 1).t())
        return y.permute(0, 3, 1, 2) if self.channels_first else y

    def extra_repr(self) -> str:
        return (
            f"{self.in_features} -> {self.out_features}, heads={self.heads}, "
            f"kernel_size={self.kernel_size[0]}x{self.kernel_size[1]}, stride={self.stride[0]}x{self.stride[1]}"
        )

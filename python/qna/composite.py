"""Every operator of the package in plain PyTorch.

These forms run on any device and in any floating dtype, can be differentiated any number of times, and trace,
compile and export: nothing in them depends on the numbers in a tensor. The functions of `qna.functional` take them
where there is no kernel, and for gradients of gradients.

All maps are channels last. 16-bit maps are computed in float32. Windows are taken tap by tap: tap (y, x) of all
windows at once is a strided slice of the padded map, so no map of `kernel_h * kernel_w` copies of the values exists.
Arguments are trusted; `qna.functional` checks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

NEGATIVE_INFINITY = float("-inf")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "relu": F.relu,
    "relu6": F.relu6,
    "silu": F.silu,
}


def output_size(size: int, kernel: int, stride: int, before: int, after: int, dilation: int) -> int:
    """How many windows fit along an axis of `size` pixels with `before` and `after` pixels of padding."""
    span = (kernel - 1) * dilation + 1
    return (size + before + after - span) // stride + 1


def output_sizes(
    height: int,
    width: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[int, int]:
    """Rows and columns of windows; padding is (top, bottom, left, right)."""
    top, bottom, left, right = padding
    return (
        output_size(height, kernel_size[0], stride[0], top, bottom, dilation[0]),
        output_size(width, kernel_size[1], stride[1], left, right, dilation[1]),
    )


def _compute_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _finite(maximum: Tensor) -> Tensor:
    """A maximum of -inf, of nothing at all, as 0, so that it can be subtracted."""
    return maximum.masked_fill(maximum == NEGATIVE_INFINITY, 0)


class _Windows:
    """The windows' geometry; gives the map under each tap."""

    def __init__(self, height, width, kernel_size, stride, padding, dilation):
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.rows, self.columns = output_sizes(height, width, kernel_size, stride, padding, dilation)

    def taps(self, pixels: Tensor, outside: float) -> Iterator[Tensor]:
        """pixels [B, H, W, ...] -> for each tap [B, OH, OW, ...], `outside` where it lies in the padding."""
        top, bottom, left, right = self.padding
        if any(side != 0 for side in self.padding):
            inner = [0, 0] * (pixels.dim() - 3)
            pixels = F.pad(pixels, inner + [left, right, top, bottom], value=outside)
        (kernel_h, kernel_w), (stride_h, stride_w), (dilation_h, dilation_w) = (
            self.kernel_size,
            self.stride,
            self.dilation,
        )
        for tap_y in range(kernel_h):
            first = tap_y * dilation_h
            rows = pixels[:, first : first + (self.rows - 1) * stride_h + 1 : stride_h]
            for tap_x in range(kernel_w):
                first = tap_x * dilation_w
                yield rows[:, :, first : first + (self.columns - 1) * stride_w + 1 : stride_w]


def _softmax_over_taps(scores: Tensor, bias: Tensor | None) -> Tensor:
    """Softmax over dimension 0 of scores + bias; where every tap is -inf, all weights are 0.

    scores [taps, B, OH, OW, ...], bias [taps, ...] or None.
    """
    # The scores' maximum goes first: near numbers subtract exactly, score + bias would round.
    logits = scores - _finite(scores.detach().amax(0, keepdim=True))
    if bias is not None:
        bias = bias - _finite(bias.detach().amax(0, keepdim=True))
        logits = logits + bias[:, None, None, None]
    weights = (logits - _finite(logits.detach().amax(0, keepdim=True))).exp()
    total = weights.sum(0, keepdim=True)
    return weights / total.masked_fill(total == 0, 1)


def window_attention(
    scores: Tensor,
    values: Tensor,
    bias: Tensor | None,
    tap_weights: Tensor | None,
    mask: Tensor | None,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    separate: bool = False,
) -> Tensor:
    """Softmax over each window of scores (+ bias), per query and head, and the weighted sum of values.

    scores [B, H, W, L, heads], values [B, H, W, heads, dim], bias and tap_weights [kh, kw, L, heads] or None,
    mask [B, H, W] bool or None (true takes part), padding (top, bottom, left, right).
    Returns [B, OH, OW, heads, dim], the sum over the queries, or if `separate` [B, OH, OW, L, heads, dim].
    """
    dtype = _compute_type(values.dtype)
    windows = _Windows(values.shape[1], values.shape[2], kernel_size, stride, padding, dilation)
    tap_scores, tap_values = scores.to(dtype), values.to(dtype)
    if mask is not None:
        absent = ~mask.to(torch.bool)[..., None, None]
        tap_scores = tap_scores.masked_fill(absent, NEGATIVE_INFINITY)
        tap_values = tap_values.masked_fill(absent, 0)  # 0 * inf would be NaN

    stacked = torch.stack(list(windows.taps(tap_scores, NEGATIVE_INFINITY)))  # [taps, B, OH, OW, L, heads]
    weights = _softmax_over_taps(stacked, None if bias is None else bias.to(dtype).flatten(0, 1))
    if tap_weights is not None:
        weights = weights * tap_weights.to(dtype).flatten(0, 1)[:, None, None, None]
    if not separate:
        weights = weights.sum(4)  # the queries meet before the values are touched
    out = None
    for weight, value in zip(weights, windows.taps(tap_values, 0.0)):
        term = weight[..., None] * (value[:, :, :, None] if separate else value)
        out = term if out is None else out + term
    return out.to(values.dtype)


def qna_layer(
    x: Tensor,
    score_weight: Tensor,
    value_weight: Tensor,
    value_bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    bias: Tensor | None,
    tap_weights: Tensor | None,
    mask: Tensor | None,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    upsample: int = 1,
) -> Tensor:
    """The whole QnA layer: scores and values from x, window attention, projection.

    x [B, H, W, C], score_weight [C, L, heads], value_weight [C, heads, dim], value_bias [heads, dim] or None,
    out_weight [heads, dim, O], out_bias [O] or None, bias and tap_weights [kh, kw, L, heads] or None,
    mask [B, H, W] bool or None (true takes part), padding (top, bottom, left, right).
    Returns [B, OH, OW, O], or with upsample = s > 1, which needs s * s queries, [B, OH * s, OW * s, O].
    """
    dtype = _compute_type(x.dtype)
    pixels = x.to(dtype)
    if mask is not None:
        # Masked pixels may hold anything; it must not reach the gradients of the weights either.
        pixels = pixels.masked_fill(~mask.to(torch.bool)[..., None], 0)
    scores = (pixels @ score_weight.to(dtype).flatten(1)).unflatten(3, score_weight.shape[1:])
    values = pixels @ value_weight.to(dtype).flatten(1)
    if value_bias is not None:
        values = values + value_bias.to(dtype).flatten()
    values = values.unflatten(3, value_weight.shape[1:])
    mixed = window_attention(
        scores, values, bias, tap_weights, mask, kernel_size, stride, padding, dilation, separate=upsample > 1
    )
    y = mixed.flatten(-2) @ out_weight.to(dtype).flatten(0, 1)
    if out_bias is not None:
        y = y + out_bias.to(dtype)
    return (_spread_queries(y, upsample) if upsample > 1 else y).to(x.dtype)


def _spread_queries(z: Tensor, upsample: int) -> Tensor:
    """[B, OH, OW, s * s, O] -> [B, OH * s, OW * s, O]: query a * s + b is pixel (a, b) of its block."""
    return z.unflatten(3, (upsample, upsample)).transpose(2, 3).flatten(3, 4).flatten(1, 2)


def fold_qna_layer(
    query: Tensor,
    key_weight: Tensor,
    key_bias: Tensor | None,
    value_weight: Tensor,
    value_bias: Tensor | None,
    norm_scale: Tensor | None,
    norm_shift: Tensor | None,
    heads: int,
    normalize: bool = True,
    stop_gradient: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """From a layer's parameters, as they are learned, to those `qna_layer` takes.

    query [L, features], key_weight and value_weight [C, features], key_bias and value_bias [features] or None,
    norm_scale and norm_shift [C], of a LayerNorm before the layer, or None. `normalize` divides the queries by their
    lengths; with `stop_gradient` those count as constant.
    Returns score_weight [C, L, heads], value_weight [C, heads, dim] and value_bias [heads, dim] or None.

    A key bias adds the same number to all scores of a query and head, which the softmax takes out again: it changes
    nothing, and its gradient is 0.
    """
    dim = key_weight.shape[1] // heads
    q = query.unflatten(-1, (heads, dim))
    if normalize:
        length = torch.linalg.vector_norm(q, dim=-1, keepdim=True)
        q = q / ((length.detach() if stop_gradient else length) + 1e-6)
    keys = key_weight.unflatten(-1, (heads, dim))
    score_weight = torch.einsum("chd,lhd->clh", keys, q / math.sqrt(dim))
    if key_bias is not None:
        score_weight = score_weight + 0 * key_bias.sum()
    values = value_weight.unflatten(-1, (heads, dim))
    shift = None if value_bias is None else value_bias.unflatten(-1, (heads, dim))
    if norm_scale is not None:
        moved = torch.einsum("c,chd->hd", norm_shift, values)
        shift = moved if shift is None else shift + moved
        values = values * norm_scale[:, None, None]
        score_weight = score_weight * norm_scale[:, None, None]
    return score_weight, values, shift


def qna_layer_branch(
    x: Tensor,
    score_weight: Tensor,
    value_weight: Tensor,
    value_bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    bias: Tensor | None,
    tap_weights: Tensor | None,
    mask: Tensor | None,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    epsilon: float = 1e-6,
    drop_factor: Tensor | None = None,
    residual: bool = True,
) -> Tensor:
    """The layer as the first half of a block has it: (x +) drop_factor * layer(norm(x)).

    The norm has no scale and shift of its own: they are linear and belong into the weights (`fold_qna_layer`).
    drop_factor [B] or None is a factor for each image. Other arguments as for `qna_layer`.
    """
    normed = F.layer_norm(x, x.shape[-1:], eps=epsilon)
    y = qna_layer(
        normed, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask,
        kernel_size, stride, padding, dilation,
    )  # fmt: skip
    if drop_factor is not None:
        y = y * drop_factor.to(y.dtype)[:, None, None, None]
    return x + y if residual else y


def mlp_branch(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    weight1: Tensor,
    bias1: Tensor,
    weight2: Tensor,
    bias2: Tensor,
    drop_factor: Tensor | None = None,
    activation: str = "gelu_tanh",
    epsilon: float = 1e-6,
) -> Tensor:
    """The second half of a block: x + drop_factor * mlp(norm(x)).

    x [B, ..., features], norm_weight and norm_bias [features], weight1 [hidden, features], bias1 [hidden],
    weight2 [features, hidden], bias2 [features], drop_factor [B] or None: a factor for each sample.
    activation is one of "none", "gelu_tanh", "gelu", "relu", "relu6", "silu".
    """
    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, epsilon)
    branch = F.linear(ACTIVATIONS[activation](F.linear(normed, weight1, bias1)), weight2, bias2)
    if drop_factor is not None:
        branch = branch * drop_factor.to(branch.dtype).reshape([-1] + [1] * (x.dim() - 1))
    return x + branch


def window_self_attention(
    qkv: Tensor,
    heads: int,
    window: Sequence[int],
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Self-attention in windows that tile the map, between its two products.

    qkv [B, H, W, 3 * heads * dim], window (height, width), cut to the map; bias [heads, 2 h - 1 or more, 2 w - 1 or
    more] or None is added by the place of the key minus that of the query; mask [B, H, W] bool or None (true is a
    key). Returns [B, H, W, heads * dim]. Scores are scaled by 1 / sqrt(dim); a window without keys gives 0.
    """
    batch, height, width = qkv.shape[:3]
    features = qkv.shape[3] // 3
    dim = features // heads
    window = (min(window[0], height), min(window[1], width))
    tokens = window[0] * window[1]

    # Padded at the bottom and right to whole windows; what is added is masked.
    bottom, right = -height % window[0], -width % window[1]
    padded = bottom != 0 or right != 0
    keys = mask
    if padded:
        keys = torch.ones((batch, height, width), dtype=torch.bool, device=qkv.device) if mask is None else mask
        keys = F.pad(keys, (0, right, 0, bottom))
        qkv = F.pad(qkv, (0, 0, 0, right, 0, bottom))
    down, across = (height + bottom) // window[0], (width + right) // window[1]

    parts = _split(qkv, window, down, across).unflatten(2, (3, heads, dim)).permute(2, 0, 3, 1, 4)
    scores = (parts[0] * (1 / math.sqrt(dim))) @ parts[1].transpose(-2, -1)  # [B * windows, heads, tokens, tokens]
    if bias is not None:
        index = _table_index(window, bias.shape[1], bias.shape[2], bias.device)
        scores = scores + bias.flatten(1)[:, index]
    if keys is None:
        weights = scores.softmax(-1)
    else:
        # The lowest number, not -inf: a window without keys would give NaN, in the gradient too.
        taking_part = _split(keys, window, down, across)[:, None, None]
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~taking_part, lowest).softmax(-1) * taking_part
    mixed = (weights @ parts[2]).transpose(1, 2).reshape(-1, tokens, features)
    y = _merge(mixed, window, down, across)
    return y[:, :height, :width] if padded else y


def window_self_attention_branch(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    qkv_weight: Tensor,
    proj_weight: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    drop_factor: Tensor | None,
    heads: int,
    window: Sequence[int],
    epsilon: float = 1e-6,
) -> Tensor:
    """The first half of a block with self-attention: x + drop_factor * proj(attention(qkv(norm(x)))).

    x [B, H, W, features], norm_weight and norm_bias [features], qkv_weight [3 * features, features], proj_weight
    [features, features], drop_factor [B] or None: a factor for each image; bias, mask and window as those of
    `window_self_attention`.
    """
    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, epsilon)
    mixed = window_self_attention(F.linear(normed, qkv_weight), heads, window, bias, mask)
    branch = F.linear(mixed, proj_weight)
    if drop_factor is not None:
        branch = branch * drop_factor.to(branch.dtype)[:, None, None, None]
    return x + branch


def _split(x: Tensor, window: tuple[int, int], down: int, across: int) -> Tensor:
    """[B, H, W, ...] -> [B * windows, tokens, ...]"""
    x = x.unflatten(2, (across, window[1])).unflatten(1, (down, window[0]))
    return x.transpose(2, 3).flatten(3, 4).flatten(0, 2)


def _merge(x: Tensor, window: tuple[int, int], down: int, across: int) -> Tensor:
    """[B * windows, tokens, C] -> [B, H, W, C]"""
    x = x.reshape(-1, down, across, window[0], window[1], x.shape[-1])
    return x.transpose(2, 3).flatten(3, 4).flatten(1, 2)


def _table_index(window: tuple[int, int], rows: int, columns: int, device: torch.device) -> Tensor:
    """Where a table of rows * columns, flattened, holds key minus query: [tokens, tokens]."""
    y = torch.arange(window[0], device=device)[:, None].expand(window).flatten()
    x = torch.arange(window[1], device=device)[None, :].expand(window).flatten()
    dy = y[None, :] - y[:, None] + rows // 2
    dx = x[None, :] - x[:, None] + columns // 2
    return dy * columns + dx


def sasa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Stand-alone self-attention: every output pixel attends to the window of keys and values around it.

    q [B, OH, OW, heads, dim], k and v [B, H, W, heads, dim], bias [kh, kw, heads] or None, mask [B, H, W] bool or
    None (true takes part as key and value), padding (top, bottom, left, right). A factor such as 1 / sqrt(dim) belongs
    into q. Returns [B, OH, OW, heads, dim]; a window in which nothing takes part gives 0.
    """
    dtype = _compute_type(q.dtype)
    windows = _Windows(k.shape[1], k.shape[2], kernel_size, stride, padding, dilation)
    queries, keys, values = q.to(dtype), k.to(dtype), v.to(dtype)
    if mask is not None:
        absent = ~mask.to(torch.bool)[..., None, None]
        keys, values = keys.masked_fill(absent, 0), values.masked_fill(absent, 0)  # 0 * inf would be NaN
    scores = torch.stack([(queries * key).sum(-1) for key in windows.taps(keys, 0.0)])  # [taps, B, OH, OW, heads]
    scores = scores + _absent_taps(windows, k, mask, dtype)
    weights = _softmax_over_taps(scores, None if bias is None else bias.to(dtype).flatten(0, 1))
    out = None
    for weight, value in zip(weights, windows.taps(values, 0.0)):
        term = weight[..., None] * value
        out = term if out is None else out + term
    return out.to(q.dtype)


def _absent_taps(windows: _Windows, k: Tensor, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """0 where a tap takes part and -inf where it does not: [taps, B or 1, OH, OW, 1]."""
    present = torch.zeros((1,) + k.shape[1:3], dtype=dtype, device=k.device)
    if mask is not None:
        present = present.masked_fill(~mask.to(torch.bool), NEGATIVE_INFINITY)
    return torch.stack(list(windows.taps(present, NEGATIVE_INFINITY)))[..., None]

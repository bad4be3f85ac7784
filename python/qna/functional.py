"""The layers' arithmetic as functions: checked, differentiable, for any device.

All maps are channels last. On the CPU the kernels run, in float32, bfloat16 and float16 for `qna_layer`,
`window_attention` and `sasa`, in float32 for the others; elsewhere, and for gradients of gradients, the same in plain
PyTorch (`qna.composite`). All trace, compile and export.

Sizes of windows may be one number for both axes. `padding` is one number, or (top, bottom, left, right).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from qna import composite, ops
from qna._checks import (
    check,
    check_floating,
    check_mask,
    check_rank,
    check_same_device,
    check_sizes,
    check_tensor,
    check_windows,
    numbers,
)

Size = int | Sequence[int]

_TABLE = "[kernel height, kernel width, queries, heads]"


def _geometry(height, width, kernel_size, stride, padding, dilation, caller):
    """The four as tuples of 2, 2, 4 and 2 numbers that fit the map."""
    kernel_size = numbers(kernel_size, 2, "kernel_size", 1, caller)
    stride = numbers(stride, 2, "stride", 1, caller)
    padding = numbers(padding, 4, "padding", 0, caller)
    dilation = numbers(dilation, 2, "dilation", 1, caller)
    check_windows(height, width, kernel_size, padding, dilation, caller)
    return kernel_size, stride, padding, dilation


def _check_layer(
    x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask, kernel_size, upsample,
    caller,
):  # fmt: skip
    check_rank(score_weight, 3, "[in features, queries, heads]", "score_weight", caller)
    check_rank(value_weight, 3, "[in features, heads, dim]", "value_weight", caller)
    check_rank(out_weight, 3, "[heads, dim, out features]", "out_weight", caller)
    in_features, queries, out_features = x.shape[3], score_weight.shape[1], out_weight.shape[2]
    heads, dim = value_weight.shape[1:]
    check_sizes(score_weight, (in_features, queries, heads), "[features of x, queries, heads]", "score_weight", caller)
    check_sizes(value_weight, (in_features, heads, dim), "[features of x, heads, dim]", "value_weight", caller)
    check_sizes(out_weight, (heads, dim, out_features), "[heads, dim, out features]", "out_weight", caller)
    check_sizes(value_bias, (heads, dim), "[heads, dim]", "value_bias", caller)
    check_sizes(out_bias, (out_features,), "[out features]", "out_bias", caller)
    check(upsample >= 1, caller, "upsample must be at least 1, got {}", upsample)
    check(
        upsample == 1 or queries == upsample * upsample,
        caller,
        "up-sampling by {0} needs {0} x {0} queries, got {1}",
        upsample,
        queries,
    )
    check_sizes(bias, (*kernel_size, queries, heads), _TABLE, "bias", caller)
    check_sizes(tap_weights, (*kernel_size, queries, heads), _TABLE, "tap_weights", caller)
    check_mask(mask, x.shape[:3], caller)
    others = {
        "score_weight": score_weight,
        "value_weight": value_weight,
        "value_bias": value_bias,
        "out_weight": out_weight,
        "out_bias": out_bias,
        "bias": bias,
        "tap_weights": tap_weights,
    }
    for name, tensor in others.items():
        check_floating(tensor, name, caller)
    check_same_device(x, "x", {**others, "mask": mask}, caller)


def _check_map(x: Tensor, caller: str) -> None:
    check_rank(x, 4, "[batch, height, width, features]", "x", caller)
    check_floating(x, "x", caller)


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
    kernel_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    upsample: int = 1,
) -> Tensor:
    """The whole QnA layer: scores and values from x, window attention, projection.

    Args:
        x: [B, H, W, C].
        score_weight: [C, L, heads], the keys' weights times the queries (`fold_qna_layer`).
        value_weight: [C, heads, dim]; value_bias: [heads, dim] or None.
        out_weight: [heads, dim, O]; out_bias: [O] or None.
        bias: [kh, kw, L, heads] or None, added to the scores by tap.
        tap_weights: [kh, kw, L, heads] or None, multiply the attention by tap.
        mask: [B, H, W] bool or None; true takes part.
        upsample: s > 1 needs s * s queries, which fill a block of s x s pixels each.

    Returns:
        [B, OH * s, OW * s, O]. A window in which nothing takes part gives out_bias, or 0.
    """
    caller = "qna_layer"
    _check_map(x, caller)
    geometry = _geometry(x.shape[1], x.shape[2], kernel_size, stride, padding, dilation, caller)
    weights = (score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights)
    _check_layer(x, *weights, mask, geometry[0], upsample, caller)
    return ops.qna_layer(x, *weights, mask, *geometry, upsample)


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
    kernel_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    epsilon: float = 1e-6,
    drop_factor: Tensor | None = None,
    residual: bool = True,
) -> Tensor:
    """The layer as the first half of a block has it: (x +) drop_factor * layer(norm(x)).

    The norm over the features has no scale and shift of its own: they are linear and belong into the weights
    (`fold_qna_layer`). drop_factor [B] or None is a factor for each image, as stochastic depth draws them; where it is
    0 nothing is computed. With `residual` the result must have the shape of x. Other arguments as for `qna_layer`.
    """
    caller = "qna_layer_branch"
    _check_map(x, caller)
    geometry = _geometry(x.shape[1], x.shape[2], kernel_size, stride, padding, dilation, caller)
    weights = (score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights)
    _check_layer(x, *weights, mask, geometry[0], 1, caller)
    check_sizes(drop_factor, x.shape[:1], "[batch]", "drop_factor", caller)
    out = (*composite.output_sizes(x.shape[1], x.shape[2], *geometry), out_weight.shape[2])
    check(
        not residual or out == tuple(x.shape[1:]),
        caller,
        "with a residual the outputs must be like x, {}, got {}",
        x.shape[1:],
        out,
    )
    return ops.qna_layer_branch(x, *weights, mask, *geometry, epsilon, drop_factor, residual)


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

    Args:
        query: [L, features].
        key_weight, value_weight: [C, features]; key_bias, value_bias: [features] or None. The softmax takes a key
            bias out again: its gradient is 0.
        norm_scale, norm_shift: [C] or None, of a LayerNorm before the layer.
        normalize: queries are divided by their lengths, which with `stop_gradient` count as constant.

    Returns:
        score_weight [C, L, heads], value_weight [C, heads, dim], value_bias [heads, dim] or None. They may share
        memory with the arguments.
    """
    caller = "fold_qna_layer"
    check_rank(query, 2, "[queries, features]", "query", caller)
    check_rank(key_weight, 2, "[in features, features]", "key_weight", caller)
    in_features, features = key_weight.shape
    check(
        heads >= 1 and features % heads == 0,
        caller,
        "heads must divide the features ({}), got {}",
        features,
        heads,
    )
    check_sizes(query, (query.shape[0], features), "[queries, features]", "query", caller)
    check_sizes(value_weight, (in_features, features), "[in features, features]", "value_weight", caller)
    for name, tensor in (("key_bias", key_bias), ("value_bias", value_bias)):
        check_sizes(tensor, (features,), "[features]", name, caller)
    check(
        (norm_scale is None) == (norm_shift is None),
        caller,
        "norm_scale and norm_shift must both be given or both be None, got one of them",
    )
    for name, tensor in (("norm_scale", norm_scale), ("norm_shift", norm_shift)):
        check_sizes(tensor, (in_features,), "[in features]", name, caller)
    return ops.fold_qna_layer(
        query, key_weight, key_bias, value_weight, value_bias, norm_scale, norm_shift, heads, normalize, stop_gradient
    )


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

    Args:
        x: [B, ..., features].
        norm_weight, norm_bias: [features].
        weight1: [hidden, features]; bias1: [hidden]; weight2: [features, hidden]; bias2: [features].
        drop_factor: [B] or None, a factor for each sample; where it is 0 nothing is computed.
        activation: "none", "gelu_tanh", "gelu", "relu", "relu6" or "silu".
    """
    caller = "mlp_branch"
    check_tensor(x, "[batch, ..., features]", "x", caller)
    check(x.dim() >= 2, caller, "x must be [batch, ..., features], got {}", x.shape)
    check_rank(weight1, 2, "[hidden, features]", "weight1", caller)
    features, hidden = x.shape[-1], weight1.shape[0]
    for name, tensor, sizes, layout in (
        ("norm_weight", norm_weight, (features,), "[features]"),
        ("norm_bias", norm_bias, (features,), "[features]"),
        ("weight1", weight1, (hidden, features), "[hidden, features]"),
        ("bias1", bias1, (hidden,), "[hidden]"),
        ("weight2", weight2, (features, hidden), "[features, hidden]"),
        ("bias2", bias2, (features,), "[features]"),
        ("drop_factor", drop_factor, x.shape[:1], "[batch]"),
    ):
        check_sizes(tensor, sizes, layout, name, caller)
    check(
        activation in composite.ACTIVATIONS,
        caller,
        "activation must be one of {}, got {!r}",
        ", ".join(composite.ACTIVATIONS),
        activation,
    )
    return ops.mlp_branch(x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, drop_factor, activation, epsilon)


def window_self_attention(
    qkv: Tensor, heads: int, window: Size, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Self-attention in windows that tile the map, between its two products.

    Args:
        qkv: [B, H, W, 3 * heads * dim]; scores are scaled by 1 / sqrt(dim).
        window: height and width; a map that is smaller is one window.
        bias: [heads, 2 h - 1 or more, 2 w - 1 or more] or None, by the place of the key minus that of the query.
        mask: [B, H, W] bool or None; true is a key. A window without keys gives 0.

    Returns:
        [B, H, W, heads * dim].
    """
    caller = "window_self_attention"
    check_rank(qkv, 4, "[batch, height, width, 3 x heads x dim]", "qkv", caller)
    check_floating(qkv, "qkv", caller)
    check(
        heads >= 1 and qkv.shape[3] % (3 * heads) == 0,
        caller,
        "qkv must be [batch, height, width, 3 x {} heads x dim], got {}",
        heads,
        qkv.shape,
    )
    cut = _check_attention_windows(qkv, "qkv", heads, window, bias, mask, caller)
    return ops.window_self_attention(qkv, heads, cut, bias, mask)


def _check_attention_windows(
    x: Tensor, name: str, heads: int, window: Size, bias: Tensor | None, mask: Tensor | None, caller: str
) -> tuple[int, int]:
    """The window, cut to map x."""
    window = numbers(window, 2, "window", 1, caller)
    check_windows(x.shape[1], x.shape[2], (1, 1), (0, 0, 0, 0), (1, 1), caller)
    cut = (min(window[0], x.shape[1]), min(window[1], x.shape[2]))
    if bias is not None:
        least = (2 * cut[0] - 1, 2 * cut[1] - 1)
        check(
            bias.dim() == 3 and bias.shape[0] == heads and bias.shape[1] >= least[0] and bias.shape[2] >= least[1],
            caller,
            "bias must be [{}, at least {}, at least {}], got {}",
            heads,
            *least,
            bias.shape,
        )
    check_mask(mask, x.shape[:3], caller)
    check_same_device(x, name, {"bias": bias, "mask": mask}, caller)
    return cut


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
    window: Size,
    epsilon: float = 1e-6,
) -> Tensor:
    """The first half of a block with self-attention in windows: x + drop_factor * proj(attention(qkv(norm(x)))).

    Args:
        x: [B, H, W, features].
        norm_weight, norm_bias: [features].
        qkv_weight: [3 * features, features], rows: q, k, v, each [heads, dim]; proj_weight: [features, features].
        bias, mask, heads, window: as those of `window_self_attention`. What is no key is still a query.
        drop_factor: [B] or None, a factor for each image; where it is 0 nothing is computed.
    """
    caller = "window_self_attention_branch"
    check_rank(x, 4, "[batch, height, width, features]", "x", caller)
    check_floating(x, "x", caller)
    features = x.shape[3]
    check(heads >= 1 and features % heads == 0, caller, "heads must divide the features ({}), got {}", features, heads)
    for name, tensor, sizes, layout in (
        ("norm_weight", norm_weight, (features,), "[features]"),
        ("norm_bias", norm_bias, (features,), "[features]"),
        ("qkv_weight", qkv_weight, (3 * features, features), "[3 x features, features]"),
        ("proj_weight", proj_weight, (features, features), "[features, features]"),
        ("drop_factor", drop_factor, x.shape[:1], "[batch]"),
    ):
        check_sizes(tensor, sizes, layout, name, caller)
    cut = _check_attention_windows(x, "x", heads, window, bias, mask, caller)
    return ops.window_self_attention_branch(
        x, norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask, drop_factor, heads, cut, epsilon
    )


def window_attention(
    scores: Tensor,
    values: Tensor,
    bias: Tensor | None,
    tap_weights: Tensor | None,
    mask: Tensor | None,
    kernel_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    separate: bool = False,
) -> Tensor:
    """Softmax over each window of scores (+ bias), per query and head, and the weighted sum of values.

    Args:
        scores: [B, H, W, L, heads].
        values: [B, H, W, heads, dim], of the same dtype.
        bias: [kh, kw, L, heads] or None, added to the scores by tap.
        tap_weights: [kh, kw, L, heads] or None, multiply the attention by tap.
        mask: [B, H, W] bool or None; true takes part.
        separate: every query has a result of its own.

    Returns:
        [B, OH, OW, heads, dim], the sum over the queries, or if `separate` [B, OH, OW, L, heads, dim]. A window in
        which nothing takes part gives 0.
    """
    caller = "window_attention"
    check_rank(scores, 5, "[batch, height, width, queries, heads]", "scores", caller)
    check_rank(values, 5, "[batch, height, width, heads, dim]", "values", caller)
    check_floating(values, "values", caller)
    check(
        scores.dtype == values.dtype,
        caller,
        "scores must have the dtype of values ({}), got {}",
        values.dtype,
        scores.dtype,
    )
    queries, heads = scores.shape[3], values.shape[3]
    check_sizes(
        scores,
        (*values.shape[:3], queries, heads),
        "[batch, height, width, queries, heads] of values",
        "scores",
        caller,
    )
    geometry = _geometry(values.shape[1], values.shape[2], kernel_size, stride, padding, dilation, caller)
    for name, tensor in (("bias", bias), ("tap_weights", tap_weights)):
        check_sizes(tensor, (*geometry[0], queries, heads), _TABLE, name, caller)
        check_floating(tensor, name, caller)
    check_mask(mask, values.shape[:3], caller)
    check_same_device(
        values, "values", {"scores": scores, "bias": bias, "tap_weights": tap_weights, "mask": mask}, caller
    )
    return ops.window_attention(scores, values, bias, tap_weights, mask, *geometry, separate)


def sasa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    kernel_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
) -> Tensor:
    """Stand-alone self-attention: every output pixel attends to the window of keys and values around it.

    Args:
        q: [B, OH, OW, heads, dim]. A factor such as 1 / sqrt(dim) belongs into it.
        k, v: [B, H, W, heads, dim], of the same dtype.
        bias: [kh, kw, heads] or None, relative bias.
        mask: [B, H, W] bool or None; true takes part as key and value.

    Returns:
        [B, OH, OW, heads, dim]. A window in which nothing takes part gives 0.

    The kernels are fastest with heads as the fast index in memory: maps stored as [.., dim, heads] and given as their
    transpose. The result then lies likewise.
    """
    caller = "sasa"
    check_rank(q, 5, "[batch, output height, output width, heads, dim]", "q", caller)
    check_rank(k, 5, "[batch, height, width, heads, dim]", "k", caller)
    check_floating(q, "q", caller)
    for name, tensor in (("k", k), ("v", v)):
        check(tensor.dtype == q.dtype, caller, "{} must have the dtype of q ({}), got {}", name, q.dtype, tensor.dtype)
    check_sizes(v, k.shape, "[batch, height, width, heads, dim] of k", "v", caller)
    geometry = _geometry(k.shape[1], k.shape[2], kernel_size, stride, padding, dilation, caller)
    out = composite.output_sizes(k.shape[1], k.shape[2], *geometry)
    check_sizes(
        q, (k.shape[0], *out, *k.shape[3:]), "[batch, output height, output width, heads, dim] for these k and windows",
        "q", caller,
    )  # fmt: skip
    check_sizes(bias, (*geometry[0], k.shape[3]), "[kernel height, kernel width, heads]", "bias", caller)
    check_floating(bias, "bias", caller)
    check_mask(mask, k.shape[:3], caller)
    check_same_device(q, "q", {"k": k, "v": v, "bias": bias, "mask": mask}, caller)
    return ops.sasa(q, k, v, bias, mask, *geometry)

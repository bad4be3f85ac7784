"""The kernels as PyTorch operators, `torch.ops.qna.*`, and the choice between them and the composite forms.

The operators are registered from C++ with torch's stable interface (`_torch.so`). Here they get what lets PyTorch work
with them: shapes for tracing, gradients and rules for autocast. An operator that ends in `_saving` also returns what
its gradient needs, and one that ends in `_backward` is that gradient.

The functions below choose, as `qna.functional` documents them; they trust their arguments. There are two classes:

- maps: `qna_layer`, `window_attention` and `sasa`, one layer in any precision. By the kernels for float32, bfloat16 and
  float16 on the CPU. Autocast lowers the maps and leaves the weights, since the arithmetic is float32.
- branches: `qna_layer_branch`, `window_self_attention_branch` and `mlp_branch`, and `window_self_attention`. By the
  kernels for float32 on the CPU outside autocast. `fold_qna_layer`, small products on parameters, never sees autocast.

The kernels give the same bits for every number of threads, in every run, so they respect
`torch.use_deterministic_algorithms`. Gradients of gradients come from the composite forms.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from qna import composite

LEAST_TORCH = (2, 10)

_map_dtypes = (torch.float32, torch.bfloat16, torch.float16)
_kernels_wanted = True


# --- Loading -----------------------------------------------------------------------------------------------------


def _library_path() -> pathlib.Path | None:
    folder = os.environ.get("QNA_PYTHON_BUILD") or pathlib.Path(__file__).parent
    path = pathlib.Path(folder) / "_torch.so"
    return path if path.exists() else None


def _load_library() -> bool:
    """Whether there are kernels. Raises ImportError where they are there but cannot be used."""
    path = _library_path()
    if path is None:
        warnings.warn(
            "qna was built without torch's headers, so its layers run in plain PyTorch, which is slower. "
            f"Install torch {LEAST_TORCH[0]}.{LEAST_TORCH[1]} or newer, then install qna again.",
            stacklevel=3,
        )
        return False
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < LEAST_TORCH:
        raise ImportError(f"qna needs torch {LEAST_TORCH[0]}.{LEAST_TORCH[1]} or newer, got {torch.__version__}")
    if hasattr(torch.ops.qna, "qna_layer"):
        raise ImportError(
            "qna: the operators torch.ops.qna.* are there already, registered by another library in this process "
            "(the C++ library of qna, or a second copy of this package); only one of them can be used"
        )
    torch.ops.load_library(path)
    return True


_kernels_loaded = _load_library()
_ops = torch.ops.qna


@contextlib.contextmanager
def use_kernels(wanted: bool) -> Iterator[None]:
    """Within it the functions use the kernels, or not: `with use_kernels(False)` traces standard operators alone."""
    global _kernels_wanted
    before = _kernels_wanted
    _kernels_wanted = wanted
    try:
        yield
    finally:
        _kernels_wanted = before


def has_kernels() -> bool:
    """Whether the functions use the kernels where they can."""
    return _kernels_loaded and _kernels_wanted


# --- The choice --------------------------------------------------------------------------------------------------


def _is_transformed() -> bool:
    """Whether torch.func (grad, vmap, jvp ...) is at work, which cannot see into operators of other libraries."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def _is_fused_map(*tensors: Tensor) -> bool:
    if not (_kernels_loaded and _kernels_wanted) or _is_transformed():
        return False
    for tensor in tensors:
        if tensor.dtype not in _map_dtypes or not tensor.is_cpu:
            return False
    return True


def _is_fused_in_float32(*tensors: Tensor | None) -> bool:
    if not (_kernels_loaded and _kernels_wanted) or _is_transformed():
        return False
    for tensor in tensors:
        if tensor is not None and (tensor.dtype != torch.float32 or not tensor.is_cpu):
            return False
    return True


def _is_fused_branch(*tensors: Tensor | None) -> bool:
    return _is_fused_in_float32(*tensors) and not torch.is_autocast_enabled("cpu")


def _wants_gradient(*tensors: Tensor | None) -> bool:
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def _run(op: Callable, *args):
    """An operator of which no gradient is wanted, past PyTorch's Python layer for gradients."""
    if torch.compiler.is_compiling():
        return op(*args)
    with torch._C._AutoDispatchBelowAutograd():
        return op(*args)


def _is_autocast(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _lowered(tensor: Tensor, device_type: str) -> Tensor:
    """A map as autocast wants it."""
    return tensor.to(torch.get_autocast_dtype(device_type)) if tensor.dtype in _map_dtypes else tensor


def _composite_map(form: Callable, maps: Sequence[Tensor], *args) -> Tensor:
    """The composite form of a map; under autocast with lowered maps and float32 arithmetic."""
    device_type = maps[0].device.type
    if not _is_autocast(device_type):
        return form(*maps, *args)
    with torch.autocast(device_type, enabled=False):
        return form(*(_lowered(each, device_type) for each in maps), *args)


def qna_layer(
    x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask,
    kernel_size, stride, padding, dilation, upsample=1,
) -> Tensor:  # fmt: skip
    args = (
        score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask,
        kernel_size, stride, padding, dilation, upsample,
    )  # fmt: skip
    if not _is_fused_map(x):
        return _composite_map(composite.qna_layer, (x,), *args)
    if _wants_gradient(x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights):
        return _ops.qna_layer_saving.default(x, *args)[0]
    return _run(_ops.qna_layer.default, x, *args)


def qna_layer_branch(
    x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask,
    kernel_size, stride, padding, dilation, epsilon=1e-6, drop_factor=None, residual=True,
) -> Tensor:  # fmt: skip
    weights = (score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights)
    geometry = (kernel_size, stride, padding, dilation)
    if not _is_fused_branch(x) or (drop_factor is not None and drop_factor.requires_grad):
        y = qna_layer(F.layer_norm(x, x.shape[-1:], eps=epsilon), *weights, mask, *geometry)
        if drop_factor is not None:
            y = y * drop_factor.to(y.dtype)[:, None, None, None]
        return x + y if residual else y
    args = (x, *weights, mask, *geometry, epsilon, drop_factor, residual)
    if _wants_gradient(x, *weights):
        return _ops.qna_layer_branch_saving.default(*args)[0]
    return _run(_ops.qna_layer_branch.default, *args)


def fold_qna_layer(
    query, key_weight, key_bias, value_weight, value_bias, norm_scale, norm_shift,
    heads, normalize=True, stop_gradient=False,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    tensors = (query, key_weight, key_bias, value_weight, value_bias, norm_scale, norm_shift)
    options = (heads, normalize, stop_gradient)
    if not _is_fused_in_float32(*tensors):
        if not _is_autocast(query.device.type):
            return composite.fold_qna_layer(*tensors, *options)
        with torch.autocast(query.device.type, enabled=False):  # small products on parameters, at their precision
            return composite.fold_qna_layer(*tensors, *options)
    op = _ops.fold_qna_layer.default
    folded = op(*tensors, *options) if _wants_gradient(*tensors) else _run(op, *tensors, *options)
    if norm_scale is not None:
        return folded
    by_head = (heads, value_weight.shape[1] // heads)
    return (
        folded[0],
        value_weight.view(-1, *by_head),
        None if value_bias is None else value_bias.view(by_head),
    )


def mlp_branch(
    x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, drop_factor=None, activation="gelu_tanh", epsilon=1e-6
) -> Tensor:
    weights = (norm_weight, norm_bias, weight1, bias1, weight2, bias2)
    args = (x, *weights, drop_factor, activation, epsilon)
    if not _is_fused_branch(x, *weights, drop_factor) or (drop_factor is not None and drop_factor.requires_grad):
        return composite.mlp_branch(*args)
    if _wants_gradient(x, *weights):
        return _ops.mlp_branch_saving.default(*args)[0]
    return _run(_ops.mlp_branch.default, *args)


def window_self_attention(qkv, heads, window, bias=None, mask=None) -> Tensor:
    if not _is_fused_branch(qkv, bias):
        return composite.window_self_attention(qkv, heads, window, bias, mask)
    op = _ops.window_self_attention.default
    if _wants_gradient(qkv, bias):
        return op(qkv, heads, window, bias, mask)
    return _run(op, qkv, heads, window, bias, mask)


def window_self_attention_branch(
    x, norm_weight, norm_bias, qkv_weight, proj_weight, bias, mask, drop_factor, heads, window, epsilon=1e-6
) -> Tensor:
    tensors = (x, norm_weight, norm_bias, qkv_weight, proj_weight, bias)
    args = (*tensors, mask, drop_factor, heads, window, epsilon)
    if not _is_fused_branch(*tensors, drop_factor) or (drop_factor is not None and drop_factor.requires_grad):
        return composite.window_self_attention_branch(*args)
    if _wants_gradient(*tensors):
        return _ops.window_self_attention_branch_saving.default(*args)[0]
    return _run(_ops.window_self_attention_branch.default, *args)


def window_attention(
    scores, values, bias, tap_weights, mask, kernel_size, stride, padding, dilation, separate=False
) -> Tensor:
    args = (bias, tap_weights, mask, kernel_size, stride, padding, dilation, separate)
    if not _is_fused_map(scores, values):
        return _composite_map(composite.window_attention, (scores, values), *args)
    op = _ops.window_attention.default
    if _wants_gradient(scores, values, bias, tap_weights):
        return op(scores, values, *args)
    return _run(op, scores, values, *args)


def sasa(q, k, v, bias, mask, kernel_size, stride, padding, dilation) -> Tensor:
    args = (bias, mask, kernel_size, stride, padding, dilation)
    if not _is_fused_map(q, k, v):
        return _composite_map(composite.sasa, (q, k, v), *args)
    op = _ops.sasa.default
    if _wants_gradient(q, k, v, bias):
        return op(q, k, v, *args)
    return _run(op, q, k, v, *args)


# --- Shapes, for tracing -----------------------------------------------------------------------------------------


def _table(like: Tensor, *sizes: int) -> Tensor:
    return like.new_empty(sizes, dtype=torch.float32)


def _qna_layer_shape(
    x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask,
    kernel_size, stride, padding, dilation, upsample=1,
):  # fmt: skip
    rows, columns = composite.output_sizes(x.shape[1], x.shape[2], kernel_size, stride, padding, dilation)
    return x.new_empty((x.shape[0], rows * upsample, columns * upsample, out_weight.shape[2]))


def _saved_map(x: Tensor, score_weight: Tensor, value_weight: Tensor) -> Tensor:
    """Values and scores of every pixel."""
    features = value_weight.shape[1] * value_weight.shape[2]
    scores = score_weight.shape[1] * score_weight.shape[2]
    return _table(x, *x.shape[:3], features + scores)


def _qna_layer_saving_shape(x, score_weight, value_weight, *rest):
    return _qna_layer_shape(x, score_weight, value_weight, *rest), _saved_map(x, score_weight, value_weight)


def _qna_layer_branch_shape(x, *rest):
    return _qna_layer_shape(x, *rest[:12])


def _qna_layer_branch_saving_shape(x, score_weight, value_weight, *rest):
    return (
        _qna_layer_branch_shape(x, score_weight, value_weight, *rest),
        _saved_map(x, score_weight, value_weight),
    )


def _qna_layer_backward_shape(
    grad_y, x, saved, score_weight, value_weight, out_weight, bias, tap_weights, mask, kernel_size, *rest
):
    wants_x, wants_value_bias, wants_out_bias = rest[-3:]
    queries, heads = score_weight.shape[1:]
    return (
        x.new_empty(x.shape) if wants_x else _table(x, 0),
        _table(x, *score_weight.shape),
        _table(x, *value_weight.shape),
        _table(x, *value_weight.shape[1:]) if wants_value_bias else _table(x, 0),
        _table(x, *out_weight.shape),
        _table(x, out_weight.shape[2]) if wants_out_bias else _table(x, 0),
        _table(x, *kernel_size, queries, heads),
        _table(x, *kernel_size, queries, heads),
    )


def _fold_shape(
    query, key_weight, key_bias, value_weight, value_bias, norm_scale, norm_shift, heads, normalize, stop_gradient
):
    in_features, dim = key_weight.shape[0], key_weight.shape[1] // heads
    norm = norm_scale is not None
    return (
        _table(query, in_features, query.shape[0], heads),
        _table(query, in_features, heads, dim) if norm else _table(query, 0),
        _table(query, heads, dim) if norm else _table(query, 0),
    )


def _fold_backward_shape(
    grad_score_weight, grad_value_weight, grad_value_bias, query, key_weight, value_weight, norm_scale, *rest
):
    norm = norm_scale is not None
    return (
        _table(query, *query.shape),
        _table(query, *key_weight.shape),
        _table(query, *value_weight.shape) if norm else _table(query, 0),
        _table(query, *norm_scale.shape) if norm else _table(query, 0),
        _table(query, *norm_scale.shape) if norm else _table(query, 0),
    )


def _mlp_branch_shape(x, *rest):
    return x.new_empty(x.shape)


def _mlp_branch_saving_shape(x, norm_weight, norm_bias, weight1, *rest):
    return x.new_empty(x.shape), _table(x, x.numel() // x.shape[-1], weight1.shape[0])


def _mlp_branch_backward_shape(grad_y, h, x, norm_weight, norm_bias, weight1, bias1, weight2, bias2, *rest):
    return tuple(_table(x, *like.shape) for like in (x, norm_weight, norm_bias, weight1, bias1, weight2, bias2))


def _window_self_attention_shape(qkv, heads, window, bias, mask):
    return qkv.new_empty((*qkv.shape[:3], qkv.shape[3] // 3))


def _window_self_attention_backward_shape(grad_out, qkv, out, heads, window, bias, mask):
    return qkv.new_empty(qkv.shape), _table(qkv, 0) if bias is None else _table(qkv, *bias.shape)


def _window_self_attention_branch_shape(x, *rest):
    return x.new_empty(x.shape)


def _window_self_attention_branch_saving_shape(x, *rest):
    return x.new_empty(x.shape), _table(x, 4, *x.shape)


def _window_self_attention_branch_backward_shape(
    grad_y, saved, x, norm_weight, norm_bias, qkv_weight, proj_weight, bias, *rest
):
    tensors = (x, norm_weight, norm_bias, qkv_weight, proj_weight)
    return (*(_table(x, *like.shape) for like in tensors), _table(x, *((0,) if bias is None else bias.shape)))


def _window_attention_shape(scores, values, bias, tap_weights, mask, kernel_size, stride, padding, dilation, separate):
    rows, columns = composite.output_sizes(values.shape[1], values.shape[2], kernel_size, stride, padding, dilation)
    queries = (scores.shape[3],) if separate else ()
    return values.new_empty((values.shape[0], rows, columns, *queries, *values.shape[3:]))


def _window_attention_backward_shape(grad_out, scores, values, bias, tap_weights, mask, kernel_size, *rest):
    table = (*kernel_size, *scores.shape[3:])
    return (
        scores.new_empty(scores.shape),
        values.new_empty(values.shape),
        _table(values, *table),
        _table(values, *table),
    )


def _empty_map(like: Tensor) -> Tensor:
    """[B, H, W, heads, dim] with the channels in the order of `like`: heads may be the fast index."""
    if like.stride(3) < like.stride(4):
        return like.new_empty((*like.shape[:3], like.shape[4], like.shape[3])).transpose(3, 4)
    return like.new_empty(like.shape)


def _sasa_shape(q, *rest):
    return _empty_map(q)


def _sasa_backward_shape(grad_out, q, k, v, bias, mask, kernel_size, *rest):
    return _empty_map(q), _empty_map(k), _empty_map(v), _table(q, *kernel_size, q.shape[3])


# --- Gradients ---------------------------------------------------------------------------------------------------


def _like(gradient: Tensor | None, tensor: Tensor | None) -> Tensor | None:
    """A gradient in the dtype of what it is for, or None where there is no such tensor."""
    if tensor is None or gradient is None:
        return None
    return gradient if gradient.dtype == tensor.dtype else gradient.to(tensor.dtype)


def _gradients_of_composite(form: Callable, inputs: list, grads: Sequence[Tensor | None]) -> list:
    """Gradients of form(*inputs), for each input a tensor or None, as a graph to differentiate again.

    The form gets a stand-in for every tensor, so that inputs that are equal, or made from each other, are told apart.
    """
    stand_ins = [
        value.view_as(value) if isinstance(value, Tensor) and value.requires_grad else value for value in inputs
    ]
    wanted = [i for i, value in enumerate(inputs) if isinstance(value, Tensor) and value.requires_grad]
    outputs = form(*stand_ins)
    pairs = [
        (output, grad)
        for output, grad in zip((outputs,) if isinstance(outputs, Tensor) else outputs, grads)
        if grad is not None and output is not None and output.requires_grad
    ]
    found = torch.autograd.grad(
        [output for output, _ in pairs],
        [stand_ins[i] for i in wanted],
        [grad for _, grad in pairs],
        create_graph=True,
        allow_unused=True,
    )
    gradients: list = [None] * len(inputs)
    for i, gradient in zip(wanted, found):
        gradients[i] = gradient
    return gradients


def _register_gradient(
    name: str, form: Callable, by_kernel: Callable, outputs: int = 1, kept: int | None = None
) -> None:
    """Registers the gradient of an operator.

    form: the composite form, of the operator's arguments.
    by_kernel(grads, inputs, kept, needs): the gradients of the first inputs.
    outputs: how many of the results are differentiable; what follows is there for the gradient alone.
    kept: the result that the gradient needs.
    """

    def setup_context(ctx, inputs, output):
        results = (output,) if isinstance(output, Tensor) else tuple(output)
        ctx.mark_non_differentiable(*results[outputs:])
        ctx.set_materialize_grads(outputs > 1)  # a map of zeros for what is kept would be large
        ctx.is_tensor = [isinstance(value, Tensor) for value in inputs]
        ctx.constants = [None if isinstance(value, Tensor) else value for value in inputs]
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        ctx.save_for_backward(*tensors, *([] if kept is None else [results[kept]]))

    def backward(ctx, *grads):
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if is_tensor else value for is_tensor, value in zip(ctx.is_tensor, ctx.constants)]
        if all(grad is None for grad in grads):
            gradients = []
        elif torch.is_grad_enabled():  # create_graph: gradients of gradients are wanted
            gradients = _gradients_of_composite(form, inputs, grads[:outputs])
        else:
            gradients = by_kernel(grads, inputs, next(saved, None), ctx.needs_input_grad)
            if any(ctx.needs_input_grad[len(gradients) :]):
                raise RuntimeError(
                    f"qna::{name}: its kernel has no gradient of drop_factor; qna.functional.{form.__name__} has"
                )
        return (*gradients, *[None] * (len(inputs) - len(gradients)))

    torch.library.register_autograd(f"qna::{name}", backward, setup_context=setup_context)


def _qna_layer_gradients(op, grad_y, saved, inputs, needs):
    x, score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights, mask, *rest = inputs
    gradients = op(
        grad_y.to(x.dtype), x, saved, score_weight, value_weight, out_weight, bias, tap_weights, mask, *rest,
        needs[0], value_bias is not None, out_bias is not None,
    )  # fmt: skip
    return [
        gradients[0] if needs[0] else None,
        *(_like(gradient, tensor) for gradient, tensor in zip(gradients[1:], inputs[1:8])),
    ]


def _qna_layer_saving_backward(grads, inputs, saved, needs):
    return _qna_layer_gradients(_ops.qna_layer_backward.default, grads[0], saved, inputs, needs)


def _qna_layer_backward(grads, inputs, _, needs):
    # The operator that saves nothing: what it would have saved is computed again.
    return _qna_layer_saving_backward(grads, inputs, _ops.qna_layer_saving.default(*inputs)[1], needs)


def _qna_layer_branch_saving_backward(grads, inputs, saved, needs):
    return _qna_layer_gradients(_ops.qna_layer_branch_backward.default, grads[0], saved, inputs, needs)


def _qna_layer_branch_backward(grads, inputs, _, needs):
    return _qna_layer_branch_saving_backward(grads, inputs, _ops.qna_layer_branch_saving.default(*inputs)[1], needs)


def _fold_backward(grads, inputs, _, needs):
    query, key_weight, key_bias, value_weight, value_bias, norm_scale, norm_shift, *options = inputs
    norm = norm_scale is not None
    found = _ops.fold_qna_layer_backward.default(
        *(grads if norm else (grads[0], None, None)),
        query, key_weight, value_weight, norm_scale, norm_shift, *options,
    )  # fmt: skip
    return [
        found[0],
        found[1],
        None if key_bias is None else torch.zeros_like(key_bias),
        found[2] if norm else None,
        grads[2].reshape(value_bias.shape) if norm and value_bias is not None else None,
        found[3] if norm else None,
        found[4] if norm else None,
    ]


def _fold_composite(*inputs):
    """The operator's results: without a norm the score weights alone."""
    folded = composite.fold_qna_layer(*inputs)
    return folded if inputs[5] is not None else folded[:1]


def _mlp_branch_saving_backward(grads, inputs, hidden, needs):
    return _ops.mlp_branch_backward.default(grads[0], hidden, *inputs)


def _mlp_branch_backward(grads, inputs, _, needs):
    return _mlp_branch_saving_backward(grads, inputs, _ops.mlp_branch_saving.default(*inputs)[1], needs)


def _window_self_attention_backward(grads, inputs, out, needs):
    qkv, heads, window, bias, mask = inputs
    grad_qkv, grad_bias = _ops.window_self_attention_backward.default(grads[0], qkv, out, heads, window, bias, mask)
    return [grad_qkv, None, None, _like(grad_bias, bias)]


def _window_self_attention_branch_saving_backward(grads, inputs, saved, needs):
    *found, grad_bias = _ops.window_self_attention_branch_backward.default(grads[0], saved, *inputs)
    return [*found, _like(grad_bias, inputs[5])]


def _window_self_attention_branch_backward(grads, inputs, _, needs):
    saved = _ops.window_self_attention_branch_saving.default(*inputs)[1]
    return _window_self_attention_branch_saving_backward(grads, inputs, saved, needs)


def _window_attention_backward(grads, inputs, _, needs):
    found = _ops.window_attention_backward.default(grads[0], *inputs)
    return [_like(gradient, tensor) for gradient, tensor in zip(found, inputs)]


def _sasa_backward(grads, inputs, _, needs):
    found = _ops.sasa_backward.default(grads[0], *inputs)
    return [_like(gradient, tensor) for gradient, tensor in zip(found, inputs)]


# --- Registration ------------------------------------------------------------------------------------------------

_SHAPES = {
    "qna_layer": _qna_layer_shape,
    "qna_layer_saving": _qna_layer_saving_shape,
    "qna_layer_backward": _qna_layer_backward_shape,
    "qna_layer_branch": _qna_layer_branch_shape,
    "qna_layer_branch_saving": _qna_layer_branch_saving_shape,
    "qna_layer_branch_backward": _qna_layer_backward_shape,
    "fold_qna_layer": _fold_shape,
    "fold_qna_layer_backward": _fold_backward_shape,
    "mlp_branch": _mlp_branch_shape,
    "mlp_branch_saving": _mlp_branch_saving_shape,
    "mlp_branch_backward": _mlp_branch_backward_shape,
    "window_self_attention": _window_self_attention_shape,
    "window_self_attention_backward": _window_self_attention_backward_shape,
    "window_self_attention_branch": _window_self_attention_branch_shape,
    "window_self_attention_branch_saving": _window_self_attention_branch_saving_shape,
    "window_self_attention_branch_backward": _window_self_attention_branch_backward_shape,
    "window_attention": _window_attention_shape,
    "window_attention_backward": _window_attention_backward_shape,
    "sasa": _sasa_shape,
    "sasa_backward": _sasa_backward_shape,
}

# How many of an operator's first arguments are maps, which autocast lowers.
_AUTOCAST_MAPS = {"qna_layer": 1, "qna_layer_saving": 1, "window_attention": 2, "sasa": 3}


def _register_autocast(library: torch.library.Library, name: str, maps: int) -> None:
    op = getattr(_ops, name).default

    def lowered(*args):
        with torch.autocast("cpu", enabled=False):
            return op(*(_lowered(each, "cpu") for each in args[:maps]), *args[maps:])

    library.impl(name, lowered, "AutocastCPU")


def _register() -> torch.library.Library:
    for name, shape in _SHAPES.items():
        torch.library.register_fake(f"qna::{name}", shape)
    _register_gradient("qna_layer", composite.qna_layer, _qna_layer_backward)
    _register_gradient("qna_layer_saving", composite.qna_layer, _qna_layer_saving_backward, kept=1)
    _register_gradient("qna_layer_branch", composite.qna_layer_branch, _qna_layer_branch_backward)
    _register_gradient("qna_layer_branch_saving", composite.qna_layer_branch, _qna_layer_branch_saving_backward, kept=1)
    _register_gradient("fold_qna_layer", _fold_composite, _fold_backward, outputs=3)
    _register_gradient("mlp_branch", composite.mlp_branch, _mlp_branch_backward)
    _register_gradient("mlp_branch_saving", composite.mlp_branch, _mlp_branch_saving_backward, kept=1)
    _register_gradient(
        "window_self_attention", composite.window_self_attention, _window_self_attention_backward, kept=0
    )
    form = composite.window_self_attention_branch
    _register_gradient("window_self_attention_branch", form, _window_self_attention_branch_backward)
    _register_gradient(
        "window_self_attention_branch_saving", form, _window_self_attention_branch_saving_backward, kept=1
    )
    _register_gradient("window_attention", composite.window_attention, _window_attention_backward)
    _register_gradient("sasa", composite.sasa, _sasa_backward)
    library = torch.library.Library("qna", "FRAGMENT")
    for name, maps in _AUTOCAST_MAPS.items():
        _register_autocast(library, name, maps)
    return library


_library = _register() if _kernels_loaded else None  # what it registered stays as long as it lives

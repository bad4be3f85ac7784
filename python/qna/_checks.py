"""Checks of arguments: each raises qna.Error, a ValueError, that names the argument, the rule and the value."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from qna._error import Error

FLOATING = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def check(condition: bool, caller: str, rule: str, *values: object) -> None:
    """`rule` has braces for the values. It is made a text only if it is broken: the text of a size would fix that size
    in what a compiler traces."""
    if not condition:
        shown = [list(value) if isinstance(value, (torch.Size, tuple)) else value for value in values]
        raise Error(f"{caller}: {rule.format(*shown)}")


def check_tensor(value: object, layout: str, name: str, caller: str) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{caller}: {name} must be a tensor {layout}, got {type(value).__name__}")


def check_rank(tensor: Tensor, rank: int, layout: str, name: str, caller: str) -> None:
    check_tensor(tensor, layout, name, caller)
    if tensor.dim() != rank:
        raise Error(
            f"{caller}: {name} must have {rank} dimensions {layout}, got {tensor.dim()} with shape {list(tensor.shape)}"
        )


def check_sizes(tensor: Tensor | None, sizes: Sequence[int], layout: str, name: str, caller: str) -> None:
    """`tensor` may be None."""
    if tensor is not None and tuple(tensor.shape) != tuple(sizes):
        raise Error(f"{caller}: {name} must be {layout} = {list(sizes)}, got {list(tensor.shape)}")


def check_floating(tensor: Tensor | None, name: str, caller: str) -> None:
    """`tensor` may be None."""
    if tensor is not None and tensor.dtype not in FLOATING:
        raise Error(f"{caller}: {name} must be float32, bfloat16, float16 or float64, got {tensor.dtype}")


def check_same_device(tensor: Tensor, name: str, others: dict[str, Tensor | None], caller: str) -> None:
    for other_name, other in others.items():
        if other is not None and other.device != tensor.device:
            raise Error(f"{caller}: {other_name} must be on the device of {name} ({tensor.device}), got {other.device}")


def check_mask(mask: Tensor | None, sizes: Sequence[int], caller: str) -> None:
    """A mask is bool, or uint8, of [batch, height, width]; true takes part."""
    if mask is None:
        return
    check_tensor(mask, "[batch, height, width]", "mask", caller)
    if mask.dtype not in (torch.bool, torch.uint8):
        raise Error(f"{caller}: mask must be bool or uint8 (true takes part), got {mask.dtype}")
    check_sizes(mask, sizes, "[batch, height, width]", "mask", caller)


def numbers(value: int | Sequence[int], count: int, name: str, least: int, caller: str) -> tuple[int, ...]:
    """`value`, a number for all or a sequence, as `count` whole numbers of at least `least`."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(values) != count:
        raise Error(f"{caller}: {name} must have {count} numbers, got {list(values)}")
    for number in values:
        if isinstance(number, bool) or not isinstance(number, (int, torch.SymInt)):
            rule = "be a whole number" if count == 1 else "have whole numbers"
            raise Error(f"{caller}: {name} must {rule}, got {number!r}")
        if number < least:
            raise Error(f"{caller}: {name} must be at least {least}, got {number}")
    return values


def whole_number(value: int, name: str, least: int, caller: str) -> int:
    return numbers(value, 1, name, least, caller)[0]


def check_windows(
    height: int, width: int, kernel_size: Sequence[int], padding: Sequence[int], dilation: Sequence[int], caller: str
) -> None:
    """That a map of this size, padded, has room for a window."""
    check(height >= 1 and width >= 1, caller, "the map must be at least 1 x 1, got {} x {}", height, width)
    rows, columns = height + padding[0] + padding[1], width + padding[2] + padding[3]
    span_h, span_w = (kernel_size[0] - 1) * dilation[0] + 1, (kernel_size[1] - 1) * dilation[1] + 1
    if span_h > rows or span_w > columns:
        raise Error(
            f"{caller}: the window must fit the padded map, got a window of {span_h} x {span_w} "
            f"(kernel_size {list(kernel_size)}, dilation {list(dilation)}) on {rows} x {columns}"
        )

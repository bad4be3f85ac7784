"""The blocks of QnA-ViT: layers that mix neighbours, and what stands around them.

A block is pre-norm:
    x = skip(x) + mix(norm(x))
    x = x + mlp(norm(x))
where mix is a QnA layer, self-attention in windows or one of their rivals, and skip is x itself or, beside a
layer with stride, a 1 x 1 convolution with the same stride. All maps are channels last, [B, H, W, C], of any
height and width. Parameters have the names that they have in weights files.
"""

from __future__ import annotations

import math
from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qna import ops
from qna.config import rounded
from qna.layers import QnA, lecun_normal_, same_padding

__all__ = ["Block", "ConvPool", "Convolution", "HaloAttention", "Mlp", "WindowSelfAttention"]

NORM_EPSILON = 1e-6  # Flax's
LOWEST = -1e30  # a score that no key has: its exponential is 0
_LARGEST = 1 << 30  # a window that holds every map

Pair = tuple[int, int]  # height, width


# ---- what the parts share ----


def planes(x: Tensor) -> Tensor:
    """[B, H, W, C] as [B, C, H, W], a view."""
    return x.permute(0, 3, 1, 2)


def pixels(x: Tensor) -> Tensor:
    """[B, C, H, W] as [B, H, W, C], a view."""
    return x.permute(0, 2, 3, 1)


def pad_to(x: Tensor, multiple: int) -> Tensor:
    """Zeros at the bottom and right of x [B, H, W, C], up to multiples of `multiple`."""
    bottom, right = -x.shape[1] % multiple, -x.shape[2] % multiple
    # What is traced is for any size.
    return F.pad(x, (0, 0, 0, right, 0, bottom)) if torch.compiler.is_compiling() or bottom or right else x


def layer_norm(features: int) -> nn.LayerNorm:
    return nn.LayerNorm(features, eps=NORM_EPSILON)


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """As the authors initialise it."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    lecun_normal_(layer.weight, inputs)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def convolution(inputs: int, outputs: int, kernel_size: Pair, bias: bool = False, **options) -> nn.Conv2d:
    """As the authors initialise it."""
    layer = nn.Conv2d(inputs, outputs, kernel_size, bias=bias, **options)
    lecun_normal_(layer.weight, layer.weight[0].numel())
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def max_pool_by_two(x: Tensor) -> Tensor:
    """3 x 3 max-pooling with stride 2 of [B, C, H, W] to half its size, rounded up.

    Padding lies at the bottom and right, where JAX's 'SAME' puts it for even sizes.
    """
    return F.max_pool2d(F.pad(x, (0, 2, 0, 2), value=-math.inf), 3, 2)


def resize_table(table: Tensor, rows: int, columns: int) -> Tensor:
    """A table [h, w, ...] bicubically resized to [rows, columns, ...]."""
    if not torch.compiler.is_exporting() and table.shape[:2] == (rows, columns):
        return table
    grid = table.flatten(2).permute(2, 0, 1)[None]
    grid = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
    return grid[0].permute(1, 2, 0).unflatten(2, table.shape[2:])


# ---- self-attention ----


class WindowSelfAttention(nn.Module):
    """Multi-head self-attention inside windows that tile the map, with a relative bias, or over the whole map.

    window: of the relative bias, and of attention unless `whole`: then the table is resized to the map at hand.
    shift: where the second window begins; the windows before it are as narrow. That is Swin's cyclic shift, with
    its mask between regions that are not neighbours.
    """

    def __init__(self, features: int, heads: int = 8, window: Pair = (7, 7), whole: bool = False,
                 shift: Pair = (0, 0)):
        super().__init__()
        self.heads, self.window, self.whole, self.shift = heads, tuple(window), whole, tuple(shift)
        self.qkv = linear(features, 3 * features, bias=False)  # rows: q, k, v, each [heads, dim]
        self.proj = linear(features, features, bias=False)
        # Indexed by query minus key.
        self.relative_bias = nn.Parameter(torch.zeros(2 * window[0] - 1, 2 * window[1] - 1, heads))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, features] -> the same shape."""
        return self.proj(self._attend(self.qkv(x), self.bias_for(x)))

    def bias_for(self, x: Tensor) -> Tensor:
        """The table for the windows on map x [B, H, W, ...], by key minus query: [heads, 2 h - 1, 2 w - 1]"""
        table = self.relative_bias
        if self.whole:
            table = resize_table(table, 2 * x.shape[1] - 1, 2 * x.shape[2] - 1)
        return table.flip(0, 1).permute(2, 0, 1)

    def operator_window(self) -> Pair:
        """The operators cut it to the map."""
        return (_LARGEST, _LARGEST) if self.whole else self.window

    def _attend(self, qkv: Tensor, bias: Tensor) -> Tensor:
        """qkv [B, H, W, 3 * features] -> [B, H, W, features]

        The operator's windows begin at the map's corner: those before the shift are maps of their own. Along an axis on
        which one window holds the whole map there is no shift.
        """
        window = self.operator_window()
        bands = []
        for rows in _cut(qkv, 1, window[0], self.shift[0]):
            parts = [ops.window_self_attention(part, self.heads, window, bias)
                     for part in _cut(rows, 2, window[1], self.shift[1])]
            bands.append(parts[0] if len(parts) == 1 else torch.cat(parts, 2))
        return bands[0] if len(bands) == 1 else torch.cat(bands, 1)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, window={'whole map' if self.whole else self.window}, shift={self.shift}"


def _cut(x: Tensor, axis: int, window: int, shift: int) -> list[Tensor]:
    """What lies before the shift, if anything does, and what lies behind."""
    size = x.shape[axis]
    if shift == 0 or size <= window:
        return [x]
    return [x.narrow(axis, 0, shift), x.narrow(axis, shift, size - shift)]


# ---- rivals of the QnA layer ----


def project_queries_keys_values(x: Tensor, centers: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One product where every pixel has a query, otherwise those of the `centers` alone."""
    if centers is x:
        return F.linear(x, weight).chunk(3, -1)
    features = weight.shape[0] // 3
    key, value = F.linear(x, weight[features:]).chunk(2, -1)
    return F.linear(centers, weight[:features]), key, value


class HaloAttention(nn.Module):
    """HaloNet's attention: the queries of a block share the keys of the block and a halo around it.

    The halo is half of `kernel_size`; stride, from query to query, must divide `block`.
    """

    def __init__(self, in_features: int, out_features: int, heads: int = 8, kernel_size: Pair = (3, 3),
                 stride: Pair = (1, 1), block: Pair = (8, 8)):
        super().__init__()
        self.heads, self.stride, self.block = heads, tuple(stride), block
        self.halo = kernel_size[0] // 2, kernel_size[1] // 2
        self.qkv = linear(in_features, 3 * out_features, bias=False)  # rows: q, k, v, each [heads, dim]
        self.proj = linear(out_features, out_features, bias=False)
        # Indexed by key minus query, the smallest first.
        sides = [2 * block[axis] + 2 * self.halo[axis] - self.stride[axis] for axis in range(2)]
        self.relative_bias = nn.Parameter(torch.zeros(*sides, heads))

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, in_features] -> [B, ceil(H / stride), ceil(W / stride), out_features]"""
        height, width = x.shape[1:3]
        dim = self.proj.weight.shape[0] // self.heads
        down, across = -(-height // self.block[0]), -(-width // self.block[1])
        queries = self.block[0] // self.stride[0], self.block[1] // self.stride[1]
        centers = x if self.stride == (1, 1) else x[:, :: self.stride[0], :: self.stride[1]]
        query, key, value = project_queries_keys_values(x, centers, self.qkv.weight)

        below, right = down * queries[0] - query.shape[1], across * queries[1] - query.shape[2]
        query = F.pad(query, (0, 0, 0, right, 0, below))
        query = query.unflatten(2, (across, queries[1])).unflatten(1, (down, queries[0])).transpose(2, 3)
        query = query.flatten(3, 4).unflatten(4, (self.heads, dim)).transpose(3, 4)  # [B, down, across, heads, N, dim]
        key, value = (self._tiles(part, down, across).unflatten(4, (self.heads, dim)).transpose(3, 4)
                      for part in (key, value))
        inside = self._tiles(torch.zeros(1, height, width, 1, device=x.device), down, across, outside=LOWEST)
        bias = self.bias_of_block(queries) + inside[..., 0][:, :, :, None, None]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))

        mixed = mixed.transpose(3, 4).flatten(4).unflatten(3, queries).transpose(2, 3)
        mixed = mixed.flatten(3, 4).flatten(1, 2)
        rows, columns = -(-height // self.stride[0]), -(-width // self.stride[1])
        return self.proj(mixed[:, :rows, :columns])

    def _tiles(self, x: Tensor, down: int, across: int, outside: float = 0.0) -> Tensor:
        """x [B, H, W, C] -> [B, down, across, keys, C]: blocks and what lies around them."""
        (block_h, block_w), (halo_h, halo_w) = self.block, self.halo
        below, right = down * block_h - x.shape[1], across * block_w - x.shape[2]
        x = F.pad(x, (0, 0, halo_w, halo_w + right, halo_h, halo_h + below), value=outside)

        def index(tiles: int, block: int, halo: int) -> Tensor:
            first = torch.arange(tiles, device=x.device)[:, None] * block
            return (first + torch.arange(block + 2 * halo, device=x.device)).flatten()

        x = x.index_select(1, index(down, block_h, halo_h)).index_select(2, index(across, block_w, halo_w))
        x = x.unflatten(2, (across, block_w + 2 * halo_w)).unflatten(1, (down, block_h + 2 * halo_h))
        return x.transpose(2, 3).flatten(3, 4)

    def bias_of_block(self, queries: Pair) -> Tensor:
        """The relative bias between `queries`, rows and columns of a block, and its keys: [heads, queries, keys]"""
        table, device = self.relative_bias, self.relative_bias.device
        index = []
        for axis in range(2):
            key = torch.arange(self.block[axis] + 2 * self.halo[axis], device=device)
            query = torch.arange(queries[axis], device=device) * self.stride[axis]
            index.append(key[None] - query[:, None] + self.block[axis] - self.stride[axis])
        places = index[0][:, None, :, None] * table.shape[1] + index[1][None, :, None, :]
        places = places.flatten(2, 3).flatten(0, 1)
        return table.flatten(0, 1)[places].permute(2, 0, 1)


class Convolution(nn.Module):
    """A convolution without bias, padded with zeros by half the window.

    depthwise: one kernel per feature, then a product that mixes the features.
    """

    def __init__(self, in_features: int, out_features: int, kernel_size: Pair = (3, 3), stride: Pair = (1, 1),
                 depthwise: bool = False):
        super().__init__()
        self.padding = same_padding(kernel_size)
        self.conv = convolution(in_features, in_features if depthwise else out_features, tuple(kernel_size),
                                stride=tuple(stride), groups=in_features if depthwise else 1)
        self.proj = linear(in_features, out_features, bias=False) if depthwise else None

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, in_features] -> [B, ceil(H / stride), ceil(W / stride), out_features]"""
        top, bottom, left, right = self.padding
        if (top, left) == (bottom, right):
            mixed = F.conv2d(planes(x), self.conv.weight, None, self.conv.stride, (top, left), 1, self.conv.groups)
        else:
            mixed = self.conv(F.pad(planes(x), (left, right, top, bottom)))
        mixed = pixels(mixed)
        return mixed if self.proj is None else self.proj(mixed)


class ConvPool(nn.Module):
    """NesT's down-sampling: 3 x 3 convolution, LayerNorm, 3 x 3 max-pooling with stride 2."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.conv = convolution(in_features, out_features, (3, 3), bias=True, padding=1)
        self.norm = layer_norm(out_features)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, in_features] -> [B, ceil(H / 2), ceil(W / 2), out_features]"""
        normed = self.norm(pixels(self.conv(planes(x))))
        return pixels(max_pool_by_two(planes(normed)))


# ---- block ----


class Mlp(nn.Module):
    """The parameters of two linear layers; the block computes with them."""

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.fc1 = linear(features, hidden)
        self.fc2 = linear(hidden, features)


class Block(nn.Module):
    """A layer that mixes neighbours and an MLP, each with a skip connection; see the top of this file.

    mixer: a QnA, a WindowSelfAttention or another layer [B, H, W, in_features] -> [B, ceil(H / stride),
    ceil(W / stride), features]. average_pool_skip: beside a stride, pool over the window before the skip.
    layer_scale: initial value of a learned scale behind each branch; 0: none. drop_path: the rate of stochastic
    depth; a block with stride drops only its MLP branch.
    """

    def __init__(self, mixer: nn.Module, in_features: int, features: int, *, kernel_size: Pair = (1, 1),
                 stride: Pair = (1, 1), average_pool_skip: bool = False, mlp_ratio: float = 4.0,
                 activation: str = "gelu_tanh", layer_scale: float = 0.0, drop_path: float = 0.0):
        super().__init__()
        self.kernel_size, self.stride = tuple(kernel_size), tuple(stride)
        self.average_pool_skip, self.activation, self.drop_path = average_pool_skip, activation, drop_path
        self.norm1 = layer_norm(in_features)
        self.qna = mixer if isinstance(mixer, QnA) else None
        self.attention = mixer if isinstance(mixer, WindowSelfAttention) else None
        self.mixer = mixer if self.qna is None and self.attention is None else None
        strided = self.stride != (1, 1)
        self.skip = convolution(in_features, features, (1, 1), stride=self.stride) if strided else None
        self.norm2 = layer_norm(features)
        self.mlp = Mlp(features, rounded(mlp_ratio * features))
        for name in ("scale1", "scale2"):
            scale = nn.Parameter(torch.full((features,), float(layer_scale))) if layer_scale > 0 else None
            self.register_parameter(name, scale)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, in_features] -> [B, ceil(H / stride), ceil(W / stride), features]"""
        if self.qna is not None:
            y = self._mix_by_qna(x)
        elif self.attention is not None and self.attention.shift == (0, 0):
            y = self._mix_by_attention(x)
        else:
            y = self._mix(x)
        weight, bias = self.mlp.fc2.weight, self.mlp.fc2.bias
        if self.scale2 is not None:
            weight, bias = weight * self.scale2[:, None], bias * self.scale2
        return ops.mlp_branch(
            y, self.norm2.weight, self.norm2.bias, self.mlp.fc1.weight, self.mlp.fc1.bias, weight, bias,
            self._drop_factors(y), self.activation, NORM_EPSILON)

    def _mix_by_qna(self, x: Tensor) -> Tensor:
        """The first half as one operator, with the norm's scale and shift inside the layer's weights."""
        weights = list(self.qna.parameters_for_layer(self.norm1.weight, self.norm1.bias))
        if self.scale1 is not None:
            weights[3] = weights[3] * self.scale1  # the last product's
        if self.skip is not None:
            y = ops.qna_layer_branch(x, *weights, None, *self.qna.geometry(), NORM_EPSILON, None, False)
            return y + self._skipped(x)
        return ops.qna_layer_branch(x, *weights, None, *self.qna.geometry(), NORM_EPSILON, self._drop_factors(x))

    def _mix_by_attention(self, x: Tensor) -> Tensor:
        """The first half as one operator."""
        layer, proj = self.attention, self.attention.proj.weight
        if self.scale1 is not None:
            proj = proj * self.scale1[:, None]
        return ops.window_self_attention_branch(
            x, self.norm1.weight, self.norm1.bias, layer.qkv.weight, proj, layer.bias_for(x), None,
            self._drop_factors(x), layer.heads, layer.operator_window(), NORM_EPSILON)

    def _mix(self, x: Tensor) -> Tensor:
        mixer = self.mixer if self.attention is None else self.attention
        mixed = mixer(self.norm1(x))
        if self.scale1 is not None:
            mixed = mixed * self.scale1
        if self.skip is not None:
            return mixed + self._skipped(x)
        factors = self._drop_factors(x)
        return x + (mixed if factors is None else mixed * factors[:, None, None, None])

    def _skipped(self, x: Tensor) -> Tensor:
        if self.average_pool_skip:
            top, bottom, left, right = same_padding(self.kernel_size)
            padded = F.pad(planes(x), (left, right, top, bottom))
            x = pixels(F.avg_pool2d(padded, self.kernel_size, self.stride))
        else:
            x = x[:, :: self.stride[0], :: self.stride[1]]
        return F.linear(x, self.skip.weight.flatten(1))

    def _drop_factors(self, x: Tensor) -> Optional[Tensor]:
        """In training 0 for each image with the rate's probability, otherwise what keeps the mean: [B]."""
        if not self.training or self.drop_path == 0:
            return None
        keep = 1 - self.drop_path
        return x.new_empty(x.shape[0]).bernoulli_(keep).div_(keep)

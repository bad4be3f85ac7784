"""Networks as ONNX graphs: for every module what it computes, in standard operators and for any size.

The functions have the names of the modules' files; maps are channels last, as there. What depends on parameters alone
is computed here and becomes a constant.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Iterator, Optional, Sequence, Union

import torch
from torch import Tensor, nn

from qna import detectors
from qna._onnx_graph import Graph, Size, Value
from qna.auto_encoder import AutoEncoder, ConvResample
from qna.blocks import LOWEST, Block, ConvPool, Convolution, HaloAttention, WindowSelfAttention
from qna.layers import SASA, QnA, same_padding
from qna.models import ClassificationHead, EfficientNetStem, PatchMerging, QnAViT, Stem, efficientnet_padding

Pair = tuple[int, int]


def outputs_of(model: nn.Module, x: Value) -> dict[str, tuple[Value, list[Any]]]:
    """The outputs of a network for images [B, H, W, C], by name with their sizes."""
    config = model.config
    if isinstance(model, QnAViT):
        name = "logits" if config.classes > 0 else "features"
        return {name: (qna_vit(model, x), ["batch", config.classes or model.num_features])}
    if isinstance(model, detectors.Detr):
        logits, boxes = detr(model, x)
        return {"logits": (logits, ["batch", config.queries, config.classes + 1]),
                "boxes": (boxes, ["batch", config.queries, 4])}
    return {"reconstruction": (auto_encoder(model, x), ["batch", "height", "width", config.channels])}


# ---- sizes ----


def ceil_div(size: Size, divisor: int) -> Size:
    return (size + (divisor - 1)) // divisor


def up_to(size: Value, multiple: int) -> Value:
    """What is missing to a multiple."""
    return ceil_div(size, multiple) * multiple - size


# ---- products, norms, activations, convolutions ----


def linear(x: Value, weight: Tensor, bias: Optional[Tensor] = None) -> Value:
    """weight [out, in]"""
    y = x @ x.graph.constant(weight.t())
    return y if bias is None else y + x.graph.constant(bias)


def layer_norm(x: Value, norm: nn.LayerNorm) -> Value:
    graph = x.graph
    return graph.op("LayerNormalization", x, graph.constant(norm.weight), graph.constant(norm.bias), axis=-1,
                    epsilon=norm.eps)


def activate(x: Value, kind: str) -> Value:
    if kind == "relu":
        return x.relu()
    if kind == "relu6":
        return x.graph.op("Clip", x, x.graph.number(0.0), x.graph.number(6.0))
    if kind == "silu":
        return x * x.sigmoid()
    if x.graph.opset >= 20:
        return x.graph.op("Gelu", x, approximate="tanh" if kind == "gelu_tanh" else "none")
    if kind == "gelu":
        return x * 0.5 * (x.graph.op("Erf", x * math.sqrt(0.5)) + 1.0)
    return x * 0.5 * (x.graph.op("Tanh", (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1.0)


def planes(x: Value) -> Value:
    return x.transpose(0, 3, 1, 2)


def pixels(x: Value) -> Value:
    return x.transpose(0, 2, 3, 1)


def convolve(x: Value, conv: nn.Conv2d, padding: Optional[Sequence[int]] = None, weight: Optional[Tensor] = None,
             bias: Optional[Tensor] = None) -> Value:
    """x [B, C, H, W]; padding (top, bottom, left, right), weight and bias where they are not those of `conv`."""
    top, bottom, left, right = padding or (conv.padding[0], conv.padding[0], conv.padding[1], conv.padding[1])
    graph, weight = x.graph, conv.weight if weight is None else weight
    bias = conv.bias if bias is None else bias
    arguments = [graph.constant(weight)] + ([] if bias is None else [graph.constant(bias)])
    return graph.op("Conv", x, *arguments, kernel_shape=list(weight.shape[2:]), strides=list(conv.stride),
                    dilations=list(conv.dilation), group=conv.groups, pads=[top, left, bottom, right])


def max_pool(x: Value, kernel: int, stride: int, pads: Sequence[int] = (0, 0, 0, 0), ceil: bool = False) -> Value:
    """x [B, C, H, W]; pads (top, left, bottom, right) win no maximum."""
    return x.graph.op("MaxPool", x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=list(pads),
                      ceil_mode=int(ceil))


def resize_table(table: Tensor, rows: Value, columns: Value, graph: Graph) -> Value:
    """A table [h, w, n], bicubically resized: [n, rows, columns]."""
    sizes = graph.sizes(1, table.shape[2], rows, columns)
    resized = graph.op("Resize", graph.constant(table.permute(2, 0, 1)[None]), None, None, sizes, mode="cubic",
                       coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75)
    return resized.reshape(table.shape[2], rows, columns)


# ---- layers ----


def taps(x: Value, rank: int, outside: float, kernel_size: Pair, stride: Pair, padding: Sequence[int],
         dilation: Pair) -> Iterator[Value]:
    """x [B, H, W, ...] -> for each tap of all windows [B, OH, OW, ...], `outside` where it lies in the padding."""
    top, bottom, left, right = padding
    x = x.pad(rank, {1: (top, bottom), 2: (left, right)}, outside)

    def end(tap: int, axis: int) -> Optional[int]:
        behind = (kernel_size[axis] - 1 - tap) * dilation[axis]
        return -behind if behind > 0 else None

    for tap_y in range(kernel_size[0]):
        for tap_x in range(kernel_size[1]):
            yield x.slice({1: tap_y * dilation[0], 2: tap_x * dilation[1]}, {1: end(tap_y, 0), 2: end(tap_x, 1)},
                          {1: stride[0], 2: stride[1]})


def softmax_over_taps(scores: Sequence[Value], bias: Optional[Tensor]) -> Value:
    """scores of every tap [B, OH, OW, n], bias [taps, n] or None -> [B, OH, OW, n, taps]"""
    graph = scores[0].graph
    stacked = graph.concat([score.unsqueeze(4) for score in scores], 4)
    if bias is not None:
        stacked = stacked + graph.constant(bias.t())
    return stacked.softmax(4)


def qna_layer(x: Value, layer: QnA) -> Value:
    score_weight, value_weight, value_bias, out_weight, out_bias, bias, tap_weights = layer.parameters_for_layer()
    _, queries, heads = score_weight.shape
    dim, separate, geometry = value_weight.shape[2], layer.upsample > 1, layer.geometry()
    count = layer.kernel_size[0] * layer.kernel_size[1]

    scores = linear(x, score_weight.flatten(1).t())
    values = linear(x, value_weight.flatten(1).t(), None if value_bias is None else value_bias.flatten())
    weights = softmax_over_taps(list(taps(scores, 4, LOWEST, *geometry)),
                                None if bias is None else bias.flatten(2).flatten(0, 1))
    if tap_weights is not None:
        weights = weights * x.graph.constant(tap_weights.flatten(2).flatten(0, 1).t())
    weights = weights.reshape(0, 0, 0, queries, heads, count)
    if not separate:
        weights = weights.sum(3)  # the queries meet before the values are touched
    values = values.reshape(0, 0, 0, *((1,) if separate else ()), heads, dim)
    rank = 6 if separate else 5
    terms = [weight * value for weight, value in
             zip(weights.split(count, rank - 1), taps(values, rank, 0.0, *geometry))]
    mixed = x.graph.sum(terms).reshape(0, 0, 0, *((queries,) if separate else ()), heads * dim)
    y = linear(mixed, out_weight.flatten(0, 1).t(), out_bias)
    return spread_queries(y, layer.upsample, layer.out_features) if separate else y


def spread_queries(y: Value, upsample: int, features: int) -> Value:
    """[B, OH, OW, s * s, O] -> [B, OH * s, OW * s, O]"""
    rows, columns = y.size(1) * upsample, y.size(2) * upsample
    y = y.reshape(0, 0, 0, upsample, upsample, features).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(0, rows, columns, features)


def sasa(x: Value, layer: SASA) -> Value:
    features, heads = layer.out_features, layer.heads
    dim, geometry = features // heads, (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    qkv = layer.qkv.weight
    query = linear(x, qkv[:features] * dim**-0.5).reshape(0, 0, 0, heads, dim)
    query = query.slice({1: 0, 2: 0}, {1: None, 2: None}, {1: layer.stride[0], 2: layer.stride[1]})
    key, value = (linear(x, part).reshape(0, 0, 0, heads, dim) for part in qkv[features:].chunk(2))
    nothing = x.graph.filled(0.0, 1, x.size(1), x.size(2), 1)
    scores = [(query * tap).sum(4) + absent for tap, absent in
              zip(taps(key, 5, 0.0, *geometry), taps(nothing, 4, LOWEST, *geometry))]
    bias = None if layer.relative_bias is None else layer.relative_bias.flatten(0, 1)
    weights = softmax_over_taps(scores, bias)
    terms = [weight * tap for weight, tap in zip(weights.split(len(scores), 4), taps(value, 5, 0.0, *geometry))]
    return linear(x.graph.sum(terms).reshape(0, 0, 0, features), layer.proj.weight)


def attend(q: Value, k: Value, v: Value, dim: int, bias: Optional[Value], rank: int) -> Value:
    """q [..., queries, dim], k and v [..., keys, dim], bias [..., queries, keys]"""
    order = [*range(rank - 2), rank - 1, rank - 2]
    scores = (q * dim**-0.5) @ k.transpose(*order)
    return (scores if bias is None else scores + bias).softmax(-1) @ v


def window_self_attention(x: Value, layer: WindowSelfAttention) -> Value:
    qkv = linear(x, layer.qkv.weight)
    mixed = attend_whole(qkv, layer) if layer.whole else attend_windows(qkv, layer)
    return linear(mixed, layer.proj.weight)


def attend_windows(qkv: Value, layer: WindowSelfAttention) -> Value:
    """The map is padded to whole windows, before the shift too; what is added is no key."""
    heads, (rows, columns) = layer.heads, layer.window
    features = layer.proj.weight.shape[0]
    tokens, dim = rows * columns, features // heads
    height, width = qkv.size(1), qkv.size(2)
    tiles, sides = [], []
    for size, window, shift in zip((height, width), layer.window, layer.shift):
        before: Size = 0
        if shift > 0:  # not where one window holds the whole map
            more_than_one = 1 - 1 // ((size - 1) // window + 1)
            before = more_than_one * (window - shift)
        tiles.append(ceil_div(size + before, window))
        sides.append((before, tiles[-1] * window - size - before))

    windows = qkv.pad(4, {1: sides[0], 2: sides[1]})
    windows = windows.reshape(0, tiles[0], rows, tiles[1], columns, 3 * heads, dim).transpose(0, 1, 3, 5, 2, 4, 6)
    windows = windows.reshape(0, -1, 3 * heads, tokens, dim)
    keys = qkv.graph.filled(0.0, height, width).pad(2, {0: sides[0], 1: sides[1]}, LOWEST)
    keys = keys.reshape(tiles[0], rows, tiles[1], columns).transpose(0, 2, 1, 3).reshape(-1, 1, 1, tokens)
    bias = qkv.graph.constant(relative_bias(layer.relative_bias, layer.window)) + keys
    mixed = attend(*windows.split(3, 2), dim, bias, 5)  # [B, windows, heads, tokens, dim]

    mixed = mixed.transpose(0, 1, 3, 2, 4).reshape(0, tiles[0], tiles[1], rows, columns, features)
    mixed = mixed.transpose(0, 1, 3, 2, 4, 5).reshape(0, tiles[0] * rows, tiles[1] * columns, features)
    starts = {1: sides[0][0], 2: sides[1][0]}
    return mixed.slice(starts, {1: height + starts[1], 2: width + starts[2]})


def relative_bias(table: Tensor, window: Pair) -> Tensor:
    """A table [2 h - 1, 2 w - 1, heads] by query minus key as [heads, tokens, tokens]."""
    places = torch.arange(window[0] * window[1])
    y, x = places // window[1], places % window[1]
    return table[y[:, None] - y + window[0] - 1, x[:, None] - x + window[1] - 1].permute(2, 0, 1)


def attend_whole(qkv: Value, layer: WindowSelfAttention) -> Value:
    """One window, as large as the map; the table is resized to it."""
    graph, heads = qkv.graph, layer.heads
    features = layer.proj.weight.shape[0]
    dim, height, width = features // heads, qkv.size(1), qkv.size(2)
    parts = qkv.reshape(0, -1, 3 * heads, dim).transpose(0, 2, 1, 3).split(3, 1)

    table = resize_table(layer.relative_bias, height * 2 - 1, width * 2 - 1, graph)
    places = graph.range(height * width)
    y = places // width
    x = places - y * width
    index = ((y.unsqueeze(1) - y.unsqueeze(0) + height - 1) * (width * 2 - 1)
             + (x.unsqueeze(1) - x.unsqueeze(0) + width - 1))
    bias = table.reshape(heads, -1).gather(index, 1)
    mixed = attend(*parts, dim, bias, 4)  # [B, heads, positions, dim]
    return mixed.transpose(0, 2, 1, 3).reshape(0, height, width, features)


def halo_attention(x: Value, layer: HaloAttention) -> Value:
    graph, heads, (stride_y, stride_x) = x.graph, layer.heads, layer.stride
    features = layer.proj.weight.shape[0]
    dim, height, width = features // heads, x.size(1), x.size(2)
    tiles = [ceil_div(height, layer.block[0]), ceil_div(width, layer.block[1])]
    queries = layer.block[0] // stride_y, layer.block[1] // stride_x

    def cut(map: Value, outside: float = 0.0) -> Value:
        """[B, H, W, C] -> [B, tiles, tiles, rows, columns, C]: blocks and what lies around them"""
        sides = {}
        for axis in range(2):
            halo = layer.halo[axis]
            sides[axis + 1] = (halo, tiles[axis] * layer.block[axis] - map.size(axis + 1) + halo)
        map = map.pad(4, sides, outside)
        for axis in range(2):
            first = (graph.range(tiles[axis]) * layer.block[axis]).unsqueeze(1)
            map = map.gather(first + graph.range(layer.block[axis] + 2 * layer.halo[axis]), 1 + 2 * axis)
        return map.transpose(0, 1, 3, 2, 4, 5)

    weights = layer.qkv.weight.chunk(3)
    query = x.slice({1: 0, 2: 0}, {1: None, 2: None}, {1: stride_y, 2: stride_x})
    query = linear(query, weights[0])
    below = [tiles[axis] * queries[axis] - query.size(axis + 1) for axis in range(2)]
    query = query.pad(4, {1: (0, below[0]), 2: (0, below[1])})
    query = query.reshape(0, tiles[0], queries[0], tiles[1], queries[1], heads, dim).transpose(0, 1, 3, 5, 2, 4, 6)
    query = query.reshape(0, -1, heads, queries[0] * queries[1], dim)
    keys = math.prod(layer.block[axis] + 2 * layer.halo[axis] for axis in range(2))
    key, value = (cut(linear(x, weight)).reshape(0, -1, keys, heads, dim).transpose(0, 1, 3, 2, 4)
                  for weight in weights[1:])
    absent = cut(graph.filled(0.0, 1, height, width, 1), LOWEST).reshape(-1, 1, 1, keys)
    bias = graph.constant(layer.bias_of_block(queries)) + absent
    mixed = attend(query, key, value, dim, bias, 5).transpose(0, 1, 3, 2, 4)

    mixed = mixed.reshape(0, tiles[0], tiles[1], queries[0], queries[1], features).transpose(0, 1, 3, 2, 4, 5)
    mixed = mixed.reshape(0, tiles[0] * queries[0], tiles[1] * queries[1], features)
    mixed = mixed.slice({1: 0, 2: 0}, {1: ceil_div(height, stride_y), 2: ceil_div(width, stride_x)})
    return linear(mixed, layer.proj.weight)


def convolution(x: Value, layer: Convolution) -> Value:
    mixed = pixels(convolve(planes(x), layer.conv, layer.padding))
    return mixed if layer.proj is None else linear(mixed, layer.proj.weight)


def conv_pool(x: Value, layer: ConvPool) -> Value:
    normed = layer_norm(pixels(convolve(planes(x), layer.conv)), layer.norm)
    return pixels(max_pool(planes(normed), 3, 2, (0, 0, 2, 2)))


_LAYERS: dict[type, Callable[[Value, Any], Value]] = {
    QnA: qna_layer, WindowSelfAttention: window_self_attention, SASA: sasa, HaloAttention: halo_attention,
    Convolution: convolution, ConvPool: conv_pool,
}


# ---- blocks ----


def block(x: Value, module: Block) -> Value:
    mixer = next(layer for layer in (module.qna, module.attention, module.mixer) if layer is not None)
    mixed = _LAYERS[type(mixer)](layer_norm(x, module.norm1), mixer)
    if module.scale1 is not None:
        mixed = mixed * x.graph.constant(module.scale1)
    x = mixed + (x if module.skip is None else skipped(x, module))
    fc1, fc2 = module.mlp.fc1, module.mlp.fc2
    hidden = activate(linear(layer_norm(x, module.norm2), fc1.weight, fc1.bias), module.activation)
    branch = linear(hidden, fc2.weight, fc2.bias)
    return x + (branch if module.scale2 is None else branch * x.graph.constant(module.scale2))


def skipped(x: Value, module: Block) -> Value:
    if module.average_pool_skip:
        top, bottom, left, right = same_padding(module.kernel_size)
        padded = planes(x).pad(4, {2: (top, bottom), 3: (left, right)})
        x = pixels(x.graph.op("AveragePool", padded, kernel_shape=list(module.kernel_size),
                              strides=list(module.stride)))
    else:
        x = x.slice({1: 0, 2: 0}, {1: None, 2: None}, {1: module.stride[0], 2: module.stride[1]})
    return linear(x, module.skip.weight.flatten(1))


# ---- classifiers ----


def efficientnet_stem(x: Value, module: EfficientNetStem) -> Value:
    def convolved(x: Value, conv: nn.Conv2d) -> Value:
        return activate(pixels(convolve(planes(x), conv, 2 * efficientnet_padding(conv))), "relu6")

    x = convolved(x, module.conv)
    for each in module.blocks:
        wide = x if each.expand is None else activate(linear(x, each.expand.weight, each.expand.bias), "relu6")
        y = linear(convolved(wide, each.depthwise), each.project.weight, each.project.bias)
        x = x + y if each.has_skip else y
    return linear(x, module.out.weight, module.out.bias)


def stem(x: Value, module: Union[Stem, EfficientNetStem]) -> Value:
    if isinstance(module, EfficientNetStem):
        return efficientnet_stem(x, module)
    if module.kind == "patch":
        side = module.patch_size
        x = x.pad(4, {1: (0, up_to(x.size(1), side)), 2: (0, up_to(x.size(2), side))})
        return pixels(convolve(planes(x), module.conv))
    bottom, right = x.size(1) % 2 + 3, x.size(2) % 2 + 3
    x = planes(x).pad(4, {2: (2, bottom), 3: (2, right)})
    norm = module.norm
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    x = convolve(x, module.conv, weight=module.conv.weight * scale[:, None, None, None],
                 bias=norm.bias - norm.running_mean * scale)
    x = activate(x, module.activation)
    return pixels(max_pool(x, 3, 2, (0, 0, 2, 2)) if module.kind == "resnet" else x)


def patch_merging(x: Value, module: PatchMerging) -> Value:
    features = module.norm.weight.shape[0] // 4
    rows, columns = ceil_div(x.size(1), 2), ceil_div(x.size(2), 2)
    x = x.pad(4, {1: (0, up_to(x.size(1), 2)), 2: (0, up_to(x.size(2), 2))})
    x = x.reshape(0, rows, 2, columns, 2, features).transpose(0, 1, 3, 4, 2, 5).reshape(0, rows, columns, 4 * features)
    return linear(layer_norm(x, module.norm), module.reduction.weight)


def stages(model: QnAViT, x: Value) -> Value:
    """The last map."""
    x = stem(x, model.stem)
    for stage in model.stages:
        for each in stage.blocks:
            x = block(x, each)
        down = stage.downsample
        if isinstance(down, PatchMerging):
            x = patch_merging(x, down)
        elif isinstance(down, ConvPool):
            x = conv_pool(x, down)
        elif down is not None:
            x = block(x, down)
    return x


def qna_vit(model: QnAViT, x: Value) -> Value:
    x = stages(model, x)
    return x.mean(1, 2) if model.head is None else head(x, model.head)


def head(x: Value, module: ClassificationHead) -> Value:
    normed = layer_norm(x, module.norm)
    pooled = None if module.qna is None else attend_pool(normed, module.qna)
    if module.kind != "qnav1":
        mean = normed.mean(1, 2)
        pooled = mean if pooled is None else pooled + mean
    return linear(pooled, module.fc.weight, module.fc.bias)


def attend_pool(x: Value, layer: QnA) -> Value:
    """One window over the whole map, whose tables are resized to it: [B, H, W, C] -> [B, C]"""
    score_weight, value_weight, _, out_weight, _, bias, tap_weights = layer.parameters_for_layer()
    _, queries, heads = score_weight.shape
    dim, features = value_weight.shape[2], heads * value_weight.shape[2]

    def table(values: Tensor) -> Value:
        """[queries * heads, positions]"""
        resized = resize_table(values.flatten(2), x.size(1), x.size(2), x.graph)
        return resized.reshape(queries * heads, -1)

    flat = x.reshape(0, -1, score_weight.shape[0])
    scores = linear(flat, score_weight.flatten(1).t()).transpose(0, 2, 1)
    weights = (scores + table(bias)).softmax(2) * table(tap_weights)
    weights = weights.reshape(0, queries, heads, -1).sum(1).unsqueeze(2)  # [B, heads, 1, positions]
    values = linear(flat, value_weight.flatten(1).t()).reshape(0, -1, heads, dim).transpose(0, 2, 1, 3)
    return linear((weights @ values).reshape(0, features), out_weight.flatten(0, 1).t())


# ---- detectors ----


def resnet(model: detectors.ResNet, x: Value) -> Value:
    def normed(x: Value, conv: nn.Conv2d, norm: detectors.FrozenBatchNorm) -> Value:
        scale = norm.weight * (norm.running_var + 1e-5).rsqrt()
        return convolve(x, conv, weight=conv.weight * scale[:, None, None, None],
                        bias=norm.bias - norm.running_mean * scale)

    x = max_pool(normed(planes(x), model.conv1, model.bn1).relu(), 3, 2, (1, 1, 1, 1))
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        for each in stage:
            skip = x if each.downsample is None else normed(x, *each.downsample)
            for i in range(1, each.depth + 1):
                x = normed(x, getattr(each, f"conv{i}"), getattr(each, f"bn{i}"))
                x = (x + skip if i == each.depth else x).relu()
    return pixels(x)


def sines(places: Value, code: detectors.PositionCode, rank: int) -> Value:
    """The code of one axis: [...] of this rank, from 0 to 1 -> [..., features / 2]"""
    n = code.features // 2
    wavelength = torch.pow(code.temperature, torch.arange(0, n, 2, dtype=torch.float32) * (1.0 / n))
    phase = (places * (2 * math.pi * code.waves)).unsqueeze(-1) / places.graph.constant(wavelength)
    graph = places.graph
    pairs = graph.concat([graph.op("Sin", phase).unsqueeze(-1), graph.op("Cos", phase).unsqueeze(-1)], -1)
    return pairs.reshape(*[0] * rank, n)


def position_code(x: Value, code: detectors.PositionCode) -> Value:
    """[1, h * w, features]"""
    graph, height, width = x.graph, x.size(1), x.size(2)

    def axis(size: Value, embedding: Optional[nn.Embedding]) -> Value:
        """[size, features / 2]"""
        places = graph.range(size)
        if embedding is not None:  # places beyond the table share its last vector
            last = graph.integers(detectors._LEARNED_PLACES - 1)
            return graph.constant(embedding.weight).gather(graph.op("Min", places, last), 0)
        return sines((places.floats() + (0.5 if code.centred else 1.0)) / (size.floats() + 1e-6), code, 1)

    n = code.features // 2
    rows = axis(height, code.row_embed).reshape(1, height, 1, n).expand(1, height, width, n)
    columns = axis(width, code.col_embed).reshape(1, 1, width, n).expand(1, height, width, n)
    # DETR's sines have the rows first, its learned codes the columns.
    both = [rows, columns] if code.row_embed is None else [columns, rows]
    return graph.concat(both, 3).reshape(1, -1, code.features)


def multihead_attention(query: Value, key: Value, value: Value, module: detectors.MultiheadAttention) -> Value:
    features, heads = module.out_proj.in_features, module.heads
    dim = features // heads
    weights, biases = module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3)
    q, k, v = (linear(x, weight, bias).reshape(0, -1, heads, dim).transpose(0, 2, 1, 3)
               for x, weight, bias in zip((query, key, value), weights, biases))
    mixed = attend(q, k, v, dim, None, 4).transpose(0, 2, 1, 3).reshape(0, -1, features)
    return linear(mixed, module.out_proj.weight, module.out_proj.bias)


def add_branch(x: Value, branch: Callable[[Value], Value], norm: nn.LayerNorm, pre_norm: bool) -> Value:
    return x + branch(layer_norm(x, norm)) if pre_norm else layer_norm(x + branch(x), norm)


def feed_forward(module: Any) -> Callable[[Value], Value]:
    def branch(x: Value) -> Value:
        hidden = linear(x, module.linear1.weight, module.linear1.bias).relu()
        return linear(hidden, module.linear2.weight, module.linear2.bias)

    return branch


def encoder(x: Value, positions: Value, module: detectors.Encoder, features: int) -> Value:
    """x [B, h, w, features] -> [B, h * w, features]"""
    height, width = x.size(1), x.size(2)
    x = x.reshape(0, -1, features)
    for layer in module.layers:
        if isinstance(layer, Block):
            x = block(x.reshape(0, height, width, features), layer).reshape(0, -1, features)
            continue

        def attention(y: Value) -> Value:
            placed = y + positions
            return multihead_attention(placed, placed, y, layer.self_attn)

        x = add_branch(x, attention, layer.norm1, layer.pre_norm)
        x = add_branch(x, feed_forward(layer), layer.norm2, layer.pre_norm)
    return x if module.norm is None else layer_norm(x, module.norm)


def decoder_layer(x: Value, queries: Value, keys: Value, values: Value, layer: detectors.DecoderLayer) -> Value:
    def attention(y: Value) -> Value:
        placed = y + queries
        return multihead_attention(placed, placed, y, layer.self_attn)

    def look(y: Value) -> Value:
        return multihead_attention(y + queries, keys, values, layer.multihead_attn)

    x = add_branch(x, attention, layer.norm1, layer.pre_norm)
    x = add_branch(x, look, layer.norm2, layer.pre_norm)
    return add_branch(x, feed_forward(layer), layer.norm3, layer.pre_norm)


def box_head(x: Value, module: detectors.BoxHead) -> Value:
    first, second, last = module.layers
    x = linear(x, first.weight, first.bias).relu()
    return linear(linear(x, second.weight, second.bias).relu(), last.weight, last.bias)


def detr(model: detectors.Detr, x: Value) -> tuple[Value, Value]:
    """Logits and boxes of the last block."""
    graph, features = x.graph, model.config.hidden
    backbone, code = model.backbone
    if backbone.norm is None:
        x = resnet(backbone.body, x)
    else:
        x = layer_norm(stages(backbone.body, x), backbone.norm)
    x = linear(x, model.input_proj.weight.flatten(1), model.input_proj.bias)
    positions = position_code(x, code)
    values = encoder(x, positions, model.transformer.encoder, features)
    keys = values + positions

    def place_code(anchors: Value) -> Value:
        """Of the anchors' centres: [B or 1, Q, 4] -> [B or 1, Q, features]"""
        centre_x, centre_y = anchors.slice({-1: 0}, {-1: 2}).sigmoid().split(2, -1)
        return graph.concat([sines(centre.reshape(0, -1), code, 2) for centre in (centre_y, centre_x)], -1)

    anchors = None if model.refpoint_embed is None else graph.constant(model.refpoint_embed.weight[None])  # [1, Q, 4]
    queries = graph.constant(model.query_embed.weight) if anchors is None else place_code(anchors)
    state = graph.filled(0.0, values.size(0), model.config.queries, features)
    last = len(model.transformer.decoder.layers) - 1
    for i, layer in enumerate(model.transformer.decoder.layers):
        state = decoder_layer(state, queries, keys, values, layer)
        if anchors is not None or i == last:
            result = layer_norm(state, model.transformer.decoder.norm)
        if anchors is not None:  # every block refines them
            anchors = box_head(result, model.bbox_embed) + anchors
            queries = place_code(anchors) if i < last else queries
    boxes = (box_head(result, model.bbox_embed) if anchors is None else anchors).sigmoid()
    return linear(result, model.class_embed.weight, model.class_embed.bias), boxes


# ---- auto-encoders ----


def conv_resample(x: Value, module: ConvResample) -> Value:
    graph, factor, conv = x.graph, module.factor, module.conv
    x = planes(x)
    if module.kind == "bilinear_conv_in":
        scales = graph.constant(torch.tensor([1.0, 1.0, factor, factor]))
        x = graph.op("Resize", x, None, scales, mode="linear", coordinate_transformation_mode="half_pixel")
    if module.kind == "conv_transposed_in":
        x = graph.op("ConvTranspose", x, graph.constant(conv.weight), kernel_shape=list(conv.kernel_size),
                     strides=list(conv.stride), pads=[conv.padding[0], conv.padding[1]] * 2,
                     output_padding=list(conv.output_padding))
    else:
        x = convolve(x, conv)
    norm = module.norm
    x = graph.op("InstanceNormalization", x, graph.constant(norm.weight), graph.constant(norm.bias),
                 epsilon=norm.eps).relu()
    return pixels(max_pool(x, factor, factor, ceil=True) if module.kind == "conv_in_max" else x)


def auto_encoder(model: AutoEncoder, x: Value) -> Value:
    height, width, stride = x.size(1), x.size(2), model.config.stride

    def run(x: Value, layer: nn.Module) -> Value:
        return conv_resample(x, layer) if isinstance(layer, ConvResample) else qna_layer(layer_norm(x, layer.norm),
                                                                                         layer.qna)

    x = linear(x, model.stem.weight, model.stem.bias)
    for layer in model.encoder:
        x = run(x, layer)
    for layer in model.decoder:
        stride //= model.config.factor
        x = run(x, layer).slice({1: 0, 2: 0}, {1: ceil_div(height, stride), 2: ceil_div(width, stride)})
    return linear(x, model.head.weight, model.head.bias)

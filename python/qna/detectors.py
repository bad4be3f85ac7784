"""DETR, "End-to-End Object Detection with Transformers" (ECCV 2020), and the DETR-QnA of "Learned Queries for Efficient
Local Attention" (CVPR 2022).

    model = qna.create_model("detr_qna_tiny", num_classes=20)
    output = model(images)                           # [B, 3, H, W] -> logits and boxes of every query
    found = model.detections(output, [(480, 640)])   # scores, labels and boxes in pixels, per image

The images of a batch have one size. The parameters have DETR's names; a ResNet below has torchvision's.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, NamedTuple, Optional, Sequence, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from qna.blocks import Block, layer_norm, pixels, planes
from qna.config import DetrConfig, ResNetConfig
from qna.layers import QnA
from qna.models import Network, QnAViT

__all__ = ["Detr", "DetrOutput", "ResNet"]

_LEARNED_PLACES = 50  # rows and columns with a vector of their own


# ---- ResNet ----


class FrozenBatchNorm(nn.Module):
    """BatchNorm by statistics that never change: a scale and a shift per feature."""

    def __init__(self, features: int):
        super().__init__()
        self.register_buffer("weight", torch.ones(features))
        self.register_buffer("bias", torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))

    def behind(self, conv: nn.Conv2d, x: Tensor) -> Tensor:
        """norm(conv(x)), as one convolution with the scale in its weights."""
        scale = self.weight * (self.running_var + 1e-5).rsqrt()
        shift = self.bias - self.running_mean * scale
        return F.conv2d(x, conv.weight * scale[:, None, None, None], shift, conv.stride, conv.padding, conv.dilation)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 * dilation, dilation, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


class ResNetBlock(nn.Module):
    """Two 3 x 3 convolutions, or a 3 x 3 between two 1 x 1 with a quarter of the features."""

    def __init__(self, basic: bool, in_features: int, features: int, stride: int, dilation: int):
        super().__init__()
        inner = features if basic else features // 4
        if basic:
            shapes = [(in_features, inner, 3, stride), (inner, inner, 3)]
        else:
            shapes = [(in_features, inner, 1), (inner, inner, 3, stride, dilation), (inner, features, 1)]
        self.depth = len(shapes)
        for i, shape in enumerate(shapes, 1):
            self.add_module(f"conv{i}", _convolution(*shape))
            self.add_module(f"bn{i}", FrozenBatchNorm(shape[1]))
        self.downsample = None
        if stride != 1 or in_features != features:
            self.downsample = nn.ModuleList([_convolution(in_features, features, 1, stride), FrozenBatchNorm(features)])

    def forward(self, x: Tensor) -> Tensor:
        """x [B, C, H, W]"""
        skip = x if self.downsample is None else self.downsample[1].behind(self.downsample[0], x)
        for i in range(1, self.depth + 1):
            x = getattr(self, f"bn{i}").behind(getattr(self, f"conv{i}"), x)
            x = (x + skip if i == self.depth else x).relu()
        return x


class ResNet(nn.Module):
    """A ResNet as a backbone: torchvision's networks and names, with their BatchNorm frozen."""

    def __init__(self, config: ResNetConfig):
        super().__init__()
        self.conv1 = _convolution(3, 64, 7, 2)
        self.bn1 = FrozenBatchNorm(64)
        first = 64 if config.basic else 256
        inputs = 64
        for stage, count in enumerate(config.blocks):
            features = first << stage
            dilated = stage == 3 and config.dilation
            blocks = nn.ModuleList()
            for i in range(count):
                # The first block of a dilated stage sees the map of the stage before it, as it was.
                stride = 2 if i == 0 and stage > 0 and not dilated else 1
                blocks.append(ResNetBlock(config.basic, inputs, features, stride, 2 if dilated and i > 0 else 1))
                inputs = features
            self.add_module(f"layer{stage + 1}", blocks)

    def forward_features(self, x: Tensor) -> Tensor:
        """x [B, H, W, 3] -> [B, ceil(H / 32), ceil(W / 32), features], half that stride if dilated."""
        x = self.bn1.behind(self.conv1, planes(x)).relu()
        x = F.max_pool2d(x, 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            for block in stage:
                x = block(x)
        return pixels(x)


# ---- backbone and positions ----


class Backbone(nn.Module):
    """A network without its head. A QnA-ViT, which ends in sums, is followed by a LayerNorm."""

    def __init__(self, config: DetrConfig):
        super().__init__()
        if isinstance(config.backbone, ResNetConfig):
            self.body: nn.Module = ResNet(config.backbone)
            self.norm = None
        else:
            self.body = QnAViT(config.backbone, channels_first=False)
            self.norm = layer_norm(config.backbone_features)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, 3] -> [B, h, w, features]"""
        x = self.body.forward_features(x)
        return x if self.norm is None else self.norm(x)

    def train(self, mode: bool = True) -> Backbone:
        """BatchNorm stays as it is in evaluation: a few images say little about all."""
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self


class PositionCode(nn.Module):
    """Where a position of a map lies in its image, as a vector to add to its features: sines, or learned."""

    def __init__(self, config: DetrConfig):
        super().__init__()
        self.features, self.waves, self.temperature = config.hidden, config.waves, config.temperature
        # Anchors are to find the positions of the map at their places: in the middle of their pixels.
        self.centred = config.anchors
        self.row_embed = self.col_embed = None
        if config.positions == "learned":
            self.row_embed = nn.Embedding(_LEARNED_PLACES, config.hidden // 2)
            self.col_embed = nn.Embedding(_LEARNED_PLACES, config.hidden // 2)
            nn.init.uniform_(self.row_embed.weight)
            nn.init.uniform_(self.col_embed.weight)

    def forward(self, x: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The code of x [B, h, w, features] and its mask [B, h, w]: [B or 1, h, w, features]."""
        if self.row_embed is not None:
            return self._learned(x)
        inside = x.new_ones((1, *x.shape[1:3]), dtype=torch.float32) if mask is None else mask.float()
        return torch.cat([self._axis(inside, 1), self._axis(inside, 2)], -1).to(x.dtype)

    def _axis(self, inside: Tensor, axis: int) -> Tensor:
        # 1, 2, 3, ... inside the image, divided by its last: up to 1, whatever the size.
        place = inside.cumsum(axis)
        last = place.narrow(axis, place.shape[axis] - 1, 1) + 1e-6
        return self._sines((place - 0.5 if self.centred else place) / last)

    def at(self, places: Tensor) -> Tensor:
        """The sine code of any places, [..., 2] (x and y from 0 to 1) -> [..., features]."""
        exact = places.float()
        return torch.cat([self._sines(exact[..., 1]), self._sines(exact[..., 0])], -1).to(places.dtype)

    def _sines(self, places: Tensor) -> Tensor:
        """The code of one axis: [...] from 0 to 1 -> [..., features / 2]."""
        n = self.features // 2
        step = torch.arange(0, n, 2, dtype=places.dtype, device=places.device)
        phase = (places * (2 * math.pi * self.waves))[..., None] / torch.pow(self.temperature, step * (1.0 / n))
        return torch.stack([phase.sin(), phase.cos()], -1).flatten(-2)

    def _learned(self, x: Tensor) -> Tensor:
        def table(embedding: nn.Embedding, size: int) -> Tensor:
            # Places beyond the table share its last vector, so that any map has a code.
            return embedding(torch.arange(size, device=x.device).clamp(max=_LEARNED_PLACES - 1))

        height, width = x.shape[1:3]
        rows, columns = table(self.row_embed, height)[:, None], table(self.col_embed, width)[None]
        sizes = (height, width, self.features // 2)
        return torch.cat([columns.expand(sizes), rows.expand(sizes)], -1)[None]


# ---- transformer ----


class MultiheadAttention(nn.Module):
    """Attention between any two sequences, with the parameters' names and layout of PyTorch's."""

    def __init__(self, config: DetrConfig):
        super().__init__()
        features = config.hidden
        self.heads, self.dropout = config.heads, config.dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * features, features))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * features))
        self.out_proj = nn.Linear(features, features)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """query [B, N, C], key and value [B, S, C], mask [B, S] bool (true takes part) -> [B, N, C]"""
        if query is key:
            q, k = self._projected(query, 0, 2)
        else:
            (q,), (k,) = self._projected(query, 0, 1), self._projected(key, 1, 2)
        (v,) = self._projected(value, 2, 3)
        mixed = F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None, None],
                                               self.dropout if self.training else 0.0)
        return self.out_proj(mixed.transpose(1, 2).flatten(2))

    def _projected(self, x: Tensor, first: int, end: int) -> tuple[Tensor, ...]:
        """Parts of the projection, with the heads apart: [B, N, C] -> each [B, heads, N, dim]."""
        features = self.out_proj.in_features
        rows = slice(first * features, end * features)
        y = F.linear(x, self.in_proj_weight[rows], self.in_proj_bias[rows])
        return y.unflatten(2, (end - first, self.heads, features // self.heads)).permute(2, 0, 3, 1, 4).unbind()


class _Layer(nn.Module):
    """What layers of encoder and decoder share: branches with a sum, and the norm before or behind it."""

    def __init__(self, config: DetrConfig, attentions: Sequence[str]):
        super().__init__()
        self.pre_norm, self.dropout = config.pre_norm, config.dropout
        for name in attentions:
            self.add_module(name, MultiheadAttention(config))
        self.linear1 = nn.Linear(config.hidden, config.feedforward)
        self.linear2 = nn.Linear(config.feedforward, config.hidden)
        nn.init.xavier_uniform_(self.linear1.weight)
        nn.init.xavier_uniform_(self.linear2.weight)
        for i in range(len(attentions) + 1):
            self.add_module(f"norm{i + 1}", nn.LayerNorm(config.hidden))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def _add(self, x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.LayerNorm) -> Tensor:
        return x + self._drop(branch(norm(x))) if self.pre_norm else norm(x + self._drop(branch(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self._drop(self.linear1(x).relu()))


class EncoderLayer(_Layer):
    """Attention between all positions, then two products with ReLU between."""

    def __init__(self, config: DetrConfig):
        super().__init__(config, ["self_attn"])

    def forward(self, x: Tensor, positions: Tensor, mask: Optional[Tensor]) -> Tensor:
        """x [B, N, C], positions [B or 1, N, C], mask [B, N] bool or None"""

        def attend(y: Tensor) -> Tensor:
            placed = y + positions
            return self.self_attn(placed, placed, y, mask)

        return self._add(self._add(x, attend, self.norm1), self._feed_forward, self.norm2)


class Encoder(nn.Module):
    def __init__(self, config: DetrConfig):
        super().__init__()
        self.layers = nn.ModuleList(
            _qna_block(config) if is_qna else EncoderLayer(config) for is_qna in config.encoder_layers())
        self.norm = nn.LayerNorm(config.hidden) if config.has_encoder_norm() else None

    def forward(self, x: Tensor, positions: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """x [B, h, w, C], positions [B or 1, h, w, C], mask [B, h, w] bool or None -> [B, h, w, C]"""
        sizes, flat_positions = x.shape[1:3], positions.flatten(1, 2)
        flat_mask = None if mask is None else mask.flatten(1, 2)
        for layer in self.layers:
            if isinstance(layer, Block):
                x = layer(x)
            else:
                x = layer(x.flatten(1, 2), flat_positions, flat_mask).unflatten(1, sizes)
        return x if self.norm is None else self.norm(x)


def _qna_block(config: DetrConfig) -> Block:
    qna = config.qna
    layer = QnA(config.hidden, heads=qna.heads, queries=qna.queries, kernel_size=qna.kernel_size)
    return Block(layer, config.hidden, config.hidden, kernel_size=qna.kernel_size, mlp_ratio=qna.mlp_ratio)


class DecoderLayer(_Layer):
    """Attention between the queries, attention from the queries to the map, two products."""

    def __init__(self, config: DetrConfig):
        super().__init__(config, ["self_attn", "multihead_attn"])

    def forward(self, x: Tensor, queries: Tensor, keys: Tensor, values: Tensor, mask: Optional[Tensor]) -> Tensor:
        """x [B, Q, C]; queries [Q, C] or [B, Q, C]; keys and values [B, N, C]; mask [B, N] bool or None"""

        def attend(y: Tensor) -> Tensor:
            placed = y + queries
            return self.self_attn(placed, placed, y)

        def look(y: Tensor) -> Tensor:
            return self.multihead_attn(y + queries, keys, values, mask)

        x = self._add(self._add(x, attend, self.norm1), look, self.norm2)
        return self._add(x, self._feed_forward, self.norm3)


class Decoder(nn.Module):
    def __init__(self, config: DetrConfig):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_blocks))
        self.norm = nn.LayerNorm(config.hidden)

    def forward(self, memory: Tensor, positions: Tensor, queries: Tensor, mask: Optional[Tensor] = None,
                next_queries: Optional[Callable[[Tensor], Tensor]] = None) -> Tensor:
        """memory and positions [B, h, w, C], queries [Q, C] -> the result of every layer, [layers, B, Q, C].

        next_queries makes the queries of the layer behind of a layer's result.
        """
        values, keys = memory.flatten(1, 2), (memory + positions).flatten(1, 2)
        mask = None if mask is None else mask.flatten(1, 2)
        # The first layer starts from nothing but the queries, which every layer adds.
        x = memory.new_zeros(memory.shape[0], queries.shape[-2], memory.shape[3])
        results = []
        for layer in self.layers:
            x = layer(x, queries, keys, values, mask)
            results.append(self.norm(x))
            if next_queries is not None:
                queries = next_queries(results[-1])
        return torch.stack(results)


class Transformer(nn.Module):
    def __init__(self, config: DetrConfig):
        super().__init__()
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)


# ---- network ----


class BoxHead(nn.Module):
    """Linear layers with ReLU between them: [..., features] -> [..., 4]; a sigmoid of it is a box."""

    def __init__(self, features: int):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(features, features), nn.Linear(features, features),
                                     nn.Linear(features, 4)])

    def forward(self, x: Tensor) -> Tensor:
        first, second, last = self.layers
        return last(second(first(x).relu()).relu())


class DetrOutput(NamedTuple):
    """The predictions of every decoder block (config.aux_loss) or of the last one only, which always comes last.

    logits: [blocks, B, queries, classes + 1]; the last class is "no object".
    boxes: [blocks, B, queries, 4]: centre x, centre y, width and height as parts of the image's width and height.
    """

    logits: Tensor
    boxes: Tensor


class Detr(Network):
    """A DETR of any configuration.

    Args:
        config: the JSON object of a configuration (as in `qna models --json` and in weights files), or a
            `qna.config.DetrConfig`.
        channels_first: whether images are [B, 3, H, W] or [B, H, W, 3].
    """

    def __init__(self, config: Union[Mapping[str, Any], DetrConfig], channels_first: bool = True):
        if not isinstance(config, DetrConfig):
            config = DetrConfig.from_json(config)
        config.check()
        super().__init__(config, channels_first)
        self.transformer = Transformer(config)
        self.class_embed = nn.Linear(config.hidden, config.classes + 1)
        self.bbox_embed = BoxHead(config.hidden)
        self.query_embed = None if config.anchors else nn.Embedding(config.queries, config.hidden)
        self.refpoint_embed = nn.Embedding(config.queries, 4) if config.anchors else None  # before the sigmoid
        if config.anchors:
            self._spread_anchors()
        self.input_proj = nn.Conv2d(config.backbone_features, config.hidden, 1)
        self.backbone = nn.ModuleList([Backbone(config), PositionCode(config)])

    @torch.no_grad()
    def _spread_anchors(self) -> None:
        """At first every query looks around its anchor, and leaves it as it is."""
        # Centres all over the image, by Martin Roberts' R2 sequence, of one size.
        n = torch.arange(self.config.queries, dtype=torch.float64) + 0.5
        plastic = 1.32471795724474602596
        x, y = (n / plastic).frac(), (n / plastic**2).frac()
        size = torch.full_like(x, 0.2)
        self.refpoint_embed.weight.copy_(torch.stack([x, y, size, size], 1).logit(1e-3))
        last = self.bbox_embed.layers[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        for layer in self.transformer.decoder.layers:
            # Queries and keys are projected alike, so what lies near an anchor has the largest products;
            # 2 x 2 makes them large enough to matter.
            queries, keys, _ = layer.multihead_attn.in_proj_weight.chunk(3)
            keys.copy_(queries.mul_(2))

    def forward(self, x: Tensor) -> DetrOutput:
        """Images [B, 3, H, W] -> logits and boxes."""
        memory, positions = self.encode(x)
        return self.decode(memory, positions)

    def forward_features(self, x: Tensor) -> Tensor:
        """Images [B, 3, H, W] -> what the encoder makes of them, [B, hidden, h, w]."""
        return self._laid_out(self.encode(x)[0])

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images -> the encoder's map [B, h, w, hidden] and the position code [1, h, w, hidden]."""
        features = self.backbone[0](self._pixels(x, 3))
        source = F.linear(features, self.input_proj.weight.flatten(1), self.input_proj.bias)
        positions = self.backbone[1](source)
        return self.transformer.encoder(source, positions), positions

    def decode(self, memory: Tensor, positions: Tensor, mask: Optional[Tensor] = None) -> DetrOutput:
        """From the encoder's map; mask [B, h, w] bool or None: true where there is an image."""
        anchored = self.refpoint_embed is not None
        if anchored:
            states, boxes = self._decode_anchors(memory, positions, mask)
        else:
            states = self.transformer.decoder(memory, positions, self.query_embed.weight, mask)
        if not self.config.aux_loss:
            states = states[-1:]
        boxes = boxes[-states.shape[0] :] if anchored else self.bbox_embed(states).sigmoid()
        return DetrOutput(self.class_embed(states), boxes)

    def _decode_anchors(self, memory: Tensor, positions: Tensor, mask: Optional[Tensor]) -> tuple[Tensor, Tensor]:
        """Queries are the position codes of boxes, which every block refines."""
        code = self.backbone[1]
        anchors, boxes = self.refpoint_embed.weight, []

        def refine(result: Tensor) -> Tensor:
            nonlocal anchors
            refined = self.bbox_embed(result) + anchors
            boxes.append(refined.sigmoid())
            anchors = refined.detach()  # each block answers for its own step
            return code.at(anchors[..., :2].sigmoid())

        first = code.at(anchors[..., :2].sigmoid())
        states = self.transformer.decoder(memory, positions, first, mask, refine)
        return states, torch.stack(boxes)

    @staticmethod
    def detections(output: DetrOutput, sizes: Sequence[tuple[int, int]]) -> list[dict[str, Tensor]]:
        """What the last block found, in images of these heights and widths, for each query of each image.

        Returns "scores" [queries], "labels" [queries] and "boxes" [queries, 4] (left, top, right, bottom in pixels)
        per image, as torchvision's detectors do, in the order of the queries.
        """
        scores, labels = output.logits[-1].softmax(-1)[..., :-1].max(-1)
        x, y, width, height = output.boxes[-1].unbind(-1)
        corners = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
        return [{"scores": scores[i], "labels": labels[i],
                 "boxes": corners[i] * corners.new_tensor([columns, rows, columns, rows])}
                for i, (rows, columns) in enumerate(sizes)]

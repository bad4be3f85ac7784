"""DETR (ECCV 2020) in plain PyTorch: network, loss and boxes, with the names of its own checkpoints.

Written after the paper: ResNet with frozen BatchNorm, sine positions, an encoder and a decoder whose
layers add positions and queries to what attends, and a prediction behind every decoder layer.
"""

import json
import math

import torch
import torch.nn.functional as F
from safetensors import safe_open
from scipy.optimize import linear_sum_assignment
from torch import nn

import torchvision_import  # before torchvision
from torchvision.models import resnet
from torchvision.ops.misc import FrozenBatchNorm2d

# What the configuration must say, because this file does nothing else.
FIXED = {"backbone": "resnet50", "dilation": False, "pre_norm": False, "positions": "sine",
         "aux_loss": True}


class Body(nn.Module):
    """torchvision's ResNet-50 without its head."""

    def __init__(self):
        super().__init__()
        whole = resnet.resnet50(weights=None, norm_layer=FrozenBatchNorm2d)
        for name in ("conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"):
            self.add_module(name, getattr(whole, name))

    def forward(self, x):
        for layer in self.children():
            x = layer(x)
        return x


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()

    def forward(self, x):
        return self.body(x)


def sine_positions(height, width, features):
    """[height * width, 1, features]: half for the row, half for the column."""
    def code(count):
        place = torch.arange(1, count + 1, dtype=torch.float32) / (count + 1e-6) * 2 * math.pi
        wavelength = 10000**(torch.arange(0, features // 2, 2) / (features // 2))
        phase = place[:, None] / wavelength
        return torch.stack((phase.sin(), phase.cos()), -1).flatten(1)

    rows, columns = code(height), code(width)
    both = torch.cat((rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)), -1)
    return both.flatten(0, 1)[:, None]


class Layer(nn.Module):
    """What a layer of the encoder and of the decoder have in common."""

    def __init__(self, features, heads, hidden, dropout):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(features, heads, dropout)
        self.linear1 = nn.Linear(features, hidden)
        self.linear2 = nn.Linear(hidden, features)
        self.norm1 = nn.LayerNorm(features)
        self.norm2 = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)

    def attend(self, x, positions):
        q = x + positions
        return self.norm1(x + self.dropout(self.self_attn(q, q, x, need_weights=False)[0]))

    def feed_forward(self, x):
        return x + self.dropout(self.linear2(self.dropout(F.relu(self.linear1(x)))))


class EncoderLayer(Layer):
    def forward(self, x, positions):
        return self.norm2(self.feed_forward(self.attend(x, positions)))


class DecoderLayer(Layer):
    def __init__(self, features, heads, hidden, dropout):
        super().__init__(features, heads, hidden, dropout)
        self.multihead_attn = nn.MultiheadAttention(features, heads, dropout)
        self.norm3 = nn.LayerNorm(features)

    def forward(self, x, queries, memory, keys):
        x = self.attend(x, queries)
        look = self.multihead_attn(x + queries, keys, memory, need_weights=False)[0]
        return self.norm3(self.feed_forward(self.norm2(x + self.dropout(look))))


class Encoder(nn.Module):
    def __init__(self, count, *shape):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(*shape) for _ in range(count))


class Decoder(nn.Module):
    def __init__(self, count, features, *shape):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(features, *shape) for _ in range(count))
        self.norm = nn.LayerNorm(features)


class Transformer(nn.Module):
    def __init__(self, c):
        super().__init__()
        shape = (c["hidden"], c["heads"], c["feedforward"], c["dropout"])
        self.encoder = Encoder(c["encoder_blocks"], *shape)
        self.decoder = Decoder(c["decoder_blocks"], *shape)

    def forward(self, x, positions, queries):
        """x [N, B, C], queries [Q, C] -> what every decoder layer found, [layers, B, Q, C]."""
        for layer in self.encoder.layers:
            x = layer(x, positions)
        queries = queries[:, None].expand(-1, x.shape[1], -1)
        keys, found, states = x + positions, torch.zeros_like(queries), []
        for layer in self.decoder.layers:
            found = layer(found, queries, x, keys)
            states.append(self.decoder.norm(found))
        return torch.stack(states).transpose(1, 2)


class BoxHead(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(features, out) for out in (features, features, 4))

    def forward(self, x):
        return self.layers[2](F.relu(self.layers[1](F.relu(self.layers[0](x))))).sigmoid()


class DETR(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.transformer = Transformer(c)
        self.class_embed = nn.Linear(c["hidden"], c["classes"] + 1)
        self.bbox_embed = BoxHead(c["hidden"])
        self.query_embed = nn.Embedding(c["queries"], c["hidden"])
        self.input_proj = nn.Conv2d(2048, c["hidden"], 1)
        self.backbone = nn.Sequential(Backbone())

    def forward(self, images):
        """images [B, 3, H, W] -> logits [layers, B, Q, classes + 1] and boxes [layers, B, Q, 4]."""
        map = self.input_proj(self.backbone(images))
        positions = sine_positions(*map.shape[2:], map.shape[1])
        states = self.transformer(map.flatten(2).permute(2, 0, 1), positions, self.query_embed.weight)
        return self.class_embed(states), self.bbox_embed(states)

    def freeze_first_stage(self):
        for name, parameter in self.backbone.named_parameters():
            if not any(stage in name for stage in ("layer2", "layer3", "layer4")):
                parameter.requires_grad_(False)


def load(path):
    """The network of a detector's file, and its configuration."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        if "config" not in metadata:
            raise ValueError(f"{path} has no configuration in its metadata")
        config = json.loads(metadata["config"])
        for key, value in FIXED.items():
            if config.get(key) != value:
                raise ValueError(f"{key} is {config.get(key)!r}; only {value!r} is supported")
        if config["qna"]["blocks"] != 0:
            raise ValueError("QnA blocks in the encoder are not supported")
        model = DETR(config)
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()})
    return model, config


# ---- boxes and loss ----


def corners(boxes):
    x, y, w, h = boxes.unbind(-1)
    return torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2), -1)


def generalized_iou(a, b):
    """Of corners, broadcast."""
    def area(box):
        size = (box[..., 2:] - box[..., :2]).clamp(min=0)
        return size[..., 0] * size[..., 1]

    inside = area(torch.cat((torch.max(a[..., :2], b[..., :2]), torch.min(a[..., 2:], b[..., 2:])), -1))
    around = area(torch.cat((torch.min(a[..., :2], b[..., :2]), torch.max(a[..., 2:], b[..., 2:])), -1))
    union = area(a) + area(b) - inside
    return inside / union - (around - union) / around


@torch.no_grad()
def match(logits, boxes, targets):
    """Pairs of predictions and objects for each image, such that the whole is cheapest."""
    flat, places = logits.flatten(0, 1).softmax(-1), boxes.flatten(0, 1)
    labels = torch.cat([labels for labels, _ in targets])
    wanted = torch.cat([boxes for _, boxes in targets])
    cost = (5 * torch.cdist(places, wanted, p=1) - flat[:, labels] -
            2 * generalized_iou(corners(places)[:, None], corners(wanted)))
    parts = cost.view(*logits.shape[:2], -1).split([len(labels) for labels, _ in targets], -1)
    pairs = [linear_sum_assignment(part[i]) for i, part in enumerate(parts)]
    return [(torch.as_tensor(i), torch.as_tensor(j)) for i, j in pairs]


def layer_loss(logits, boxes, targets, weight):
    pairs = match(logits, boxes, targets)
    image = torch.cat([torch.full_like(i, n) for n, (i, _) in enumerate(pairs)])
    query = torch.cat([i for i, _ in pairs])
    labels = torch.cat([labels[j] for (labels, _), (_, j) in zip(targets, pairs)])
    wanted = torch.cat([boxes[j] for (_, boxes), (_, j) in zip(targets, pairs)])
    classes = torch.full(logits.shape[:2], logits.shape[-1] - 1)
    classes[image, query] = labels
    found, count = boxes[image, query], len(labels)
    return (F.cross_entropy(logits.transpose(1, 2), classes, weight) +
            5 * F.l1_loss(found, wanted, reduction="sum") / count +
            2 * (1 - generalized_iou(corners(found), corners(wanted))).sum() / count)


def set_loss(logits, boxes, targets):
    """Over all decoder layers. targets: labels [n] and boxes [n, 4] of each image."""
    weight = torch.ones(logits.shape[-1])
    weight[-1] = 0.1  # "no object"
    return sum(layer_loss(*layer, targets, weight) for layer in zip(logits, boxes))


def detections(logits, boxes, height, width, threshold):
    """Scores, labels and corners in pixels of each image."""
    scores, labels = logits.softmax(-1)[..., :-1].max(-1)
    places = corners(boxes) * torch.tensor([width, height, width, height])
    return [(s[s >= threshold], l[s >= threshold], p[s >= threshold])
            for s, l, p in zip(scores, labels, places)]

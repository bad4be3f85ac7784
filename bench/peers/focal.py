"""Focal Transformers by "Focal Self-attention for Local-Global Interactions in Vision Transformers"
(arXiv 2107.00641), for inference, with random weights.

A window of 7 x 7 tokens attends to the tokens of a region around it, and to a region of whole windows,
which a linear layer has pooled to one token each.

  focal.py      compares the numbers of parameters and of multiply-adds with those that are published
"""

import torch
import torch.nn.functional as F
from torch import nn

from macs import multiply_adds
from qna_vit import Folding

WINDOW = 7  # side of a window
FINE = (13, 13, 13, 7)  # side of the region of tokens, by stage
COARSE = (7, 5, 3, 1)  # side of the region of pooled windows
HEAD = 32  # features of a head


def regions(side, fine, coarse):
    """What the windows of a map of side x side tokens see: the numbers of the tokens, [windows, keys],
    and whether they lie outside of the map.

    Tokens are numbered window by window, and after them the pooled windows. Beyond its border the map
    goes on at its other side. This is not so for pooled windows: there the region is cut off.
    """
    count, border = side // WINDOW, (fine - WINDOW) // 2
    tokens = torch.arange(side * side).view(count, count, WINDOW, WINDOW)
    tokens = tokens.transpose(1, 2).reshape(side, side)
    around = torch.arange(-border, side + border) % side
    pooled = side * side + torch.arange(count * count).view(count, count)

    def cut(map, size, step):
        return map.unfold(0, size, step).unfold(1, size, step).reshape(count * count, size * size)

    numbers = torch.cat((cut(tokens[around][:, around], fine, WINDOW),
                         cut(F.pad(pooled, [coarse // 2] * 4, value=-1), coarse, 1)), 1)
    return numbers.clamp(min=0), numbers < 0


def relative(table, size):
    """Biases of a window's queries towards size x size keys, by how far they are apart:
    [heads, 6 + size, 6 + size] -> [heads, queries, keys]"""
    apart = torch.arange(WINDOW).unsqueeze(1) - torch.arange(size) + size - 1
    bias = table[:, apart[:, None, :, None], apart[None, :, None, :]]
    return bias.flatten(3).flatten(1, 2)


class Attention(Folding):
    """Focal attention. Tokens are [batch, windows, tokens of a window, features]."""

    def __init__(self, dim, side, fine, coarse):
        super().__init__()
        self.heads, self.fine, self.coarse = dim // HEAD, fine, coarse
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.pool = nn.Linear(WINDOW ** 2, 1)
        self.own_bias = self.table(2 * WINDOW - 1, 2 * WINDOW - 1)
        self.coarse_bias = self.table(WINDOW + coarse - 1, WINDOW + coarse - 1)
        if fine > WINDOW:
            inside = (3 * WINDOW - fine) // 2  # side of what stays inside when it moves: see place()
            self.near_bias = self.table(WINDOW ** 2, 4 * (WINDOW ** 2 - inside ** 2))
        numbers, outside = regions(side, fine, coarse)
        self.register_buffer("numbers", numbers.flatten(), persistent=False)
        self.register_buffer("outside", outside, persistent=False)

    def table(self, rows, columns):
        return nn.Parameter(0.02 * torch.randn(self.heads, rows, columns))

    def place(self):
        """Where in the region the tokens of the own window are, and those with a bias for every pair of
        query and key. The latter are what the window covers outside of itself when it is moved into each
        of the region's four corners. Some are covered twice; the authors' network has two
        biases for them."""
        border = (self.fine - WINDOW) // 2
        region = torch.arange(self.fine ** 2).view(self.fine, self.fine)
        own = region[border:border + WINDOW, border:border + WINDOW].flatten()
        moved = region.unfold(0, WINDOW, 2 * border).unfold(1, WINDOW, 2 * border).flatten()
        return own, moved[~torch.isin(moved, own)]

    def from_parameters(self):
        bias = relative(self.own_bias, WINDOW)
        if self.fine > WINDOW:
            # A key that is there twice, with the biases a and b, is one with the bias log(e^a + e^b).
            own, near = self.place()
            weight = bias.new_zeros(*bias.shape[:2], self.fine ** 2)
            bias = weight.index_add(2, own, bias.exp()).index_add(2, near, self.near_bias.exp()).log()
        bias = torch.cat((bias, relative(self.coarse_bias, self.coarse)), 2)
        bias = bias.unsqueeze(1).masked_fill(self.outside.unsqueeze(1), -torch.inf)
        # Three axes: .to(memory_format=torch.channels_last) reorders what has four.
        return {"bias": bias.flatten(0, 1)}  # [heads * windows, queries, keys]

    def forward(self, x):
        bias, = self.constants("bias")
        batch, windows, queries, _ = x.shape
        pooled = torch.matmul(self.pool.weight, x) + self.pool.bias
        tokens = torch.cat((x.flatten(1, 2), pooled.flatten(1, 2)), 1)
        q = self.query(x).view(batch, -1, self.heads, HEAD).transpose(1, 2)
        kv = self.key_value(tokens).view(batch, -1, 2, self.heads, HEAD).permute(2, 0, 3, 1, 4)
        k, v = kv.index_select(3, self.numbers).view(2, batch, self.heads * windows, -1, HEAD).unbind()
        q = q.reshape(batch, -1, queries, HEAD)
        z = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.unsqueeze(0))
        z = z.reshape(batch, self.heads, windows, queries, HEAD).permute(0, 2, 3, 1, 4)
        return self.proj(z.flatten(3))


class Block(nn.Module):
    def __init__(self, dim, *region):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, *region)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Stage(nn.Module):
    """A map [batch, height, width, features] to one of smaller sides: every patch becomes a token."""

    def __init__(self, inputs, dim, patch, depth, side, *region):
        super().__init__()
        if side % WINDOW:
            raise ValueError(f"a map of {side} x {side} does not divide into windows of {WINDOW}")
        self.embed = nn.Conv2d(inputs, dim, patch, stride=patch)
        self.norm = nn.LayerNorm(dim)
        self.blocks = nn.Sequential(*[Block(dim, side, *region) for _ in range(depth)])

    def forward(self, x):
        x = self.norm(self.embed(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        batch, side, _, dim = x.shape
        count = side // WINDOW
        x = x.reshape(batch, count, WINDOW, count, WINDOW, dim).transpose(2, 3)
        x = self.blocks(x.reshape(batch, count * count, WINDOW * WINDOW, dim))
        x = x.view(batch, count, count, WINDOW, WINDOW, dim).transpose(2, 3)
        return x.reshape(batch, side, side, dim)


class Focal(nn.Module):
    """Images [batch, 3, side, side] to logits of 1000 classes. The side is a multiple of 224."""

    def __init__(self, dim, depths, image=224):
        super().__init__()
        inputs, patch, side, stages = 3, 4, image, []
        for depth, *region in zip(depths, FINE, COARSE):
            side //= patch
            stages.append(Stage(inputs, dim, patch, depth, side, *region))
            inputs, dim, patch = dim, 2 * dim, 2
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(inputs)
        self.head = nn.Linear(inputs, 1000)

    def forward(self, images):
        x = self.stages(images.permute(0, 2, 3, 1))
        return self.head(self.norm(x).mean((1, 2)))


def focal_tiny(image=224):
    model = Focal(96, (2, 2, 6, 2), image).eval().requires_grad_(False)
    for module in model.modules():
        if isinstance(module, Folding):
            module.fold()
    return model


# What is published, in millions of parameters. For Focal-Tiny the paper has 29.1, the authors' table of
# their code 28.9. Only the latter goes with the other two, as all that Focal-Small has more is twelve
# blocks.
PARAMETERS = {"tiny": (96, (2, 2, 6, 2), 28.9),
              "small": (96, (2, 2, 18, 2), 51.1),
              "base": (128, (2, 2, 18, 2), 89.8)}
TINY_MULTIPLY_ADDS = 4.9  # in billions


def check():
    for name, (dim, depths, expected) in PARAMETERS.items():
        with torch.device("meta"):
            model = Focal(dim, depths)
        millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
        print(f"Focal, {name}: {millions:.2f} M parameters")
        if round(millions, 1) != expected:
            raise SystemExit(f"published are {expected} M parameters")
    billions = multiply_adds(focal_tiny(), 224) / 1e9
    print(f"Focal, tiny: {billions:.2f} G multiply-adds")
    if round(billions, 1) != TINY_MULTIPLY_ADDS:
        raise SystemExit(f"published are {TINY_MULTIPLY_ADDS} G multiply-adds")


if __name__ == "__main__":
    check()

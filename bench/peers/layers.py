"""Single layers of local attention in PyTorch, beside which `qna bench layer --study` puts QnA.

All take maps [batch, height, width, features], keep their size, and have projections of queries, keys
and values before and of the answer after. Parameters have the names they have in C++.
"""

import torch
import torch.nn.functional as F
from torch import nn

import qna_vit
import torch_subjects


class Cannot(Exception):
    """Why a layer is not made for a case."""


class Sasa(nn.Module):
    """Every pixel attends to the window around it (arXiv 1906.05909), by unfolding keys and values to
    kernel x kernel copies. Taps outside of the map take no part."""

    def __init__(self, case):
        super().__init__()
        self.kernel, self.heads = case["kernel"], case["heads"]
        self.qkv = nn.Linear(case["dim"], 3 * case["dim"], bias=False)
        self.proj = nn.Linear(case["dim"], case["dim"], bias=False)
        self.relative_bias = nn.Parameter(torch.empty(self.kernel, self.kernel, self.heads))

    def windows(self, map):
        """[batch, features, height, width] -> [batch, heads, features of a head, taps, pixels]"""
        batch, features, height, width = map.shape
        taps = F.unfold(map, self.kernel, padding=self.kernel // 2)
        return taps.view(batch, self.heads, features // self.heads, -1, height * width)

    def forward(self, x):
        batch, height, width, features = x.shape
        q, k, v = self.qkv(x).permute(0, 3, 1, 2).split(features, 1)
        q = q.reshape(batch, self.heads, -1, 1, height * width) * (features // self.heads) ** -0.5
        bias = self.relative_bias.flatten(0, 1).t().unsqueeze(-1)  # [heads, taps, 1]
        inside = self.windows(x.new_ones(1, self.heads, height, width))[:, :1, 0] > 0
        scores = (q * self.windows(k)).sum(2) + bias  # [batch, heads, taps, pixels]
        weights = scores.masked_fill(~inside, -torch.inf).softmax(2)
        z = (weights.unsqueeze(2) * self.windows(v)).sum(3)
        return self.proj(z.view(batch, features, height, width).permute(0, 2, 3, 1))


class StridedSasa(Sasa):
    """The same by Tensor.unfold, which copies nothing itself: torch.compile makes faster code of it. But
    the backward pass that torch 2.13 compiles from it writes where it must not, and crashes."""

    def windows(self, map):
        """[batch, height, width, features] -> [batch, height, width, heads, features of a head, taps]"""
        batch, height, width, features = map.shape
        border = self.kernel // 2
        taps = F.pad(map, (0, 0, border, border, border, border))
        taps = taps.unfold(1, self.kernel, 1).unfold(2, self.kernel, 1)
        return taps.reshape(batch, height, width, self.heads, features // self.heads, -1)

    def forward(self, x):
        batch, height, width, features = x.shape
        q, k, v = self.qkv(x).split(features, 3)
        q = q.view(batch, height, width, self.heads, -1) * (features // self.heads) ** -0.5
        inside = self.windows(x.new_ones(1, height, width, self.heads))[:, :, :, :1, 0] > 0
        scores = torch.einsum("byxhd,byxhdt->byxht", q, self.windows(k))
        scores = scores + self.relative_bias.flatten(0, 1).t()
        weights = scores.masked_fill(~inside, -torch.inf).softmax(-1)
        return self.proj(torch.einsum("byxht,byxhdt->byxhd", weights, self.windows(v)).flatten(3))


class TimmHalo(nn.Module):
    """timm's HaloAttn, blocks of 8 x 8 pixels, with the projection that it leaves to its block."""

    BLOCK = 8

    def __init__(self, case):
        super().__init__()
        torch_subjects.import_timm()
        from timm.layers.halo_attn import HaloAttn
        for side in (case["height"], case["width"]):
            if side % self.BLOCK:
                raise Cannot(f"timm's HaloAttn wants sides that divide by its block, {self.BLOCK}")
        self.attend = HaloAttn(case["dim"], num_heads=case["heads"], block_size=self.BLOCK,
                               halo_size=case["kernel"] // 2)
        self.proj = nn.Linear(case["dim"], case["dim"], bias=False)

    def forward(self, x):
        return self.proj(self.attend(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))


class Window(qna_vit.WindowAttention):
    """Attention in windows that tile the map, which is padded by zeros where they do not fit, as Swin
    does it."""

    def __init__(self, case):
        super().__init__(case["dim"], case["heads"], case["kernel"])

    def forward(self, x):
        height, width = x.shape[1:3]
        right, bottom = -width % self.window, -height % self.window
        if right == 0 and bottom == 0:
            return super().forward(x)
        return super().forward(F.pad(x, (0, 0, 0, right, 0, bottom)))[:, :height, :width].contiguous()

    def comparable(self, y):
        """Without the windows that hold padding, which takes part here but not in C++."""
        height, width = y.shape[1:3]
        return y[:, :height - height % self.window, :width - width % self.window]


class Conv(nn.Module):
    """A dense convolution, channels last."""

    def __init__(self, case):
        super().__init__()
        self.conv = nn.Conv2d(case["dim"], case["dim"], case["kernel"], padding=case["kernel"] // 2,
                              bias=False).to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def paper(case):
    """QnA by the paper's algorithm."""
    kernel = [case["kernel"]] * 2
    return qna_vit.QnA(case["dim"], case["dim"], case["heads"], kernel, case["queries"], 1, "NCHW")


def compiled_sasa(case):
    return Sasa(case) if case["pass"] == "train" else StridedSasa(case)


# Name: what makes the layer, the weights it takes from the case's file, whether it is compiled.
SUBJECTS = {
    "sasa": (Sasa, "sasa", False),
    "sasa-compiled": (compiled_sasa, "sasa", True),
    "halo": (TimmHalo, None, False),
    "halo-compiled": (TimmHalo, None, True),
    "window-compiled": (Window, "window", True),
    "qna-compiled": (paper, "qna", True),
    "conv": (Conv, "conv", False),
}

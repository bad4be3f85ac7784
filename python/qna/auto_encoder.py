"""Auto-encoders: layers that shrink an image, and the way back, by QnA or by convolutions.

    model = AutoEncoder({"widths": [32, 64, 128]})
    code = model.encode(images)     # [B, 3, H, W] -> [B, 128, H / 4, W / 4]
    images = model(images)
"""

from __future__ import annotations

from typing import Any, Mapping, Union

import torch.nn.functional as F
from torch import Tensor, nn

from qna._error import Error
from qna.blocks import layer_norm, pixels, planes
from qna.config import AutoEncoderConfig
from qna.layers import QnA
from qna.models import Network

__all__ = ["AutoEncoder"]


class ConvResample(nn.Module):
    """A convolution and InstanceNorm with ReLU, and what changes the size before, in or behind it."""

    def __init__(self, config: AutoEncoderConfig, inputs: int, outputs: int, kind: str):
        super().__init__()
        self.kind, self.factor = kind, config.factor
        if kind == "conv_transposed_in":
            # Twice the factor wide: every pixel gets as many terms as its neighbours.
            self.conv: nn.Module = nn.ConvTranspose2d(
                inputs, outputs, 2 * config.factor, config.factor, (config.factor + 1) // 2, config.factor % 2,
                bias=False)
        else:
            stride = config.factor if kind == "conv_s2_in" else 1
            self.conv = nn.Conv2d(inputs, outputs, config.kernel_size, stride, config.kernel_size // 2, bias=False)
        self.norm = nn.InstanceNorm2d(outputs, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, inputs] -> [B, H', W', outputs]"""
        x = planes(x)
        if self.kind == "bilinear_conv_in":
            x = F.interpolate(x, scale_factor=self.factor, mode="bilinear", align_corners=False)
        x = self.norm(self.conv(x)).relu()
        if self.kind == "conv_in_max":  # a map that is no multiple of the factor keeps its rest
            x = F.max_pool2d(x, self.factor, self.factor, ceil_mode=True)
        return pixels(x)


class QnAResample(nn.Module):
    """LayerNorm and QnA, without a skip connection."""

    def __init__(self, layer: QnA, inputs: int):
        super().__init__()
        self.norm = layer_norm(inputs)
        self.qna = layer
        # Every query of every head begins with places of its own. With zeros all would see the mean of the window,
        # and without connections around the layers little of the image would get through.
        nn.init.normal_(layer.relative_bias, 0, 2)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, H, W, inputs] -> [B, H', W', outputs]"""
        return self.qna(self.norm(x))


def _encoder_layer(config: AutoEncoderConfig, inputs: int, outputs: int) -> nn.Module:
    if config.encoder != "ln_qna":
        return ConvResample(config, inputs, outputs, config.encoder)
    return QnAResample(QnA(inputs, out_features=outputs, heads=config.heads, queries=1,
                           kernel_size=config.kernel_size, stride=config.factor), inputs)


def _decoder_layer(config: AutoEncoderConfig, inputs: int, outputs: int) -> nn.Module:
    if config.decoder != "ln_uqna":
        return ConvResample(config, inputs, outputs, config.decoder)
    return QnAResample(QnA(inputs, out_features=outputs, heads=config.heads, kernel_size=config.kernel_size,
                           upsample=config.factor), inputs)


class AutoEncoder(Network):
    """An auto-encoder of any configuration.

    Args:
        config: the JSON object of a configuration, or a `qna.config.AutoEncoderConfig`.
        channels_first: whether images and codes are [B, C, H, W] or [B, H, W, C].
    """

    def __init__(self, config: Union[Mapping[str, Any], AutoEncoderConfig], channels_first: bool = True):
        if not isinstance(config, AutoEncoderConfig):
            config = AutoEncoderConfig.from_json(config)
        config.check()
        super().__init__(config, channels_first)
        widths = config.widths
        pairs = list(zip(widths, widths[1:]))
        self.stem = nn.Linear(config.channels, widths[0])
        self.encoder = nn.ModuleList(_encoder_layer(config, inner, outer) for inner, outer in pairs)
        self.decoder = nn.ModuleList(_decoder_layer(config, outer, inner) for inner, outer in reversed(pairs))
        self.head = nn.Linear(widths[0], config.channels)

    def forward(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] -> what is left of them, of the same shape."""
        height, width = self._pixels(x, self.config.channels).shape[1:3]
        return self.decode(self.encode(x), height, width)

    def encode(self, x: Tensor) -> Tensor:
        """Images [B, C, H, W] -> their code [B, widths[-1], ceil(H / stride), ceil(W / stride)]."""
        x = self.stem(self._pixels(x, self.config.channels))
        for layer in self.encoder:
            x = layer(x)
        return self._laid_out(x)

    def decode(self, code: Tensor, height: int, width: int) -> Tensor:
        """A code -> images of this size, which it must cover."""
        x = pixels(code) if self.channels_first else code
        if x.dim() != 4 or x.shape[3] != self.config.widths[-1]:
            raise Error(f"AutoEncoder: code must have {self.config.widths[-1]} features, got {list(code.shape)}")
        stride = self.config.stride  # pixels per position of the map
        if -(-height // stride) > x.shape[1] or -(-width // stride) > x.shape[2]:
            raise Error(f"AutoEncoder: a code of {x.shape[1]} x {x.shape[2]} does not cover {height} x {width} pixels")
        for layer in self.decoder:
            stride //= self.config.factor
            # What the image does not need is cut at once, not when it has become large.
            x = layer(x)[:, : -(-height // stride), : -(-width // stride)]
        return self._laid_out(self.head(x))

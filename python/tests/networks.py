"""What tests of networks share: golden numbers, small random networks, and the engine's answers to compare with."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

import torch
from torch import Tensor, nn

import qna
from qna import _safetensors
from qna import config as configs

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
WEIGHTS = ROOT / "weights" / "classifier.safetensors"

# A picture's bytes as they are, whole: the network sees what the engine sees.
AS_IT_IS = {"resize": 0, "crop": [0, 0], "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]}

MICRO = {
    "image_size": 32, "classes": 5, "base_dim": 8, "patch_size": 2,
    "stages": [
        {"qna_blocks": 1, "qna_heads": 2, "window": 3},
        {"attention_blocks": 1, "qna_blocks": 1, "attention_heads": 2, "qna_heads": 4, "window": 3},
        {"attention_blocks": 1, "attention_heads": 4, "qna_heads": 8, "window": 4},
    ],
}


def golden_config(text: str) -> dict[str, Any]:
    """The authors' configuration in our words."""
    c = json.loads(text)
    assert (c["stem_type"], c["classification_head_type"], c["qna_attention_scale"]) == ("patch", "gap", "normal")
    stages = [{"attention_blocks": c["lsa_layers"][i], "qna_blocks": c["qna_layers"][i],
               "attention_heads": c["lsa_heads"][i], "qna_heads": c["qna_heads"][i],
               "kernel_size": c["qna_receptive_field"][i], "queries": c["qna_num_queries"],
               "window": c["lsa_window"][i]} for i in range(c["n_stages"])]
    return {"image_size": c["image"], "classes": c["num_classes"], "base_dim": c["base_dim"],
            "drop_path": c["drop_path"], "stages": stages}


def golden(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Configuration and tensors: x, y, dy and grad.* by the authors' names."""
    metadata, tensors = _safetensors.read(GOLDEN / f"{name}.io.safetensors")
    return golden_config(metadata["config"]), tensors


def difference(got: Tensor, expected: Tensor) -> float:
    """The largest, relative to the largest value, at least 1e-3: gradients that should be 0 are rounding noise."""
    expected = expected.to(torch.float64)
    return ((got.to(torch.float64) - expected).abs().max() / expected.abs().max().clamp_min(1e-3)).item()


def randomize(model: nn.Module, seed: int) -> nn.Module:
    """Random numbers in place of the zeros and ones that layers begin with, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith(("relative_bias", "refpoint_embed.weight")):
                tensor.copy_(noise)
            elif name.endswith("attention_scale"):
                tensor.add_(0.5 * noise)
            elif name.endswith("running_var"):
                tensor.copy_(0.5 + noise.abs())
            elif tensor.dim() == 1:
                tensor.add_(0.2 * noise)
            elif "bbox_embed" in name:
                tensor.add_(0.1 * noise)
    return model.eval()


def random_classifier(seed: int) -> dict[str, Any]:
    """A small configuration with any options."""
    r = random.Random(seed)
    config = {
        "image_size": [r.randint(1, 70), r.randint(1, 70)],
        "in_channels": 3,
        "classes": r.randint(1, 7),
        "base_dim": 4 * r.randint(1, 3),
        "stem": r.choice(["patch", "conv", "resnet", "efficientnet"]),
        "patch_size": r.randint(1, 5),
        "local_mixer": r.choice(["qna", "sasa", "window", "halo", "conv", "depthwise"]),
        "downsample": r.choice(["qna", "patch_merging", "conv_pool", "sasa", "halo", "conv", "depthwise",
                                "conv_pool_block"]),
        "downsample_skip": r.choice(["conv", "average_pool"]),
        "mlp_ratio": 0.3 * r.randint(1, 12),
        "activation": r.choice(["gelu_tanh", "gelu", "relu", "relu6", "silu"]),
        "attention_scale": r.choice(["per_tap", "per_query", "ones", "average", "signed", "none"]),
        "normalize_queries": r.random() < 0.5,
        "normalize_stop_gradient": r.random() < 0.5,
        "layer_scale": r.choice([0, 0.7]),
        "drop_path": 0.1,
        "head": r.choice(["gap", "qnav1", "qnav2"]),
        "stages": [],
    }
    whole = config["local_mixer"] != "window"
    for _ in range(r.randint(1, 3)):
        side = r.randint(0 if whole else 1, 6)
        config["stages"].append({
            "attention_blocks": r.randint(0, 1), "qna_blocks": r.randint(0, 2),
            "attention_heads": r.choice([1, 2, 4]), "qna_heads": r.choice([2, 4]), "queries": r.randint(1, 3),
            "kernel_size": [r.randint(1, 5), r.randint(1, 5)], "window": [side, r.randint(1, 6) if side else 0]})
    return config


def random_detector(seed: int) -> dict[str, Any]:
    r = random.Random(seed)
    positions = r.choice(["sine", "learned"])
    backbone = "resnet18"
    if seed % 3:
        backbone = {**random_classifier(seed), "classes": 0}
    encoder = r.randint(0, 3)
    config = {
        "backbone": backbone, "hidden": 16 * r.randint(1, 2), "heads": 2 ** r.randint(0, 2), "encoder_blocks": encoder,
        "decoder_blocks": r.randint(1, 3), "feedforward": r.randint(1, 50), "queries": r.randint(1, 9),
        "classes": r.randint(1, 7), "pre_norm": r.random() < 0.5, "positions": positions,
        "aux_loss": r.random() < 0.5,
    }
    if positions == "sine":
        config |= {"waves": r.randint(1, 8), "temperature": 20, "anchors": r.random() < 0.5}
    if r.random() < 0.5:
        replaced = r.randint(0, encoder)
        config["qna"] = {"blocks": r.randint(1, 3), "replaces": replaced, "first": r.randint(0, encoder - replaced),
                         "heads": 2 ** r.randint(0, 2), "queries": r.randint(1, 2),
                         "kernel_size": [r.randint(1, 4), r.randint(1, 4)], "mlp_ratio": 0.5 * r.randint(1, 4)}
    return config


def network(config: dict[str, Any], seed: int = 0, **options: Any) -> qna.models.Network:
    """A random network of any kind, in evaluation mode."""
    torch.manual_seed(seed)
    return randomize(qna.models.network(configs.from_json(config), **options), seed)


def random_pixels(seed: int, height: int, width: int) -> Tensor:
    """uint8 [height, width, 3]"""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (height, width, 3), dtype=torch.uint8, generator=generator)


def as_images(pixels: Tensor) -> Tensor:
    """What the engine makes of pixels by AS_IT_IS: [1, 3, H, W]."""
    return (pixels.to(torch.float32) / 255).permute(2, 0, 1)[None]

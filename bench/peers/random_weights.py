"""Writes a QnA-ViT with random weights: random_weights.py tiny|tiny_7x7 out.safetensors"""

import json
import sys

import torch
from safetensors.torch import save_file

from qna_vit import FIXED, QnAViT


def tiny(side):
    """Configuration of QnA-Tiny with windows of side x side."""
    rows = zip((0, 0, 4, 2), (2, 3, 2, 0), (8, 16, 32, 64), (2, 4, 8, 16), (7, 7, 14, 7))
    stages = [{
        "attention_blocks": attention,
        "qna_blocks": qna,
        "qna_heads": qna_heads,
        "attention_heads": attention_heads,
        "kernel_size": [side, side],
        "queries": 2,
        "window": window,
    } for attention, qna, qna_heads, attention_heads, window in rows]
    return {"image_size": 224, "in_channels": 3, "classes": 1000, "base_dim": 64, "patch_size": 4,
            "stages": stages, "drop_path": 0.05, **FIXED}


def randomize(model, seed=0):
    """Random values of ordinary size for every parameter, so that every one of them matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        centre, width = 0.0, 0.1
        if name.endswith(("norm.weight", "norm1.weight", "norm2.weight")):
            centre = 1.0
        elif name.endswith(("key_weight", "value_weight", "out_weight")):
            width = parameter.shape[0]**-0.5
        elif name.endswith(("query", "relative_bias", "attention_scale")):
            width = 0.5
        elif name.endswith("weight"):
            width = parameter[0].numel()**-0.5
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * width + centre)
    return model


def main():
    configs = {"tiny": tiny(3), "tiny_7x7": tiny(7)}
    if len(sys.argv) != 3 or sys.argv[1] not in configs:
        sys.exit(f"usage: random_weights.py {'|'.join(configs)} out.safetensors")
    config = configs[sys.argv[1]]
    state = randomize(QnAViT(config)).state_dict()
    save_file(state, sys.argv[2], {"format": "pt", "config": json.dumps(config)})


if __name__ == "__main__":
    main()

"""Writes resnet.safetensors: maps of torchvision's ResNets with frozen BatchNorm.

    build/peers/bin/python tests/golden/make_resnet.py

Weights and images are not stored: they come from a formula, which golden_resnet_test.cc has too.
"""

import pathlib

import numpy as np
import torch
from safetensors.torch import save_file

try:
    import torchvision
except RuntimeError:  # its operators were built for another torch; ResNet needs none of them
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

from torchvision.models import resnet
from torchvision.ops.misc import FrozenBatchNorm2d


def noise(name, shape):
    """From -1 to 1, by name and place."""
    seed = sum(name.encode()) + 31 * len(name)
    i = np.arange(np.prod(shape, dtype=np.int64), dtype=np.float64)
    x = np.sin(i * 12.9898 + seed * 78.233) * 43758.5453
    return torch.from_numpy(2 * (x - np.floor(x)) - 1).reshape(shape)


def fill(model):
    for name, tensor in model.state_dict().items():
        value = noise(name, tensor.shape)
        if tensor.dim() == 4:
            value = value * (3 / tensor[0].numel()) ** 0.5
        elif name.endswith("running_var") or name.endswith("weight"):
            value = 1 + 0.5 * value
        else:
            value = 0.2 * value
        tensor.copy_(value)


def features(model, x):
    x = model.maxpool(model.relu(model.bn1(model.conv1(x))))
    return model.layer4(model.layer3(model.layer2(model.layer1(x))))


CASES = {  # name: network, dilated, height and width
    "resnet18": (resnet.resnet18, False, (64, 50)),
    "resnet50": (resnet.resnet50, False, (33, 65)),
    "resnet50_dilated": (resnet.resnet50, True, (32, 48)),
}

with torch.no_grad():
    out = {}
    for name, (make, dilated, size) in CASES.items():
        dilation = {"replace_stride_with_dilation": [False, False, True]} if dilated else {}
        model = make(norm_layer=FrozenBatchNorm2d, **dilation)
        model.fc = torch.nn.Identity()
        fill(model)
        x = noise("images", (1, *size, 3)).float()
        y = features(model, x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        print(name, tuple(y.shape), float(y.mean()), float(y.max()))
        out[name] = y.contiguous()
    save_file(out, pathlib.Path(__file__).with_name("resnet.safetensors"))

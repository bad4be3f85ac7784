"""Lets torchvision be imported, also if it was built for another torch and its operators do not load.

The peers do not use them, but importing torchvision fails if they are not declared.
"""

import importlib.util
import os

import torch

_folder = importlib.util.find_spec("torchvision").submodule_search_locations[0]
try:
    torch.ops.load_library(os.path.join(_folder, "_C.so"))
except OSError:
    for _name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{_name}",
                             "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

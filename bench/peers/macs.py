"""How much a network computes."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode


@torch.no_grad()
def multiply_adds(model, image):
    """Of one image of image x image pixels, in matrix products, convolutions and attention."""
    # The counter knows no attention of CPUs in one piece, only the two products it consists of.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(torch.zeros(1, 3, image, image))
    return counter.get_total_flops() // 2

"""Networks against numbers made by their authors' code: outputs, and the gradient of every parameter."""

from __future__ import annotations

import json
import math

import pytest
import torch
from networks import GOLDEN, difference, golden
from torch import Tensor, nn

import qna
from qna import _safetensors, flax, ops
from qna.config import DetrConfig, ResNetConfig
from qna.detectors import Detr, ResNet

MODELS = ["qna_vit_micro", "qna_vit_micro_7x7"]
# Of outputs and of gradients; the numbers themselves are float32.
TOLERANCES = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-5, 1e-4), torch.bfloat16: (0.05, 0.2)}


def golden_model(name: str, dtype: torch.dtype) -> tuple[qna.QnAViT, dict[str, Tensor]]:
    config, tensors = golden(name)
    model = qna.load(GOLDEN / f"{name}.flax.msgpack", config=config, channels_first=False, dtype=dtype)
    return model, tensors


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients(name, dtype, kernels):
    with ops.use_kernels(kernels):
        model, tensors = golden_model(name, dtype)
        logits = model(tensors["x"].to(dtype))
        assert difference(logits, tensors["y"]) < TOLERANCES[dtype][0]
        (logits * tensors["dy"].to(dtype)).sum().backward()
    gradients = {f"params.{key[5:]}": value for key, value in tensors.items() if key.startswith("grad.")}
    expected = flax.import_state(gradients, model.config, "golden")
    parameters = dict(model.named_parameters())
    assert expected.keys() == parameters.keys()
    for key, value in expected.items():
        assert difference(parameters[key].grad, value) < TOLERANCES[dtype][1], key


@pytest.mark.parametrize("name", MODELS)
def test_without_gradients(name):
    model, tensors = golden_model(name, torch.float32)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert difference(model(tensors["x"]), tensors["y"]) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_autocast(name):
    model, tensors = golden_model(name, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(tensors["x"])
    assert difference(logits, tensors["y"]) < 0.05
    (logits.float() * tensors["dy"]).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())


# ---- DETR ----


@pytest.fixture(scope="module")
def detr() -> tuple[Detr, dict[str, Tensor]]:
    metadata, tensors = _safetensors.read(GOLDEN / "detr_micro.safetensors")
    c = json.loads(metadata["config"])
    config = DetrConfig(backbone=ResNetConfig(depth=18), hidden=c["hidden"], heads=c["heads"],
                        encoder_blocks=c["encoder"], decoder_blocks=c["decoder"], feedforward=c["feedforward"],
                        queries=c["queries"], classes=c["classes"], pre_norm=c["pre_norm"])
    model = Detr(config).eval()
    # The file's box head is numbered with the activations.
    names = {"query_embed": "query_embed.weight"}
    for there, here in (("0", "0"), ("2", "1"), ("4", "2")):
        for kind in ("weight", "bias"):
            names[f"bbox_embed.{there}.{kind}"] = f"bbox_embed.layers.{here}.{kind}"
    loaded = {names.get(name, name): value for name, value in tensors.items()}
    wanted = [name for name in model.state_dict() if not name.startswith(("backbone.", "input_proj."))]
    missing, _ = model.load_state_dict({name: loaded[name] for name in wanted}, strict=False)
    assert all(name.startswith(("backbone.", "input_proj.")) for name in missing)
    return model, tensors


def test_detr(detr):
    model, tensors = detr
    source = tensors["src"].permute(0, 2, 3, 1)
    mask = tensors["mask"] == 0  # theirs says where the padding is
    positions = model.backbone[1](source, mask)
    assert difference(positions.permute(0, 3, 1, 2), tensors["pos"]) < 1e-5
    memory = model.transformer.encoder(source, positions, mask)
    assert difference(memory.permute(0, 3, 1, 2), tensors["memory"]) < 1e-5
    states = model.transformer.decoder(memory, positions, model.query_embed.weight, mask)
    assert difference(states, tensors["hs"]) < 1e-5
    output = model.decode(memory, positions, mask)
    assert difference(output.logits, tensors["logits"]) < 1e-5
    assert difference(output.boxes, tensors["boxes"]) < 1e-5
    found = model.detections(output, [tuple(size.tolist()) for size in tensors["sizes"]])
    for i, image in enumerate(found):
        order = image["scores"].argsort(descending=True)
        theirs = tensors[f"post.{i}.scores"].argsort(descending=True)
        for key in ("scores", "labels", "boxes"):
            assert difference(image[key][order], tensors[f"post.{i}.{key}"][theirs]) < 1e-5


# ---- ResNet ----


def noise(name: str, shape) -> Tensor:
    """From -1 to 1, by name and place; as in the C++ test."""
    seed = 31 * len(name) + sum(map(ord, name))
    x = torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * 12.9898 + seed * 78.233) * 43758.5453
    return (2 * (x - x.floor()) - 1).view(shape)


def fill(module: nn.Module) -> None:
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            value = noise(name, tensor.shape)
            if tensor.dim() == 4:
                value = value * math.sqrt(3 / tensor[0].numel())
            elif name.endswith(("running_var", "weight")):
                value = 1 + 0.5 * value
            else:
                value = 0.2 * value
            tensor.copy_(value)


@pytest.mark.parametrize("name, config, size", [
    ("resnet18", ResNetConfig(depth=18), (64, 50)),
    ("resnet50", ResNetConfig(depth=50), (33, 65)),
    ("resnet50_dilated", ResNetConfig(depth=50, dilation=True), (32, 48)),
])
def test_resnet(name, config, size):
    model = ResNet(config)
    fill(model)
    images = noise("images", (1, *size, 3)).to(torch.float32)
    expected = _safetensors.read(GOLDEN / "resnet.safetensors")[1][name]
    with torch.no_grad():
        assert difference(model.forward_features(images), expected) < 2e-5

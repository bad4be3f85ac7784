"""The networks in timm."""

from __future__ import annotations

import sys

import pytest
import torch
from networks import ROOT

import qna


def import_timm():
    pytest.importorskip("torchvision")
    return pytest.importorskip("timm")


try:
    timm = import_timm()
except RuntimeError:  # a torchvision for another torch, whose operators do not load
    sys.path.append(str(ROOT / "bench" / "peers"))
    import torchvision_import  # noqa: F401

    timm = import_timm()

import qna.timm  # noqa: E402


def test_all_are_registered():
    assert sorted(timm.list_models("qna_*")) == sorted(qna.list_models("classifier"))
    assert timm.list_models("qna_*", pretrained=True) == []


@pytest.mark.parametrize("options, shape", [
    ({}, (2, 1000)),
    ({"num_classes": 7, "drop_rate": 0.2, "drop_path_rate": 0.1}, (2, 7)),
    ({"num_classes": 0}, (2, 128)),
    ({"num_classes": 0, "global_pool": ""}, (2, 128, 4, 6)),
    ({"num_classes": 7, "global_pool": ""}, (2, 7)),
    ({"img_size": 64, "stem": "conv"}, (2, 1000)),
])
def test_create_model(options, shape):
    model = timm.create_model("qna_vit_pico", **options).eval()
    images = torch.randn(2, 3, 60, 90)
    assert model(images).shape == shape
    assert torch.equal(model.forward_head(model.forward_features(images)), model(images))
    assert model.num_classes == options.get("num_classes", 1000)
    assert model.num_features == model.head_hidden_size == 128
    assert model.pretrained_cfg["input_size"] == (3, 32, 32)
    assert model.get_classifier() is model.head.fc


def test_other_channels():
    model = timm.create_model("qna_vit_pico", in_chans=1, num_classes=2)
    assert model(torch.zeros(1, 1, 32, 32)).shape == (1, 2)


def test_the_same_network():
    torch.manual_seed(0)
    ours = qna.create_model("qna_vit_pico", num_classes=4).eval()
    theirs = timm.create_model("qna_vit_pico", num_classes=4).eval()
    theirs.load_state_dict(ours.state_dict())
    images = torch.randn(2, 3, 40, 33)
    assert torch.equal(ours(images), theirs(images))


def test_features_only():
    model = timm.create_model("qna_vit_tiny", features_only=True).eval()
    assert model.feature_info.channels() == [64, 128, 256, 512]
    assert model.feature_info.reduction() == [4, 8, 16, 32]
    with torch.no_grad():
        maps = model(torch.randn(1, 3, 96, 128))
    assert [tuple(map.shape) for map in maps] == [(1, 64, 24, 32), (1, 128, 12, 16), (1, 256, 6, 8), (1, 512, 3, 4)]


@pytest.mark.parametrize("indices, stages", [((1, 2), 3), ((0,), 1), ((-1,), 4), ((3, 1), 4)])
def test_some_features(indices, stages):
    torch.manual_seed(0)
    whole = timm.create_model("qna_vit_pico", features_only=True).eval()
    torch.manual_seed(0)
    model = timm.create_model("qna_vit_pico", features_only=True, out_indices=indices).eval()
    assert len(model.model.stages) == stages
    images = torch.randn(1, 3, 32, 48)
    maps = whole(images)
    for got, index in zip(model(images), indices):
        assert torch.equal(got, maps[index])


def test_reset_classifier():
    model = timm.create_model("qna_vit_pico", num_classes=4)
    model.reset_classifier(9)
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 9) and model.num_classes == 9
    model.reset_classifier(0, "")
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 128, 2, 2)
    with pytest.raises(qna.Error, match="global_pool must be 'avg' or '', got 'max'"):
        model.reset_classifier(3, "max")


def test_training_with_timm():
    optim = pytest.importorskip("timm.optim")
    model = timm.create_model("qna_vit_pico", num_classes=4, drop_path_rate=0.1)
    model.set_grad_checkpointing()
    optimizer = optim.create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.8)
    rates = {id(parameter): group["lr_scale"] for group in optimizer.param_groups for parameter in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    order = [model.stem.conv.weight, model.stages[0].blocks[0].norm1.weight, model.stages[0].downsample.norm1.weight,
             model.stages[1].blocks[0].norm1.weight, model.stages[3].blocks[0].norm1.weight, model.head.fc.weight]
    scales = [rates[id(parameter)] for parameter in order]
    assert scales == sorted(scales) and scales[0] < scales[-1]
    model(torch.randn(2, 3, 32, 32)).sum().backward()
    optimizer.step()
    assert any(name.endswith("relative_bias") for name in model.no_weight_decay())


def test_a_checkpoint(tmp_path):
    """timm's own loading of a weights file of qna."""
    pytest.importorskip("safetensors")
    torch.manual_seed(0)
    ours = qna.create_model("qna_vit_pico", num_classes=4)
    qna.save(ours, tmp_path / "model.safetensors")
    theirs = timm.create_model("qna_vit_pico", num_classes=4, checkpoint_path=str(tmp_path / "model.safetensors"))
    assert torch.equal(ours.head.fc.weight, theirs.head.fc.weight)
    qna.save(theirs, tmp_path / "again.safetensors")
    assert qna.load(tmp_path / "again.safetensors").config == ours.config

"""ONNX files: in ONNX Runtime and OpenVINO, on sizes that nobody named, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from networks import MICRO, WEIGHTS, network, random_classifier, random_detector, randomize

import qna

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
exporter = qna.onnx

SIZES = [(64, 50), (7, 33), (33, 70), (16, 16)]


def metadata(path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def test_tiny(tmp_path):
    """224 x 224, 256 x 320 and 97 x 131, in both runtimes."""
    torch.manual_seed(0)
    model = randomize(qna.create_model("qna_vit_tiny"), 1)
    path = tmp_path / "tiny.onnx"
    assert exporter._usual_sizes(model.config) == [(224, 224), (256, 320), (97, 131)]
    assert qna.export_onnx(model, path) <= 1e-5
    graph = onnx.load(path)
    assert {node.domain for node in graph.graph.node} == {""}
    (images,) = graph.graph.input
    assert [size.dim_param or size.dim_value for size in images.type.tensor_type.shape.dim] == [
        "batch", 3, "height", "width"]
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for number, (height, width) in enumerate(exporter._usual_sizes(model.config)):
        images = exporter._images(model, 1 + number, height, width)
        (expected,) = exporter._expected(model, images)
        assert (torch.from_numpy(compiled([images.numpy()])[0]) - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("seed", range(5))
def test_classifiers(seed, tmp_path):
    model = network(random_classifier(seed), seed)
    assert qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(1, 1), *SIZES]) <= 1e-4


@pytest.mark.parametrize("seed", range(3))
def test_detectors(seed, tmp_path):
    model = network(random_detector(seed), seed)
    assert qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(20, 20), *SIZES]) <= 1e-4


@pytest.mark.parametrize("encoder, decoder", [("conv_s2_in", "bilinear_conv_in"), ("ln_qna", "ln_uqna"),
                                              ("conv_in_max", "conv_transposed_in")])
def test_auto_encoders(encoder, decoder, tmp_path):
    model = network({"encoder": encoder, "decoder": decoder, "widths": [8, 12, 20], "factor": 3, "heads": 4})
    assert qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(30, 41), (23, 31)]) <= 1e-4


@pytest.mark.parametrize("activation, opset", [("gelu_tanh", 18), ("gelu", 20), ("relu", 22), ("relu6", 18),
                                               ("silu", 18)])
def test_opsets(activation, opset, tmp_path):
    model = network({**MICRO, "activation": activation})
    assert qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(20, 31)], opset=opset) <= 1e-5
    assert onnx.load(tmp_path / "model.onnx").opset_import[0].version == opset


def test_a_weights_file(tmp_path):
    path = tmp_path / "classifier.onnx"
    assert qna.export_onnx(WEIGHTS, path) <= 1e-4
    held = metadata(path)
    model = qna.load(WEIGHTS)
    assert json.loads(held["labels"]) == model.labels
    assert json.loads(held["preprocess"]) == model.preprocess
    assert json.loads(held["config"]) == model.config.to_json()
    assert held["name"] == "qna_vit_nano"
    assert os.listdir(tmp_path) == ["classifier.onnx"]


def test_the_model_does_not_change(tmp_path):
    model = network({**MICRO, "drop_path": 0.5}, channels_first=False).to(torch.float64).train()
    qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(20, 31)])
    assert model.training and model.head.fc.weight.dtype == torch.float64
    assert all(parameter.requires_grad for parameter in model.parameters())
    (images,) = onnx.load(tmp_path / "model.onnx").graph.input
    assert [size.dim_param or size.dim_value for size in images.type.tensor_type.shape.dim] == [
        "batch", "height", "width", 3]


def test_without_head(tmp_path):
    model = network({**MICRO, "classes": 0})
    qna.export_onnx(model, tmp_path / "model.onnx", sizes=[(20, 31)])
    assert onnx.load(tmp_path / "model.onnx").graph.output[0].name == "features"


def test_refused(tmp_path):
    path = tmp_path / "model.onnx"
    model = network(MICRO)
    with pytest.raises(qna.Error, match="logits must differ from PyTorch's by at most 0 for images of 32 x 32, got "):
        qna.export_onnx(model, path, tolerance=0)
    model.head.fc.bias.data.fill_(float("nan"))
    with pytest.raises(qna.Error, match="got nan"):
        qna.export_onnx(model, path)
    with pytest.raises(qna.Error, match="opset must be at least 18, got 17"):
        qna.export_onnx(model, path, opset=17)
    with pytest.raises(FileNotFoundError):
        qna.export_onnx("missing.safetensors", path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_a_package_that_is_missing(name, tmp_path):
    code = f"""
import sys
sys.modules[{name!r}] = None
import qna
try:
    qna.export_onnx({str(WEIGHTS)!r}, "model.onnx")
except ImportError as problem:
    assert "needs the packages onnx and onnxruntime, and {name} is not installed" in str(problem), problem
else:
    sys.exit("no error")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []

"""Networks of every configuration: as the engine computes them, by name, in training, compiled and exported."""

from __future__ import annotations

import json
import random
import subprocess

import pytest
import torch
from networks import (AS_IT_IS, MICRO, as_images, difference, network, random_classifier, random_detector,
                      random_pixels, randomize)

import qna
from qna import _program, models, ops
from qna import config as configs

# ---- configurations ----


def test_named_configurations_are_kept():
    for row in configs.entries():
        assert configs.from_json(row["config"], row["kind"]).to_json() == row["config"]
        assert configs.kind_of(row["config"]) == row["kind"]


def test_the_list_is_that_of_the_program():
    rows = json.loads(run_program("models", "--json"))
    assert [row["name"] for row in rows] == qna.list_models()
    assert rows == configs.entries()
    assert qna.list_models("classifier") + qna.list_models("detector") == qna.list_models()


@pytest.mark.parametrize("config", [
    {"stages": [{}]},
    {"backbone": "resnet18"},
    {"backbone": {"stages": [{"qna_blocks": 1}]}, "qna": {"blocks": 1}},
    {"widths": [8, 16]},
])
def test_defaults_are_those_of_the_program(config, tmp_path):
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    expected = tomllib.loads(run_program("info", path, "--toml"))
    assert configs.from_json(config).to_json() == expected


def run_program(*arguments) -> str:
    done = subprocess.run([_program.program_path(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("change, words", [
    ({"stem": "pach"}, "stem must be one of patch, conv, resnet, efficientnet, got 'pach'"),
    ({"base_dim": "8"}, "base_dim must be an integer, got '8'"),
    ({"base_dim": True}, "base_dim must be an integer, got True"),
    ({"layer_scale": None}, "layer_scale must be a number, got None"),
    ({"normalize_queries": 1}, "normalize_queries must be true or false, got 1"),
    ({"image_size": [1, 2, 3]}, "image_size must be one number, or height and width, got [1, 2, 3]"),
    ({"classes": -1}, "classes must be from 0 to 16777216, got -1"),
    ({"drop_path": float("nan")}, "drop_path must be from 0 to 0.999, got nan"),
    ({"colour": 1}, "unknown key 'colour'"),
    ({"stages": []}, "stages must be from 1 to 8, got 0"),
    ({"stages": 3}, "stages must be a list of tables, got 3"),
    ({"stages": [3]}, "stages[0] must be a table, got 3"),
    ({"stages": [{"qna_heads": 3}]}, "stages[0].qna_heads must divide the stage's 8 features, got 3"),
    ({"stages": [{"window": [0, 3]}]}, "stages[0].window must be 0 in both directions or in none, got (0, 3)"),
    ({"stages": [{"head": 3}]}, "unknown key 'stages[0].head'"),
    ({"mlp_ratio": 0.01}, "mlp_ratio must leave at least 1 of the 8 features of stages[0], got 0.01"),
])
def test_wrong_configurations(change, words):
    with pytest.raises(qna.Error) as problem:
        qna.QnAViT({**MICRO, **change})
    assert words in str(problem.value)


@pytest.mark.parametrize("change, words", [
    ({"backbone": "vgg"}, "backbone must be one of resnet18, "),
    ({"backbone": 5}, "backbone must be a name or a table, got 5"),
    ({"backbone": "resnet18", "dilation": True}, "dilation needs resnet50 or resnet101, got resnet18"),
    ({"heads": 7}, "heads must divide hidden (256), got 7"),
    ({"positions": "learned", "anchors": True}, "positions must be sine for anchors"),
    ({"qna": {"blocks": 1, "first": 6}}, "qna.first must be from 0 to 4, got 6"),
    ({"dropout": 1}, "dropout must be at least 0 and below 1, got 1.0"),
])
def test_wrong_detectors(change, words):
    with pytest.raises(qna.Error) as problem:
        configs.from_json({"backbone": "resnet18", **change})
    assert words in str(problem.value)


# ---- by name ----


@pytest.mark.parametrize("name", qna.list_models())
def test_parameters_of_named_models(name):
    with torch.device("meta"):
        model = qna.create_model(name)
    row = configs.entry(name)
    assert sum(parameter.numel() for parameter in model.parameters()) == row["parameters"]
    assert model.name == name


def test_create_model():
    model = qna.create_model("qna_vit_pico", num_classes=7, drop_path=0.2, stem="conv")
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 7)
    assert (model.num_classes, model.num_features, model.config.drop_path) == (7, 128, 0.2)
    assert model.stages[3].blocks[-1].drop_path == pytest.approx(0.2)
    without_head = qna.create_model("qna_vit_pico", num_classes=0)
    assert without_head(torch.zeros(1, 3, 20, 20)).shape == (1, 128)


def test_wrong_names():
    with pytest.raises(qna.Error, match="there is no model 'resnet'.*; the models are qna_vit_tiny, "):
        qna.create_model("resnet")
    with pytest.raises(qna.Error, match="there is no model 'qna_vit_tny'; did you mean 'qna_vit_tiny'"):
        qna.create_model("qna_vit_tny")
    with pytest.raises(qna.Error, match="unknown key 'dropout'"):
        qna.create_model("qna_vit_pico", dropout=0.1)


# ---- as the engine ----


def engine_model(model, path):
    qna.save(model, path, preprocess=AS_IT_IS)
    return qna.open(path)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("seed", range(24))
def test_classifiers_as_the_engine(seed, kernels, tmp_path):
    model = network(random_classifier(seed), seed)
    sizes = random.Random(seed)
    pixels = random_pixels(seed, sizes.randint(1, 70), sizes.randint(1, 70))
    served = engine_model(model, tmp_path / "model.safetensors")
    expected = torch.from_numpy(served.features(pixels.numpy()))
    with torch.no_grad(), ops.use_kernels(kernels):
        features = model.forward_head(model.forward_features(as_images(pixels)), pre_logits=True)
        logits = model(as_images(pixels))
    assert difference(features[0], expected) < 2e-5
    probabilities = {one.index: one.probability for one in served.predict(pixels.numpy(), top=10)}
    for index, probability in enumerate(logits[0].softmax(0).tolist()):
        assert probabilities[index] == pytest.approx(probability, abs=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_detectors_as_the_engine(seed, tmp_path):
    model = network(random_detector(seed), seed)
    sizes = random.Random(seed)
    height, width = sizes.randint(16, 70), sizes.randint(16, 70)
    pixels = random_pixels(seed, height, width)
    found = engine_model(model, tmp_path / "model.safetensors").detect(pixels.numpy(), threshold=0)
    with torch.no_grad():
        ours = model.detections(model(as_images(pixels)), [(height, width)])[0]
    order = ours["scores"].argsort(descending=True, stable=True)
    expected = torch.tensor([[box.score, box.left, box.top, box.right, box.bottom] for box in found])
    got = torch.cat([ours["scores"][:, None], ours["boxes"]], 1)[order]
    assert difference(got[:, :1], expected[:, :1]) < 1e-5
    assert difference(got[:, 1:], expected[:, 1:]) < 1e-5


@pytest.mark.parametrize("encoder", ["conv_s2_in", "conv_in_max", "ln_qna"])
@pytest.mark.parametrize("decoder", ["bilinear_conv_in", "conv_transposed_in", "ln_uqna"])
@pytest.mark.parametrize("factor", [2, 3])
def test_auto_encoders_as_the_program(encoder, decoder, factor, tmp_path):
    image = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    model = network({"encoder": encoder, "decoder": decoder, "widths": [8, 12, 20], "factor": factor, "heads": 4})
    with torch.no_grad():
        model.head.weight.mul_(0.1)
        model.head.bias.fill_(0.5)
    pixels = random_pixels(1, 23, 31)
    image.fromarray(pixels.numpy()).save(tmp_path / "picture.png")
    qna.save(model, tmp_path / "model.safetensors", preprocess=AS_IT_IS)
    run_program("reconstruct", tmp_path / "model.safetensors", tmp_path / "picture.png", "-o", tmp_path / "out")
    (path,) = (tmp_path / "out").glob("*.png")
    sheet = torch.from_numpy(numpy.array(image.open(path)))  # the picture, a gap and the reconstruction
    with torch.no_grad():
        expected = model(as_images(pixels))[0].permute(1, 2, 0).clamp(0, 1) * 255
    assert (sheet[:23, -31:] - expected).abs().max() < 0.51
    assert model.encode(as_images(pixels)).shape == (1, 20, -(-23 // factor**2), -(-31 // factor**2))


# ---- layouts and parts ----


def test_channels_last():
    first, last = network(MICRO), network(MICRO, channels_first=False)
    images = torch.randn(2, 3, 30, 21)
    assert torch.equal(first(images), last(images.permute(0, 2, 3, 1)))
    features = first.forward_features(images)
    assert features.shape == (2, 32, 4, 3)
    assert torch.equal(features, last.forward_features(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
    assert torch.equal(first.forward_head(features), first(images))
    assert torch.equal(last.forward_head(features.permute(0, 2, 3, 1)), first(images))
    in_memory = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(first(in_memory), first(images))


def test_intermediates():
    model = network(MICRO)
    images = torch.randn(2, 3, 32, 20)
    last, maps = model.forward_intermediates(images)
    assert [tuple(map.shape) for map in maps] == [(2, 8, 16, 10), (2, 16, 8, 5), (2, 32, 4, 3)]
    assert torch.equal(last, model.forward_features(images))
    assert torch.equal(maps[2], last)
    stopped, (middle,) = model.forward_intermediates(images, indices=[1], stop_early=True)
    assert torch.equal(middle, maps[1]) and torch.equal(stopped, maps[1])
    by_count = model.forward_intermediates(images, indices=2, intermediates_only=True, output_fmt="NHWC")
    assert torch.equal(by_count[0], maps[1].permute(0, 2, 3, 1)) and len(by_count) == 2
    normed = model.forward_intermediates(images, indices=[-1], norm=True, intermediates_only=True)[0]
    assert torch.allclose(normed.mean((2, 3)), model.forward_head(last, pre_logits=True), atol=1e-5)
    for wrong in ([3], [], [-4]):
        with pytest.raises(qna.Error, match="indices must be of the 3 stages"):
            model.forward_intermediates(images, indices=wrong)
    with pytest.raises(qna.Error, match="output_fmt must be NCHW or NHWC, got 'NLC'"):
        model.forward_intermediates(images, output_fmt="NLC")


@pytest.mark.parametrize("images, error, words", [
    (torch.zeros(3, 32, 32), qna.Error, "images must be [batch, 3, height, width], got [3, 32, 32]"),
    (torch.zeros(1, 32, 32, 3), qna.Error, "images must be [batch, 3, height, width], got [1, 32, 32, 3]"),
    (torch.zeros(1, 3, 0, 32), qna.Error, "height and width of images must be at least 1, got [1, 3, 0, 32]"),
    (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), qna.Error, "images must be of a floating type, got torch.uint8"),
    ([1, 2], TypeError, "images must be a tensor [batch, 3, height, width], got list"),
])
def test_wrong_images(images, error, words):
    with pytest.raises(error) as problem:
        network(MICRO)(images)
    assert words in str(problem.value)


# ---- training ----


def test_stochastic_depth():
    model = network({**MICRO, "drop_path": 0.9})
    rates = [block.drop_path for block in model.modules() if isinstance(block, qna.blocks.Block)]
    assert rates == pytest.approx([0.9 * i / 5 for i in range(6)])
    images = torch.randn(4, 3, 32, 32)
    expected = model(images)
    model.train()
    torch.manual_seed(0)
    assert not torch.allclose(model(images), expected, atol=1e-3)
    without = [rates[-1] for rates in models.drop_path_rates(configs.from_json(
        {**MICRO, "drop_path": 0.9, "drop_path_downsample": False}))]
    assert without == [0.0, 0.0, 0.0]


def gradients(model, images):
    model.zero_grad()
    model(images).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_kernels_and_of_plain_operators(seed):
    config = {**random_classifier(seed), "drop_path": 0}
    config["image_size"] = 32
    model = network(config, seed).double()
    images = torch.randn(2, 3, 20, 23, dtype=torch.float64)
    exact = gradients(model, images)
    model.float()
    for ours, expected in zip(gradients(model, images.float()), exact):
        assert difference(ours, expected) < 2e-3


def test_checkpointing():
    model = network(MICRO).train()
    images = torch.randn(2, 3, 32, 32)
    expected = gradients(model, images)
    model.set_checkpointing()
    for ours, theirs in zip(gradients(model, images), expected):
        assert torch.equal(ours, theirs)


def test_training_learns():
    torch.manual_seed(1)
    model = qna.QnAViT({**MICRO, "classes": 2, "drop_path": 0.1}).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    images = torch.randn(16, 3, 16, 16)
    labels = torch.arange(16) % 2
    images[labels == 1, :, :8] += 1
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2


def test_detector_trains():
    config = {**random_detector(1), "dropout": 0.1}
    model = network(config, 1).train()
    output = model(torch.randn(2, 3, 40, 48))
    (output.logits.square().mean() + output.boxes.mean()).backward()
    assert model.class_embed.weight.grad.isfinite().all()


# ---- compiled and exported ----


def test_compiled():
    torch._dynamo.reset()
    model = network(MICRO)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend="aot_eager")
    for batch, height, width in ((2, 32, 24), (3, 40, 33), (1, 17, 64)):
        images = torch.randn(batch, 3, height, width)
        with torch.no_grad():
            assert difference(compiled(images), model(images)) < 1e-5


def test_compiled_in_plain_operators():
    """Of one size: tracing the composite forms with symbols for the sizes takes minutes."""
    torch._dynamo.reset()
    model, images = network(MICRO), torch.randn(2, 3, 32, 24)
    with ops.use_kernels(False), torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, dynamic=False, backend="aot_eager")
        assert difference(compiled(images), model(images)) < 1e-5


def test_compiled_training():
    torch._dynamo.reset()
    model = network({**MICRO, "drop_path": 0.1}).train()
    randomize(model, 3).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled(torch.randn(2, 3, 32, 24)).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    model.eval()  # without stochastic depth
    images = torch.randn(2, 3, 32, 24)
    expected = gradients(model, images)
    for ours, theirs in zip(gradients(compiled, images), expected):
        assert difference(ours, theirs) < 1e-4


@pytest.mark.parametrize("config", [
    MICRO,
    {**MICRO, "stem": "resnet", "local_mixer": "window", "downsample": "patch_merging", "head": "qnav2"},
    {**MICRO, "stages": [{"attention_blocks": 1, "window": 0}]},
])
def test_exported(config):
    model = network(config)
    sizes = {0: torch.export.Dim("batch"), 2: torch.export.Dim("height"), 3: torch.export.Dim("width")}
    with torch.no_grad():
        program = torch.export.export(model, (torch.randn(2, 3, 50, 70),), dynamic_shapes=(sizes,), strict=False,
                                      prefer_deferred_runtime_asserts_over_guards=True)
        for shape in ((1, 3, 50, 70), (2, 3, 33, 48), (3, 3, 64, 21)):
            images = torch.randn(shape)
            assert difference(program.module()(images), model(images)) < 1e-5

"""Weights files: what the program wrote, what it reads, and what is no weights file."""

from __future__ import annotations

import json
import os
import struct
import subprocess

import pytest
import torch
from networks import GOLDEN, MICRO, ROOT, WEIGHTS, difference, golden, network, random_detector, random_pixels

import qna
from qna import _program, _safetensors, flax
from qna import config as configs

CHURCH = ROOT / "tests" / "images" / "rgb.jpg"
PREPROCESS = {"resize": 36, "crop": [32, 32], "filter": "bicubic", "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}


def run_program(*arguments) -> str:
    done = subprocess.run([_program.program_path(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- what the program wrote ----


def test_the_programs_file():
    model = qna.load(WEIGHTS)
    assert not model.training
    assert (model.name, model.num_classes, model.labels[4]) == ("qna_vit_nano", 1000, "hammerhead")
    assert model.preprocess["crop"] == [128, 128]
    assert all(parameter.dtype == torch.float32 and parameter.requires_grad for parameter in model.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) == 5_738_593


def test_predictions_are_those_of_the_engine():
    """To 1e-6: on pixels of the size that the engine resizes to, of which it takes the middle."""
    model = qna.load(WEIGHTS)
    served = qna.open(WEIGHTS)
    mean, std = (torch.tensor(model.preprocess[key])[:, None, None] for key in ("mean", "std"))
    side = model.preprocess["resize"]
    edge = (side - model.preprocess["crop"][0]) // 2
    for seed in range(4):
        pixels = random_pixels(seed, side, side)
        images = ((pixels[edge:-edge, edge:-edge].permute(2, 0, 1) / 255 - mean) / std)[None]
        with torch.no_grad():
            features = model.forward_head(model.forward_features(images), pre_logits=True)[0]
            probabilities = model(images)[0].softmax(0)
        assert difference(features, torch.from_numpy(served.features(pixels.numpy()))) < 2e-6
        for one in served.predict(pixels.numpy(), top=10):
            assert one.probability == pytest.approx(probabilities[one.index].item(), abs=1e-6)
            assert one.label == model.labels[one.index]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes_of_parameters(dtype):
    model = qna.load(WEIGHTS, dtype=dtype)
    assert model.head.fc.weight.dtype == dtype
    with torch.no_grad():
        logits = model(torch.zeros(1, 3, 64, 64, dtype=dtype))
        assert difference(logits, qna.load(WEIGHTS)(torch.zeros(1, 3, 64, 64))) < 0.1


def test_a_dtype_is_not_that_of_counts(tmp_path):
    qna.save(network({**MICRO, "stem": "conv"}), tmp_path / "model.safetensors")
    stem = qna.load(tmp_path / "model.safetensors", dtype=torch.float16).stem
    assert stem.norm.weight.dtype == torch.float16
    assert stem.norm.num_batches_tracked.dtype == torch.int64


def test_other_classes():
    model = qna.load(WEIGHTS, num_classes=3)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 3)
    assert model.labels is None and model.config.classes == 3
    assert torch.equal(model.stem.conv.weight, qna.load(WEIGHTS).stem.conv.weight)
    assert model.head.fc.weight.abs().max() > 0
    with pytest.raises(qna.Error, match="num_classes must be at least 1, for a file with classes, got 0"):
        qna.load(WEIGHTS, num_classes=0)


# ---- what the program reads ----


@pytest.mark.parametrize("dtype, name", [(torch.float32, "F32"), (torch.float16, "F16"), (torch.bfloat16, "BF16")])
def test_saved_and_loaded(dtype, name, tmp_path):
    path = tmp_path / "model.safetensors"
    model = network({**MICRO, "stem": "conv", "layer_scale": 0.1})
    labels = ["cat", "dog", "größe", "猫", "E"]
    qna.save(model, path, labels=labels, preprocess=PREPROCESS, name="mine", dtype=dtype)
    again = qna.load(path)
    assert (again.labels, again.preprocess, again.name) == (labels, PREPROCESS, "mine")
    assert again.config == model.config
    for key, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], tensor.to(dtype).to(tensor.dtype))
    header, _ = split(path)
    assert header["head.fc.weight"]["dtype"] == name and header["stem.norm.num_batches_tracked"]["dtype"] == "I64"
    assert os.listdir(tmp_path) == ["model.safetensors"]
    text = run_program("info", path)
    assert "mine" in text and "labels: 5, cat ... E" in text
    assert "cat" in run_program("predict", path, CHURCH)
    assert qna.open(path).labels == tuple(labels)


def test_the_engine_takes_a_network():
    model = network(MICRO)
    model.labels = [f"thing {i}" for i in range(5)]
    images = torch.randn(2, 3, 32, 24)
    served = qna.open(model)
    assert served.labels == tuple(model.labels)
    ready = images.permute(0, 2, 3, 1).contiguous().numpy()
    with torch.no_grad():
        assert difference(torch.from_numpy(served.logits(ready)), model(images)) < 1e-5
        model.head.fc.bias += 1  # what was opened stays as it was
    assert difference(torch.from_numpy(served.logits(ready)) + 1, model(images)) < 1e-5
    compiled = qna.open(torch.compile(model))  # not run: its weights are taken
    assert difference(torch.from_numpy(compiled.logits(images.permute(0, 2, 3, 1))), model(images)) < 1e-5
    with pytest.raises(qna.Error, match="weights must be a path, bytes or a network of qna, got torch.nn"):
        qna.open(torch.nn.Linear(2, 2))


def test_what_is_not_given_is_kept(tmp_path):
    model = qna.load(WEIGHTS)
    qna.save(model, tmp_path / "again.safetensors")
    before, after = (_safetensors.read(path)[0] for path in (WEIGHTS, tmp_path / "again.safetensors"))
    assert before.keys() == after.keys()
    for key in before:
        if key in ("name", "format"):
            assert before[key] == after[key]
        else:
            assert json.loads(before[key]) == json.loads(after[key])
    assert run_program("predict", tmp_path / "again.safetensors", CHURCH) == run_program("predict", WEIGHTS, CHURCH)


@pytest.mark.parametrize("config", [random_detector(1), {"widths": [8, 16], "channels": 1},
                                    {**MICRO, "in_channels": 5}, {**MICRO, "in_channels": 1}])
def test_other_kinds(config, tmp_path):
    path = tmp_path / "model.safetensors"
    model = network(config)
    qna.save(model, path)
    again = qna.load(path)
    assert type(again) is type(model) and again.config == model.config
    run_program("info", path)
    assert qna.open(path).kind == model.config.kind


def test_category_ids(tmp_path):
    model = network({**random_detector(1), "classes": 2})
    qna.save(model, tmp_path / "model.safetensors", labels=["a", "b"], category_ids=[7, 9])
    assert qna.load(tmp_path / "model.safetensors").category_ids == [7, 9]


@pytest.mark.parametrize("options, words", [
    ({"labels": ["a"]}, "labels must be one for each of the 5 classes, got 1"),
    ({"labels": [1, 2, 3, 4, 5]}, "labels must be a list of str"),
    ({"preprocess": {"size": 3}}, "preprocess has the unknown key 'size'"),
    ({"preprocess": {"mean": [0.5]}}, "preprocess.mean must be 3 numbers, one per channel, got [0.5]"),
    ({"dtype": torch.float64}, "dtype must be float32, float16 or bfloat16, got torch.float64"),
])
def test_wrong_information(options, words, tmp_path):
    with pytest.raises(qna.Error) as problem:
        qna.save(network(MICRO), tmp_path / "model.safetensors", **options)
    assert words in str(problem.value)
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_saved(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(TypeError, match="model must be a QnAViT, Detr or AutoEncoder, got Linear"):
        qna.save(torch.nn.Linear(2, 2), path)
    model = network(MICRO)
    model.head.fc.weight.data[0, 0] = float("nan")
    with pytest.raises(qna.Error, match="'head.fc.weight' must be finite in torch.float32, got nan"):
        qna.save(model, path)
    model.head.fc = torch.nn.Linear(32, 9)
    with pytest.raises(qna.Error, match=r"'head.fc.weight' must be \[5, 32\] as the configuration says, got \[9, 32\]"):
        qna.save(model, path)
    with pytest.raises(qna.Error, match="path must be in a folder that is there, got .*missing/model.safetensors$"):
        qna.save(network(MICRO), tmp_path / "missing" / "model.safetensors")
    assert os.listdir(tmp_path) == []


# ---- the authors' checkpoints ----


@pytest.mark.parametrize("name", ["qna_vit_micro", "qna_vit_micro_7x7"])
def test_flax(name, tmp_path):
    config, tensors = golden(name)
    model = qna.load(GOLDEN / f"{name}.flax.msgpack", config=config, channels_first=False)
    assert difference(model(tensors["x"]), tensors["y"]) < 1e-5
    path, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.safetensors"
    qna.save(model, path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    run_program("import", GOLDEN / f"{name}.flax.msgpack", "--config", tmp_path / "config.json", "-o", theirs)
    ours, expected = _safetensors.read(path)[1], _safetensors.read(theirs)[1]
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[key], expected[key]) for key in ours)


def test_flax_is_told_by_its_tensors():
    """A checkpoint of a named model, made from its own tensors."""
    name, config = "qna_vit_pico", configs.from_json(configs.entry("qna_vit_pico")["config"])
    config.classes = 3
    model = network(config.to_json())
    ours = model.state_dict()
    state = {"step": torch.tensor(3)}
    for theirs, key, convert in flax._Rows(model).rows:
        state[theirs] = back(ours[key], convert)
    assert flax.recognize(state, "made")[0] == name
    imported = flax.import_state(state, config, "made")
    assert all(torch.equal(imported[key], ours[key]) for key in ours)
    state["params.more"] = torch.zeros(2)
    with pytest.raises(qna.Error, match=r"left over: params.more \[2\]"):
        flax.import_state(state, config, "made")
    with pytest.raises(qna.Error, match="this is none of the named models; give its configuration"):
        flax.recognize(state, "made")


def back(tensor, convert):
    """The layout that `convert` turns into ours: found by converting numbered elements."""
    shape = {flax._transposed: lambda s: s[::-1], flax._convolution: lambda s: (s[2], s[3], s[1], s[0])}.get(convert)
    if shape is None:
        shape = (lambda s: (s[1], s[0])) if convert.__qualname__.startswith("_query_key_value") else (lambda s: s)
    places = torch.arange(tensor.numel()).reshape(shape(tuple(tensor.shape)))
    flat = torch.empty(tensor.numel())
    flat[convert(places).flatten()] = tensor.flatten()
    return flat.reshape(places.shape)


def test_wrong_flax(tmp_path):
    data = (GOLDEN / "qna_vit_micro.flax.msgpack").read_bytes()
    with pytest.raises(qna.Error, match="this is none of the named models"):
        qna.load(GOLDEN / "qna_vit_micro.flax.msgpack")
    config, _ = golden("qna_vit_micro")
    with pytest.raises(qna.Error, match="the checkpoint does not fit the model:\n  shape: "):
        qna.load(GOLDEN / "qna_vit_micro.flax.msgpack", config={**config, "base_dim": 8})
    path = tmp_path / "cut.msgpack"
    for size in (1, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(qna.Error, match="cut off after"):
            qna.load(path, config=config)
    path.write_bytes(b"\x81\xa1a" + b"\xc7\x02\x01" * 2000 + b"\0" * 4000)  # extensions inside each other
    with pytest.raises(qna.Error):
        qna.load(path, config=config)
    path.write_bytes(data + b"\0")
    with pytest.raises(qna.Error, match="1 bytes follow the msgpack data"):
        qna.load(path, config=config)


# ---- what is no weights file ----


def split(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(header, body) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    qna.save(network(MICRO), path)
    return split(path)


def changed(header, name=None, metadata=None, **entry):
    header = json.loads(json.dumps(header))
    if metadata is not None:
        header["__metadata__"] = metadata
    if name is not None:
        header[name] = {**header[name], **entry}
    return header


FC = "head.fc.bias"  # [5]


@pytest.mark.parametrize("make, words", [
    (lambda h, b: b"", "a safetensors file has at least 8 bytes, got 0"),
    (lambda h, b: b"Dear reader, this is a letter.\n" * 9, "is this a safetensors file?"),
    (lambda h, b: struct.pack("<Q", 1 << 60) + b"{", "the header's length must be from 1 to the 1 bytes that follow"),
    (lambda h, b: join(b"{no", b), "the header is not JSON"),
    (lambda h, b: join(b"\xff\xfe", b), "the header is not JSON"),
    (lambda h, b: join([1], b), "the header must be a JSON object, got list"),
    (lambda h, b: join(changed(h, metadata={"a": 1}), b), "__metadata__ must hold strings"),
    (lambda h, b: join(changed(h, metadata={}), b), "there is no model configuration in the file's metadata"),
    (lambda h, b: join(changed(h, metadata={"config": "{"}), b), "the metadata entry 'config' is not JSON"),
    (lambda h, b: join(changed(h, metadata={"config": "[]"}), b), "the whole must be a table"),
    (lambda h, b: join(changed(h, metadata={"config": '{"stages": [{}], "a": 1}'}), b), "unknown key 'a'"),
    (lambda h, b: join(changed(h, metadata={"format": "qna-2"}), b), "format must be 'qna-1', got 'qna-2'"),
    (lambda h, b: join(changed(h, metadata={**h["__metadata__"], "labels": "5"}), b), "labels must be a list of str"),
    (lambda h, b: join(changed(h, metadata={**h["__metadata__"], "labels": '["a"]'}), b), "of the 5 classes, got 1"),
    (lambda h, b: join(changed(h, metadata={**h["__metadata__"], "preprocess": "[1]"}), b), "must be an object"),
    (lambda h, b: join(changed(h, metadata={"kind": "poem", "config": "{}"}), b), "kind must be one of classifier"),
    (lambda h, b: join(changed(h, FC, dtype="F8"), b), "dtype must be one of F64, "),
    (lambda h, b: join(changed(h, FC, shape=[-1]), b), "shape must be a list of numbers from 0, got [-1]"),
    (lambda h, b: join(changed(h, FC, shape=[4]), b), "data_offsets must span 16 of the file's"),
    (lambda h, b: join(changed(h, FC, data_offsets=[0, 1 << 40]), b), "data_offsets must span 20 of the file's"),
    (lambda h, b: join(changed(h, FC, data_offsets=[0]), b), "data_offsets must be two numbers, got [0]"),
    (lambda h, b: join(changed(h, FC, more=1), b), "an entry must have dtype, shape and data_offsets"),
    (lambda h, b: join(h, b[:-1]), "data_offsets must span"),
    (lambda h, b: join({k: v for k, v in h.items() if k != FC}, b), "there is no tensor 'head.fc.bias'"),
    (lambda h, b: join({**h, "more": h[FC]}, b), "the model has no place for the tensor 'more'"),
    (lambda h, b: join(changed(h, FC, shape=[1, 5]), b), "'head.fc.bias' must be [5], got [1, 5]"),
    (lambda h, b: join(changed(h, FC, dtype="I32"), b), "'head.fc.bias' must be like torch.float32, got torch.int32"),
])
def test_broken_files(make, words, file, tmp_path):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(make(*file))
    with pytest.raises(qna.Error) as problem:
        qna.load(path)
    assert words in str(problem.value) and str(path) in str(problem.value)


def test_a_small_file_asks_for_no_large_network(file, tmp_path):
    header, body = file
    stages = [{"attention_blocks": 9, "qna_blocks": 9, "window": 4096}] * 3
    metadata = {"config": json.dumps({"base_dim": 65536, "stages": stages})}
    (tmp_path / "model.safetensors").write_bytes(join(changed(header, metadata=metadata), body))
    with pytest.raises(qna.Error):
        qna.load(tmp_path / "model.safetensors")


def test_tensors_of_training_are_passed_by(file, tmp_path):
    header, body = file
    header = {**header, "training/exp_avg/head.fc.bias": header[FC]}
    (tmp_path / "model.safetensors").write_bytes(join(header, body))
    qna.load(tmp_path / "model.safetensors")


def test_missing_file():
    with pytest.raises(FileNotFoundError):
        qna.load("missing.safetensors")
    for wrong in (3, b"bytes"):
        with pytest.raises(qna.Error, match=f"load: path must be a path, got {type(wrong).__name__}"):
            qna.load(wrong)
    with pytest.raises(qna.Error, match="config belongs to flax checkpoints"):
        qna.load(WEIGHTS, config="qna_vit_nano")

"""Models without PyTorch, beside the program and under misuse."""

import copy
import gc
import io
import json
import math
import os
import pathlib
import pickle
import resource
import shutil
import struct
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import qna
from qna import _program, engine

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = REPOSITORY / "weights" / "classifier.safetensors"
IMAGES = REPOSITORY / "tests" / "images"
IMAGE = IMAGES / "rgb8.png"

sys.path.append(str(REPOSITORY / "tests" / "support"))
import detr_shapes  # noqa: E402


def run_program(*arguments):
    done = subprocess.run([_program.program_path(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_safetensors(path):
    """The header, and what follows it."""
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + size]), data[8 + size:]


def write_safetensors(path, shapes, metadata):
    """A file with random numbers, as the program writes it."""
    random = np.random.default_rng(5)
    header, parts, end = {"__metadata__": metadata}, [], 0
    for name, shape in shapes.items():
        numbers = random.normal(0, 0.1, shape)
        # What a square root is taken of must not be negative.
        parts.append((abs(numbers) if name.endswith("running_var") else numbers).astype("<f4").tobytes())
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    return path


@pytest.fixture(scope="module")
def model():
    return qna.open(WEIGHTS)


@pytest.fixture(scope="module")
def detector_file(tmp_path_factory):
    config = {"backbone": "resnet18", "hidden": 16, "heads": 2, "encoder_blocks": 1,
              "decoder_blocks": 2, "feedforward": 24, "queries": 5, "classes": 3}
    metadata = {"format": "qna-1", "kind": "detector", "name": "small detector", "config": json.dumps(config),
                "preprocess": json.dumps({"resize": 64, "crop": [0, 0], "filter": "bilinear"}),
                "labels": json.dumps(["red", "green", "blue"]), "category_ids": "[1, 2, 3]"}
    path = tmp_path_factory.mktemp("detector") / "detector.safetensors"
    return write_safetensors(path, detr_shapes.detr(), metadata)


@pytest.fixture(scope="module")
def auto_encoder_file(tmp_path_factory):
    config = {"encoder": "conv_s2_in", "decoder": "bilinear_conv_in", "widths": [4, 8]}
    shapes = {"stem.weight": (4, 3), "stem.bias": (4,), "encoder.0.norm.weight": (8,),
              "encoder.0.norm.bias": (8,), "encoder.0.conv.weight": (8, 4, 3, 3),
              "decoder.0.norm.weight": (4,), "decoder.0.norm.bias": (4,),
              "decoder.0.conv.weight": (4, 8, 3, 3), "head.weight": (3, 4), "head.bias": (3,)}
    metadata = {"format": "qna-1", "kind": "auto-encoder", "config": json.dumps(config),
                "preprocess": json.dumps({"resize": 16, "crop": [16, 16]})}
    return write_safetensors(tmp_path_factory.mktemp("auto_encoder") / "small.safetensors", shapes, metadata)


def pixels():
    """uint8 [H, W, 3]"""
    return np.random.default_rng(1).integers(0, 256, (37, 45, 3), np.uint8)


# ---- answers ----


def test_describes_a_classifier(model):
    metadata = read_safetensors(WEIGHTS)[0]["__metadata__"]
    assert model.kind == "classifier"
    assert model.name == metadata["name"]
    assert list(model.labels) == json.loads(metadata["labels"])
    assert model.config == json.loads(metadata["config"])
    assert model.describe() == {"kind": "classifier", "name": "qna_vit_nano", "classes": 1000, "channels": 3,
                                "height": 128, "width": 128, "features": 320, "queries": 0}
    assert "qna_vit_nano" in repr(model) and "classifier" in repr(model)


def test_predicts_as_the_program(model):
    images = [IMAGES / name for name in ("rgb8.png", "grey8.png", "420.jpg", "orientation_6.jpg", "large.jpg")]
    lines = run_program("predict", WEIGHTS, *images, "--json").splitlines()
    for image, line in zip(images, map(json.loads, lines), strict=True):
        expected = [(p["label"], p["probability"], p["class"]) for p in line["predictions"]]
        assert [tuple(p) for p in model.predict(image)] == expected


def test_logits(model):
    images = np.random.default_rng(3).standard_normal((3, 40, 52, 3), np.float32)
    logits = model.logits(images)
    assert (logits.dtype, logits.shape) == (np.float32, (3, 1000))
    np.testing.assert_array_equal(model.logits(images[1:2]), logits[1:2])
    np.testing.assert_array_equal(model.logits(images[:, ::-1])[0], model.logits(images[:1, ::-1].copy())[0])
    for wrong, words in ((images.astype(np.float64), "got float64 [3, 40, 52, 3]"),
                         (images[0], "got float32 [40, 52, 3]"), (images[..., :1], "got float32 [3, 40, 52, 1]"),
                         (images[:0], "got float32 [0, 40, 52, 3]"), ([1.0], "got list")):
        with pytest.raises(qna.Error) as problem:
            model.logits(wrong)
        message = "images must be an array of float32 [batch, height, width, 3], no side 0, "
        assert str(problem.value) == message + words


def test_weights_kept_as_bfloat16(model):
    line = json.loads(run_program("predict", WEIGHTS, IMAGE, "--json", "--weight-type", "bfloat16"))
    expected = [(p["label"], p["probability"], p["class"]) for p in line["predictions"]]
    for weights in (WEIGHTS, WEIGHTS.read_bytes()):
        assert [tuple(p) for p in qna.open(weights, weight_type="bfloat16").predict(IMAGE)] == expected
    assert [tuple(p) for p in model.predict(IMAGE)] != expected
    assert qna.open(WEIGHTS, weight_type="float32").predict(IMAGE) == model.predict(IMAGE)


@pytest.mark.parametrize("weight_type", ["float16", "", None, 1])
def test_wrong_weight_type(weight_type):
    with pytest.raises(qna.Error, match=f"weight_type must be one of float32, bfloat16, got {weight_type!r}"):
        qna.open(WEIGHTS, weight_type=weight_type)


def test_features_are_the_programs(model, tmp_path):
    images = [IMAGES / "rgb8.png", IMAGES / "420.jpg"]
    run_program("features", WEIGHTS, *images, "-o", tmp_path / "features.safetensors")
    _, data = read_safetensors(tmp_path / "features.safetensors")
    expected = np.frombuffer(data, "<f4").reshape(2, -1)
    features = model.features(images)
    assert [f.dtype for f in features] == [np.float32] * 2
    assert [f.shape for f in features] == [(320,)] * 2
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-6)


def test_detects_as_the_program(detector_file, tmp_path):
    detector = qna.open(detector_file)
    assert (detector.kind, detector.name, detector.labels) == ("detector", "small detector", ("red", "green", "blue"))
    assert detector.describe()["queries"] == 5
    run_program("detect", detector_file, IMAGE, "--threshold", "0", "--json", tmp_path / "found.json")
    rows = json.loads((tmp_path / "found.json").read_text())
    boxes = detector.detect(IMAGE, threshold=0)
    assert len(boxes) == len(rows) == 5
    for box, row in zip(boxes, sorted(rows, key=lambda row: -row["score"])):
        left, top, width, height = row["bbox"]
        assert (box.left, box.top) == pytest.approx((left, top), abs=0.01)
        assert (box.right, box.bottom) == pytest.approx((left + width, top + height), abs=0.01)
        assert box.score == pytest.approx(row["score"], abs=1e-5)
        assert (box.index + 1, box.label) == (row["category_id"], detector.labels[box.index])
    middle = boxes[2].score
    assert detector.detect(IMAGE, threshold=middle) == boxes[:3]
    assert detector.detect(IMAGE, threshold=1) == []
    assert detector.detect([IMAGE, pixels()], threshold=0)[0] == boxes


def test_opens_bytes(model):
    data = WEIGHTS.read_bytes()
    expected = model.predict(IMAGE)
    for weights in (data, bytearray(data), memoryview(data), str(WEIGHTS)):
        assert qna.open(weights).predict(IMAGE) == expected


def test_the_classifier_that_comes_along(model, monkeypatch, tmp_path):
    own = _program.program_path().parent / "share" / "qna" / "classifier.safetensors"
    if own.exists():
        assert qna.open().predict(IMAGE) == model.predict(IMAGE)
    monkeypatch.setenv("QNA_PYTHON_BUILD", str(tmp_path))
    with pytest.raises(qna.Error, match="weights must be given.*classifier.safetensors"):
        qna.open()


def test_images_of_every_form(model):
    data = IMAGE.read_bytes()
    expected = model.predict(IMAGE)
    for image in (str(IMAGE), data, bytearray(data), memoryview(data)):
        assert model.predict(image) == expected
    assert model.predict([IMAGE, data]) == [expected, expected]
    assert model.predict((IMAGE,)) == [expected]
    assert model.predict([]) == []


@pytest.mark.parametrize("view", [
    lambda x: x[:, ::-1], lambda x: x[::-1], lambda x: x[5:30, 7:40], lambda x: x[::2, ::3], lambda x: x[..., ::-1],
    lambda x: x.transpose(1, 0, 2), lambda x: np.broadcast_to(x[:1], x.shape), lambda x: x[:1, :1], np.asfortranarray])
def test_arrays_however_they_lie_in_memory(model, view):
    array = view(pixels())
    assert model.predict(array) == model.predict(array.copy(order="C"))


def test_grey_arrays(model):
    grey = pixels()[:, :, 0]
    assert model.predict(grey) == model.predict(np.stack([grey] * 3, axis=2))


def test_an_array_that_must_not_be_written(model):
    array = pixels()
    expected = model.predict(array)
    array.flags.writeable = False
    assert model.predict(array) == expected


def test_pillow_images(model):
    pillow = pytest.importorskip("PIL.Image")
    assert model.predict(pillow.open(IMAGE)) == model.predict(IMAGE)
    for mode in ("L", "RGBA", "CMYK", "P", "1", "LA"):
        image = pillow.fromarray(pixels()).convert(mode)
        assert model.predict(image) == model.predict(np.asarray(image.convert("RGB")))
    for mode in ("I", "F", "I;16"):
        with pytest.raises(qna.Error, match=f"image must have 8 bits.*{mode}"):
            model.predict(pillow.new(mode, (4, 4)))
    with pytest.raises(qna.Error, match="image must have at least one pixel"):
        model.predict(pillow.new("RGB", (0, 4)))
    with pytest.raises(qna.Error, match="image must be a whole Pillow image"):
        model.predict(pillow.open(io.BytesIO((IMAGES / "large.jpg").read_bytes()[:800])))


def test_top(model):
    everything = model.predict(IMAGE, top=10 ** 30)
    assert len(everything) == 1000
    assert sum(p.probability for p in everything) == pytest.approx(1, abs=1e-6)
    assert model.predict(IMAGE) == everything[:5]
    assert model.predict(IMAGE, top=np.int64(2)) == everything[:2]


def test_a_file_without_names(tmp_path):
    header, data = read_safetensors(WEIGHTS)
    del header["__metadata__"]["labels"]
    text = json.dumps(header).encode()
    nameless = qna.open(struct.pack("<Q", len(text)) + text + data)
    assert nameless.labels == ()
    best = nameless.predict(IMAGE)[0]
    assert best.label == f"class {best.index}"


def test_any_number_of_threads_gives_the_same_bits(model):
    assert model.threads == 0
    expected = model.features(IMAGE)
    for threads in (1, 3, 0):
        model.threads = threads
        assert model.threads == threads
        np.testing.assert_array_equal(model.features(IMAGE), expected)


# ---- mistakes ----


@pytest.mark.parametrize("image, words", [
    (pixels().astype(np.float32), "image must be an array of uint8.*float32 \\[37, 45, 3\\]"),
    (pixels()[..., :2], "image must be.*\\[37, 45, 2\\]"),
    (pixels()[:0], "image must be.*no side 0.*\\[0, 45, 3\\]"),
    (pixels()[None], "image must be.*\\[1, 37, 45, 3\\]"),
    (np.array("text"), "image must be.*<U4 \\[\\]"),
    (None, "image must be a path.*NoneType"),
    (7, "image must be a path.*int"),
    ({"a": 1}, "image must be a path.*dict"),
    ("nowhere.jpg", "image must be.*nowhere.jpg.*No such file"),
    (pathlib.Path("/"), "image must be.*folder"),
    ("", "image must be"),
    ("a\0b", "image must be a path without null characters.*'a.x00b'"),
    ("\ud800", "image must be a path"),
    (b"", "image must be.*empty"),
    (b"plain text", "image must be a JPEG, PNG or WebP picture.*bytes 70 6c"),
    (__file__, "image must be a JPEG, PNG or WebP picture.*test_engine.py"),
    ([str(IMAGE), 7], "image 1 of 2: image must be a path.*int"),
    ([[str(IMAGE)]], "image 0 of 1.*list"),
])
def test_wrong_images(model, image, words):
    with pytest.raises(qna.Error, match=words):
        model.predict(image)
    with pytest.raises(qna.Error, match=words):
        model.features(image)


@pytest.mark.parametrize("weights, words", [
    (__file__, "weights must be a safetensors file.*test_engine.py"),
    ("nowhere.safetensors", "weights must be.*nowhere.safetensors.*No such file"),
    (REPOSITORY, "weights must be.*not a regular file"),
    (IMAGE, "weights must be.*rgb8.png"),
    (b"", "weights must be.*got 0"),
    (b"plain text", "weights must be"),
    ("a\0b", "weights must be a path without null characters"),
    (7, "weights must be a path, bytes or a network of qna, got int"),
    (np.zeros(3), "weights must be a path, bytes or a network of qna, got numpy.ndarray"),
])
def test_wrong_weights(weights, words):
    with pytest.raises(qna.Error, match=words):
        qna.open(weights)


def test_a_weights_file_that_is_cut_off():
    with pytest.raises(qna.Error, match="weights must be"):
        qna.open(WEIGHTS.read_bytes()[:-1])


@pytest.mark.parametrize("top, words", [
    (0, "top must be at least 1, got 0"), (-1, "got -1"), (1.5, "whole number, got 1.5"),
    ("5", "whole number, got '5'")])
def test_wrong_top(model, top, words):
    with pytest.raises(qna.Error, match=words):
        model.predict(IMAGE, top=top)


@pytest.mark.parametrize("threshold, words", [
    (-0.1, "threshold must be from 0 to 1, got -0.1"), (2, "got 2"), (math.nan, "got nan"),
    ("much", "threshold must be a number, got 'much'"), (None, "threshold must be a number, got None")])
def test_wrong_threshold(detector_file, threshold, words):
    with pytest.raises(qna.Error, match=words):
        qna.open(detector_file).detect(IMAGE, threshold=threshold)


@pytest.mark.parametrize("threads", [-1, 1025, 2 ** 32 + 1, 1.5, "2", None])
def test_wrong_threads(model, threads):
    with pytest.raises(qna.Error, match=f"threads must be.*{threads}"):
        model.threads = threads
    assert model.threads == 0


def test_what_a_kind_of_network_cannot_do(model, detector_file, auto_encoder_file):
    detector, auto_encoder = qna.open(detector_file), qna.open(auto_encoder_file)
    assert (auto_encoder.kind, auto_encoder.labels) == ("auto-encoder", ())
    for call, words in ((model.detect, "holds a classifier"), (detector.predict, "holds a detector"),
                        (detector.features, "holds a detector"), (auto_encoder.predict, "holds an auto-encoder"),
                        (auto_encoder.features, "holds an auto-encoder"),
                        (auto_encoder.detect, "holds an auto-encoder")):
        with pytest.raises(qna.Error, match=words):
            call(IMAGE)


def test_the_error_is_a_value_error():
    assert issubclass(qna.Error, ValueError)
    assert qna.Error is engine.Error
    assert qna.Error.__module__ == "qna"


# ---- life and death ----


def test_a_closed_model():
    with qna.open(WEIGHTS) as model:
        model.predict(IMAGE)
    model.close()
    for call in (model.predict, model.features, model.detect):
        with pytest.raises(qna.Error, match="closed"):
            call(IMAGE)
    with pytest.raises(qna.Error, match="closed"):
        model.threads = 1
    assert (model.kind, len(model.labels)) == ("classifier", 1000)
    assert "closed" in repr(model)


def test_goes_with_the_last_reference():
    model = qna.open(WEIGHTS)
    handle = weakref.ref(model._handle)
    model.predict(IMAGE)
    del model
    gc.collect()
    assert handle() is None


def test_gives_its_memory_back():
    data = WEIGHTS.read_bytes()
    for round in range(40):
        if round == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        qna.open(data).predict(IMAGE, top=1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < 60, f"{grown:.0f} MB more after 30 models"


def test_many_threads_on_one_model(model):
    names = ("rgb8.png", "grey8.png", "420.jpg")
    expected = {name: model.predict(IMAGES / name) for name in names}
    problems = []

    def ask(first):
        for i in range(9):
            name = names[(first + i) % 3]
            if model.predict(IMAGES / name) != expected[name]:
                problems.append(f"another answer for {name}")
            try:
                model.predict(f"nowhere {first}.jpg")
            except qna.Error as problem:
                if f"nowhere {first}.jpg" not in str(problem):
                    problems.append(f"the error of another thread: {problem}")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_closing_while_others_use_it():
    for _ in range(5):
        model = qna.open(WEIGHTS)
        begun, ends = threading.Barrier(4), []

        def ask():
            begun.wait()
            try:
                while True:
                    model.predict(IMAGE)
            except qna.Error as problem:
                ends.append(str(problem))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait()
        model.predict(IMAGE)
        model.close()
        for thread in threads:
            thread.join()
        assert len(ends) == 3 and all("closed" in end for end in ends)


def test_after_a_fork():
    code = f"""
import os, qna
model = qna.open({str(WEIGHTS)!r})
model.threads = 2
model.predict({str(IMAGE)!r})
child = os.fork()
if child == 0:
    try:
        model.predict({str(IMAGE)!r})
    except qna.Error as problem:
        assert "after a fork" in str(problem)
        model.close()
        qna.open({str(WEIGHTS)!r}).predict({str(IMAGE)!r})
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
model.predict({str(IMAGE)!r})
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("way", [pickle.dumps, copy.copy, copy.deepcopy])
def test_cannot_be_copied(model, way):
    with pytest.raises(TypeError, match="open its file again"):
        way(model)


# ---- without PyTorch ----


def test_does_not_import_torch():
    code = f"""
import sys
sys.modules["torch"] = None  # as if it were not installed
import qna
model = qna.open({str(WEIGHTS)!r})
assert model.predict({str(IMAGE)!r})[0].probability > 0
assert model.features({str(IMAGE)!r}).shape == (320,)
assert qna.__version__
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_the_library(tmp_path):
    code = """
import qna
try:
    qna.open("x")
except ImportError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "QNA_PYTHON_BUILD": str(tmp_path)},
                          capture_output=True, text=True, timeout=60)
    assert str(tmp_path / "libqna.so") in done.stdout, done.stderr


@pytest.mark.skipif("QNA_PYTHON_BUILD" not in os.environ, reason="a wheel's library has others beside it")
def test_the_library_on_a_path_with_spaces(tmp_path):
    folder = tmp_path / "ein Ordner für qna"
    folder.mkdir()
    shutil.copy(engine._library_path(), folder / "libqna.so")
    shutil.copy(WEIGHTS, folder / "größe.safetensors")
    code = f"import qna; qna.open({str(folder / 'größe.safetensors')!r}).predict({str(IMAGE)!r})"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "QNA_PYTHON_BUILD": str(folder)}, check=True,
                   timeout=60)

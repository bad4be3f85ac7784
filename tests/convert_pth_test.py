"""tools/convert_pth.py: files with DETR's and torchvision's names, and what the program makes of them.

Run by CTest with the path of the program and the folder of the sources. Needs a Python with torch: this
one, or that of build/venv or build/peers; without one the test is reported as skipped (status 77).
"""

import argparse
import contextlib
import functools
import importlib.util
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import detr_shapes
import program
from program import floats, read_safetensors

ROOT = ""


def use_a_python_with_torch():
    """Goes on in another Python if this one has no torch."""
    if importlib.util.find_spec("torch"):
        return
    for name in ("venv", "peers"):
        python = os.path.join(ROOT, "build", name, "bin/python")
        has_torch = [python, "-c", "import torch"]
        if os.path.exists(python) and subprocess.run(has_torch, capture_output=True).returncode == 0:
            os.execv(python, [python, *sys.argv])
    print("skipped: no Python with torch, neither this one nor build/venv nor build/peers")
    sys.exit(77)


@functools.cache
def tool():
    path = os.path.join(ROOT, "tools/convert_pth.py")
    spec = importlib.util.spec_from_file_location("convert_pth", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def filled(shapes):
    """Random numbers of these shapes."""
    import torch
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def detr(**options):
    return filled(detr_shapes.detr(**options))


def resnet18():
    return filled(detr_shapes.resnet18())


def without(state, part):
    return {name: tensor for name, tensor in state.items() if part not in name}


class Converted(unittest.TestCase):
    def setUp(self):
        import torch
        torch.manual_seed(7)
        self.torch = torch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = os.path.join(folder.name, "source.pth")
        self.out = os.path.join(folder.name, "out.safetensors")
        self.folder = folder.name

    def convert(self, content, *options):
        self.torch.save(content, self.source)
        return self.run_tool(self.source, "-o", self.out, *options)

    def run_tool(self, *words):
        """As from a shell, but without the seconds in which torch is imported."""
        out, errors, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                tool().main(words)
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 1
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
        return subprocess.CompletedProcess(words, status, out.getvalue(), errors.getvalue())

    def info(self):
        return program.run("info", self.out, "--size", "64x96")

    def expect_refusal(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(os.path.exists(self.out))


class Detector(Converted):
    def test_the_program_reads_it(self):
        state = detr()
        state["backbone.0.body.bn1.num_batches_tracked"] = self.torch.tensor(3)
        done = self.convert({"model": state}, "--heads", "2", "--longest", "0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("3 classes", done.stdout)
        metadata, tensors = read_safetensors(self.out)
        del state["backbone.0.body.bn1.num_batches_tracked"]
        self.assertEqual(tensors.keys(), state.keys())
        name = "transformer.encoder.layers.0.self_attn.in_proj_weight"
        self.assertEqual(list(floats(tensors[name])), state[name].flatten().tolist())
        self.assertEqual(json.loads(metadata["labels"]), ["class 0", "class 1", "class 2"])
        info = self.info()
        self.assertEqual((info.returncode, info.stderr), (0, ""))
        for words in ("detr_r18", "3 classes", "transformer.decoder.layers.1", "class 0 ... class 2"):
            self.assertIn(words, info.stdout)

    def test_what_shapes_and_options_tell(self):
        class_names = os.path.join(self.folder, "labels.txt")
        with open(class_names, "w") as file:
            file.write("cat\ndog\n")
        state = detr(classes=2, encoder=2)
        state |= filled(detr_shapes.norm("transformer.encoder.norm", 16))
        state |= filled({f"backbone.1.{axis}_embed.weight": (50, 8) for axis in ("row", "col")})
        options = argparse.Namespace(nheads=4, dilation=False)
        done = self.convert({"model": state, "args": options, "epoch": 3}, "--labels", class_names)
        self.assertEqual(done.returncode, 0, done.stderr)
        metadata = read_safetensors(self.out)[0]
        self.assertEqual(json.loads(metadata["config"]), {
            "backbone": "resnet18", "dilation": False, "hidden": 16, "heads": 4, "encoder_blocks": 2,
            "decoder_blocks": 2, "feedforward": 24, "queries": 5, "classes": 2, "pre_norm": True,
            "positions": "learned"})
        self.assertEqual(json.loads(metadata["labels"]), ["cat", "dog"])
        self.assertEqual(json.loads(metadata["preprocess"])["longest"], 1333)

    def test_coco(self):
        done = self.convert({"model": detr(classes=91)})
        self.assertEqual(done.returncode, 0, done.stderr)
        metadata = read_safetensors(self.out)[0]
        labels = json.loads(metadata["labels"])
        self.assertEqual((len(labels), labels.count("N/A")), (91, 11))
        self.assertEqual([labels[i] for i in (1, 17, 44, 70, 90)],
                         ["person", "cat", "bottle", "toilet", "toothbrush"])
        self.assertEqual(json.loads(metadata["category_ids"]), list(range(91)))

    def test_dc5_is_asked_for(self):
        self.source = os.path.join(self.folder, "detr-r50-dc5.pth")
        self.expect_refusal(self.convert({"model": detr()}), "detr-r50-dc5.pth", "--dilation")
        done = self.convert({"model": detr(), "args": {"dilation": False, "nheads": 4}})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(read_safetensors(self.out)[0]["config"])["heads"], 4)

    def test_the_source_stays(self):
        self.out = self.source
        refused = self.convert({"model": detr()})
        self.assertEqual(refused.returncode, 1)
        self.assertIn("--out", refused.stderr)

    def test_mistakes(self):
        state = detr()
        del state["query_embed.weight"]
        self.expect_refusal(self.convert({"model": state}), "source.pth", "query_embed.weight")
        self.expect_refusal(self.convert({"model": detr() | filled({"mask_head.lay1.bias": [3]})}),
                            "mask_head.lay1.bias")
        self.expect_refusal(self.convert({"model": detr()}, "--labels", "none.txt"), "none.txt")
        state = without(detr(), ".layer3.1.")
        self.expect_refusal(self.convert({"model": state}), "(2, 2, 1, 2) blocks")
        self.expect_refusal(self.convert({"model": detr()}, "--heads", "0"), "--heads")


class Backbone(Converted):
    def test_resnet(self):
        state = resnet18() | filled(detr_shapes.linear("fc", 512, 4))
        state["bn1.num_batches_tracked"] = self.torch.tensor(3)
        done = self.convert(state)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("ResNet-18", done.stdout)
        metadata, tensors = read_safetensors(self.out)
        self.assertNotIn("bn1.num_batches_tracked", tensors)
        self.assertIn("fc.weight", tensors)
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(list(floats(tensors["bn1.bias"])), state["bn1.bias"].tolist())

    def test_other_depths_and_options(self):
        self.expect_refusal(self.convert(without(resnet18(), "layer4.1")), "depth 18, 50 or 101", "(2, 2, 2, 1)")
        self.expect_refusal(self.convert(resnet18(), "--dilation"), "--dilation", "ResNet")


def lite0(timm=False):
    """Names and shapes of EfficientNet-Lite0 up to its sixth stage; timm's names, or EfficientNet-PyTorch's."""
    if timm:
        shapes = {"conv_stem.weight": (32, 3, 3, 3)} | detr_shapes.batch_norm("bn1", 32)
    else:
        shapes = {"_conv_stem.weight": (32, 3, 3, 3)} | detr_shapes.batch_norm("_bn0", 32)
    features, number = 32, 0
    stages = ((1, 16, 1, 3), (2, 24, 6, 3), (2, 40, 6, 5), (3, 80, 6, 3), (3, 112, 6, 5), (1, 192, 6, 5))
    for stage, (blocks, outputs, expansion, kernel) in enumerate(stages):
        for block in range(blocks):
            hidden = features * expansion
            convolutions = [("expand", (hidden, features, 1, 1))] if expansion > 1 else []
            convolutions += [("depthwise", (hidden, 1, kernel, kernel)), ("project", (outputs, hidden, 1, 1))]
            for i, (name, shape) in enumerate(convolutions):
                prefix = f"blocks.{stage}.{block}." if timm else f"_blocks.{number}._"
                conv, norm = (f"conv{i}", f"bn{i + 1}") if timm else (f"{name}_conv", f"bn{i}")
                shapes[f"{prefix}{conv}.weight"] = shape
                shapes |= detr_shapes.batch_norm(prefix + norm, shape[0])
            features, number = outputs, number + 1
    state = filled(shapes)
    for name, tensor in state.items():
        if name.endswith("running_var"):
            tensor.abs_().add_(0.5)
        elif tensor.dim() > 1:  # so that numbers stay near 1 from block to block
            tensor.mul_((2 / tensor[0].numel()) ** 0.5)
    return state


class Stem(Converted):
    def answer(self, state, x):
        """What the network says, by its definition."""
        F = self.torch.nn.functional
        tensors = iter(state.values())

        def convolved(x, stride=1, groups=1, relu=True):
            weight, *norm = (next(tensors) for _ in range(5))
            rest = weight.shape[2] - stride
            scale, shift, mean, variance = norm
            x = F.conv2d(F.pad(x, (rest // 2, rest - rest // 2) * 2), weight, stride=stride, groups=groups)
            x = F.batch_norm(x, mean, variance, scale, shift, eps=1e-3)
            return F.relu6(x) if relu else x

        x = convolved(x, stride=2)
        for blocks, _, expansion, stride in ((1, 16, 1, 1), (2, 24, 6, 2), (2, 40, 6, 2), (3, 80, 6, 2), (3, 112, 6, 1)):
            for block in range(blocks):
                wide = convolved(x) if expansion > 1 else x
                mixed = convolved(wide, stride if block == 0 else 1, groups=wide.shape[1])
                y = convolved(mixed, relu=False)
                x = x + y if block > 0 else y
        return x

    def test_it_says_what_efficientnet_says(self):
        # Of the size that pictures are resized to; the middle is what the network sees.
        side, seen, first = 256, 224, 16
        pixels = self.torch.randint(256, (side, side, 3), dtype=self.torch.uint8)
        picture = program.write_bytes(os.path.join(self.folder, "picture.png"),
                                      program.png(pixels.flatten().tolist(), side, side))
        seen = slice(first, first + seen)
        x = (pixels[seen, seen].permute(2, 0, 1)[None].double() / 255 - 0.5) / 0.5
        features = os.path.join(self.folder, "features.safetensors")
        for timm in (False, True):
            state = lite0(timm)
            done = self.convert(state)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("stem", done.stdout)
            done = program.run("features", self.out, picture, "--map", "-o", features)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            got = self.torch.tensor(floats(read_safetensors(features)[1]["features"])).view(14, 14, 112)
            expected = self.answer({name: tensor.double() for name, tensor in state.items()}, x)[0].permute(1, 2, 0)
            self.torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)

    def test_mistakes(self):
        state = lite0()
        state["_blocks.3._expand_conv.weight"] = self.torch.zeros(144, 25, 1, 1)
        self.expect_refusal(self.convert(state), "source.pth", "_blocks.3._expand_conv.weight", "144, 24, 1, 1")
        self.expect_refusal(self.convert(dict(list(lite0().items())[:40])), "EfficientNet-Lite0 has them")
        self.expect_refusal(self.convert(lite0(), "--heads", "2"), "--heads", "EfficientNet")


class Neither(Converted):
    def test_other_weights(self):
        self.expect_refusal(self.convert(filled({"a.weight": [3]})), "source.pth", "neither", "a.weight")
        self.expect_refusal(self.convert([1, 2]), "dictionary of tensors")
        self.expect_refusal(self.convert({"model": {"epoch": 3}}), "dictionary of tensors")

    def test_other_files(self):
        self.expect_refusal(self.run_tool("none.pth", "-o", self.out), "none.pth")
        with open(self.source, "w") as file:
            file.write("no weights")
        self.expect_refusal(self.run_tool(self.source, "-o", self.out), "source.pth")

    def test_code_is_not_run(self):
        done = self.convert({"model": detr(), "args": Harmful(self.folder)})
        self.expect_refusal(done, "source.pth")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "harm")))

    def test_out_that_cannot_be_written(self):
        self.torch.save(resnet18(), self.source)
        done = self.run_tool(self.source, "-o", os.path.join(self.folder, "none/out.safetensors"))
        self.expect_refusal(done, "--out", "none/out.safetensors")

    def test_from_a_shell(self):
        def run(*words):
            return program.run(os.path.join(ROOT, "tools/convert_pth.py"), *words,
                               program=sys.executable)

        done = run("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("examples:", done.stdout)
        self.expect_refusal(run("none.pth", "-o", self.out), "convert_pth: none.pth")


class Harmful:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (os.path.join(self.folder, "harm"),)


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv[2])
    use_a_python_with_torch()
    program.take_arguments()
    unittest.main()

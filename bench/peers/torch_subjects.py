"""The subjects that PyTorch runs."""

import os
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(ROOT / "build/peers/cache/inductor"))

import torch
import torch._dynamo
import torch._inductor.compile_fx
import torch.nn.functional as F

import focal
import qna_vit
from macs import multiply_adds


def use_threads(count):
    torch.set_num_threads(count)
    torch.set_num_interop_threads(1)


class Inference:
    """forward(images) without gradients."""

    def __init__(self, forward, channels, layout="NHWC"):
        self.forward, self.channels, self.layout = forward, channels, layout
        self.version = f"torch {torch.__version__}"

    def set_images(self, images):
        images = torch.from_numpy(images)
        self.images = images if self.layout == "NHWC" else images.permute(0, 3, 1, 2)

    @torch.inference_mode()
    def run(self):
        return self.forward(self.images)

    def logits(self, images):
        self.set_images(images)
        return self.run().numpy()


class Training:
    """One step: forward, backward, AdamW."""

    def __init__(self, model, config, compiled):
        self.model, self.channels, self.classes = model, config["in_channels"], config["classes"]
        self.forward = torch.compile(model) if compiled else model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
        self.version = f"torch {torch.__version__}"

    def set_images(self, images):
        self.images = torch.from_numpy(images)
        self.labels = torch.arange(len(images)) % self.classes
        self.model.train()

    def run(self):
        self.optimizer.zero_grad()
        F.cross_entropy(self.forward(self.images), self.labels).backward()
        self.optimizer.step()

    @torch.no_grad()
    def logits(self, images):
        return self.model.eval()(torch.from_numpy(images)).numpy()


def eager(arguments, _):
    use_threads(arguments.threads)
    model, config = qna_vit.load(arguments.weights)
    return Inference(model.for_inference(), config["in_channels"])


def compiled(arguments, _):
    use_threads(arguments.threads)
    model, config = qna_vit.load(arguments.weights)
    forward = torch.compile(model.for_inference(), options={"freezing": True})
    return Inference(forward, config["in_channels"])


def eager_train(arguments, _):
    use_threads(arguments.threads)
    return Training(*qna_vit.load(arguments.weights), compiled=False)


def compiled_train(arguments, _):
    use_threads(arguments.threads)
    return Training(*qna_vit.load(arguments.weights), compiled=True)


def load_by_package(path):
    """The network in a safetensors file as the Python package has it, from the sources and the release build."""
    os.environ.setdefault("QNA_PYTHON_BUILD", str(ROOT / "build/release/obj/python/package"))
    sys.path.insert(0, str(ROOT / "python"))
    import qna
    model = qna.load(path)
    model.channels_first = False
    return model, model.config.to_json()


def python(arguments, _):
    use_threads(arguments.threads)
    model, config = load_by_package(arguments.weights)
    return Inference(model.eval(), config["in_channels"])


def python_compiled(arguments, _):
    use_threads(arguments.threads)
    model, config = load_by_package(arguments.weights)
    return Inference(torch.compile(model.eval()), config["in_channels"])


class Engine:
    """The engine, by the package: what `qna.open` gives."""

    def __init__(self, weights, threads, channels):
        import qna
        self.model, self.channels, self.version = qna.open(weights), channels, "qna.open"
        self.model.threads = threads

    def set_images(self, images):
        self.images = images

    def run(self):
        return self.model.logits(self.images)

    def logits(self, images):
        return self.model.logits(images)


def python_engine(arguments, _):
    model, config = load_by_package(arguments.weights)
    return Engine(model, arguments.threads, config["in_channels"])


def python_train(arguments, _):
    use_threads(arguments.threads)
    return Training(*load_by_package(arguments.weights), compiled=False)


def python_compiled_train(arguments, _):
    use_threads(arguments.threads)
    return Training(*load_by_package(arguments.weights), compiled=True)


def import_timm():
    import torchvision_import  # before torchvision, which timm imports
    import timm
    return timm


def make_rival(name, image):
    """A network of 1000 classes with random weights, for inference. All but Focal-Tiny are timm's."""
    if name == "focal_tiny":
        return focal.focal_tiny(image)
    timm = import_timm()
    sized = name in ("deit_small_patch16_224", "swin_tiny_patch4_window7_224", "nest_tiny")
    size = {"img_size": image} if sized else {}
    model = timm.create_model(name, pretrained=False, num_classes=1000, **size)
    # Branches that were only for training become one convolution.
    return timm.utils.reparameterize_model(model, inplace=True).eval().requires_grad_(False)


def rival(arguments, name):
    use_threads(arguments.threads)
    model = make_rival(name, arguments.image).to(memory_format=torch.channels_last)
    subject = Inference(model, 3, "NCHW")
    subject.macs = multiply_adds(model, arguments.image)
    if name != "focal_tiny":
        subject.version = f"timm {version('timm')}, {subject.version}"
    return subject


SUBJECTS = {
    "eager": eager,
    "compiled": compiled,
    "eager-train": eager_train,
    "compiled-train": compiled_train,
    "python": python,
    "python-compiled": python_compiled,
    "python-engine": python_engine,
    "python-train": python_train,
    "python-compiled-train": python_compiled_train,
    "rival": rival,
}

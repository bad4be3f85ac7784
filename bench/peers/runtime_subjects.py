"""The subjects that run without PyTorch. It only translates the network, in a process of its own."""

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
from safetensors import safe_open

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / "build/peers/cache"


def translated(format, target, arguments):
    """The path of the network in the format of the runtime, from the cache if it is there."""
    suffix = {"onnx": ".onnx", "openvino": ".xml"}[format]
    key = hashlib.sha256()
    for part in (format, target, arguments.batch, arguments.image, version("torch"), version("timm"),
                 version("onnxscript"), version("openvino")):
        key.update(f"{part}\n".encode())
    sources = [HERE / f"{name}.py" for name in ("qna_vit", "focal", "macs", "torch_subjects", "export")]
    if arguments.weights:
        sources.append(Path(arguments.weights))
    for path in sources:
        key.update(hashlib.sha256(path.read_bytes()).digest())
    path = CACHE / key.hexdigest()[:24] / f"network{suffix}"
    if path.exists():
        return path

    # Made beside its place and then moved, so that what is there is whole.
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        command = [sys.executable, str(HERE / "export.py"), format, target, str(arguments.batch),
                   str(arguments.image), str(made / path.name)]
        done = subprocess.run(command, stdout=2, stderr=subprocess.PIPE, text=True)
        sys.stderr.write(done.stderr)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise RuntimeError(f"the translation to {format} failed: {lines[-1]}")
        try:
            os.rename(made, path.parent)
        except OSError:
            if not path.exists():
                raise
    return path


def input_channels(weights):
    with safe_open(weights, "np") as file:
        return file.get_slice("stem.conv.weight").get_shape()[1]


class OnnxRuntime:
    def __init__(self, path, threads, channels):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        # Between two runs other processes have their turn.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self.session = onnxruntime.InferenceSession(str(path), options,
                                                    providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0].name
        self.channels = channels
        self.version = f"onnxruntime {onnxruntime.__version__}"

    def set_images(self, images):
        self.feed = {self.input: images}

    def run(self):
        return self.session.run(None, self.feed)

    def logits(self, images):
        self.set_images(images)
        return self.run()[0]


class OpenVino:
    def __init__(self, path, threads, channels, layout="NHWC"):
        core = openvino.Core()
        network = core.compile_model(str(path), "CPU", {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "ENABLE_HYPER_THREADING": True,  # otherwise fewer threads than asked for
        })
        self.request = network.create_infer_request()
        self.channels, self.layout = channels, layout
        self.version = f"openvino {openvino.__version__.split('-')[0]}"

    def set_images(self, images):
        if self.layout == "NCHW":
            images = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        self.images = images
        self.request.set_input_tensor(openvino.Tensor(images, shared_memory=True))

    def run(self):
        self.request.infer()

    def logits(self, images):
        self.set_images(images)
        self.run()
        return self.request.get_output_tensor().data.copy()


def onnx_runtime(arguments, _):
    path = translated("onnx", arguments.weights, arguments)
    return OnnxRuntime(path, arguments.threads, input_channels(arguments.weights))


def openvino_qna(arguments, _):
    path = translated("openvino", arguments.weights, arguments)
    return OpenVino(path, arguments.threads, input_channels(arguments.weights))


def openvino_rival(arguments, name):
    path = translated("openvino", f"rival:{name}", arguments)
    subject = OpenVino(path, arguments.threads, 3, "NCHW")
    subject.macs = int(path.with_suffix(".macs").read_text())
    if name != "focal_tiny":
        subject.version = f"timm {version('timm')}, {subject.version}"
    return subject


SUBJECTS = {
    "onnxruntime": onnx_runtime,
    "openvino": openvino_qna,
    "rival-openvino": openvino_rival,
}

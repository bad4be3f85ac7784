"""One subject of the model benchmark in a process of its own. README.md describes the protocol.

  worker.py --subject eager --batch 8 --threads 2 --image 224 --weights model.safetensors
"""

import argparse
import ctypes
import gc
import os

import protocol

TOLERANCE = 1e-3  # of the largest logit
RIVALS = ("resnet50", "deit_small_patch16_224", "swin_tiny_patch4_window7_224", "nest_tiny",
          "convnext_tiny", "focal_tiny", "mobilenetv4_conv_medium", "efficientvit_b1", "fastvit_sa12",
          "convnext_nano", "tiny_vit_11m_224")
TORCH_SUBJECTS = tuple(name + step for name in ("eager", "compiled", "python", "python-compiled")
                       for step in ("", "-train"))
QNA_SUBJECTS = (*TORCH_SUBJECTS, "python-engine", "onnxruntime", "openvino")
DETR_SUBJECTS = ("detr-detect", "detr-train")


def parse_arguments():
    parser = protocol.Parser(description=__doc__,
                             formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subject", required=True,
                        help=f"{', '.join(QNA_SUBJECTS + DETR_SUBJECTS)}, rival:NAME, "
                             "rival-openvino:NAME")
    parser.add_argument("--batch", type=protocol.positive, required=True, help="images per run")
    parser.add_argument("--threads", type=protocol.positive, required=True)
    parser.add_argument("--image", type=protocol.positive, required=True, help="side of the images")
    parser.add_argument("--weights", help="network as safetensors, its configuration in the metadata")
    parser.add_argument("--check", help="safetensors file with images x and the logits y to expect")
    arguments = parser.parse_args()

    kind, _, name = arguments.subject.partition(":")
    if kind in ("rival", "rival-openvino"):
        if name not in RIVALS:
            raise ValueError(f"unknown rival {name!r}; there are {', '.join(RIVALS)}")
        if arguments.weights or arguments.check:
            raise ValueError(f"{arguments.subject} has random weights: no --weights, no --check")
    elif arguments.subject not in QNA_SUBJECTS + DETR_SUBJECTS:
        raise ValueError(f"unknown subject {arguments.subject!r}")
    elif not arguments.weights:
        raise ValueError(f"{arguments.subject} needs --weights")
    for path in (arguments.weights, arguments.check):
        if path and not os.path.isfile(path):
            raise ValueError(f"there is no file {path}")
    return arguments


def import_subject(kind):
    """The function that makes the subject. Libraries read their thread counts when imported."""
    if kind in (*TORCH_SUBJECTS, "python-engine", "rival"):
        import torch_subjects
        if kind == "rival":
            torch_subjects.import_timm()
        return torch_subjects.SUBJECTS[kind]
    if kind in DETR_SUBJECTS:
        import detr_subjects
        return detr_subjects.SUBJECTS[kind]
    import runtime_subjects
    return runtime_subjects.SUBJECTS[kind]


def status_bytes(key):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def peak_bytes(run):
    """The highest resident memory during run(), with what was freed before given back first."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        pass  # not glibc
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # then the peak since the start of the process
    run()
    return status_bytes("VmHWM")


def read_check(path, image):
    from safetensors.numpy import load_file
    tensors = load_file(path)
    if not {"x", "y"} <= tensors.keys():
        raise ValueError(f"{path} must hold x and y")
    x, y = tensors["x"], tensors["y"]
    if x.ndim != 4 or x.shape[1:3] != (image, image) or len(x) == 0 or len(x) != len(y):
        raise ValueError(f"{path}: x {list(x.shape)}, y {list(y.shape)} do not fit --image {image}")
    return x, y


def difference(subject, batch, x, y):
    """The largest difference from y, as a part of the largest |y|."""
    import numpy as np
    answers = []
    for start in range(0, len(x), batch):
        part = x[start:start + batch]
        answers.append(subject.logits(np.resize(part, (batch, *x.shape[1:])))[:len(part)])
    answer = np.concatenate(answers)
    if answer.shape != y.shape:
        raise ValueError(f"the logits are {list(answer.shape)}, expected {list(y.shape)}")
    return float(np.abs(answer - y).max() / np.abs(y).max())


def start():
    arguments = parse_arguments()
    protocol.use_threads(arguments.threads)
    kind, _, name = arguments.subject.partition(":")
    make = import_subject(kind)
    import numpy as np
    base = status_bytes("VmRSS")

    subject = make(arguments, name)
    found = None
    if arguments.check:
        found = difference(subject, arguments.batch, *read_check(arguments.check, arguments.image))
        if not found <= TOLERANCE:
            raise RuntimeError(f"{arguments.subject}: the logits differ by {found:.3g} of the largest; "
                               f"at most {TOLERANCE} is allowed")
    shape = (arguments.batch, arguments.image, arguments.image, subject.channels)
    subject.set_images(np.random.default_rng(0).standard_normal(shape, dtype=np.float32))
    for _ in range(3):
        subject.run()
    peak = peak_bytes(lambda: (subject.run(), subject.run()))
    ready = {"ready": True, "subject": arguments.subject, "version": subject.version,
             "max_difference": found, "peak_bytes": max(peak - base, 0), "base_bytes": base,
             "macs": getattr(subject, "macs", None)}  # only rivals have it
    return ready, {"run": protocol.timed(subject.run)}


if __name__ == "__main__":
    protocol.serve(start)

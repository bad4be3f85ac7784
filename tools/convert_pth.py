#!/usr/bin/env python3
"""Turns PyTorch's .pth files into safetensors files that qna reads.

  facebookresearch's DETR (detr-r50-e632da11.pth, ...)  ->  a detector
  torchvision's ResNet-18, 50 or 101                    ->  weights for a detector's backbone
  EfficientNet-Lite0, of timm or EfficientNet-PyTorch   ->  a stem for QnA-ViTs, "efficientnet"

Which of them it is, is told by the names of the tensors. Numbers and names stay as they are but for
EfficientNet, whose BatchNorms are folded into the convolutions before them. Needs nothing but
PyTorch; no code in the file is run.
"""

import argparse
import ctypes
import json
import os
import re
import struct
import sys
import warnings

EXAMPLES = """examples:
  build/venv/bin/python tools/convert_pth.py detr-r50-e632da11.pth -o detr_r50.safetensors
  build/venv/bin/python tools/convert_pth.py detr-r50-dc5-f0fb7ef5.pth --dilation -o dc5.safetensors
  build/venv/bin/python tools/convert_pth.py resnet50-0676ba61.pth -o resnet50.safetensors
  build/venv/bin/python tools/convert_pth.py efficientnet-lite0-57934424.pth -o lite0_stem.safetensors
"""

# COCO's categories by their identifier, of which 11 are not in use.
COCO = """N/A, person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light,
fire hydrant, N/A, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear,
zebra, giraffe, N/A, backpack, umbrella, N/A, N/A, handbag, tie, suitcase, frisbee, skis, snowboard,
sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, N/A,
wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog,
pizza, donut, cake, chair, couch, potted plant, bed, N/A, dining table, N/A, N/A, toilet, N/A, tv,
laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, N/A, book,
clock, vase, scissors, teddy bear, hair drier, toothbrush"""
COCO = [name.strip() for name in COCO.split(",")]

BODY = "backbone.0.body."
DETR_PARTS = ("transformer.", "class_embed.", "bbox_embed.", "query_embed.", "input_proj.", BODY,
              "backbone.1.")
RESNETS = {(False, (2, 2, 2, 2)): 18, (True, (3, 4, 6, 3)): 50, (True, (3, 4, 23, 3)): 101}
# Of EfficientNet-Lite0's stages, up to the fifth: blocks, features, expansion, kernel.
LITE0 = ((1, 16, 1, 3), (2, 24, 6, 3), (2, 40, 6, 5), (3, 80, 6, 3), (3, 112, 6, 5))
LITE0_NORM_EPSILON = 1e-3  # TensorFlow's
DTYPES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16",
          "torch.float64": "F64", "torch.int64": "I64"}


class Mistake(Exception):
    """What the user is told."""


def read_checkpoint(path):
    """What torch.save wrote, without running code from it."""
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")  # which is not needed
    try:
        import torch
    except ImportError:
        raise Mistake("this Python has no torch; try build/venv/bin/python, or pip install torch")
    # DETR's own training keeps its command line beside the weights.
    if hasattr(torch.serialization, "add_safe_globals"):
        torch.serialization.add_safe_globals([argparse.Namespace])
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror or error}")
    except Exception as error:
        first = str(error).strip().splitlines()
        raise Mistake(f"{path}: not a file of weights that PyTorch reads: {first[0] if first else error}")


def tensors_of(path, checkpoint):
    """The tensors by name, and the options of the training, if they are there."""
    options = {}
    if isinstance(checkpoint, dict) and isinstance(checkpoint.get("model"), dict):
        options, checkpoint = checkpoint.get("args") or {}, checkpoint["model"]
        options = options if isinstance(options, dict) else vars(options)
    good = isinstance(checkpoint, dict) and checkpoint and all(
        isinstance(name, str) and hasattr(tensor, "data_ptr") for name, tensor in checkpoint.items())
    if not good:
        raise Mistake(f"{path}: must be a dictionary of tensors by name, or have one as 'model'")
    # Frozen BatchNorm counts no batches.
    return {name: tensor.detach().contiguous() for name, tensor in checkpoint.items()
            if not name.endswith("num_batches_tracked")}, options


def count_blocks(tensors, prefix):
    """How many blocks are numbered behind `prefix`."""
    numbers = {int(match[1]) for match in (re.match(re.escape(prefix) + r"(\d+)\.", name)
                                           for name in tensors) if match}
    if numbers != set(range(len(numbers))):
        raise Mistake(f"the blocks {prefix}* are numbered {sorted(numbers)}")
    return len(numbers)


def resnet_depth(tensors, prefix=""):
    blocks = tuple(count_blocks(tensors, f"{prefix}layer{stage}.") for stage in (1, 2, 3, 4))
    bottleneck = f"{prefix}layer1.0.conv3.weight" in tensors
    depth = RESNETS.get((bottleneck, blocks))
    inner = tensors.get(f"{prefix}layer1.0.conv2.weight")
    if depth is None or inner is None or tuple(inner.shape) != (64, 64, 3, 3):
        raise Mistake(f"the ResNet must be of depth 18, 50 or 101, without groups or other widths; "
                      f"got {blocks} blocks" +
                      (f" with convolutions {list(inner.shape)}" if inner is not None else ""))
    return depth


def detr_config(tensors, heads, dilation):
    """The configuration of docs/detection.md, from the tensors' shapes."""
    def shape(name, dimensions):
        if name not in tensors:
            raise Mistake(f"there is no tensor {name}, which a DETR has")
        if tensors[name].dim() != dimensions:
            raise Mistake(f"{name} must have {dimensions} dimensions, got {list(tensors[name].shape)}")
        return tensors[name].shape

    unknown = [name for name in tensors if not name.startswith(DETR_PARTS)]
    if unknown:
        raise Mistake(f"there are tensors that no DETR for boxes has: {', '.join(sorted(unknown)[:3])}")
    classes, hidden = shape("class_embed.weight", 2)
    return {
        "backbone": f"resnet{resnet_depth(tensors, BODY)}",
        "dilation": dilation,
        "hidden": hidden,
        "heads": heads,
        "encoder_blocks": count_blocks(tensors, "transformer.encoder.layers."),
        "decoder_blocks": count_blocks(tensors, "transformer.decoder.layers."),
        "feedforward": shape("transformer.decoder.layers.0.linear1.weight", 2)[0],
        "queries": shape("query_embed.weight", 2)[0],
        "classes": classes - 1,  # without "no object"
        "pre_norm": "transformer.encoder.norm.weight" in tensors,
        "positions": "learned" if "backbone.1.row_embed.weight" in tensors else "sine",
    }


def read_labels(path, classes):
    if path is None:
        return COCO if classes == len(COCO) else [f"class {i}" for i in range(classes)]
    try:
        with open(path, encoding="utf-8") as file:
            labels = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"--labels: {path}: {error}")
    if len(labels) != classes:
        raise Mistake(f"--labels: {path} has {len(labels)} lines, the detector has {classes} classes")
    return labels


def detector_metadata(arguments, tensors, options):
    # Its shapes do not tell these two; the options of its training do, where they were kept.
    heads = arguments.heads or options.get("nheads", 8)
    dilation = arguments.dilation or bool(options.get("dilation", False))
    if "dc5" in os.path.basename(arguments.file) and not dilation and "dilation" not in options:
        raise Mistake("by its name this is a DC5 model, which the tensors do not tell: give --dilation, or "
                      "rename the file if it is none")
    config = detr_config(tensors, heads, dilation)
    preprocess = {"resize": 800, "crop": [0, 0], "filter": "bilinear", "mean": [0.485, 0.456, 0.406],
                  "std": [0.229, 0.224, 0.225]}
    if arguments.longest > 0:
        preprocess["longest"] = arguments.longest
    labels = read_labels(arguments.labels, config["classes"])
    name = f"detr_r{config['backbone'][len('resnet'):]}" + ("_dc5" if dilation else "")
    return {
        "format": "qna-1",
        "kind": "detector",
        "name": name,
        "config": json.dumps(config),
        "preprocess": json.dumps(preprocess),
        "labels": json.dumps(labels),
        "category_ids": json.dumps(list(range(config["classes"]))),
        "training": json.dumps({"imported_from": "facebookresearch/detr checkpoint"}),
    }


def stem_shapes():
    """The stem's convolutions in their order, with the shapes that EfficientNet gives them."""
    shapes, features, block = {"conv": (32, 3, 3, 3)}, 32, 0
    for blocks, outputs, expansion, kernel in LITE0:
        for _ in range(blocks):
            name, hidden = f"blocks.{block}.", expansion * features
            if expansion > 1:
                shapes[name + "expand"] = (hidden, features, 1, 1)
            shapes[name + "depthwise"] = (hidden, 1, kernel, kernel)
            shapes[name + "project"] = (outputs, hidden, 1, 1)
            features, block = outputs, block + 1
    return shapes


def efficientnet_stem(tensors):
    """The stem's tensors, of convolutions that are followed by the four tensors of their BatchNorm."""
    import torch

    rest, stem = iter(tensors.items()), {}
    for name, shape in stem_shapes().items():
        group = [next(rest, (None, None)) for _ in range(5)]
        wanted = (shape, *4 * [shape[:1]])
        if any(tensor is None or tuple(tensor.shape) != size for (_, tensor), size in zip(group, wanted)):
            raise Mistake(f"{group[0][0]} and the four tensors behind it must be a convolution {list(shape)} and its "
                          "BatchNorm, as EfficientNet-Lite0 has them")
        weight, scale, shift, mean, variance = (tensor.double() for _, tensor in group)
        scale = scale / (variance + LITE0_NORM_EPSILON).sqrt()
        product = name.endswith(("expand", "project"))
        weight = (weight.flatten(1) if product else weight) * scale.view(-1, *([1] if product else [1, 1, 1]))
        stem[f"stem.{name}.weight"] = weight.float().contiguous()
        stem[f"stem.{name}.bias"] = (shift - mean * scale).float()
    features = LITE0[-1][1]
    return {**stem, "stem.out.weight": torch.eye(features), "stem.out.bias": torch.zeros(features)}


def stem_metadata():
    """A network that is a stem and nothing else."""
    config = {"stem": "efficientnet", "base_dim": LITE0[-1][1], "classes": 0, "stages": [{}]}
    preprocess = {"resize": 256, "crop": [224, 224], "filter": "bicubic", "mean": [0.5] * 3, "std": [0.5] * 3}
    return {"format": "qna-1", "name": "efficientnet_lite0_stem", "config": json.dumps(config),
            "preprocess": json.dumps(preprocess),
            "training": json.dumps({"imported_from": "EfficientNet-Lite0 checkpoint"})}


def write_safetensors(path, tensors, metadata):
    """Whole or not at all."""
    header, end = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if str(tensor.dtype) not in DTYPES:
            raise Mistake(f"{name} is of type {tensor.dtype}, which no weight has")
        header[name] = {"dtype": DTYPES[str(tensor.dtype)], "shape": list(tensor.shape),
                        "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                # Not by numpy, which a torch can be without.
                file.write(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise Mistake(f"--out: {path}: {error.strerror or error}")
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def recognize(arguments, tensors, options):
    """The tensors and the metadata of the file to write, and what to tell the user."""
    if "class_embed.weight" in tensors and any(name.startswith(BODY) for name in tensors):
        metadata = detector_metadata(arguments, tensors, options)
        config = json.loads(metadata["config"])
        return tensors, metadata, (f"{metadata['name']}: {config['classes']} classes, {config['queries']} queries, "
                                   f"{config['encoder_blocks']} + {config['decoder_blocks']} blocks of "
                                   f"{config['hidden']} features")
    resnet = "conv1.weight" in tensors and "layer1.0.conv1.weight" in tensors
    efficientnet = bool({"_conv_stem.weight", "conv_stem.weight"} & set(tensors))
    if not resnet and not efficientnet:
        raise Mistake("neither a DETR of facebookresearch, nor a ResNet of torchvision, nor an EfficientNet-Lite0; "
                      f"its tensors are {', '.join(list(tensors)[:3])} ...")
    for option in ("dilation", "heads", "labels"):
        if getattr(arguments, option):
            raise Mistake(f"--{option} is for detectors, and this is {'a ResNet' if resnet else 'an EfficientNet'}")
    if resnet:
        return tensors, {"format": "pt"}, f"ResNet-{resnet_depth(tensors)}, to be a detector's backbone"
    return efficientnet_stem(tensors), stem_metadata(), "EfficientNet-Lite0, to be a QnA-ViT's stem"


def convert(arguments):
    tensors, options = tensors_of(arguments.file, read_checkpoint(arguments.file))
    try:
        tensors, metadata, told = recognize(arguments, tensors, options)
    except Mistake as mistake:
        raise Mistake(f"{arguments.file}: {mistake}")
    if os.path.exists(arguments.out) and os.path.samefile(arguments.file, arguments.out):
        raise Mistake(f"--out: {arguments.out} is the file to convert")
    write_safetensors(arguments.out, tensors, metadata)
    numbers = sum(tensor.numel() for tensor in tensors.values())
    print(f"{told}\nwrote {arguments.out}, {len(tensors)} tensors, {numbers:,} numbers")


def at_least(least):
    def parse(text):
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, got {text!r}")
        return int(text)

    return parse


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the .pth file")
    parser.add_argument("-o", "--out", required=True, help="file to write (.safetensors)")
    parser.add_argument("--dilation", action="store_true",
                        help="the detector is a DC5 model, whose last stage is dilated")
    parser.add_argument("--heads", type=at_least(1), help="attention heads of the transformer [8]")
    parser.add_argument("--labels", help="text file with one label per line, one for each class "
                        "[COCO's for 91 classes]")
    parser.add_argument("--longest", type=at_least(0), default=1333,
                        help="longest side of a resized picture in pixels, 0: no limit [1333]")
    return parser.parse_args(words)


def main(words=None):
    try:
        convert(parse_arguments(words))
    except Mistake as mistake:
        sys.exit(f"convert_pth: {mistake}")


if __name__ == "__main__":
    main()

"""Names and shapes of the tensors of DETR's and torchvision's checkpoints, for small networks."""

import json
import math
import struct


def linear(name, inputs, outputs):
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name, features):
    return {f"{name}.weight": (features,), f"{name}.bias": (features,)}


def batch_norm(name, features):
    return {**norm(name, features), f"{name}.running_mean": (features,),
            f"{name}.running_var": (features,)}


def attention(name, features):
    return {f"{name}.in_proj_weight": (3 * features, features),
            f"{name}.in_proj_bias": (3 * features,),
            **linear(f"{name}.out_proj", features, features)}


def resnet18(prefix=""):
    """torchvision's names, but for its head."""
    shapes = {f"{prefix}conv1.weight": (64, 3, 7, 7), **batch_norm(f"{prefix}bn1", 64)}
    inputs = 64
    for stage in range(4):
        features = 64 << stage
        for block in range(2):
            name = f"{prefix}layer{stage + 1}.{block}"
            shapes[f"{name}.conv1.weight"] = (features, inputs, 3, 3)
            shapes[f"{name}.conv2.weight"] = (features, features, 3, 3)
            shapes |= batch_norm(f"{name}.bn1", features) | batch_norm(f"{name}.bn2", features)
            if inputs != features:
                shapes[f"{name}.downsample.0.weight"] = (features, inputs, 1, 1)
                shapes |= batch_norm(f"{name}.downsample.1", features)
            inputs = features
    return shapes


def detr(classes=3, hidden=16, feedforward=24, queries=5, encoder=1, decoder=2):
    """The names of facebookresearch's checkpoints."""
    shapes = {}
    for i in range(encoder):
        name = f"transformer.encoder.layers.{i}"
        shapes |= attention(f"{name}.self_attn", hidden)
        shapes |= linear(f"{name}.linear1", hidden, feedforward)
        shapes |= linear(f"{name}.linear2", feedforward, hidden)
        shapes |= norm(f"{name}.norm1", hidden) | norm(f"{name}.norm2", hidden)
    for i in range(decoder):
        name = f"transformer.decoder.layers.{i}"
        shapes |= attention(f"{name}.self_attn", hidden) | attention(f"{name}.multihead_attn", hidden)
        shapes |= linear(f"{name}.linear1", hidden, feedforward)
        shapes |= linear(f"{name}.linear2", feedforward, hidden)
        for j in (1, 2, 3):
            shapes |= norm(f"{name}.norm{j}", hidden)
    shapes |= norm("transformer.decoder.norm", hidden)
    shapes |= linear("class_embed", hidden, classes + 1)
    for i, outputs in enumerate((hidden, hidden, 4)):
        shapes |= linear(f"bbox_embed.layers.{i}", hidden, outputs)
    shapes["query_embed.weight"] = (queries, hidden)
    shapes["input_proj.weight"] = (hidden, 512, 1, 1)
    shapes["input_proj.bias"] = (hidden,)
    return shapes | resnet18("backbone.0.body.")


def write_detector(path, classes=3):
    """A detector as qna writes it, all of whose numbers are 0."""
    shapes = detr(classes)
    config = {"backbone": "resnet18", "hidden": 16, "heads": 2, "encoder_blocks": 1,
              "decoder_blocks": 2, "feedforward": 24, "queries": 5, "classes": classes}
    preprocess = {"resize": 64, "crop": [0, 0], "filter": "bilinear"}
    header = {"__metadata__": {"format": "qna-1", "kind": "detector", "name": "small detector",
                               "config": json.dumps(config), "preprocess": json.dumps(preprocess),
                               "labels": json.dumps([f"thing {i}" for i in range(classes)]),
                               "category_ids": json.dumps([10 * i for i in range(classes)])}}
    end = 0
    for name, sides in shapes.items():
        begin, end = end, end + 4 * math.prod(sides)
        header[name] = {"dtype": "F32", "shape": sides, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + end)

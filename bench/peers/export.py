"""Translates a network for another runtime: export.py FORMAT TARGET BATCH IMAGE OUT

FORMAT is onnx or openvino. TARGET is the safetensors file of a QnA-ViT, or rival:NAME. Of a rival, the
number of multiply-adds is written beside OUT, to a file with the suffix .macs.
"""

import sys
import warnings
from pathlib import Path

import torch

import qna_vit
from macs import multiply_adds

LAYOUT = {"onnx": "NCHW", "openvino": "NCHW"}


def main():
    format, target, batch, image, out = sys.argv[1:]
    batch, image = int(batch), int(image)
    if target.startswith("rival:"):
        from torch_subjects import make_rival
        model = make_rival(target.removeprefix("rival:"), image)
        Path(out).with_suffix(".macs").write_text(f"{multiply_adds(model, image)}\n")
        example = torch.zeros(batch, 3, image, image)
    else:
        model, config = qna_vit.load(target, LAYOUT[format])
        model.for_inference()
        example = torch.zeros(batch, image, image, config["in_channels"])

    with torch.no_grad():
        if format == "onnx":
            torch.onnx.export(model, (example,), out, dynamo=True, external_data=False, opset_version=20,
                              verbose=False)
        else:
            import openvino
            translated = openvino.convert_model(model, example_input=example, input=list(example.shape))
            openvino.save_model(translated, out, compress_to_fp16=False)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    main()

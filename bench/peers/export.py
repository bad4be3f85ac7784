"""Translates a network for another runtime: export.py FORMAT TARGET BATCH IMAGE OUT

FORMAT is onnx or openvino. TARGET is the safetensors file of a QnA-ViT, or timm:NAME.
"""

import sys
import warnings

import torch

import qna_vit

LAYOUT = {"onnx": "NCHW", "openvino": "NCHW"}


def main():
    format, target, batch, image, out = sys.argv[1:]
    batch, image = int(batch), int(image)
    if target.startswith("timm:"):
        from torch_subjects import make_timm
        model = make_timm(target.removeprefix("timm:"), image)
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

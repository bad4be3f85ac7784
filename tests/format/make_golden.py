"""Writes the golden files beside it with the Python safetensors library. They hold the same
tensors as golden_tensors() in qna/format/safetensors_test.cc builds.

    pip install safetensors numpy ml_dtypes
    python3 tests/format/make_golden.py
"""

import pathlib

import ml_dtypes
import numpy
from safetensors.numpy import save_file

FOLDER = pathlib.Path(__file__).parent
DTYPES = ["bool", "uint8", "int8", "int16", "uint16", "float16", "bfloat16", "int32", "uint32",
          "float32", "float64", "int64", "uint64"]


def array(dtype, shape):
    """Bytes that count up, so that an element in the wrong place shows."""
    dtype = numpy.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    count = int(numpy.prod(shape, dtype=int)) * dtype.itemsize
    data = numpy.arange(count, dtype=numpy.uint8)
    if dtype == bool:
        data %= 2
    return data.view(dtype).reshape(shape)


tensors = {}
for dtype in DTYPES:
    tensors[f"matrix.{dtype}"] = array(dtype, (3, 5))
    tensors[f"scalar.{dtype}"] = array(dtype, ())
tensors["empty"] = array("float32", (0, 3))
tensors["many.dimensions"] = array("int8", (1, 2, 1, 3, 1))
tensors["quote\" backslash\\ newline\n control\x01 umlaut\u00e4"] = array("float32", (2,))
save_file(tensors, FOLDER / "all_dtypes.safetensors",
          {"author": "nobody", "text": "quote\" newline\n umlaut\u00e4"})
save_file({"w": array("float32", (2, 2))}, FOLDER / "one_tensor.safetensors")
save_file({}, FOLDER / "no_tensor.safetensors")

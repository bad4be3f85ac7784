"""Safetensors files: names, shapes and numbers, no code. Every number in a header is checked before it is used."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from typing import Any, BinaryIO, Iterator, Mapping, Union

import torch
from torch import Tensor

from qna._error import Error

Path = Union[str, "os.PathLike[str]"]

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_METADATA = "__metadata__"
_LONGEST_HEADER = 100_000_000


def read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The metadata and the tensors of a file. Raises qna.Error where it is broken."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, begin = _read_header(file, size, path)
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
            raise Error(f"{path}: {_METADATA} must hold strings, got {metadata!r}")
        tensors = {name: _read_tensor(file, begin, size, entry, f"{path}: tensor {name!r}")
                   for name, entry in header.items()}
    return metadata, tensors


def _read_header(file: BinaryIO, size: int, path: Path) -> tuple[dict[str, Any], int]:
    """The header, and where the tensors begin."""
    start = file.read(8)
    if len(start) < 8:
        raise Error(f"{path}: a safetensors file has at least 8 bytes, got {size}")
    length = struct.unpack("<Q", start)[0]
    if not 0 < length <= min(_LONGEST_HEADER, size - 8):
        raise Error(f"{path}: the header's length must be from 1 to the {size - 8} bytes that follow, got {length}; "
                    "is this a safetensors file?")
    try:
        header = json.loads(file.read(length).decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        raise Error(f"{path}: the header is not JSON: {problem}") from None
    if not isinstance(header, dict):
        raise Error(f"{path}: the header must be a JSON object, got {type(header).__name__}")
    return header, 8 + length


def _read_tensor(file: BinaryIO, begin: int, size: int, entry: Any, where: str) -> Tensor:
    dtype, shape, first, end = _parse_entry(entry, where)
    needed = math.prod(shape) * dtype.itemsize
    if not (0 <= first <= end <= size - begin and end - first == needed):
        raise Error(f"{where}: data_offsets must span {needed} of the file's {size - begin} bytes, "
                    f"got [{first}, {end}]")
    if needed == 0:
        return torch.empty(shape, dtype=dtype)
    data = bytearray(needed)
    file.seek(begin + first)
    file.readinto(data)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


def _parse_entry(entry: Any, where: str) -> tuple[torch.dtype, list[int], int, int]:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise Error(f"{where}: an entry must have dtype, shape and data_offsets, got {entry!r}")
    if entry["dtype"] not in DTYPES:
        raise Error(f"{where}: dtype must be one of {', '.join(DTYPES)}, got {entry['dtype']!r}")
    for key in ("shape", "data_offsets"):
        numbers = entry[key]
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < 1 << 62 for n in numbers):
            raise Error(f"{where}: {key} must be a list of numbers from 0, got {numbers!r}")
    if len(entry["data_offsets"]) != 2:
        raise Error(f"{where}: data_offsets must be two numbers, got {entry['data_offsets']!r}")
    return DTYPES[entry["dtype"]], entry["shape"], *entry["data_offsets"]


def parts(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | bytearray]:
    """What a file consists of, one after the other."""
    # Larger elements first, so that every tensor is aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        tensor = tensors[name]
        first, end = end, end + tensor.numel() * tensor.dtype.itemsize
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [first, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        yield _bytes(tensors[name])


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes the file under another name first: it is whole or absent."""
    if not os.path.isdir(os.path.dirname(os.fspath(path)) or "."):
        raise Error(f"path must be in a folder that is there, got {os.fspath(path)}")
    temporary = f"{os.fspath(path)}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            for part in parts(tensors, metadata):
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _bytes(tensor: Tensor) -> bytearray:
    data = bytearray(tensor.numel() * tensor.dtype.itemsize)
    if data:
        torch.frombuffer(data, dtype=tensor.dtype).copy_(tensor.detach().flatten())
    return data


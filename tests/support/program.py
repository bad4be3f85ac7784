"""What tests of the program share: running it, and reading and writing small files."""

import json
import os
import socket
import struct
import subprocess
import sys
import zlib

PATH = ""  # of the program; set by main


def environment(**more):
    clean = {k: v for k, v in os.environ.items()
             if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE")}
    return {**clean, **{k: str(v) for k, v in more.items()}}


def run(*arguments, **options):
    return subprocess.run([PATH, *map(str, arguments)], capture_output=True, text=True,
                          timeout=240, env=environment(), **options)


def start(*arguments, **more):
    return subprocess.Popen([PATH, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(**more))


def png(pixels, width, height):
    """The bytes of an RGB picture."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes(pixels[3 * width * y:3 * width * (y + 1)])
                    for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def read_safetensors(path):
    """Metadata and the tensors' bytes by name."""
    with open(path, "rb") as file:
        content = file.read()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = content[8 + size:]
    return metadata, {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


def gradients(path):
    """Of a checkpoint after one step: the optimiser's mean is (1 - beta) times the gradient."""
    _, tensors = read_safetensors(path)
    return {name: floats(data) for name, data in tensors.items() if "/exp_avg/" in name}


def relative_difference(expected, actual):
    """The norm of the difference of two such dictionaries over the norm of the first."""
    square = difference = 0.0
    for name, numbers in expected.items():
        for a, b in zip(numbers, actual[name], strict=True):
            square += a * a
            difference += (a - b) * (a - b)
    return (difference / square) ** 0.5


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def take_arguments():
    """PROGRAM REPOSITORY of the command line; the rest is for unittest. Returns the repository."""
    global PATH
    PATH, repository = sys.argv[1:3]
    del sys.argv[1:3]
    return repository

"""The binding needs nothing of LibTorch but its stable C interface, and shows nothing of its own."""

import pathlib
import re
import shutil
import subprocess

import pytest
import torch

from qna import ops

STABLE = re.compile(r"(aoti_torch|torch)_[a-z0-9_]+")
OF_THE_TOOLCHAIN = re.compile(r"_Z[A-Z]*St|__")  # torch's libraries hold copies of some
TORCH_LIBRARIES = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so")

pytestmark = pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm of binutils")


def symbols(path, *options):
    """Names of dynamic symbols, without their versions."""
    done = subprocess.run(["nm", "--dynamic", *options, str(path)], capture_output=True, text=True, check=True)
    return {line.split()[-1].split("@")[0] for line in done.stdout.splitlines()}


def test_only_the_stable_interface():
    folder = pathlib.Path(torch.__file__).parent / "lib"
    offered = set()
    for name in TORCH_LIBRARIES:
        if (folder / name).exists():
            offered |= symbols(folder / name, "--defined-only")
    needed = symbols(ops._library_path(), "--undefined-only")
    from_torch = {name for name in needed & offered if not OF_THE_TOOLCHAIN.match(name)}
    assert {"torch_library_impl", "torch_parallel_for", "aoti_torch_library_def"} <= from_torch
    assert [name for name in from_torch if not STABLE.fullmatch(name)] == []


def test_no_name_of_torch_is_mangled():
    for name in symbols(ops._library_path(), "--undefined-only"):
        assert not re.search(r"(N|K)(2at|3c10|5torch|6caffe2)", name), name


def test_needs_one_library_of_torch():
    done = subprocess.run(["readelf", "--dynamic", str(ops._library_path())], capture_output=True, text=True)
    needed = re.findall(r"NEEDED.*\[(.*)\]", done.stdout)
    assert [name for name in needed if "torch" in name or "c10" in name] == ["libtorch_cpu.so"]
    assert not any("python" in name for name in needed)
    paths = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", done.stdout)  # of a wheel that brings its libraries along
    assert all(path.startswith("$ORIGIN") for path in paths)


def test_shows_nothing():
    assert symbols(ops._library_path(), "--defined-only") == set()

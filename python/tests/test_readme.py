"""What readers are told works: the Python lines of docs/python.md and of README.md, and the examples."""

import ast
import functools
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = REPOSITORY / "examples" / "python"

# What export_onnx needs beside what the lines import.
EXPORT_MODULES = {"onnx", "onnxruntime"}

# Before the lines where PyTorch must not be needed.
FORBID_TORCH = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError(f"{name} must not be needed here")

sys.meta_path.insert(0, NoTorch())
"""


def blocks(path):
    """[(section, its Python lines)] of a document, a row per fenced block."""
    section, found, lines = "", [], None
    for line in path.read_text().splitlines():
        if lines is not None:
            if line == "```":
                found.append((section, "\n".join(lines)))
                lines = None
            else:
                lines.append(line)
        elif line == "```python":
            lines = []
        elif line.startswith("#"):
            section = line.strip("# ")
    return found


def readme_blocks():
    """Those that are about the package: other Python lines in README.md would be about other things."""
    return [(section, code) for section, code in blocks(REPOSITORY / "README.md")
            if re.search(r"^(import|from) .*\bqna\b", code, re.MULTILINE)]


def cases():
    documents = {"python.md": blocks(REPOSITORY / "docs" / "python.md"), "README.md": readme_blocks()}
    return [pytest.param(code, id=f"{document}:{section}:{i}")
            for document, found in documents.items() for i, (section, code) in enumerate(found)]


def modules_of(code):
    """The first parts of the names of all modules that the lines import, and of what they need."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    needed = {name.partition(".")[0] for name in names}
    return needed | EXPORT_MODULES | {"torch"} if "export_onnx" in code else needed


@functools.cache
def problem_of(module):
    """Why a module cannot be imported, or nothing."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, timeout=600)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def skip_without(modules):
    for name in sorted(modules - {"qna"}):
        if problem := problem_of(name):
            pytest.skip(f"{name} cannot be imported: {problem}")


@pytest.fixture
def folder(tmp_path):
    """The files that the lines name."""
    (tmp_path / "weights").mkdir()
    shutil.copy(REPOSITORY / "weights" / "classifier.safetensors", tmp_path / "weights")
    shutil.copy(REPOSITORY / "tests" / "images" / "large.jpg", tmp_path / "church.jpg")
    (tmp_path / "notes.txt").write_text("no weights, but some text that is long enough to be a header\n")
    return tmp_path


def with_shapes_checked(code):
    """The lines, each `name = ...  # [2, 3]` followed by a check that the shape is that."""
    checked = []
    for line in code.splitlines():
        checked.append(line)
        if promise := re.match(r"(\w+) = .*#.*?(\[\d+(?:, \d+)*\])", line):
            name, shape = promise.groups()
            checked.append(f"assert list({name}.shape) == {shape}, {name}.shape")
    return "\n".join(checked)


def run(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", cases())
def test_lines(code, folder):
    modules = modules_of(code)
    skip_without(modules)
    code = with_shapes_checked(code)
    run(code if "torch" in modules or "timm" in modules else FORBID_TORCH + code, folder)


def test_both_documents_have_lines():
    without_torch = [code for _, code in blocks(REPOSITORY / "docs" / "python.md")
                     if "torch" not in modules_of(code)]
    assert any("qna.open" in code for code in without_torch)
    assert any("import torch" in code or ", torch" in code for _, code in blocks(REPOSITORY / "docs" / "python.md"))


def test_the_hook_forbids_torch(tmp_path):
    skip_without({"torch"})
    done = subprocess.run([sys.executable, "-c", FORBID_TORCH + "import torch"], capture_output=True, text=True)
    assert "must not be needed" in done.stderr


# ---- examples ----


def add_file(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def folders_tar(path):
    """A tar of pictures in folders, 8 to train and 4 to test."""
    picture = (REPOSITORY / "tests" / "images" / "rgb8.png").read_bytes()
    pillow = pytest.importorskip("PIL.Image")
    image = io.BytesIO()
    pillow.open(io.BytesIO(picture)).convert("RGB").resize((32, 32)).save(image, "PNG")
    with tarfile.open(path, "w:xz") as tar:
        for split, count in (("train", 8), ("test", 4)):
            for i in range(count):
                add_file(tar, f"{split}/{'ab'[i % 2]}/{i}.png", image.getvalue())


def binary_tar(path):
    """The same as CIFAR-10's home page has it."""
    random = np.random.default_rng(1)
    with tarfile.open(path, "w:gz") as tar:
        for name, count in (("data_batch_1", 8), ("test_batch", 4)):
            rows = random.integers(0, 10, (count, 3073), np.uint8)
            add_file(tar, f"cifar-10-batches-bin/{name}.bin", rows.tobytes())
        add_file(tar, "cifar-10-batches-bin/readme.html", b"text")


def run_example(*arguments):
    return subprocess.run([sys.executable, EXAMPLES / "cifar_layer.py", *map(str, arguments)], capture_output=True,
                          text=True, timeout=600)


@pytest.mark.parametrize("make", [folders_tar, binary_tar])
def test_the_cifar_example(make, tmp_path):
    skip_without({"torch"})
    make(tmp_path / "cifar.tar")
    done = run_example("--data", tmp_path / "cifar.tar", "--minutes", "0.02")
    assert done.returncode == 0, done.stderr
    assert "8 pictures to train, 4 to test" in done.stdout
    assert "% of the test pictures are right" in done.stdout


def test_the_cifar_example_without_data(tmp_path):
    skip_without({"torch"})
    done = run_example("--data", tmp_path / "nowhere.tar")
    assert done.returncode == 1
    assert "nowhere.tar" in done.stderr and "--data" in done.stderr
    assert "Traceback" not in done.stderr

"""The console script: the program with all its arguments, its exit status and its signals."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import pytest

from qna import _program

SCRIPT = [sys.executable, "-m", "qna._program"]


def run(*arguments, **variables):
    return subprocess.run([*SCRIPT, *arguments], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=60)


def write_program(folder, text):
    path = folder / "qna"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(folder)


def test_is_the_program():
    done = run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"qna \d+\.\d+\.\d+, commit ", done.stdout)


def test_same_output_as_the_program():
    expected = subprocess.run([_program.program_path(), "models"], capture_output=True, text=True, check=True)
    assert run("models").stdout == expected.stdout


def test_exit_status_and_errors_are_the_programs():
    done = run("predict", "nowhere.safetensors", "nowhere.jpg")
    expected = subprocess.run([_program.program_path(), "predict", "nowhere.safetensors", "nowhere.jpg"],
                              capture_output=True, text=True)
    assert done.returncode == expected.returncode != 0
    assert (done.stdout, done.stderr) == ("", expected.stderr)


def test_gets_all_arguments(tmp_path):
    build = write_program(tmp_path, 'for a in "$@"; do echo "[$a]"; done; exit 7')
    done = run("--help", "a b", "", "größe", "-x", QNA_PYTHON_BUILD=build)
    assert (done.returncode, done.stdout) == (7, "[--help]\n[a b]\n[]\n[größe]\n[-x]\n")


def test_signals_that_python_ignores(tmp_path):
    build = write_program(tmp_path, "grep SigIgn /proc/self/status")
    ignored = int(run(QNA_PYTHON_BUILD=build).stdout.split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        assert not ignored >> (number - 1) & 1


def test_a_pipe_that_closes():
    done = subprocess.run(f"'{sys.executable}' -m qna._program models --json | head -c 1", shell=True,
                          capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[", "")


def test_without_the_program(tmp_path):
    done = run("models", QNA_PYTHON_BUILD=str(tmp_path))
    assert done.returncode == 1
    assert str(tmp_path / "qna") in done.stderr and "No such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_imports_no_torch():
    code = "import sys; sys.modules['torch'] = sys.modules['numpy'] = None; import qna._program"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_installed_script():
    script = pathlib.Path(sys.executable).parent / "qna"
    if not script.exists() or shutil.which("qna", path=str(script.parent)) is None:
        pytest.skip("the package is not installed in this environment")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("qna ")

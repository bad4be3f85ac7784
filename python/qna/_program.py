"""The console script `qna`: becomes the program inside the package."""

from __future__ import annotations

import os
import pathlib
import signal
import sys


def program_path() -> pathlib.Path:
    """Where the program is: in the package, or in the folder QNA_PYTHON_BUILD names."""
    build = os.environ.get("QNA_PYTHON_BUILD")
    return pathlib.Path(build or pathlib.Path(__file__).parent / "_bin", "qna")


def main() -> None:
    """Runs the program with the arguments of this process. Does not return."""
    path = program_path()
    # Python ignores these, and the program would inherit that: `qna models | head` must just end.
    for name in ("SIGPIPE", "SIGXFSZ"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(path, [str(path), *sys.argv[1:]])
    except OSError as problem:
        sys.exit(f"qna: {path} cannot be started: {problem.strerror}")


if __name__ == "__main__":
    main()

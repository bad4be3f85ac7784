"""The tests of the Python package, with its compiled parts from a build folder.

  python_test.py PACKAGE BUILD_FOLDER

Exit code 77, "skipped", where pytest or torch is missing.
"""

import importlib.util
import os
import subprocess
import sys


def main():
    package, folder = sys.argv[1:]
    for module in ("pytest", "torch", "numpy", "safetensors"):
        if importlib.util.find_spec(module) is None:
            print(f"skipped: {sys.executable} has no {module}")
            return 77
    path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "QNA_PYTHON_BUILD": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", "--durations=5",
               f"{package}/tests"]
    return subprocess.run(command, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())

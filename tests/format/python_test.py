"""Python's safetensors library opens the files that qna writes.

Run by CTest with the path of format_copy. Exit status 77, which CTest shows as skipped, when the
library is not there.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import safetensors
except ImportError:
    print("skipped: this Python has no safetensors (pip install safetensors)")
    sys.exit(77)

FORMAT = pathlib.Path(__file__).parent
GOLDEN = FORMAT.parent / "golden"
COPY = ""


def content(path):
    """Metadata, and by name the dtype, shape and bytes of each tensor."""
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata()
    tensors = {name: (tensor["dtype"], tensor["shape"], bytes(tensor["data"]))
               for name, tensor in safetensors.deserialize(path.read_bytes())}
    return metadata, tensors


class Copies(unittest.TestCase):
    def test_hold_the_same(self):
        files = sorted(FORMAT.glob("*.safetensors")) + sorted(GOLDEN.glob("*.safetensors"))
        self.assertGreater(len(files), 3)
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                with self.subTest(file.name):
                    copy = pathlib.Path(folder) / file.name
                    subprocess.run([COPY, file, copy], check=True, timeout=60)
                    self.assertEqual(content(copy), content(file))


if __name__ == "__main__":
    COPY = sys.argv.pop(1)
    unittest.main()

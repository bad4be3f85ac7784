"""What the program qna and the C library are made of: no LibTorch, no foreign symbols, small.

Run by CTest with the paths of qna and of libqna.so; needs ldd, nm and strip.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
LIBRARY = ""


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


class Footprint(unittest.TestCase):
    def test_no_libtorch(self):
        for path in (PROGRAM, LIBRARY):
            libraries = output("ldd", path)
            self.assertIn("libc.so", libraries)
            for name in ("libtorch", "libc10", "libgomp", "libgloo"):
                self.assertNotIn(name, libraries, path)

    def test_the_program_is_small(self):
        with tempfile.TemporaryDirectory() as folder:
            stripped = os.path.join(folder, "qna")
            output("strip", "-o", stripped, PROGRAM)
            self.assertLessEqual(os.path.getsize(stripped), 12_000_000)

    def test_the_library_shows_only_its_interface(self):
        header = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../qna/c/qna.h")
        with open(header, encoding="utf-8") as file:
            declared = set(re.findall(r"\b(qna_\w+)\(", file.read().split("#ifdef __cplusplus", 1)[1]))
        shown = {line.split()[-1] for line in output("nm", "-D", "--defined-only", LIBRARY).splitlines()}
        self.assertIn("QNA_0.1", shown)  # the version itself
        self.assertEqual(shown - {"QNA_0.1"}, {f"{name}@@QNA_0.1" for name in declared})

    def test_soname(self):
        self.assertIn("libqna.so.0]", output("readelf", "-d", LIBRARY))


if __name__ == "__main__":
    PROGRAM, LIBRARY = sys.argv[1:3]
    del sys.argv[1:3]
    unittest.main()

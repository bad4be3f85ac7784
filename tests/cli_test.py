"""The command line as a user meets it: exit status, what goes to stdout, what to stderr.

Run by CTest with the path of the program; standard library only.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


def run(*arguments, **environment):
    """The finished process; QNA_KERNEL is unset unless given."""
    variables = {k: v for k, v in os.environ.items() if k != "QNA_KERNEL"}
    variables.update(environment)
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=240,
                          env=variables)


class Help(unittest.TestCase):
    def test_lists_the_verbs(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "")
        for verb in ("models", "info", "import", "predict", "attend", "features", "kernels", "bench",
                     "train", "coco-eval"):
            self.assertIn(verb, done.stdout)

    def test_every_verb_has_help(self):
        for verb in (["models"], ["info"], ["import"], ["predict"], ["attend"], ["features"],
                     ["kernels"], ["coco-eval"], ["compare"], ["data", "preview"], ["detect"], ["eval"],
                     ["export"], ["reconstruct"]):
            done = run(*verb, "--help")
            self.assertEqual(done.returncode, 0, verb)
            self.assertIn("--help", done.stdout)


class Mistakes(unittest.TestCase):
    def expect_failure(self, done, *words):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertNotIn("terminate", done.stderr)

    def test_no_verb(self):
        self.expect_failure(run(), "subcommand")

    def test_unknown_verb(self):
        self.expect_failure(run("fly"), "fly")

    def test_unknown_flag(self):
        self.expect_failure(run("kernels", "--colour"), "--colour")

    def test_attend(self):
        self.expect_failure(run("attend", "no.safetensors", "--out", "maps"),
                            "no pictures", "no.safetensors")
        self.expect_failure(run("attend", "no.safetensors", "cat.jpg", "--out", "maps"),
                            "no.safetensors")
        self.expect_failure(run("attend", "no.safetensors", "cat.jpg", "--out", "maps",
                                "--opacity", "3"), "--opacity", "3")

    def test_unknown_kernel_in_the_environment(self):
        done = run("kernels", QNA_KERNEL="nonsense")
        self.expect_failure(done, "QNA_KERNEL", "nonsense", "reference")

class Version(unittest.TestCase):
    def test_version_commit_and_kernel(self):
        done = run("--version", QNA_KERNEL="reference")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^qna 0\.1\.0, commit \S+, reference kernels\n$")


class OtherPrograms(unittest.TestCase):
    """`qna train` and `qna bench` are programs beside it."""

    def test_one_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            alone = os.path.join(folder, "qna")
            shutil.copy(PROGRAM, alone)
            for verb in ("train", "bench"):
                done = subprocess.run([alone, verb, "x"], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                for word in (f"qna {verb}", f"qna-{verb}", folder, "make build"):
                    self.assertIn(word, done.stderr)

    def test_gets_all_arguments_and_gives_its_status(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "qna")
            shutil.copy(PROGRAM, program)
            with open(os.path.join(folder, "qna-train"), "w") as file:
                file.write('#!/bin/sh\necho "$#: $1, $2, $3"\nexit 7\n')
            os.chmod(os.path.join(folder, "qna-train"), 0o755)
            done = subprocess.run([program, "train", "--help", "a b", "--set"], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (7, "3: --help, a b, --set\n"))


class Kernels(unittest.TestCase):
    def chosen(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        lines = done.stdout.splitlines()[1:]
        self.assertEqual(lines[0].split()[0], "reference")
        marked = [line.split()[0] for line in lines if line.rstrip().endswith("*")]
        self.assertEqual(len(marked), 1)
        return marked[0]

    def test_one_is_chosen(self):
        self.assertNotEqual(self.chosen(run("kernels")), "reference")

    def test_environment_chooses(self):
        self.assertEqual(self.chosen(run("kernels", QNA_KERNEL="reference")), "reference")


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()

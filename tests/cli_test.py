"""The command line as a user meets it: exit status, what goes to stdout, what to stderr.

Run by CTest with the path of the program; standard library only.
"""

import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import program
from program import ProgramTest, run, take_arguments


class Help(ProgramTest):
    def test_lists_the_verbs(self):
        done = self.succeed("--help", stderr="")
        self.expect_words(done.stdout, "models", "info", "import", "predict", "attend", "features",
                          "kernels", "bench", "train", "coco-eval")

    def test_every_verb_has_help(self):
        for verb in (["models"], ["info"], ["import"], ["predict"], ["attend"], ["features"],
                     ["kernels"], ["coco-eval"], ["compare"], ["data", "preview"], ["detect"], ["eval"],
                     ["export"], ["reconstruct"]):
            with self.subTest(verb):
                self.assertIn("--help", self.succeed(*verb, "--help").stdout)


class Mistakes(ProgramTest):
    def test_no_verb(self):
        self.expect_refusal(run(), "subcommand")

    def test_unknown_verb(self):
        self.expect_refusal(run("fly"), "fly")

    def test_unknown_flag(self):
        self.expect_refusal(run("kernels", "--colour"), "--colour")

    def test_attend(self):
        out = ["--out", "maps"]
        self.expect_refusal(run("attend", "no.safetensors", *out), "no pictures", "no.safetensors")
        image = ["attend", "no.safetensors", "cat.jpg", *out]
        self.expect_refusal(run(*image), "no.safetensors")
        self.expect_refusal(run(*image, "--opacity", "3"), "--opacity", "3")

    def test_unknown_kernel_in_the_environment(self):
        self.expect_refusal(run("kernels", QNA_KERNEL="nonsense"), "QNA_KERNEL", "nonsense", "reference")


class Version(ProgramTest):
    def test_version_commit_and_kernel(self):
        done = self.succeed("--version", QNA_KERNEL="reference", stderr="")
        self.assertRegex(done.stdout, r"^qna 0\.1\.0, commit \S+, reference kernels\n$")


class OtherPrograms(ProgramTest):
    """`qna train` and `qna bench` are programs beside it."""

    def setUp(self):
        self.beside = self.path(self.id())
        os.mkdir(self.beside)
        self.copy = shutil.copy(program.PATH, os.path.join(self.beside, "qna"))

    def test_one_that_is_not_there(self):
        for verb in ("finetune", "train", "bench"):
            self.expect_refusal(run(verb, "x", program=self.copy), f"qna {verb}", f"qna-{verb}",
                                self.beside, "make build", status=1)

    def test_gets_all_arguments_and_gives_its_status(self):
        other = program.write(os.path.join(self.beside, "qna-train"),
                              '#!/bin/sh\necho "$#: $1, $2, $3"\nexit 7\n')
        os.chmod(other, 0o755)
        done = run("train", "--help", "a b", "--set", program=self.copy)
        self.assertEqual((done.returncode, done.stdout), (7, "3: --help, a b, --set\n"))


class Kernels(ProgramTest):
    def chosen(self, **environment):
        lines = self.succeed("kernels", stderr="", **environment).stdout.splitlines()[1:]
        self.assertEqual(lines[0].split()[0], "reference")
        (marked,) = (line.split()[0] for line in lines if line.rstrip().endswith("*"))
        return marked

    def test_one_is_chosen(self):
        self.assertNotEqual(self.chosen(), "reference")

    def test_environment_chooses(self):
        self.assertEqual(self.chosen(QNA_KERNEL="reference"), "reference")


if __name__ == "__main__":
    take_arguments(folder=False)
    unittest.main()

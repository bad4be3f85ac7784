"""The protocol of bench/peers, as the program meets it. Standard library only; with the environment of
the peers (build/peers) one of them runs too.

Run by CTest with the folder of the sources.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = ""

COUNTER = """
import protocol
state = {"runs": 0}
def run():
    state["runs"] += 1
def start():
    print("what libraries print")
    return {"ready": True}, {"run": protocol.timed(run), "count": lambda rest: state,
                             "break": lambda rest: 1 / 0}
protocol.serve(start)
"""
CASE = {"kernel": 3, "height": 16, "width": 16, "dim": 8, "heads": 8, "queries": 2, "pass": "forward",
        "file": "none.safetensors"}


def converse(command, requests):
    """The answers to these lines, what went to stderr, and the exit status."""
    environment = {**os.environ, "PYTHONPATH": os.path.join(ROOT, "bench/peers"),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, input="".join(line + "\n" for line in requests), text=True,
                          capture_output=True, timeout=240, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr, done.returncode


class Protocol(unittest.TestCase):
    def ask(self, *requests):
        return converse([sys.executable, "-c", COUNTER], requests)

    def test_answers_in_order(self):
        answers, printed, status = self.ask("run", "run 3", "count", "quit", "count")
        self.assertEqual(answers[0], {"ready": True})
        self.assertGreaterEqual(answers[2]["seconds"], 0)
        self.assertEqual(answers[3], {"runs": 4})
        self.assertEqual(len(answers), 4)
        self.assertIn("what libraries print", printed)
        self.assertEqual(status, 0)

    def test_end_of_input_is_the_end(self):
        self.assertEqual(self.ask()[2], 0)

    def test_mistakes_are_answers(self):
        for request in ("walk", "run fast", "run -1"):
            answers, _, status = self.ask(request, "run")
            self.assertIn("unknown request", answers[-1]["error"])
            self.assertEqual(len(answers), 2)
            self.assertEqual(status, 1)
        answers, _, status = self.ask("break")
        self.assertIn("ZeroDivisionError", answers[-1]["error"])


class Cases(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, os.path.join(ROOT, "bench/peers"))
        import layer_worker
        self.parse = layer_worker.parse_case

    def test_good(self):
        self.assertEqual(self.parse(json.dumps(CASE)), CASE)

    def test_bad(self):
        for change, words in (({"kernel": 0}, "positive"), ({"dim": "8"}, "positive"),
                              ({"pass": "back"}, "back")):
            with self.assertRaisesRegex(ValueError, words):
                self.parse(json.dumps({**CASE, **change}))
        with self.assertRaisesRegex(ValueError, "needs file"):
            self.parse(json.dumps({k: v for k, v in CASE.items() if k != "file"}))


MAKE_FILE = """
import sys, torch
from safetensors.torch import save_file
import layers
torch.manual_seed(0)
case = dict(kernel=3, height=16, width=16, dim=8, heads=8, queries=2)
layer, x = layers.Conv(case), torch.randn(1, 16, 16, 8)
save_file({"x": x, "gradient": torch.randn_like(x), "conv.answer": layer(x).detach().contiguous(),
           "conv.conv.weight": layer.conv.weight.detach().contiguous()}, sys.argv[1])
"""


MAKE_DETR = """
import json, sys, torch
from safetensors.torch import save_file
import detr
torch.manual_seed(0)
config = {**detr.FIXED, "hidden": 16, "heads": 2, "encoder_blocks": 1, "decoder_blocks": 2,
          "feedforward": 24, "queries": 10, "classes": 3, "dropout": 0.1, "qna": {"blocks": 0}}
save_file(detr.DETR(config).state_dict(), sys.argv[1], {"config": json.dumps(config)})
"""


class Subject(unittest.TestCase):
    def python(self, *modules):
        """That of the peers, if it has what is needed."""
        python = os.path.join(ROOT, "build/peers/bin/python")
        if not os.path.exists(python):
            self.skipTest("bench/peers/setup has not been run")
        for module in modules:
            if converse([python, "-c", f"import {module}"], [])[2] != 0:
                self.skipTest(f"bench/peers/setup has not been run since {module} is needed")
        return python

    def test_detr(self):
        python = self.python("scipy")
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "detr.safetensors")
            _, errors, status = converse([python, "-c", MAKE_DETR, file], [])
            self.assertEqual(status, 0, errors)
            worker = [python, os.path.join(ROOT, "bench/peers/worker.py"), "--threads", "1", "--image",
                      "64", "--weights", file]
            for subject, batch in (("detr-train", "2"), ("detr-detect", "1")):
                answers, errors, status = converse([*worker, "--subject", subject, "--batch", batch],
                                                   ["run"])
                self.assertEqual(status, 0, (answers, errors))
                self.assertGreater(answers[1]["seconds"], 0)

    def test_runs_cases(self):
        python = self.python()
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "case.safetensors")
            _, errors, status = converse([python, "-c", MAKE_FILE, file], [])
            self.assertEqual(status, 0, errors)
            worker = os.path.join(ROOT, "bench/peers/layer_worker.py")
            cases = ["case " + json.dumps({**CASE, "file": file, "pass": name})
                     for name in ("forward", "train")]
            answers, errors, status = converse([python, worker, "--subject", "conv", "--threads", "1"],
                                               [cases[0], "run 2", "release", cases[1], "run"])
        self.assertEqual(status, 0, (answers, errors))
        map_bytes = 16 * 16 * 8 * 4
        weight_bytes = 8 * 8 * 3 * 3 * 4
        self.assertLess(answers[1]["max_difference"], 1e-5)
        self.assertEqual(answers[1]["wanted_bytes"], map_bytes)
        self.assertEqual(answers[4]["wanted_bytes"], 2 * map_bytes + weight_bytes)
        for answer in (answers[1], answers[4]):
            self.assertEqual(answer["memory"], "counted")
            self.assertGreaterEqual(answer["peak_bytes"], answer["wanted_bytes"])
        self.assertGreater(answers[5]["seconds"], 0)


if __name__ == "__main__":
    ROOT = os.path.abspath(sys.argv.pop(1))
    unittest.main()

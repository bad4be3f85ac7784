"""What tests of the programs share: running them, what to expect of them, and small files.

A test is called with PROGRAM [FOLDER]; standard library only.
"""

import csv
import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zlib

PATH = ""  # of the program; set by take_arguments


# A classifier that trains in seconds, as a recipe has it. Keys of [model.config] may follow. For str.format.
SMALL_NETWORK = """[model]
name = "qna_vit_pico"

[model.config]
base_dim = 8
stages = [
  {{ qna_blocks = 1, qna_heads = 2 }},
  {{ attention_blocks = 1, attention_heads = 2, qna_heads = 2, window = 4 }},
]
"""


def take_arguments(folder=True):
    """PROGRAM [FOLDER] of the command line; the rest is for unittest. Returns the folder."""
    global PATH
    PATH = sys.argv.pop(1)
    return sys.argv.pop(1) if folder else None


# ---- processes ----

def environment(**more):
    """Without what would change a run; with `more`."""
    hidden = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE", "QNA_KERNEL")
    clean = {k: v for k, v in os.environ.items() if k not in hidden}
    return {**clean, **{k: str(v) for k, v in more.items()}}


def run(*arguments, program=None, timeout=240, **more):
    """The finished process. Names in capitals are variables of its environment, others are options of
    subprocess.run."""
    variables = {k: v for k, v in more.items() if k.isupper()}
    options = {k: v for k, v in more.items() if not k.isupper()}
    return subprocess.run([program or PATH, *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, env=environment(**variables), **options)


def start(*arguments, **more):
    return subprocess.Popen([PATH, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(**more))


def kill_after(seconds, *arguments):
    """Starts the program and kills it after so long, unless it has ended by then."""
    process = start(*arguments)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def settings(*pairs):
    """The arguments that set these keys of a recipe."""
    return [word for pair in pairs for word in ("--set", pair)]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ProgramTest(unittest.TestCase):
    """A temporary folder for all tests of a class, and what to expect of a finished process."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.folder, *names)

    def expect_words(self, text, *words):
        for word in words:
            self.assertIn(word, text)

    def succeed(self, *arguments, stderr=None, **options):
        """Runs the program, which must succeed, and print just that to stderr if given."""
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        if stderr is not None:
            self.assertEqual(done.stderr, stderr)
        return done

    def expect_failure(self, done, *words, status=None):
        """The words stand in stderr."""
        if status is None:
            self.assertNotEqual(done.returncode, 0, words)
        else:
            self.assertEqual(done.returncode, status, done.stderr)
        self.expect_words(done.stderr, *words)
        self.assertNotIn("terminate", done.stderr)

    def expect_refusal(self, done, *words, status=None):
        """A failure before anything was printed."""
        self.expect_failure(done, *words, status=status)
        self.assertEqual(done.stdout, "")

    def wait_until(self, condition, what, seconds=60):
        until = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), until, what)
            time.sleep(0.005)


class TrainingTest(ProgramTest):
    """A class of these has `recipe`, the path of one."""

    def training(self, out, *more):
        """The arguments of a run in this folder."""
        return ["train", self.recipe, "-o", self.path(out), *more]

    def train_with(self, *pairs, recipe=None, **options):
        """A run in a folder of its own with these settings, which may fail."""
        out = os.path.join(tempfile.mkdtemp(dir=self.folder), "run")
        return run("train", recipe or self.recipe, "-o", out, *settings(*pairs), **options)

    def expect_bad_settings(self, *mistakes):
        for pair, *words in mistakes:
            with self.subTest(pair):
                self.expect_failure(self.train_with(pair), *words)

    def expect_png(self, path):
        self.assertEqual(read_bytes(path)[:4], b"\x89PNG")


# ---- files ----

def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def write_bytes(path, data):
    with open(path, "wb") as file:
        file.write(data)
    return path


def read_json(path):
    return json.loads(read(path))


def write_json(path, content):
    return write(path, json.dumps(content))


def read_lines(path):
    """Of a file of JSON lines."""
    return [json.loads(line) for line in read(path).splitlines()]


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def png(pixels, width, height):
    """The bytes of an RGB image."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    rows = b"".join(b"\0" + bytes(pixels[3 * width * y:3 * width * (y + 1)])
                    for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def noisy_png(color, numbers, width, height):
    """A picture of noise around one colour: easy to learn, not to be learned at once."""
    pixels = [min(255, max(0, int(numbers.gauss(color[p % 3], 60)))) for p in range(3 * width * height)]
    return png(pixels, width, height)


def make_class_folders(folder, colors, width, height, **splits):
    """Noisy pictures of one colour per class; splits: their names, and how many each class has."""
    numbers = random.Random(5)
    for split, count in splits.items():
        for name, color in colors.items():
            os.makedirs(os.path.join(folder, split, name))
            for i in range(count):
                write_bytes(os.path.join(folder, split, name, f"{i}.png"), noisy_png(color, numbers, width, height))


def split_safetensors(path):
    """Metadata, what is said of each tensor by name, and all their bytes."""
    content = read_bytes(path)
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    return header.pop("__metadata__", {}), header, content[begin:]


def read_safetensors(path):
    """Metadata and the tensors' bytes by name."""
    metadata, header, body = split_safetensors(path)
    return metadata, {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


# ---- runs of training ----

def weights_of(folder):
    """The tensors of a run's last checkpoint: bytes by name."""
    return read_safetensors(f"{folder}/last.safetensors")[1]


def state_of(weights):
    """How far a run was when it wrote this checkpoint."""
    return json.loads(split_safetensors(weights)[0]["training"])["state"]


def epochs_of(folder):
    return [line for line in read_lines(f"{folder}/log.jsonl") if line["kind"] == "epoch"]


def gradients(folder):
    """Of a run of one step: the optimiser's mean is (1 - beta) times the gradient."""
    return {name: floats(data) for name, data in weights_of(folder).items() if "/exp_avg/" in name}


def relative_difference(expected, actual):
    """The norm of the difference of two such dictionaries over the norm of the first."""
    square = difference = 0.0
    for name, numbers in expected.items():
        for a, b in zip(numbers, actual[name], strict=True):
            square += a * a
            difference += (a - b) * (a - b)
    return (difference / square) ** 0.5

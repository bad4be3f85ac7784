"""Event files as TensorBoard itself reads them, every value of them.

Run by CTest with the path of report_example. Needs the Python package tensorboard; without it the
test is reported as skipped (exit status 77).
"""

import math
import os
import pathlib
import struct
import sys
import unittest
import zlib

try:
    from tensorboard.backend.event_processing import event_accumulator, event_file_loader
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import ProgramTest, run, take_arguments


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def pixel(i):
    return i * 7 % 251


def png_pixels(png):
    """Height, width, channels and pixels of an 8-bit PNG whose rows may be filtered."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, color = struct.unpack(">IIBB", body[:10])
        if kind == b"IDAT":
            data += body
        at += size + 12
    assert depth == 8
    channels = {0: 1, 2: 3}[color]
    raw, stride = zlib.decompress(data), width * channels
    rows, above = [], bytearray(stride)
    for y in range(height):
        kind, row = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for x in range(stride):
            a = row[x - channels] if x >= channels else 0
            b, c = above[x], above[x - channels] if x >= channels else 0
            p = a + b - c
            paeth = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[x] = (row[x] + (0, a, b, (a + b) // 2, paeth)[kind]) % 256
        rows.append(bytes(row))
        above = row
    return height, width, channels, b"".join(rows)


class EventFiles(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run(cls.folder, check=True)
        cls.events = pathlib.Path(cls.folder, "events")
        # 0: keep everything.
        kinds = (event_accumulator.SCALARS, event_accumulator.IMAGES, event_accumulator.TENSORS)
        cls.seen = event_accumulator.EventAccumulator(str(cls.events), dict.fromkeys(kinds, 0))
        cls.seen.Reload()

    def test_tags(self):
        tags = self.seen.Tags()
        self.assertEqual(sorted(tags["scalars"]),
                         ["odd/infinity", "odd/large step", "odd/nan", "train/loss"])
        self.assertEqual(sorted(tags["images"]), ["picture/colour", "picture/grey"])
        self.assertEqual(sorted(tags["tensors"]), ["empty", "recipe"])

    def test_resumed_run_is_one_curve(self):
        events = self.seen.Scalars("train/loss")
        self.assertEqual([e.step for e in events], list(range(100)))
        self.assertEqual([e.value for e in events], [float32(2.5 / (1 + i)) for i in range(100)])
        times = [e.wall_time for e in events]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 1.6e9)

    def test_odd_numbers(self):
        (nan,) = self.seen.Scalars("odd/nan")
        self.assertTrue(math.isnan(nan.value))
        (infinity,) = self.seen.Scalars("odd/infinity")
        self.assertEqual((infinity.step, infinity.value), (2, -math.inf))
        # Written before the run was resumed at step 60, and so void.
        self.assertEqual(self.seen.Scalars("odd/large step"), [])

    def test_every_record_of_both_files(self):
        """Without the accumulator, which hides what the resumed run made void."""
        files = sorted(self.events.iterdir())
        self.assertEqual(len(files), 2)
        first, second = ([*event_file_loader.EventFileLoader(str(f)).Load()] for f in files)
        self.assertEqual(len(first), 1 + 80 + 3 + 2 + 2)
        self.assertEqual(len(second), 1 + 1 + 40)
        for events in (first, second):
            self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual(second[1].session_log.status, 1)
        self.assertEqual(second[1].step, 60)
        large = [e for e in first if e.step == 1 << 40]
        self.assertEqual(len(large), 1)

    def test_text(self):
        (text,) = self.seen.Tensors("recipe")
        self.assertEqual([s.decode() for s in text.tensor_proto.string_val],
                         ["# Title\n\n`lr = 0.1` \u00e4 <b>"])
        (empty,) = self.seen.Tensors("empty")
        self.assertEqual(list(empty.tensor_proto.string_val), [b""])
        metadata = self.seen.SummaryMetadata("recipe")
        self.assertEqual(metadata.plugin_data.plugin_name, "text")

    def test_images(self):
        for tag, step, shape in (("picture/colour", 5, (9, 7, 3)), ("picture/grey", 6, (200, 3, 1))):
            (image,) = self.seen.Images(tag)
            self.assertEqual((image.step, image.height, image.width), (step, *shape[:2]))
            *size, pixels = png_pixels(image.encoded_image_string)
            self.assertEqual(tuple(size), shape)
            self.assertEqual(pixels, bytes(pixel(i) for i in range(math.prod(shape))))


if __name__ == "__main__":
    take_arguments(folder=False)
    unittest.main()

"""The page of `qna attend --explore` in a real browser: opened, pointed at, chosen from, looked at.

Run by CTest with the path of the program and of the repository. Standard library only; needs Chromium, and is
skipped without it. QNA_SCREENSHOTS=<folder> keeps what it saw.
"""

import base64
import json
import math
import os
import random
import re
import struct
import sys
import unittest
import xml.etree.ElementTree as ET
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import browser
import detr_shapes
from program import ProgramTest, png, read, read_bytes, run, split_safetensors, take_arguments, write_bytes

REPOSITORY = ""


# ---- the page's numbers, by the formulas of qna/report/explorer.h ----

def numbers(text, kind):
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // struct.calcsize(kind)}{kind}", data)


def unpack(packed):
    if packed["type"] == "float32":
        return numbers(packed["data"], "f")
    low, step = numbers(packed["low"], "f"), numbers(packed["step"], "f")
    return [low[i % len(low)] + step[i % len(low)] * level
            for i, level in enumerate(numbers(packed["data"], "H"))]


def page_data(path):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', read(path), re.S)[1])


def window_weights(layer, row, column, query, head):
    """p over the taps, None outside the map."""
    scores, bias = unpack(layer["scores"]), unpack(layer["bias"])
    columns, k = layer["queries"] * layer["heads"], query * layer["heads"] + head
    kernel, stride, padding = layer["kernel"], layer["window_stride"], layer["padding"]
    found = []
    for t in range(kernel[0] * kernel[1]):
        y = row * stride[0] - padding[0] + t // kernel[1]
        x = column * stride[1] - padding[1] + t % kernel[1]
        inside = 0 <= y < layer["height"] and 0 <= x < layer["width"]
        found.append(scores[(y * layer["width"] + x) * columns + k] + (bias[t * columns + k] if bias else 0)
                     if inside else None)
    total = sum(math.exp(s) for s in found if s is not None)
    return [None if s is None else math.exp(s) / total for s in found]


def pixels(picture):
    """Rows of bytes of a PNG file of Chromium's: 8 bits, no interlacing. Channels too."""
    width, height, _, kind = struct.unpack(">IIBB", picture[16:26])
    channels = {2: 3, 6: 4}[kind]
    at, packed = 8, b""
    while at < len(picture):
        size, name = struct.unpack(">I4s", picture[at:at + 8])
        if name == b"IDAT":
            packed += picture[at + 8:at + 8 + size]
        at += size + 12
    data, rows, before = zlib.decompress(packed), [], bytes(width * channels)
    for y in range(height):
        line = data[y * (width * channels + 1):(y + 1) * (width * channels + 1)]
        row = bytearray(line[1:])
        for i in range(len(row)):
            left = row[i - channels] if i >= channels else 0
            corner = before[i - channels] if i >= channels else 0
            up = before[i]
            if line[0] == 4:
                guess = left + up - corner
                near = sorted((abs(guess - v), n, v) for n, v in enumerate((left, up, corner)))[0][2]
            else:
                near = (0, left, up, (left + up) // 2)[line[0]]
            row[i] = (row[i] + near) & 255
        rows.append(bytes(row))
        before = rows[-1]
    return rows, channels


def colour_at(picture, x, y):
    rows, channels = pixels(picture)
    return tuple(rows[int(y)][int(x) * channels:int(x) * channels + 3])


class InBrowser(ProgramTest):
    """A page of `qna attend --explore` and a browser to look at it; weights() says of which network."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        side = 160
        colours = [v for y in range(side) for x in range(side)
                   for v in ((x * 3 // 2 & 255, y * 3 // 2 & 255, 255 * (math.hypot(x - 80, y - 70) < 40)))]
        cls.picture = write_bytes(cls.path("a <b> & c.png"), png([int(v) for v in colours], side, side))
        cls.page = cls.path("page.html")
        run("attend", "--explore", *cls.weights(), cls.picture, "-o", cls.page, check=True)
        cls.data = page_data(cls.page)
        cls.browser = browser.Browser(browser.find_browser())
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def weights(cls):
        return []

    def open(self, fragment="", page=None, **size):
        self.browser.size(**{"width": 1200, "height": 860, **size})
        self.browser.open(page or self.page, fragment)
        self.browser.wait_for("document.querySelectorAll('.explorer .head').length > 0 || "
                              "!document.querySelector('.boxes-part').hidden")

    def tearDown(self):
        self.assertEqual(self.browser.problems, [])
        own = ("file:", "data:", "about:")
        self.assertEqual([url for url in self.browser.requests if not url.startswith(own)], [])

    def shot(self, name):
        folder = os.environ.get("QNA_SCREENSHOTS")
        return self.browser.screenshot(os.path.join(folder, name + ".png") if folder else None)

    def text(self, selector):
        return self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")

    def facts(self):
        labels, values = (self.browser.evaluate(
            f"[...document.querySelectorAll('.facts {tag}')].map((e) => e.textContent)")
            for tag in ("dt", "dd"))
        return dict(zip(labels, values, strict=True))

    def shown_weights(self):
        return self.browser.evaluate(
            "[...document.querySelectorAll('.lens td')]"
            ".map((e) => e.className === 'outside' ? null : Number(e.title))")

    def chosen_box(self):
        return self.browser.evaluate(
            "[...document.querySelectorAll('.box')].findIndex((e) => e.ariaChecked === 'true')")

    def layer(self, name):
        return next(layer for layer in self.data["layers"] if layer["name"] == name)

    def expect_window(self, name, row, column, query, head):
        expected, shown = window_weights(self.layer(name), row, column, query, head), self.shown_weights()
        self.assertEqual([v is None for v in shown], [v is None for v in expected])
        for a, b in zip(shown, expected, strict=True):
            if a is not None:
                self.assertAlmostEqual(a, b, places=5)


class Classifier(InBrowser):
    def test_is_alone_and_well_formed(self):
        text = read(self.page)
        self.assertLess(os.path.getsize(self.page), 5_000_000)
        page = ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
        self.assertEqual(page.find("head/title").text, "a <b> & c.png")
        for word in ("http://", "https://", "url(", "@import", "<link"):
            self.assertNotIn(word, text)

    def test_mouse_moves_the_window(self):
        self.open("#layer=stages.0.blocks.1&query=1&head=2")
        layer = self.layer("stages.0.blocks.1")
        for row, column in ((0, 0), (3, 5), (layer["height"] - 1, layer["width"] - 1)):
            # The middle of a place; the picture has one for each.
            self.browser.move(".view", (column + 0.5) / layer["width"], (row + 0.5) / layer["height"])
            self.assertIn(f"row {row}, column {column} of", self.facts()["Window"])
            self.assertEqual(self.facts()["Sum"], "1.000")
            self.expect_window(layer["name"], row, column, 1, 2)

    def test_the_window_lies_where_it_says(self):
        """The brightest tap is the most orange place of the picture's part."""
        self.open("#layer=stages.0.blocks.1&query=0&head=3&y=0.45&x=0.45")
        layer, shown = self.layer("stages.0.blocks.1"), self.shown_weights()
        row, column = map(int, re.findall(r"\d+", self.facts()["Window"])[:2])
        picture = self.shot("window")
        self.assertNotIn(None, shown)
        best, least = shown.index(max(shown)), shown.index(min(shown))

        def orange(tap):
            y, x = row - 1 + tap // 3, column - 1 + tap % 3
            colour = colour_at(picture, *self.browser.place(
                ".view", (x + 0.5) / layer["width"], (y + 0.5) / layer["height"]))
            return colour[0] - colour[2]
        self.assertGreater(orange(best), 100)
        self.assertGreater(orange(best), orange(least))

    def test_keys_move_by_one_window(self):
        self.open("#layer=stages.0.downsample&query=0&head=0&y=0.3&x=0.5")
        before = list(map(int, re.findall(r"\d+", self.facts()["Window"])[:2]))
        self.browser.evaluate("document.querySelector('.view').focus()")
        for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
            self.browser.press(key)
        after = list(map(int, re.findall(r"\d+", self.facts()["Window"])[:2]))
        self.assertEqual(after, [before[0] + 2, before[1] - 1])
        self.expect_window("stages.0.downsample", *after, 0, 0)

    def test_choices(self):
        self.open()
        self.browser.choose("select.layer", "stages.0.downsample")
        heads = self.layer("stages.0.downsample")["heads"]
        self.browser.wait_for(f"document.querySelectorAll('.head').length === {heads + 1}")  # and the mean
        self.assertIn("stride 2", self.text(".about"))
        self.browser.click(".head:nth-child(4)")
        chosen = self.browser.evaluate("document.querySelector('.head[aria-checked=true]').ariaLabel")
        self.assertEqual(chosen, "head 2")
        self.browser.choose("select.query", "1")
        self.browser.move(".view", 0.3, 0.7)
        row, column = map(int, re.findall(r"\d+", self.facts()["Window"])[:2])
        self.expect_window("stages.0.downsample", row, column, 1, 2)
        self.browser.choose("select.query", "weight")
        layer = self.layer("stages.0.downsample")
        scale, columns = unpack(layer["scale"]), layer["queries"] * layer["heads"]
        each = [window_weights(layer, row, column, query, 2) for query in range(layer["queries"])]
        for t, shown in enumerate(self.shown_weights()):
            expected = sum(scale[t * columns + query * layer["heads"] + 2] * each[query][t]
                           for query in range(layer["queries"]))
            self.assertAlmostEqual(shown, expected, places=5)

    def test_sum_over_windows(self):
        self.open("#layer=stages.0.blocks.1&query=0&head=1&y=0.2&x=0.6")
        self.browser.click("input.sum")
        layer = self.layer("stages.0.blocks.1")
        y, x = int(0.2 * layer["height"]), int(0.6 * layer["width"])
        expected = 0
        for i in range(y - 1, y + 2):
            for j in range(x - 1, x + 2):
                tap = (y - i + 1) * 3 + x - j + 1
                expected += window_weights(layer, i, j, 0, 1)[tap]
        self.assertAlmostEqual(float(self.facts()["Sum here"]), expected, delta=0.006)
        self.assertTrue(self.text(".legend .means").startswith("1: as much as each place gets"))
        self.shot("sum")

    def test_self_attention(self):
        self.open("#layer=stages.0.blocks.0&head=1")
        self.browser.move(".view", 0.1, 0.9)
        shown = self.shown_weights()
        self.assertEqual(len(shown), 64)
        self.assertAlmostEqual(sum(shown), 1, places=4)
        self.assertTrue(self.browser.evaluate("document.querySelector('select.query').disabled"))

    def test_prediction_is_that_of_predict(self):
        self.open()
        names = self.browser.evaluate(
            "[...document.querySelectorAll('.classes .name')].map((e) => e.textContent)")
        self.assertEqual(len(names), 5)
        said = json.loads(run("predict", self.picture, "--json").stdout)
        self.assertEqual(names, [each["label"] for each in said["predictions"]])

    def test_address_says_what_is_shown(self):
        self.open()
        self.browser.choose("select.layer", "stages.0.blocks.3")
        self.browser.move(".view", 0.25, 0.75)
        self.browser.wait_for("location.hash.includes('x=0.2500')")
        fragment = self.browser.evaluate("location.hash")
        facts = self.facts()
        self.open(fragment)
        self.assertEqual(self.facts(), facts)

    def test_addresses_that_make_no_sense(self):
        for fragment in ("#layer=none&head=99&query=7&x=nan&y=9&box=-1", "#%%%", "#head=-5&query=<b>"):
            self.open(fragment)
            self.assertEqual(self.facts()["Sum"], "1.000")

    def test_phone(self):
        for width in (360, 390):
            self.open(width=width, height=844, phone=True, dark=True)
            self.browser.tap(".view", 0.7, 0.2)
            self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), width)
            row, column = map(int, re.findall(r"\d+", self.facts()["Window"])[:2])
            layer = self.layer(self.browser.evaluate("document.querySelector('select.layer').value"))
            self.assertEqual((row, column), (int(0.2 * layer["height"]), int(0.7 * layer["width"])))
            self.shot(f"phone{width}")
            self.browser.place(".window-part")
            self.shot(f"phone{width}-below")

    def test_controls_have_names(self):
        self.open()
        nameless = self.browser.evaluate(
            "[...document.querySelectorAll('select, input, button, .view')].filter((e) =>"
            " !(e.labels && e.labels.length) && !e.ariaLabel && !e.textContent.trim()).length")
        self.assertEqual(nameless, 0)

    def test_light_and_dark(self):
        colours = []
        for dark in (False, True):
            self.open(dark=dark)
            colours.append(colour_at(self.shot("dark" if dark else "light"), 2, 2))
        self.assertGreater(min(colours[0]), 200)
        self.assertLess(max(colours[1]), 60)


class Detector(InBrowser):
    @classmethod
    def weights(cls):
        """All that lies behind the backbone is random, so that every object query differs."""
        weights = cls.path("detector.safetensors")
        detr_shapes.write_detector(weights)
        _, tensors, body = split_safetensors(weights)
        content = bytearray(read_bytes(weights))
        begin, source = len(content) - len(body), random.Random(3)
        for name, entry in sorted(tensors.items()):
            if not name.startswith("backbone."):
                first, end = (begin + at for at in entry["data_offsets"])
                at_random = [source.gauss(0, 0.5) for _ in range((end - first) // 4)]
                content[first:end] = struct.pack(f"<{len(at_random)}f", *at_random)
        return [write_bytes(weights, content), "--threshold", "0"]

    def test_boxes(self):
        self.open()
        boxes = self.data["decoder"]["boxes"]
        self.assertEqual(len(boxes), 5)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('.box').length"), 5)
        self.assertEqual(self.chosen_box(), 0)
        for selector in (".toggle", ".query-label", ".heads-part", ".lens"):  # are of no use here
            self.assertEqual(
                self.browser.evaluate(f"document.querySelector('{selector}').getClientRects().length"), 0)
        for n in (3, 1):
            self.browser.click(f".box:nth-child({n + 1})")
            self.assertEqual(self.chosen_box(), n)
            self.assertIn(boxes[n]["name"], self.facts()["Object"])
        self.browser.evaluate("document.querySelector('.view').focus()")
        self.browser.press("ArrowDown")
        self.assertEqual(self.chosen_box(), 2)
        self.shot("boxes")

    def test_where_the_decoder_looks(self):
        self.open("#layer=decoder&box=2")
        decoder = self.data["decoder"]
        weights = unpack(decoder["boxes"][2]["attention"])
        self.assertAlmostEqual(sum(weights), 1, places=4)
        for y, x in ((0, 0), (decoder["height"] - 1, decoder["width"] - 1)):
            self.browser.move(".view", (x + 0.5) / decoder["width"], (y + 0.5) / decoder["height"])
            shown = float(self.facts()["Here"].split()[0])
            even = weights[y * decoder["width"] + x] * len(weights)
            self.assertAlmostEqual(shown, even, delta=0.006 * even)

    def test_a_click_chooses_the_smallest_box(self):
        self.open("#layer=decoder&box=0")
        boxes = self.data["decoder"]["boxes"]

        def area(box):
            return (box[2] - box[0]) * (box[3] - box[1])
        smallest = min(range(5), key=lambda n: area(boxes[n]["box"]))
        left, top, right, bottom = boxes[smallest]["box"]
        self.browser.click(".view", (left + right) / 2, (top + bottom) / 2)
        self.assertEqual(self.chosen_box(), smallest)


if __name__ == "__main__":
    if browser.find_browser() is None:
        print("skipped: there is no Chromium")
        sys.exit(77)
    REPOSITORY = take_arguments()
    unittest.main()

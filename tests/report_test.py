"""Pages and charts of qna/report, read by a strict XML parser.

Run by CTest with the path of report_example; standard library only.
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import unittest
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
from program import ProgramTest, run, take_arguments

SVG = "{http://www.w3.org/2000/svg}"
# What every text of hostile.html is, as a browser must show it: control characters and bytes that
# are not UTF-8 replaced.
EVIL = re.compile("<script>alert\\(\"1\"\\)</script>'&amp;\ufffd+ \\]\\]> --> </style></svg></pre>")


class Reports(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        run(cls.folder, check=True)
        cls.folder = pathlib.Path(cls.folder)

    def page(self, name):
        text = (self.folder / name).read_text(encoding="utf-8")
        self.assertTrue(text.startswith("<!DOCTYPE html>\n"))
        return ET.fromstring(text.removeprefix("<!DOCTYPE html>\n"))

    def test_charts_are_svg_with_numbers_only(self):
        files = sorted(self.folder.glob("*.svg"))
        self.assertEqual(len(files), 4 + 6)
        for file in files:
            root = ET.parse(file).getroot()
            self.assertEqual(root.tag, SVG + "svg")
            left, top, width, height = map(float, root.get("viewBox").split())
            for element in root.iter():
                for key in ("x", "y", "cx", "cy", "r"):
                    if key in element.attrib:
                        value = float(element.get(key))
                        self.assertTrue(0 <= value <= max(width, height), (file.name, key, value))
                if element.tag == SVG + "path":
                    self.assertRegex(element.get("d"), r"^M[-0-9. LMhZ]+$")

    def test_pages_are_well_formed_and_alone(self):
        for file in self.folder.glob("*.html"):
            page = self.page(file.name)
            tags = {element.tag.removeprefix(SVG) for element in page.iter()}
            self.assertFalse(tags & {"link", "iframe", "object", "form", "a"}, file.name)
            # The explorer's data and its program, which alone the page's policy allows to run.
            explored = file.name in ("report.html", "hostile.html")
            scripts = [element.get("type") for element in page.iter("script")]
            self.assertEqual(scripts, ["application/json", None] if explored else [])
            policy = page.find("head/meta[@http-equiv]").get("content")
            if explored:
                code = page.findall(".//script")[1]
                text = file.read_text(encoding="utf-8").rsplit("<script>", 1)[1].split("</script>")[0]
                self.assertIn("CDATA", text)
                self.assertGreater(len(code.text), 1000)
                digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
                self.assertTrue(policy.endswith(f"; script-src 'sha256-{digest}'"), policy)
            else:
                self.assertNotIn("script-src", policy)
            for element in page.iter():
                self.assertFalse([k for k in element.attrib if k.startswith("on")])
                self.assertNotIn("href", element.attrib)
                if element.tag == "img":
                    kind, data = element.get("src").split(",")
                    self.assertEqual(kind, "data:image/png;base64")
                    self.assertEqual(base64.b64decode(data, validate=True)[:4], b"\x89PNG")
                    self.assertIsNotNone(element.get("alt"))

    def test_hostile_text_shows_as_itself(self):
        page = self.page("hostile.html")
        for path in ("head/title", "body/main/h1", ".//dt", ".//dd", ".//li", ".//pre",
                     ".//figcaption/span"):
            found = page.findall(path)
            self.assertTrue(found, path)
            self.assertRegex(found[0].text, EVIL, path)
        for th in page.findall(".//th[@scope='row']"):
            self.assertRegex(th.text, EVIL)
            self.assertRegex(th.get("title"), EVIL)
        hover = [t.text for t in page.iter(SVG + "title")]
        self.assertTrue(any(EVIL.search(text) for text in hover))

    def test_good_report_has_all_parts(self):
        page = self.page("report.html")
        headings = [h.text for h in page.iter("h2")]
        self.assertEqual(headings, ["Notes", "What is taken for what", "Samples",
                                    "Where the model looks", "Look around in one picture", "Recipe",
                                    "Machine"])
        self.assertEqual(len(list(page.iter(SVG + "svg"))), 4)
        self.assertEqual(len(list(page.iter("img"))), 16 + 3 + 1)
        rows = page.findall(".//table/tbody/tr")
        self.assertEqual(len(rows), 10)
        # Class, ten counts, how many are right: the counts say so too.
        for i, row in enumerate(rows):
            counts = [int(td.text) for td in row.findall("td")[:10]]
            share = 100 * counts[i] / sum(counts)
            self.assertEqual(row.findall("td")[10].text, f"{share:.1f}%")

    def test_many_classes(self):
        for classes, rows in ((2, 2), (30, 30), (31, 30), (100, 30)):
            page = self.page(f"classes{classes}.html")
            self.assertEqual(len(page.findall(".//table/tbody/tr")), rows)
            times = [int(td.text) for td in page.findall(".//table[@class='pairs']/tbody/tr/td[3]")]
            self.assertEqual(times, sorted(times, reverse=True))
            self.assertEqual(len(times), 30 if classes > 30 else 0)


if __name__ == "__main__":
    take_arguments(folder=False)
    unittest.main()

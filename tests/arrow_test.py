"""Dependencies point one way: what the folders include is what ARCHITECTURE.md says they may know.

Run by CTest with the folder of the sources. The table's last column names the folders that one may know;
it may know theirs too.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path()
WITH_TORCH = {"ops", "nn", "models", "checkpoint", "tasks", "train"}


def folder_of(path):
    """qna/engine/model.h -> engine, cli/main.cc -> cli"""
    parts = path.split("/")
    return parts[1] if parts[0] == "qna" and len(parts) > 2 else parts[0]


def included():
    """For every folder the folders whose headers it includes, each with a file that does."""
    found = {}
    for top in ("qna", "cli", "bench"):
        for path in sorted((ROOT / top).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix not in (".cc", ".h", ".c") or "_test" in path.name or name == "qna/qna.h":
                continue
            # Two programs of cli/ train; the others must do without torch.
            trains = name in ("cli/finetune.cc", "cli/train.cc", "cli/torch_program.cc",
                              "cli/torch_program.h", "cli/training_run.cc", "cli/training_run.h")
            own = found.setdefault("train" if trains else folder_of(name), {})
            for header in re.findall(r'#include "((?:qna|cli|bench)/[^"]+)"', path.read_text()):
                if folder_of(header) != folder_of(name) and not (
                        trains and header.startswith(("qna/train/", "qna/finetune/"))):
                    own.setdefault(folder_of(header), name)
    return found


def allowed():
    """For every folder of the table the folders that it names."""
    table = {}
    for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines():
        row = re.match(r"\| `(?:qna/)?(\w+)/` \|.*\|([^|]*)\|$", line)
        if row:
            table[row[1]] = set(re.findall(r"`(\w+)`", row[2].split("; only")[0]))
    return {name: {known for known in names if known in table} | {"base"} - {name}
            for name, names in table.items()}


def reach(table, name, seen=()):
    """All folders behind `name`; fails in a circle."""
    if name in seen:
        raise AssertionError(f"a circle: {' -> '.join([*seen, name])}")
    all_of_them = set()
    for known in table[name]:
        all_of_them |= {known} | reach(table, known, (*seen, name))
    return all_of_them


class Arrow(unittest.TestCase):
    def test_includes(self):
        table = allowed()
        for name, headers in included().items():
            self.assertIn(name, table, "ARCHITECTURE.md's table has no row for it")
            for known, file in headers.items():
                self.assertIn(known, reach(table, name),
                              f"{file} includes {known}, which {name} may not know")

    def test_what_serves_knows_no_torch(self):
        table = allowed()
        for name in ("cli", "predict", "engine", "c", "recipe", "report", "coco", "data", "viz"):
            self.assertEqual(reach(table, name) & WITH_TORCH, set(), name)

    def test_every_folder_is_in_the_drawing(self):
        drawing = (ROOT / "ARCHITECTURE.md").read_text().split("```")[1]
        for folder in sorted(path.name for path in (ROOT / "qna").iterdir() if path.is_dir()):
            self.assertRegex(drawing, rf"\b{folder}\b")


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1))
    unittest.main()

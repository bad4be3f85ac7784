"""No stack traffic in the inner loops of the products: their sums stay in registers.

A compiler that decides otherwise costs a third of the speed and fails no other test. Looks into the compiled
kernels, for every instruction set: python3 inner_loops_test.py OBJECT...
"""
import re
import shutil
import subprocess
import sys

# The functions, and those that each instruction set must have: so that a rename cannot empty the test.
FUNCTIONS = re.compile(r"(N_\w+)::(GemmTile<(?:6, [24]|5, 5), false, [^>]*>|OuterTile<[24]>|AggregateNeighbours<[24], 4, [^>]*>)")
ENTRY = re.compile(r"^([0-9a-f]+) <(.*)>:$")
LINE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
VECTOR = re.compile(r"%[xyz]mm\d+")
FAMILIES = {
    "N_SSE4": ["GemmTile<6, 2, false, float", "GemmTile<6, 2, false, .*BFloat16", "OuterTile<2>",
               "AggregateNeighbours<2, 4, .*StoredWeights"],
    "N_AVX2": ["GemmTile<6, 2, false, float", "GemmTile<6, 2, false, .*BFloat16", "OuterTile<2>",
               "AggregateNeighbours<2, 4, .*StoredWeights"],
    "N_AVX3": ["GemmTile<6, 4, false, float", "GemmTile<5, 5, false, float", "GemmTile<6, 4, false, .*BFloat16",
               "GemmTile<5, 5, false, .*BFloat16", "OuterTile<4>", "AggregateNeighbours<4, 4, .*StoredWeights",
               "AggregateNeighbours<4, 4, .*FoldedWeights<4, 1>"],
}
STACK = re.compile(r"\(%rsp[,)]")
FRAME = re.compile(r"\(%r[sb]p[,)]")  # where %rbp is a frame pointer


def functions(objects):
    """Name and instructions (address, mnemonic, operands) of each function that is asked for."""
    for path in objects:
        text = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", path], check=True, text=True,
                              capture_output=True).stdout
        name, body = None, []
        for line in text.splitlines():
            entry = ENTRY.match(line)
            if entry:
                if name:
                    yield name, body
                found = FUNCTIONS.search(entry.group(2))
                # Not what calls it with such an argument.
                is_it = found and "lambda" not in entry.group(2) and "::_FUN" not in entry.group(2)
                name, body = (f"{found.group(1)} {found.group(2)}" if is_it else None), []
                continue
            found = LINE.match(line)
            if name and found:
                body.append((int(found.group(1), 16), found.group(2), found.group(3)))
        if name:
            yield name, body


def inner_loops(body):
    """Bodies of loops that hold no other loop."""
    spans = []
    for address, mnemonic, operands in body:
        target = re.match(r"([0-9a-f]+) <", operands)
        if mnemonic.startswith("j") and target and body[0][0] <= int(target.group(1), 16) <= address:
            spans.append((int(target.group(1), 16), address))
    for first, last in spans:
        if any((a, b) != (first, last) and first <= a and b <= last for a, b in spans):
            continue
        yield [row for row in body if first <= row[0] <= last]


def main():
    if shutil.which("objdump") is None:
        print("objdump is not there: apt-get install binutils")
        return 77
    seen, bad = {}, []
    for name, body in functions(sys.argv[1:]):
        products = 0
        has_frame = any(row[1] == "mov" and row[2] == "%rsp,%rbp" for row in body)
        stack = FRAME if has_frame else STACK
        for loop in inner_loops(body):
            multiplies = [row for row in loop if re.match(r"v?fn?m|v?mulps", row[1]) and VECTOR.search(row[2])]
            if len(multiplies) < 4:
                continue  # a copy
            products += 1
            on_stack = [row for row in loop if VECTOR.search(row[2]) and stack.search(row[2])]
            if on_stack:
                bad.append(f"{name}: {len(on_stack)} of {len(loop)} instructions use the stack, "
                           f"such as {on_stack[0][1]} {on_stack[0][2]}")
        if products == 0:
            bad.append(f"{name}: no inner loop was found")
        seen[name] = seen.get(name, 0) + 1
    for target, families in FAMILIES.items():
        names = sorted(name.split(" ", 1)[1] for name in seen if name.startswith(target + " "))
        print(target, ", ".join(names))
        for wanted in families:
            if not any(re.match(wanted, name) for name in names):
                bad.append(f"{target}: {wanted} was not found")
    for line in sorted(set(bad)):
        print("FAILED", line)
    return 1 if bad else 0


sys.exit(main())

"""Assignments that nothing reads are left out of a kernel's text, in time that grows with it."""

import random
import re

from aotc.aot.lower.kernel_file import _without_unread


def one_by_one(lines):
    """As it is defined: while some assignment's name stands nowhere else, that line goes."""
    while True:
        text = "\n".join(lines)
        for place, line in enumerate(lines):
            match = re.match(r" *(\w+) = ", line)
            if match and len(re.findall(rf"\b{match[1]}\b", text)) == 1:
                lines = lines[:place] + lines[place + 1 :]
                break
        else:
            return lines


def drawn(draw, count):
    names = [f"v{number}" for number in range(count)]
    lines = []
    for name in names:
        read = " + ".join(draw.choices(names, k=draw.randint(0, 2))) or "1"
        lines.append(f"{' ' * draw.choice((0, 4))}{draw.choice(names + [name] * 3)} = {read}")
    return [*lines, f"tl.store(out + {draw.choice(names)}, {draw.choice(names)})"]


def test_what_is_left_is_read():
    draw = random.Random(4)
    for _ in range(300):
        lines = drawn(draw, draw.randint(1, 12))
        assert _without_unread(lines) == one_by_one(lines), lines


def test_a_long_chain_that_nothing_reads():
    chain = [f"v{number + 1} = v{number} + 1" for number in range(20_000)]
    assert _without_unread(["v0 = 1", *chain, "tl.store(out, 1)"]) == ["tl.store(out, 1)"]

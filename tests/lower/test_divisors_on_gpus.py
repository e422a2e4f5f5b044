"""Integer divisions of GPU kernels, none of which LLVM could find to be by 0.

`movement 202611279200283`: it put quotients of bytes together, of which one left out was 0 / 0.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand

pytest.importorskip("triton")
TRAITS = GPUS[90]
DIVISION = re.compile(r"= [us](?:div|rem) (?:<\d+ x )?i\d+>? [^,]+, (?P<divisor>%?[-\w.]+|<.*>)")
NAME = re.compile(r"%[-\w.]+")
MOVED = ("extractelement", "insertelement", "shufflevector", "freeze")


def texts_of(outputs):
    for spec in lower(schedule(graph_of(outputs), TRAITS), TRAITS):
        candidate = spec.candidates[0]
        form = spec.form(candidate)
        params = [(row.name, row.type) for row in spec.params_of(candidate)]
        yield compile_kernel(form.source, form.function, params, candidate.config, "sm_90").texts[
            "ll"
        ]


def origins(name, text):
    """The lines that make the elements of a value."""
    (made,) = re.findall(rf"^\s*{re.escape(name)} = (.*)$", text, re.MULTILINE)
    if not made.startswith(MOVED):
        return [made]
    return [line for each in NAME.findall(made) for line in origins(each, text)]


def lines_of(sources):
    return [line for source in sources for line in source.splitlines()]


def parts(name, kind, divisor=None):
    """Quotients of rows of three beside others, of which a kernel leaves out one or the other."""
    first, second = (operand(each, 4, 3, dtype=kind) for each in "ab")
    divisors = [operand(each, 4, 3, dtype=kind) for each in "cd"]
    found = [
        op(name, one, divisor or other)
        for one, other in zip((first, second), divisors, strict=True)
    ]
    return op("concat", op("neg", found[0]), found[1], axis=1)


@pytest.mark.parametrize("kind", ["u8", "i8", "i16", "i32", "i64"])
@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
def test_no_divisor_is_what_was_loaded(name, kind):
    for text in texts_of([parts(name, kind)]):
        divisors = [row["divisor"] for row in DIVISION.finditer(text)]
        loaded = [each for each in divisors if each.startswith("%")]
        assert loaded
        for divisor in loaded:
            for made in origins(divisor, text):
                assert made.startswith("select") or "@llvm.umax" in made, made


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("number", [7, -3])
def test_numbers_are_divisors_as_they_are(name, number):
    divisor = op("scalar", value=number, dtype="i32")
    graph = graph_of([parts(name, "i32", divisor)])
    sources = [
        spec.form(spec.candidates[0]).source for spec in lower(schedule(graph, TRAITS), TRAITS)
    ]
    assert sources
    assert not any("tl.where(" in line and "== 0" in line for line in lines_of(sources))


@pytest.mark.parametrize("kind", ["i8", "i16", "i64"])
@pytest.mark.parametrize("number", [0, -1])
def test_numbers_that_do_not_divide_are_guarded(number, kind):
    divisor = op("scalar", value=number, dtype=kind)
    graph = graph_of([parts("floor_divide", kind, divisor)])
    sources = [
        spec.form(spec.candidates[0]).source for spec in lower(schedule(graph, TRAITS), TRAITS)
    ]
    assert any("tl.where(" in line and "== 0" in line for line in lines_of(sources))
    assert len(list(texts_of([parts("floor_divide", kind, divisor)]))) == len(sources)

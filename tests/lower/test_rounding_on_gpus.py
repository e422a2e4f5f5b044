"""What kernels for GPUs round by itself: quotients of f32, and products at several places."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from aotc.aot.ir.rounding import computed_apart
from aotc.aot.lower import lower
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.compile import compile_kernel
from aotc.aot.targets.cuda.machines import GPUS

sys.path.insert(0, str(Path(__file__).parent))

from case_graphs import graph_of, op, operand, weight

pytest.importorskip("triton")
TRAITS = GPUS[90]
ROWS, COLUMNS, SEEDS = 6, 40, 10
COMPUTED = ("mul", "div", "tanh", "reciprocal", "add", "sub", "mul", "log")


def moved(draw, node):
    """The node with its elements at other places, or some of them at their own."""
    kind = draw.choice(("flip", "roll", "join", "gather"))
    if kind == "flip":
        return op("flip", node, axes=(1,))
    if kind == "gather":
        return op("gather", node, operand("places", ROWS, COLUMNS, dtype="i64"), axis=1)
    cut = draw.randrange(1, COLUMNS)
    first = op("slice", node, axis=1, start=0, stop=cut, step=1)
    rest = op("slice", node, axis=1, start=cut, stop=COLUMNS, step=1)
    parts = (rest, first) if kind == "roll" else (weight("w", ROWS, cut), rest)
    return op("concat", *parts, axis=1)


def drawn(seed):
    """Random arithmetic, of which one value is subtracted from itself at other places."""
    draw = random.Random(seed)
    known = [operand(name, ROWS, COLUMNS) for name in "xyz"]
    for _ in range(draw.randrange(2, 5)):
        name = draw.choice(COMPUTED)
        count = 1 if name in ("tanh", "reciprocal", "log") else 2
        known.append(op(name, *draw.sample(known, count)))
    value = draw.choice(known[3:])
    return [op("sub", moved(draw, value), value)]


def specs(outputs):
    """(group, spec) of each kernel of a graph."""
    plan = schedule(graph_of(outputs), TRAITS)
    return zip(plan.launched, lower(plan, TRAITS), strict=True)


def ptx_of(spec):
    """PTX of a spec's first candidate."""
    candidate = spec.candidates[0]
    form, params = spec.form(candidate), [(row.name, row.type) for row in spec.params_of(candidate)]
    return compile_kernel(form.source, form.function, params, candidate.config, "sm_90").texts[
        "ptx"
    ]


def test_random_kernels():
    """No quotient is approximate; where a product is at several places, no sum takes one in: what
    is subtracted from itself leaves 0."""
    apart = 0
    for seed in range(SEEDS):
        for group, spec in specs(drawn(seed)):
            ptx, is_apart = ptx_of(spec), bool(computed_apart(group.nodes))
            assert not re.search(r"\bdiv\.(?:full|approx)\.", ptx)
            if any(node.op == "div" for node in group.nodes):
                assert "div.rn.f32" in ptx
            if is_apart:
                assert not re.search(r"\b(?:mul|add|sub)\.f32\b", ptx)
            apart += is_apart
    assert 2 <= apart < SEEDS


@pytest.mark.parametrize("reader", ["floor", "ceil", "trunc", "round", "cast", "ge", "fmod"])
def test_what_decides_by_a_quotient_sees_it_rounded_correctly(reader):
    x, y = operand("x", 64), operand("y", 64)
    quotient = op("div", x, y)
    more = {"dtype": "i32"} if reader == "cast" else {}
    given = (quotient, y) if reader in ("ge", "fmod") else (quotient,)
    ((_, spec),) = specs([op(reader, *given, **more)])
    assert "div.full" not in ptx_of(spec)


def test_other_kernels_fuse():
    """A product that one place reads joins its sum."""
    x, y, z = (operand(name, 64) for name in "xyz")
    ((_, spec),) = specs([op("add", op("mul", x, y), z)])
    assert "fma.rn.f32" in ptx_of(spec)

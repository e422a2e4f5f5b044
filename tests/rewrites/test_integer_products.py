"""Products of quantised numbers written out become products of their codes, at the same numbers."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.integer_products import BYTES, multiply_codes

ROWS, DEPTH, COLUMNS = 6, 40, 5
UNIT_ROUNDOFF = 2.0**-24


class Draft:
    """A graph of which inputs are added one by one, with their arrays."""

    def __init__(self, seed):
        self.draw, self.inputs, self.arrays = numpy.random.default_rng(seed), [], []

    def input(self, array, dtype):
        name = f"x{len(self.inputs)}"
        self.inputs.append(make("input", (), {"name": name, "dtype": dtype, "shape": array.shape}))
        self.arrays.append(array)
        return self.inputs[-1]

    def graph(self, output):
        names = tuple(each.attr("name") for each in self.inputs)
        return Graph(tuple(self.inputs), (output,), names, ("y",), {})

    def codes(self, shape, dtype):
        low, high = BYTES[dtype]
        made = self.draw.integers(low, high + 1, shape)
        made[0, 0], made[-1, -1] = low, high
        return self.input(made.astype("int8" if dtype == "i8" else "uint8"), dtype)

    def zero(self, how, shape, dtype):
        """A zero point as f32: None, a literal, bytes, or integers that were clamped."""
        low, high = BYTES[dtype]
        if how == "literal":
            return build.scalar(float(self.draw.integers(low, high + 1)), "f32")
        if how == "bytes":
            made = self.draw.integers(low, high + 1, shape).astype("uint8" if low == 0 else "int8")
            return build.cast(self.input(made, dtype), "f32")
        wild = self.input(self.draw.integers(-(1 << 40), 1 << 40, shape), "i64")
        return build.cast(build.minimum(build.maximum(wild, low), high), "f32")

    def operand(self, axis):
        """Scaled codes of a matrix whose dim `axis` is summed over, in one of the ways."""
        dtype, is_turned = self.draw.choice(["i8", "u8"]), bool(self.draw.integers(2))
        shape = (ROWS, DEPTH) if axis == 1 else (DEPTH, COLUMNS)
        own = (shape[0], 1) if axis == 1 else (1, shape[1])
        turned = lambda each: each[::-1] if is_turned else each  # noqa: E731
        found = build.cast(self.codes(turned(shape), dtype), "f32")
        how = self.draw.choice(["none", "literal", "bytes", "clamped"])
        parts = turned(own) if self.draw.integers(2) else ()
        if how != "none":
            found = found - self.zero(how, parts, dtype)
        if self.draw.integers(4):
            scale = self.input(self.draw.uniform(0.01, 0.1, turned(own)).astype("float32"), "f32")
            found = scale * found if self.draw.integers(2) else found * scale
        return build.transpose(found) if is_turned else found


def ops_of(graph):
    return [node.op for node in graph.nodes()]


@pytest.mark.parametrize("seed", range(120))
def test_codes_are_multiplied_at_the_same_numbers(seed):
    draft = Draft(seed)
    left, right = draft.operand(1), draft.operand(0)
    graph = draft.graph(make("matmul", (left, right)))
    found, count = multiply_codes(graph)
    assert count == 1
    assert "matmul_i8" in ops_of(found)
    assert "matmul" not in ops_of(found)
    (result,) = interpret(found, draft.arrays)
    parts = [interpret(draft.graph(each), draft.arrays)[0] for each in (left, right)]
    a, b = (part.astype("float64") for part in parts)
    # Parts have a rounding in f32 each; the new product three, and none in its sum.
    limit = 8 * UNIT_ROUNDOFF * (numpy.abs(a) @ numpy.abs(b)) + 1e-30
    assert (numpy.abs(result - a @ b) <= limit).all()


def plain(draft, dtype="i8", shape=(ROWS, DEPTH)):
    return build.cast(draft.codes(shape, dtype), "f32")


def no_whole_zero(draft):
    half = build.scalar(0.5, "f32")
    return plain(draft) - half, plain(draft, shape=(DEPTH, COLUMNS))


def no_known_zero(draft):
    wild = draft.input(numpy.array(3), "i64")
    return plain(draft) - build.cast(wild, "f32"), plain(draft, shape=(DEPTH, COLUMNS))


def a_scale_along_the_sum(draft):
    scale = draft.input(numpy.ones((1, DEPTH), "float32"), "f32")
    return plain(draft) * scale, plain(draft, shape=(DEPTH, COLUMNS))


def a_zero_behind_the_scale(draft):
    scale = draft.input(numpy.ones((ROWS, 1), "float32"), "f32")
    return plain(draft) * scale - 3.0, plain(draft, shape=(DEPTH, COLUMNS))


def no_codes(draft):
    x = draft.input(numpy.ones((ROWS, DEPTH), "float32"), "f32")
    return x, plain(draft, shape=(DEPTH, COLUMNS))


def too_deep(draft):
    deep = 1 << 17
    return plain(draft, "u8", (1, deep)), plain(draft, "u8", (deep, 1))


@pytest.mark.parametrize(
    "made",
    [
        no_whole_zero,
        no_known_zero,
        a_scale_along_the_sum,
        a_zero_behind_the_scale,
        no_codes,
        too_deep,
    ],
)
def test_others_stay(made):
    draft = Draft(0)
    graph = draft.graph(make("matmul", made(draft)))
    assert multiply_codes(graph) == (graph, 0)


def test_rows_of_more_dims():
    draft = Draft(1)
    codes = draft.input(draft.draw.integers(-128, 128, (2, 3, DEPTH)).astype("int8"), "i8")
    scale = draft.input(draft.draw.uniform(0.1, 1, (2, 1, 1)).astype("float32"), "f32")
    rows = build.reshape((build.cast(codes, "f32") - 7.0) * scale, (6, DEPTH))
    graph = draft.graph(make("matmul", (rows, plain(draft, shape=(DEPTH, COLUMNS)))))
    found, count = multiply_codes(graph)
    assert count == 1
    numpy.testing.assert_allclose(
        interpret(found, draft.arrays)[0], interpret(graph, draft.arrays)[0], rtol=1e-5, atol=1e-2
    )

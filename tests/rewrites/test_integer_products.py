"""Products of quantised numbers written out become products of their codes, at the same numbers."""

from __future__ import annotations

import math

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


def in_i16(draft):
    short = build.cast(plain(draft).inputs[0], "i16") - 32767
    return build.cast(short, "f32"), plain(draft, shape=(DEPTH, COLUMNS))


def cut_to_i16(draft):
    wide = build.cast(plain(draft).inputs[0], "i32") - 40000
    return build.cast(build.cast(wide, "i16"), "f32"), plain(draft, shape=(DEPTH, COLUMNS))


def in_f16(draft):
    short = build.cast(plain(draft).inputs[0], "f16") - 3000.0
    return build.cast(short, "f32"), plain(draft, shape=(DEPTH, COLUMNS))


def in_bf16(draft):
    short = build.cast(plain(draft).inputs[0], "bf16") - 131.0
    return build.cast(short, "f32"), plain(draft, shape=(DEPTH, COLUMNS))


def an_infinite_zero(draft):
    return plain(draft) - math.inf, plain(draft, shape=(DEPTH, COLUMNS))


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
        in_i16,
        cut_to_i16,
        in_f16,
        in_bf16,
        an_infinite_zero,
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


def windows(x, margin, value=0.0):
    """Rows of 3 × 3 windows of an image [N, H, W, C] with margins, channels last."""
    channels = x.shape[-1]
    low = (0, margin, margin, 0)
    attrs = {"axes": (1, 2), "sizes": (3, 3), "strides": (2, 1), "dilations": (1, 1)}
    found = make("window", (build.pad(x, low, low, value),), attrs)
    found = build.permute(found, (0, 1, 2, 4, 5, 3))
    return build.reshape(found, (found.type.numel // (9 * channels), 9 * channels))


def image(draft, dtype="u8", zero=None, scale=None):
    low, high = BYTES[dtype]
    made = draft.draw.integers(low, high + 1, (2, 7, 5, 3)).astype("uint8" if low == 0 else "int8")
    found = build.cast(draft.input(made, dtype), "f32")
    found = found if zero is None else found - zero
    return found * (draft.input(numpy.float32(0.03), "f32") if scale is None else scale)


def filters(draft):
    """[9 · C, Co] of filters [Co, C, 3, 3] with a scale for each result."""
    made = draft.draw.integers(-128, 128, (4, 3, 3, 3)).astype("int8")
    scale = draft.input(draft.draw.uniform(0.01, 0.1, (4, 1, 1, 1)).astype("float32"), "f32")
    found = build.cast(draft.input(made, "i8"), "f32") * scale
    return build.reshape(build.permute(found, (2, 3, 1, 0)), (27, 4))


@pytest.mark.parametrize("dtype", ["u8", "i8"])
@pytest.mark.parametrize("zero", [None, 100.0, 0.0])
@pytest.mark.parametrize("margin", [0, 1, 2])
def test_windows_of_an_image(margin, zero, dtype):
    draft = Draft(2)
    left, right = windows(image(draft, dtype, zero), margin), filters(draft)
    graph = draft.graph(make("matmul", (left, right)))
    found, count = multiply_codes(graph)
    assert count == 1
    (result,) = interpret(found, draft.arrays)
    a, b = (
        interpret(draft.graph(each), draft.arrays)[0].astype("float64") for each in (left, right)
    )
    limit = 8 * UNIT_ROUNDOFF * (numpy.abs(a) @ numpy.abs(b)) + 1e-30
    assert (numpy.abs(result - a @ b) <= limit).all()


def margins_of_one(draft):
    return windows(image(draft, zero=7.0), 1, value=1.0)


def a_margin_that_has_no_code(draft):
    return windows(image(draft, "i8", zero=128.0), 1)


def a_zero_that_is_computed(draft):
    zero = build.cast(draft.input(numpy.uint8(7), "u8"), "f32")
    return windows(image(draft, zero=zero), 1)


def a_scale_for_each_channel(draft):
    return windows(image(draft, scale=draft.input(numpy.ones((1, 1, 1, 3), "float32"), "f32")), 0)


@pytest.mark.parametrize(
    "made",
    [margins_of_one, a_margin_that_has_no_code, a_zero_that_is_computed, a_scale_for_each_channel],
)
def test_other_windows_stay(made):
    draft = Draft(3)
    graph = draft.graph(make("matmul", (made(draft), filters(draft))))
    assert multiply_codes(graph) == (graph, 0)


def test_a_computed_zero_without_margins():
    draft = Draft(4)
    zero = build.cast(draft.input(numpy.uint8(7), "u8"), "f32")
    graph = draft.graph(make("matmul", (windows(image(draft, zero=zero), 0), filters(draft))))
    found, count = multiply_codes(graph)
    assert count == 1
    pair = [interpret(each, draft.arrays)[0] for each in (found, graph)]
    numpy.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-3)

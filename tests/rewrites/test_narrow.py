"""Constants that are computed from narrower ones stay narrow, whatever expression widens them."""

from __future__ import annotations

import math

import numpy
import pytest

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.types import TensorType
from aotc.aot.rewrites.fold import PADDED_GROWTH, SMALL_BYTES
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

GPU = next(iter(GPUS.values()))
GROUP = 8


class _Random:
    """Random matrices [k, n] of f32, computed from constants of one byte an element."""

    def __init__(self, seed: int) -> None:
        self.draw = numpy.random.default_rng(seed)
        self.constants: dict[str, Constant] = {}

    def constant(self, dtype: str, shape: tuple[int, ...]) -> Node:
        name = f"c{len(self.constants)}"
        if dtype == "f32":
            values = self.draw.random(shape, "float32") + numpy.float32(0.5)
        else:
            low, high = (-128, 128) if dtype == "i8" else (0, 256)
            values = self.draw.integers(low, high, shape).astype(
                "int8" if dtype == "i8" else "uint8"
            )
        kind = TensorType(dtype, shape)
        self.constants[name] = Constant(name, kind, values, (name,))
        return build.constant(name, kind)

    def choose(self, *rows: object) -> object:
        return rows[int(self.draw.integers(len(rows)))]

    def numbers(self, rows: int, columns: int) -> Node:
        """Integers as a model stores them: whole bytes, halves of bytes by either order."""
        kind = self.choose("i8", "u8", "nibbles", "stacked")
        if kind in ("i8", "u8"):
            return self.constant(str(kind), (rows, columns))
        packed = self.constant("u8", (rows, columns // 2))
        low = build.pointwise("bitwise_and", packed, 15)
        high = build.pointwise("shift_right", packed, 4)
        if kind == "stacked":
            shape = (rows, columns // 2, 1)
            pairs = build.concat([build.reshape(low, shape), build.reshape(high, shape)], 2)
            return build.reshape(pairs, (rows, columns))
        return build.concat([low, high], 1)

    def matrix(self, inner: int, columns: int) -> Node:
        """Dequantised numbers, with scales of columns, of groups or none."""
        is_turned = self.choose(True, False)
        shape = (columns, inner) if is_turned else (inner, columns)
        found = build.cast(self.numbers(*shape), "f32")
        scales = self.choose("none", "rows", "columns", "groups", "one")
        if scales == "rows":
            found = found * self.constant("f32", (shape[0], 1))
        if scales == "columns":
            found = build.pointwise("sub", found, self.constant("f32", (1, shape[1])))
        if scales == "one":
            found = found * 0.125
        if scales == "groups":
            grouped = build.reshape(found, (shape[0], shape[1] // GROUP, GROUP))
            factors = self.constant("f32", (shape[0], shape[1] // GROUP, 1))
            found = build.reshape(grouped * build.expand(factors, grouped.shape), shape)
        return build.transpose(found) if is_turned else found


def _stored_bytes(graph: Graph) -> int:
    return sum(int(math.prod(each.type.shape)) * _size(each) for each in graph.constants.values())


def _size(constant: Constant) -> int:
    return {"f32": 4, "i64": 8, "i32": 4, "f64": 8}.get(constant.type.dtype, 1)


@pytest.mark.parametrize("traits", [CPU, GPU], ids=["cpu", "cuda"])
def test_random_expressions_are_stored_as_small_as_they_come(traits) -> None:
    for seed in range(60):
        random = _Random(seed)
        rows, inner, columns = (
            int(random.draw.choice(each)) for each in ((1, 3), (64, 96), (128, 200))
        )
        kind = TensorType("f32", (rows, inner))
        x = make("input", (), {"name": "x", "dtype": "f32", "shape": kind.shape})
        if random.choose(True, False):
            result = build.matmul(x, random.matrix(inner, columns))
        else:
            table = random.matrix(inner, columns)
            result = build.matmul(x, make("exp2", (table * 0.01,)))
        graph = Graph((x,), (result,), ("x",), ("y",), random.constants)
        before = _stored_bytes(graph)
        found, _ = rewrite(graph, traits)
        after = _stored_bytes(found)
        padded = before * 64 * math.ceil(columns / 64) / columns
        assert after <= padded + SMALL_BYTES, (seed, before, after)
        given = random.draw.standard_normal((rows, inner)).astype("float32")
        expected, got = interpret(graph, [given])[0], interpret(found, [given])[0]
        assert numpy.allclose(got, expected, rtol=1e-4, atol=1e-4 * numpy.abs(expected).max()), seed


def test_padding_does_not_allow_wider_numbers() -> None:
    """q · s for a padded q: four times the bytes are no padding."""
    random = _Random(0)
    q = random.constant("i8", (100, 300))
    padded = build.pad(build.cast(q, "f32"), (0, 0), (0, 20), 0.0)
    x = make("input", (), {"name": "x", "dtype": "f32", "shape": (100, 320)})
    graph = Graph((x,), (x * padded,), ("x",), ("y",), random.constants)
    found, _ = rewrite(graph, GPU)
    assert _stored_bytes(found) <= 100 * 320
    assert PADDED_GROWTH > 1

"""Which 16-bit values kernels have rounded, and conversions that no rule takes away."""

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph, IllegalNodeError, make
from aotc.aot.ir.reference import interpret
from aotc.aot.ir.rounding import is_rounded, rounded
from aotc.aot.ir.rules import apply_rules
from aotc.aot.rewrites.algebra import CASTS
from aotc.aot.rewrites.rewrite import INEXACT, rewrite
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from tests.rewrites.measure import Measuring

X = make("input", (), {"name": "x", "dtype": "bf16", "shape": (4, 8)})
WIDE = make("input", (), {"name": "w", "dtype": "f32", "shape": (4, 8)})
SUM = X + X


def simplified(node):
    inputs = (X, WIDE)
    graph = Graph(inputs, (node,), ("x", "w"), ("out",), {})
    return apply_rules(graph, CASTS)[0].outputs[0]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (X, True),
        (WIDE, True),
        (WIDE + WIDE, True),
        (SUM, False),
        (b.cast(WIDE, "bf16"), True),
        (b.unary("relu", b.unary("neg", X)), True),
        (b.unary("relu", SUM), False),
        (b.unary("floor", SUM), True),
        (b.pointwise("maximum", X, 0.5), True),
        (b.pointwise("maximum", X, 0.1), False),  # which bf16 does not hold
        (b.reduce("max", b.permute(X, (1, 0)), (0,)), True),
        (b.reduce("sum", X, (0,)), False),
        (b.pad(X, (0, 1), (0, 0), 0.1), False),
        (b.stored(SUM), True),
    ],
)
def test_what_is_rounded(node, expected):
    assert is_rounded(node) == expected
    assert (rounded(node) is node) == expected
    assert is_rounded(rounded(node))


def test_what_is_stored_is_rounded():
    assert is_rounded(b.unary("neg", SUM), {SUM})


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (b.cast(b.cast(X, "f32"), "bf16"), X),
        (b.cast(b.cast(SUM, "f32"), "bf16"), rounded(SUM)),
        (rounded(SUM), rounded(SUM)),
        (b.cast(b.cast(WIDE, "bf16"), "f32"), b.cast(b.cast(WIDE, "bf16"), "f32")),
        (b.cast(b.cast(X, "f16"), "f32"), b.cast(b.cast(X, "f16"), "f32")),
        (
            b.cast(b.unary("exp", b.cast(SUM, "f32")), "bf16"),
            rounded(b.unary("exp", rounded(SUM))),
        ),
    ],
)
def test_only_widening_is_taken_back(node, expected):
    assert simplified(node) is expected
    if node is not expected:
        assert Measuring().measure(node) > Measuring().measure(expected)


def test_bits_of_another_type():
    node = make("bitcast", (X,), {"dtype": "i16"})
    graph = Graph((X,), (node,), ("x",), ("out",), {})
    stored = numpy.arange(32, dtype="uint16").reshape(4, 8) + 0x7FB0  # among them NaN
    (found,) = interpret(graph, [stored])
    assert found.dtype == "int16"
    assert (found == stored.view("int16")).all()
    for dtype in ("f32", "bool"):
        with pytest.raises(IllegalNodeError):
            make("bitcast", (X,), {"dtype": dtype})


def test_a_number_is_converted_as_a_tensor_is():
    assert b.cast(b.scalar(0.1, "f32"), "bf16").attr("value") == 0.10009765625
    assert b.cast(b.scalar(0.1, "bf16"), "f32").attr("value") == 0.10009765625


def test_programs_that_round_after_each_operation_are_legal():
    filters = make("input", (), {"name": "f", "dtype": "bf16", "shape": (8, 4, 3, 3)})
    data = make("input", (), {"name": "x", "dtype": "bf16", "shape": (1, 4, 9, 9)})
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    node = rounded(make("convolution", (data, filters), attrs))
    node = rounded(rounded(node * 0.7) * 1.3)
    graph = Graph((data, filters), (node,), ("x", "f"), ("out",), {})
    for traits in (CPU, GPUS[90]):
        result, _ = rewrite(graph, traits, skip=INEXACT)  # no convolution is left
        kinds = [each.op for each in result.nodes()]
        assert "convolution" not in kinds
        assert kinds.count("cast") == 3

"""The numpy reference against torch, for every op that names an ATen op, and for the others."""

from __future__ import annotations

import weakref

import numpy
import pytest

from aotc.aot.errors import TypeRuleError
from aotc.aot.ir import reference
from aotc.aot.ir.graph import make
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.reference import REFERENCE, evaluate, interpret
from aotc.aot.ir.storage import narrow, widen
from aotc.aot.ir.text import parse_graph
from aotc.aot.lower.emit import CONVERSIONS

torch = pytest.importorskip("torch")

FLOATS = numpy.array([-3.5, -1.0, -0.25, 0.0, 0.5, 1.0, 2.5, 40.0], numpy.float32)
INTEGERS = numpy.array([-7, -3, -1, 1, 2, 5, 9, 11])
BOOLS = numpy.array([True, False, True, True, False, False, True, False])
SAMPLES = {"f32": FLOATS, "i64": INTEGERS, "bool": BOOLS}

POINTWISE = [op for op in OPS.values() if op.kind == "pointwise" and op.aten]


def leaf(name: str, array: numpy.ndarray, dtype: str):
    return make("input", (), {"name": name, "dtype": dtype, "shape": array.shape})


def test_every_op_has_a_meaning():
    # A call means what its kernel, its library or torch does, `placed` what it stores.
    without = {"input", "constant", "call", "placed", "native", "torch", "control"}
    assert set(REFERENCE) == set(OPS) - without


def test_every_pointwise_op_has_a_template():
    for op in OPS.values():
        if op.kind == "pointwise":
            assert bool(op.triton) != (op.name in CONVERSIONS), op.name


def cases():
    for op in POINTWISE:
        for dtype, array in SAMPLES.items():
            operands = tuple(leaf(f"x{n}", array, dtype) for n in range(op.operands))
            try:
                make(op.name, operands)
            except TypeRuleError:
                continue
            yield pytest.param(op, dtype, id=f"{op.name}-{dtype}")


@pytest.mark.parametrize(("op", "dtype"), list(cases()))
def test_pointwise_op_against_torch(op, dtype):
    first = SAMPLES[dtype]
    arrays = [first, numpy.roll(first, 3)][: op.operands]
    node = make(op.name, tuple(leaf(f"x{n}", array, dtype) for n, array in enumerate(arrays)))
    with numpy.errstate(all="ignore"):
        found = evaluate(node, arrays)
    function = getattr(torch.ops.aten, op.aten[0])
    expected = function(*(torch.from_numpy(array.copy()) for array in arrays)).numpy()
    assert found.dtype == expected.dtype
    numpy.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7)


ACTIVATIONS = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


@pytest.mark.parametrize("op", ACTIVATIONS)
def test_activation_against_torch(op):
    node = make(op, (leaf("x", FLOATS, "f32"),))
    expected = ACTIVATIONS[op](torch.from_numpy(FLOATS)).numpy()
    numpy.testing.assert_allclose(evaluate(node, [FLOATS]), expected, rtol=2e-6, atol=1e-6)


CONVOLUTIONS = [
    ((2, 4, 9), (6, 4, 3), (2,), (1,), (1,), 1),
    ((2, 4, 7, 6), (6, 2, 3, 2), (1, 2), (1, 0), (2, 1), 2),
    ((1, 3, 5, 6, 4), (2, 3, 2, 2, 2), (1, 1, 2), (0, 1, 0), (1, 1, 1), 1),
]


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"), CONVOLUTIONS
)
def test_convolution_against_torch(shape, filters, stride, padding, dilation, groups):
    generator = numpy.random.default_rng(0)
    data = generator.standard_normal(shape).astype(numpy.float32)
    weight = generator.standard_normal(filters).astype(numpy.float32)
    attrs = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    node = make("convolution", (leaf("x", data, "f32"), leaf("w", weight, "f32")), attrs)
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    expected = function(
        torch.from_numpy(data), torch.from_numpy(weight), None, stride, padding, dilation, groups
    )
    numpy.testing.assert_allclose(evaluate(node, [data, weight]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"), CONVOLUTIONS
)
def test_gradients_of_weights_against_torch(shape, filters, stride, padding, dilation, groups):
    generator = numpy.random.default_rng(0)
    data = torch.from_numpy(generator.standard_normal(shape).astype(numpy.float32))
    weight = torch.zeros(filters, requires_grad=True)
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    result = function(data, weight, None, stride, padding, dilation, groups)
    gradient = torch.from_numpy(generator.standard_normal(result.shape).astype(numpy.float32))
    result.backward(gradient)
    attrs = {
        "stride": stride, "padding": padding, "dilation": dilation, "groups": groups,
        "kernel": filters[2:],
    }  # fmt: skip
    arrays = [data.numpy(), gradient.numpy()]
    node = make(
        "convolution_weights", (leaf("x", arrays[0], "f32"), leaf("g", arrays[1], "f32")), attrs
    )
    numpy.testing.assert_allclose(evaluate(node, arrays), weight.grad, rtol=1e-5, atol=1e-5)


def test_bfloat16_rounds_as_torch_does():
    generator = numpy.random.default_rng(0)
    values = (generator.standard_normal(10_000) * 10 ** generator.uniform(-30, 30, 10_000)).astype(
        numpy.float32
    )
    expected = torch.from_numpy(values).to(torch.bfloat16)
    found = narrow(values, "bf16")
    numpy.testing.assert_array_equal(found, expected.view(torch.uint16).numpy())
    numpy.testing.assert_array_equal(widen(found, "bf16"), expected.float().numpy())
    assert numpy.isnan(widen(narrow(numpy.array([numpy.nan]), "bf16"), "bf16")).all()


def test_interpret_refuses_arrays_that_do_not_fit():
    graph = parse_graph("%x = input(name='x') : f32[4]\nreturn out=%x\n")
    with pytest.raises(ValueError, match="expected f32"):
        interpret(graph, [numpy.zeros(5, numpy.float32)])
    with pytest.raises(ValueError, match="expected f32"):
        interpret(graph, [numpy.zeros(4)])


def test_values_live_until_their_last_reader_is_done(monkeypatch):
    """A chain of ops on a large tensor holds an operand and a result, not one array a step."""
    node = make("input", (), {"name": "x", "dtype": "f32", "shape": (8,)})
    chain = node
    for _ in range(6):
        chain = make("add", (chain, node)) if chain is not node else make("neg", (node,))
    made: list[weakref.ref] = []
    alive: list[int] = []

    def counted(each, operands):
        alive.append(sum(one() is not None for one in made))
        result = numpy.array(evaluate(each, operands))
        made.append(weakref.ref(result))
        return result

    monkeypatch.setattr(reference, "evaluate", counted)
    given = numpy.arange(8, dtype=numpy.float32)
    (found,) = reference.evaluate_all((chain,), {node: given}, {})
    numpy.testing.assert_array_equal(found, 4 * given)
    assert max(alive) == 1

"""Convolutions of f32 where torch's switch asks for TF32: both operands are rounded to it, in the
kernels that store them, and multiplied once."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from aotc.aot.ir import build as b
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.reference import interpret, round_tf32
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits

sys.path.insert(0, str(Path(__file__).parent))

import test_convolution
from case_graphs import graph_of, op, operand, weight
from schedule_runner import Job
from test_convolution import convolved, inputs_of

pytestmark = pytest.mark.triton
TRAITS = replace(GPUS[90], convolution_precision="tf32")
EPSILON = 2.0**-11  # what rounding to TF32 changes a number by, relative to it
EXACT, FAR = 3e-6, 8 * EPSILON


def read_twice():
    """A sum behind a convolution that another one and a sum read."""
    data = operand("x", 1, 32, 9, 8)
    first = op("relu", convolved(data, 32, (3, 3), "w1", padding=(1, 1)))
    second = op("relu", convolved(first, 32, (3, 3), "w2", padding=(1, 1)))
    return op("add", second, first)


def joined():
    """Two results beside each other, as in a U-Net, of which one is also pooled."""
    left = op("relu", convolved(operand("x", 1, 16, 12, 12), 32, (3, 3), "w1", padding=(1, 1)))
    attrs = {"axes": (2, 3), "sizes": (2, 2), "strides": (2, 2), "dilations": (1, 1)}
    peaks = b.drop(b.reduce("max", op("window", left, **attrs), (4, 5)), (4, 5))
    low = op("relu", convolved(peaks, 64, (3, 3), "w2", padding=(1, 1)))
    parts = [b.slice_axis(low, 1, start, start + 16) for start in range(0, 64, 16)]
    split = b.reshape(
        b.concat([b.reshape(each, (1, 16, 6, 6, 1)) for each in parts], 4), (1, 16, 12, 12)
    )
    return convolved(b.concat([left, split], 1), 8, (3, 3), "w3", padding=(1, 1))


def scaled_weights():
    """Factors behind a convolution, which are folded into its weights."""
    data = op("relu", convolved(operand("x", 1, 16, 8, 8), 32, (3, 3), "w1", padding=(1, 1)))
    return op("mul", convolved(data, 24, (1, 1), "w2"), weight("s", 1, 24, 1, 1))


def given_filters():
    """Filters that are an input."""
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    return op("convolution", operand("x", 1, 16, 8, 8), operand("f", 24, 16, 3, 3), **attrs)


OWN = {each.__name__: each for each in (read_twice, joined, scaled_weights, given_filters)}
CASES = OWN | {name: case for name, case in test_convolution.CASES.items() if case().dtype == "f32"}
WITHOUT = {"depthwise"}  # sums of the elements of its windows


def rewritten(name: str, traits: TargetTraits = TRAITS) -> Graph:
    return rewrite(graph_of([CASES[name]()]), traits=traits)[0]


def rounded_exactly(x: float) -> float:
    """To 11 bits, by Python's own numbers."""
    mantissa, exponent = numpy.frexp(numpy.float64(x))
    whole = numpy.floor(abs(mantissa) * 2**11 + 0.5)
    return float(numpy.copysign(numpy.ldexp(whole, int(exponent) - 11), x))


def test_rounding_is_to_the_nearest_of_11_bits():
    generator = numpy.random.default_rng(0)
    x = (generator.standard_normal(10_000) * 2.0 ** generator.integers(-60, 60, 10_000)).astype(
        "f4"
    )
    x[:4] = [1 + 2**-11, -1 - 2**-11, 1 + 2**-12, 1 - 2**-13]
    assert round_tf32(x).tolist() == [rounded_exactly(each) for each in x]
    special = numpy.array([0.0, -0.0, numpy.inf, -numpy.inf, numpy.nan, 3.4028e38], "f4")
    special = numpy.append(special, numpy.array([0x7FFFFFFF], "i4").view("f4"))  # a GPU's own NaN
    found = round_tf32(special)
    assert repr(found.tolist()) == repr(
        [0.0, -0.0, numpy.inf, -numpy.inf, *[numpy.nan], numpy.inf, numpy.nan]
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each case the output of its kernels, all run in one process."""
    job, names, launches = Job(), {}, {}
    for name in CASES:
        graph = rewritten(name)
        first = len(job.launches)
        ((names[name], _),) = job.add(graph, inputs_of(graph), 0, TRAITS)
        launches[name] = range(first, len(job.launches))
    buffers = job.run(tmp_path_factory.mktemp("tf32"))
    return {key: job.error(launches[key]) or buffers[name] for key, name in names.items()}


@pytest.mark.parametrize("name", CASES)
def test_kernels_multiply_what_is_rounded(name, results):
    """As the rewritten graph says, and as far from f32 as roundings of both operands explain."""
    if isinstance(results[name], str):
        pytest.fail(results[name])
    plain = graph_of([CASES[name]()])
    (exact,) = interpret(plain, inputs_of(plain))
    (expected,) = interpret(rewritten(name), inputs_of(plain))
    found = results[name].reshape(exact.shape)
    scale = numpy.abs(exact).max()
    # Sums in another order may round to the other neighbour, where a product reads them.
    count = sum(node.kind == "matmul" for node in rewritten(name).nodes())
    limit = scale * (EXACT if count < 2 else EPSILON)
    numpy.testing.assert_allclose(found, expected.reshape(exact.shape), rtol=0, atol=limit)
    difference = numpy.abs(found - exact).max() / scale
    assert difference < FAR
    assert (difference > EPSILON / 64) == (name not in WITHOUT)


@pytest.mark.parametrize("name", CASES)
def test_products_ask_for_it_and_no_kernel_rounds_what_it_multiplies(name):
    graph = rewritten(name)
    products = [node for node in graph.nodes() if node.kind == "matmul"]
    assert {node.op for node in products} <= {"matmul_tf32"}
    assert bool(products) == (name not in WITHOUT)
    for group in schedule(graph, TRAITS).groups:
        if group.root_op is not None and group.root_op.kind == "matmul":
            before = group.nodes[: group.nodes.index(group.root_op)]
            assert "round_tf32" not in {node.op for node in before}


def test_weights_are_rounded_once_with_their_factors():
    graph = rewritten("scaled_weights")
    readers = {
        operand.op for node in graph.nodes() if node.op == "round_tf32" for operand in node.inputs
    }
    assert "constant" not in readers
    names = {node.inputs[1] for node in graph.nodes() if node.op == "matmul_tf32"}
    behind = {each.inputs[0] if each.op == "permute" else each for each in names}
    assert {each.op for each in behind} == {"constant"}
    for each in behind:
        array = graph.constants[each.attr("name")].array
        assert (round_tf32(array) == array).all()


def test_a_result_that_others_read_is_stored_as_it_is_and_rounded():
    first = schedule(rewritten("read_twice"), TRAITS).groups[1]
    assert [root.node.op for root in first.roots] == ["relu", "round_tf32"]


@pytest.mark.parametrize("traits", [TargetTraits(), GPUS[90]])
def test_without_the_switch_nothing_is_rounded(traits):
    for name in CASES:
        ops = {node.op for node in rewritten(name, traits).nodes()}
        assert not ops & {"round_tf32", "matmul_tf32"}

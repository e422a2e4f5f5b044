"""Gradients of the weights of convolutions: both forms of the product beside the op itself."""

import numpy
import pytest

from aotc.aot.ir.graph import Graph, make
from aotc.aot.ir.reference import evaluate, interpret
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.lower import lower
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.rewrites.weight_gradients import products_of_windows, products_on_grid
from aotc.aot.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS

TARGETS = {"cpu": CPU, "gpu": GPUS[90]}
FORMS = {"grid": products_on_grid, "windows": products_of_windows}


def _input(name, shape, dtype="f32"):
    return make("input", (), {"name": name, "dtype": dtype, "shape": shape})


def drawn(seed, fewest=1, most=4, fewer=0):
    """A convolution of random rank, sizes, steps, margins and groups: its op and its inputs.

    Channels of a group are from `fewest` to `most`. The gradient has up to `fewer` positions less
    along an axis than there are, as of a transposed convolution with `output_padding`.
    """
    generator = numpy.random.default_rng(seed)

    def numbers(low, high):
        return tuple(int(each) for each in generator.integers(low, high, rank))

    rank = int(generator.integers(1, 4))
    groups = int(generator.choice([1, 1, 2, 3]))
    samples, outer = (int(each) for each in generator.integers(1, 5, 2))
    inner = int(generator.integers(fewest, most + 1))
    kernel, stride, gaps = numbers(1, 4), numbers(1, 4), numbers(1, 3)
    margins, positions = numbers(0, 4), numbers(1, 5)
    spatial = []
    for size, step, gap, margin, count in zip(
        kernel, stride, gaps, margins, positions, strict=True
    ):
        least = (count - 1) * step + gap * (size - 1) + 1 - 2 * margin
        # Elements behind the last window that the stride leaves unread.
        spatial.append(max(1, least + int(generator.integers(0, step))))
    positions = [
        (size + 2 * margin - gap * (width - 1) - 1) // step + 1
        for size, margin, gap, width, step in zip(
            spatial, margins, gaps, kernel, stride, strict=True
        )
    ]
    if fewer:
        positions = [max(1, each - int(generator.integers(0, fewer + 1))) for each in positions]
    data, gradient = (samples, groups * inner, *spatial), (samples, groups * outer, *positions)
    attrs = {
        "stride": stride, "padding": margins, "dilation": gaps, "groups": groups, "kernel": kernel,
    }  # fmt: skip
    operands = (_input("data", data), _input("gradient", gradient))
    node = make("convolution_weights", operands, attrs)
    arrays = [generator.standard_normal(shape, "f4") for shape in (data, gradient)]
    return node, operands, arrays


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(40))
def test_the_product_is_the_gradient(form, seed):
    node, operands, arrays = drawn(seed)
    graph, count = FORMS[form](Graph(operands, (node,), ("data", "gradient"), ("w",), {}))
    assert count == 1
    (found,) = interpret(graph, arrays)
    numpy.testing.assert_allclose(found, evaluate(node, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("most", [4, 80])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(200, 220))
def test_data_may_reach_further_than_all_windows(form, seed, most):
    node, operands, arrays = drawn(seed, 1 if most == 4 else 64, most, fewer=3)
    graph, count = FORMS[form](Graph(operands, (node,), ("data", "gradient"), ("w",), {}))
    assert count == 1
    (found,) = interpret(graph, arrays)
    numpy.testing.assert_allclose(found, evaluate(node, arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(40, 60))
def test_what_is_not_finite_reaches_the_offsets_that_see_it_alone(form, seed):
    node, operands, arrays = drawn(seed)
    generator = numpy.random.default_rng(seed)
    arrays[0][tuple(generator.integers(0, arrays[0].shape))] = numpy.inf
    graph, _ = FORMS[form](Graph(operands, (node,), ("data", "gradient"), ("w",), {}))
    (found,) = interpret(graph, arrays)
    expected = evaluate(node, arrays)
    numpy.testing.assert_array_equal(numpy.isfinite(found), numpy.isfinite(expected))


@pytest.mark.parametrize("seed", range(80, 110))
def test_the_product_of_many_channels_is_the_gradient(seed):
    """Windows of channels side by side, which a processor reads: 24 to 80, no multiples of 16."""
    node, operands, arrays = drawn(seed, 24, 80)
    graph = Graph(operands, (node,), ("data", "gradient"), ("w",), {})
    made, count = products_on_grid(graph)
    assert count == 1
    (found,) = interpret(made, arrays)
    numpy.testing.assert_allclose(found, evaluate(node, arrays), rtol=1e-4, atol=1e-4)
    rewritten, _ = rewrite(graph, CPU)
    (found,) = interpret(schedule(rewritten, CPU).graph, arrays)
    numpy.testing.assert_allclose(found, evaluate(node, arrays), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(110, 125))
def test_what_is_not_finite_reaches_the_same_offsets_of_many_channels(seed):
    node, operands, arrays = drawn(seed, 64, 70)
    generator = numpy.random.default_rng(seed)
    arrays[0][tuple(generator.integers(0, arrays[0].shape))] = numpy.inf
    graph, _ = products_on_grid(Graph(operands, (node,), ("data", "gradient"), ("w",), {}))
    (found,) = interpret(graph, arrays)
    expected = evaluate(node, arrays)
    numpy.testing.assert_array_equal(numpy.isfinite(found), numpy.isfinite(expected))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(60, 80))
def test_what_the_schedule_makes_of_it_is_the_gradient(target, seed):
    node, operands, arrays = drawn(seed)
    traits = TARGETS[target]
    graph = Graph(operands, (node,), ("data", "gradient"), ("w",), {})
    rewritten, _ = rewrite(graph, traits)
    (found,) = interpret(schedule(rewritten, traits).graph, arrays)
    numpy.testing.assert_allclose(found, evaluate(node, arrays), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("has_batch_alone", [True, False])
def test_sizes_that_vary(target, has_batch_alone):
    """Of images too: whether a stride leaves elements unread is only known at a call."""
    batch, height = size_of(Dim("batch", 1, 8, 4)), size_of(Dim("height", 4, 40, 12))
    rows = 12 if has_batch_alone else height
    data = _input("data", (batch, 8, rows, 11))
    gradient = _input("gradient", (batch, 6, (rows - 1) // 2 + 1, 6))
    attrs = {
        "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "kernel": (3, 3),
    }  # fmt: skip
    node = make("convolution_weights", (data, gradient), attrs)
    graph = Graph((data, gradient), (node,), ("data", "gradient"), ("w",), {})
    traits = TARGETS[target]
    rewritten, _ = rewrite(graph, traits)
    assert lower(schedule(rewritten, traits), traits)

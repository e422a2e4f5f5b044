"""Pooling: windows beyond the plane at the price of the plane, uneven cells, gradients."""

from __future__ import annotations

import math
import random

import numpy
import pytest

from aotc.aot.ir.narrow import at_sizes
from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.nn.functional import (  # noqa: E402
    adaptive_avg_pool2d,
    adaptive_max_pool2d,
    avg_pool2d,
    fold,
    unfold,
)

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.decompositions import pooling  # noqa: E402
from aotc.aot.capture.imports.pooling import AT_ONCE  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.schedule.trace import is_unrolled  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

pytestmark = pytest.mark.torch
PLANE = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(2))

CASES = {
    "far larger": {"kernel_size": 1280, "ceil_mode": True},
    "padded": {"kernel_size": 9, "padding": 2, "ceil_mode": True},
    "not counted": {"kernel_size": (9, 3), "padding": (2, 1), "count_include_pad": False},
    "fixed divisor": {"kernel_size": 300, "ceil_mode": True, "divisor_override": 7},
}


@pytest.mark.parametrize("name", CASES)
def test_average_of_the_whole_plane(name):
    captured = capture(spec_of(lambda x: avg_pool2d(x, **CASES[name]), (PLANE,)))
    assert max(node.type.numel for node in captured.graph.nodes()) <= 20 * PLANE.numel()
    found = interpret(captured.graph, captured.golden_inputs)[0]
    numpy.testing.assert_allclose(found, captured.golden_outputs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_windows_add_up_as_eager_adds_them(seed):
    source = random.Random(seed)
    rank = source.choice((1, 2, 3))
    dim, size, step = source.randrange(rank), source.randint(1, 24), source.randint(1, 9)
    shape = [source.randint(1, 5) for _ in range(rank)]
    shape[dim] = source.randint(size, 60)
    windows = torch.zeros(shape).unfold(dim, size, step)
    given = torch.randn(windows.shape, generator=torch.Generator().manual_seed(seed))
    found = pooling._unfold(given, shape, dim, size, step)
    expected = torch.ops.aten.unfold_backward(given, shape, dim, size, step)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("shapes", [None, ({0: torch.export.Dim("batch", max=8)},)])
def test_overlapping_frames_of_istft_are_a_few_ops(shapes):
    """torch adds the windows' squares, which all signals share, element by element."""

    def model(x):
        frames = torch.view_as_complex(x)
        return torch.istft(frames, 64, 16, window=torch.hann_window(64), length=300)

    given = torch.randn(3, 33, 20, 2)
    captured = capture(spec_of(model, (given,), dynamic_shapes=shapes))
    assert sum(1 for _ in captured.graph.nodes()) < 150
    assert len(captured.dims) == (shapes is not None)
    if shapes is None:
        found = interpret(captured.graph, list(captured.golden_inputs))
        numpy.testing.assert_allclose(found[0], model(given).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("op", [adaptive_avg_pool2d, adaptive_max_pool2d])
def test_cells_of_uneven_sizes(op, seed):
    """Cells that overlap, that are as wide as each other or not, more cells than elements; what is
    not finite stays within its cells."""
    source = random.Random(seed)
    plane = [source.randint(1, 70) for _ in range(2)]
    size = [source.randint(1, source.choice((7, 40))) for _ in range(2)]
    given = torch.randn(2, 3, *plane, generator=torch.Generator().manual_seed(seed))
    given[0, 0, plane[0] // 2, plane[1] // 3] = source.choice((torch.nan, torch.inf, 1.0))
    captured = capture(spec_of(lambda x: op(x, size), (given,)))
    found = interpret(captured.graph, captured.golden_inputs)[0]
    numpy.testing.assert_allclose(found, op(given, size), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("traits", [CPU, GPUS[90]], ids=["processor", "GPU"])
@pytest.mark.parametrize("seed", range(10))
def test_kernels_write_out_maxima_that_no_test_for_nan_stands_beside(seed, traits):
    """A row kernel's maximum passes over NaN, so such a one has its operand's NaN looked for."""
    source = random.Random(seed)
    plane, size = ([source.randint(1, most) for _ in range(2)] for most in (60, 20))
    given = torch.randn(1, 2, *plane)
    captured = capture(spec_of(lambda x: adaptive_max_pool2d(x, size), (given,)))
    nodes = [*rewrite(captured.graph, traits)[0].nodes()]
    tested = {node.inputs[0] for node in nodes if node.op == "isnan"}
    maxima = [node for node in nodes if node.op == "max" and node.inputs[0] not in tested]
    assert all(is_unrolled(node) for node in maxima)


@pytest.mark.parametrize("size", [3, 7, (6, 13)])
def test_averages_of_uneven_cells_are_one_reduction_an_axis(size):
    given = torch.randn(1, 2, 50, 60)
    captured = capture(spec_of(lambda x: adaptive_avg_pool2d(x, size), (given,)))
    assert sum(node.kind == "reduce" for node in captured.graph.nodes()) == 2


@pytest.mark.parametrize("seed", range(20))
def test_patches_are_moves_of_windows(seed):
    """`unfold`, and the sum of its patches by `fold`: no element is gathered or scattered."""
    source = random.Random(seed)
    dims = range(2)
    kernel, gaps, strides = ([source.randint(1, most) for _ in dims] for most in (5, 2, 3))
    margins = [source.randint(0, 3) for _ in dims]
    plane = [
        gap * (size - 1) + source.randint(1, 9) for gap, size in zip(gaps, kernel, strict=True)
    ]
    shape = (*source.choice(((), (2,))), 3, *plane)
    given = torch.randn(shape, generator=torch.Generator().manual_seed(seed))

    def model(x):
        patches = unfold(x, kernel, gaps, margins, strides)
        return patches, fold(patches.sin(), plane, kernel, gaps, margins, strides)

    captured = capture(spec_of(model, (given,)))
    assert not {"take", "gather", "scatter"} & {node.op for node in captured.graph.nodes()}
    found = interpret(captured.graph, captured.golden_inputs)
    for own, expected in zip(found, model(given), strict=True):
        numpy.testing.assert_allclose(own, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_large_windows_are_reduced_axis_by_axis(kind, seed):
    source = random.Random(seed)
    rank = source.choice((2, 3))
    kernel = [source.randint(2, 9) for _ in range(rank)]
    strides, gaps = ([source.randint(1, most) for _ in range(rank)] for most in (3, 2))
    margins = [source.randint(0, size // 2) for size in kernel]
    plane = [17 + source.randint(0, 9) for _ in range(rank)]
    is_ceiling = source.choice((False, True))
    given = torch.randn(1, 2, *plane, generator=torch.Generator().manual_seed(seed))
    given.flatten()[source.randrange(given.numel())] = source.choice((torch.nan, 1.0))
    if kind == "avg":
        pool = getattr(torch.nn, f"AvgPool{rank}d")(
            kernel, strides, margins, is_ceiling, source.choice((False, True))
        )
    else:
        pool = getattr(torch.nn, f"MaxPool{rank}d")(
            kernel, strides, margins, gaps, ceil_mode=is_ceiling
        )
    captured = capture(spec_of(pool.eval(), (given,)))
    found = interpret(captured.graph, captured.golden_inputs)[0]
    numpy.testing.assert_allclose(found, pool(given), rtol=1e-5, atol=1e-6)
    windows = [node.attr("sizes") for node in captured.graph.nodes() if node.op == "window"]
    assert all(len(sizes) == 1 or math.prod(sizes) <= AT_ONCE for sizes in windows)


@pytest.mark.parametrize("size", [(16, 16), (47, 60), (90, 17)])
def test_windows_that_do_not_overlap_of_dynamic_planes(size):
    dims = {2: torch.export.Dim("height", min=16), 3: torch.export.Dim("width", min=16)}
    model = torch.nn.AvgPool2d(8)
    captured = capture(spec_of(model, (torch.randn(1, 2, 33, 41),), dynamic_shapes=(dims,)))
    graph = at_sizes(captured.graph, dict(zip(("height", "width"), size, strict=True)))
    given = torch.randn(1, 2, *size)
    numpy.testing.assert_allclose(interpret(graph, [given.numpy()])[0], model(given), atol=1e-6)

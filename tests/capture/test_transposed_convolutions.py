"""Transposed convolutions of drawn strides, margins and groups: convolutions of their phases."""

from __future__ import annotations

import random

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
CONVOLUTIONS = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}


def _drawn(seed):
    """Arguments of torch's function, and the number of spatial dims."""
    draw = random.Random(seed)
    rank, groups = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2))
    kernel = [draw.randint(1, 5) for _ in range(rank)]
    stride = [draw.randint(1, 3) for _ in range(rank)]
    padding = [draw.randint(0, size - 1) for size in kernel]
    extra = [draw.randint(0, step - 1) for step in stride]
    extents = [draw.randint(1 + size, 7) for size in kernel]
    generator = torch.Generator().manual_seed(seed)
    inputs = groups * draw.randint(1, 3)
    data = torch.randn(2, inputs, *extents, dtype=torch.float64, generator=generator)
    weight = torch.randn(inputs, draw.randint(1, 3), *kernel, dtype=torch.float64)
    return rank, (data, weight), (None, stride, padding, extra, groups)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_results_are_torchs(seed, special):
    """Numbers that are not finite reach those elements that see them, and no others."""
    rank, tensors, how = _drawn(seed)
    if special:
        chosen = torch.rand(tensors[0].shape, generator=torch.Generator().manual_seed(seed))
        tensors[0][chosen < 0.1] = float("inf")
        tensors[0][chosen > 0.9] = float("nan")
    convolve = CONVOLUTIONS[rank]
    captured = capture(spec_of(lambda data, weight: convolve(data, weight, *how), tensors))
    (found,) = interpret(captured.graph, [each.numpy() for each in tensors])
    expected = convolve(*tensors, *how).numpy()
    numpy.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_no_zeros_are_multiplied():
    """A kernel of 4 at a step of 2 is a convolution of 2 for all of its four phases; of a kernel of
    3 the phases have other numbers of offsets."""
    assert _filters(4) == [(20, 3, 2, 2)]
    assert _filters(3) == [(5, 3, 1, 1), (5, 3, 1, 2), (5, 3, 2, 1), (5, 3, 2, 2)]


def _filters(size):
    """Shapes of the filters, in order, at a step of 2."""
    data, weight = torch.randn(1, 3, 8, 8), torch.randn(3, 5, size, size)
    function = CONVOLUTIONS[2]
    captured = capture(spec_of(lambda x, w: function(x, w, None, 2, 1), (data, weight)))
    nodes = [node for node in captured.graph.nodes() if node.op == "convolution"]
    assert all(node.inputs[0].shape == (1, 3, 8, 8) for node in nodes)
    return sorted(node.inputs[1].shape for node in nodes)

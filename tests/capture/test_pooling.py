"""Average pooling by windows larger than the plane: as torch's, at the price of the plane."""

from __future__ import annotations

import random

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.nn.functional import avg_pool2d  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.decompositions import pooling  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

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

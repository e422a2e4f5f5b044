"""Average pooling by windows larger than the plane: as torch's, at the price of the plane."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.nn.functional import avg_pool2d  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
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

"""Weighted resizes of values that are not finite: a neighbour that counts 0 times counts as torch's
kernels have it, NaN where it is not finite."""

from __future__ import annotations

import random
from contextlib import closing

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
# Sizes at which no place is that of an element, but along axes that stay.
SPEC = """
import torch

SIZES = {"linear": ((2, 2, 7), ((10,), (7,))),
         "bilinear": ((2, 3, 6, 5), ((9, 4), (6, 12), (9, 5), (6, 5))),
         "bicubic": ((2, 3, 6, 5), ((9, 4), (6, 12), (9, 5), (6, 5))),
         "trilinear": ((1, 2, 4, 5, 3), ((7, 4, 8), (4, 4, 3), (7, 5, 8)))}

def model(*xs):
    return [torch.nn.functional.interpolate(x, size=size, mode=mode)
            for x, (mode, (_, sizes)) in zip(xs, SIZES.items()) for size in sizes]

example_inputs = tuple(torch.randn(shape) for shape, _ in SIZES.values())
"""


def test_infinite_values_are_weighed_as_eager_weighs_them(tmp_path, cache):
    (tmp_path / "spec.py").write_text(SPEC)
    build(str(tmp_path / "spec.py"), tmp_path / "bundle", ["cpu"], BuildOptions(cache))
    names: dict = {}
    exec(SPEC, names)
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor([torch.inf, -torch.inf, torch.nan])
    with closing(load(tmp_path / "bundle")) as program:
        for share in (0.0, 0.1, 0.4):
            xs = []
            for x in names["example_inputs"]:
                chosen = special[torch.randint(0, 3, x.shape, generator=generator)]
                is_special = torch.rand(x.shape, generator=generator) < share
                xs.append(torch.where(is_special, chosen, x))
            for own, expected in zip(program(*xs), names["model"](*xs), strict=True):
                torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


class Averaged(torch.nn.Module):
    def __init__(self, size, mode, has_corners):
        super().__init__()
        self.how = {"size": size, "mode": mode, "align_corners": has_corners, "antialias": True}

    def forward(self, x):
        return torch.nn.functional.interpolate(x, **self.how)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_averages_over_what_a_result_stands_for(dtype, mode):
    generator = random.Random(7)
    bound = {torch.uint8: 0, torch.float32: 2e-4, torch.float64: 1e-10}[dtype]
    for _ in range(12):
        height, width, *size = (generator.randrange(1, 24) for _ in range(4))
        x = (torch.rand(2, 3, height, width, dtype=torch.float64) * 255).to(dtype)
        model = Averaged(size, mode, generator.random() < 0.3)
        graph = capture(spec_of(model, (x,), "averaged.py")).graph
        (found,) = interpret(graph, [x.numpy()])
        where = f"{tuple(x.shape)} to {size}"
        numpy.testing.assert_allclose(found, model(x).numpy(), rtol=0, atol=bound, err_msg=where)

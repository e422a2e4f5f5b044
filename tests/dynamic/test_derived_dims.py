"""Dims that inputs have only as `32 * d` or `2 * d + 1`: they stay, with the example's sizes."""

from __future__ import annotations

import itertools
import random

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402

from aotc import aot, runtime  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

FORMULAS = ((1, 0), (32, 0), (8, 0), (2, 1), (3, 0), (4, 2))


class Pooled(torch.nn.Module):
    """A convolution and the mean of what it gives; of images of any size."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1, stride=2)

    def forward(self, x):
        return torch.nn.functional.adaptive_avg_pool2d(self.first(x).relu(), 1) * x.shape[0]


def derived(name: str, scale: int, offset: int) -> object:
    dim = Dim(name, min=3, max=9)  # of 2 a step of 2 leaves 1, which torch takes for no size
    if scale != 1:
        dim = scale * dim
    return dim + offset if offset else dim


CASES = list(itertools.product(FORMULAS, repeat=2))


@pytest.mark.parametrize(("height", "width"), CASES)
@pytest.mark.parametrize("has_batch", [False, True])
def test_all_dims_stay_and_have_the_example_s_sizes(height, width, has_batch):
    sizes = [scale * 4 + offset for scale, offset in (height, width)]
    dims = {2: derived("h", *height), 3: derived("w", *width)}
    dims |= {0: Dim("b", max=7)} if has_batch else {}
    given = spec_of(Pooled(), (torch.randn(2, 3, *sizes),), dynamic_shapes=(dims,))
    captured = capture(given)
    found = {dim.name: dim.typical for dim in captured.dims}
    assert found == {"h": 4, "w": 4} | ({"b": 2} if has_batch else {})
    (image, *_) = captured.graph.given
    assert {dim.name for size in image.sizes() for dim in size.dims()} == set(found)


@pytest.mark.parametrize("seed", range(2))
def test_numbers_at_other_sizes(seed, tmp_path):
    draw = random.Random(seed)
    height, width = draw.sample(FORMULAS, 2)
    dims = {0: Dim("b", max=7), 2: derived("h", *height), 3: derived("w", *width)}

    def image(batch: int, *counts: int) -> torch.Tensor:
        pairs = zip((height, width), counts, strict=True)
        return torch.randn(batch, 3, *(scale * count + offset for (scale, offset), count in pairs))

    model = Pooled()
    aot.build(model, (image(2, 4, 4),), tmp_path / "b", dynamic_shapes=(dims,))
    with runtime.load(tmp_path / "b") as program, torch.no_grad():
        for batch, *counts in ((1, 3, 3), (7, 9, 3), (3, 4, 8)):
            x = image(batch, *counts)
            found = torch.from_dlpack(program(x))
            torch.testing.assert_close(found, model(x), rtol=1e-4, atol=1e-5)

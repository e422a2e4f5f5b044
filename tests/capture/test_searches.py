"""Places among sorted edges: torch's, whatever the edges and values."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.imports.sorting import FEW_EDGES  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
COUNTS = (0, 1, 2, 3, 4, 5, FEW_EDGES, FEW_EDGES + 1, 63, 64, 65, 1000)
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0)


class Search(torch.nn.Module):
    def __init__(self, is_right, is_narrow, order=None):
        super().__init__()
        self.how = {"right": is_right, "out_int32": is_narrow}
        self.order = order

    def forward(self, edges, values):
        found = [torch.searchsorted(edges, values, sorter=self.order, **self.how)]
        if edges.ndim == 1:
            found += [torch.bucketize(values, edges, **self.how)]
        return found


def searched(search, edges, values):
    graph = capture(spec_of(search, (edges, values), "searches.py")).graph
    found = interpret(graph, [edges.numpy(), values.numpy()])
    for mine, theirs in zip(found, search(edges, values), strict=True):
        assert mine.dtype == theirs.numpy().dtype
        numpy.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.parametrize("is_right", [False, True])
@pytest.mark.parametrize("count", COUNTS)
def test_one_row_for_all_values(count, is_right):
    generator = torch.Generator().manual_seed(count)
    edges = (torch.randn(count, generator=generator) * 9).round().sort().values  # many ties
    values = (torch.randn(5, 31, generator=generator) * 9).round()
    values.view(-1)[: len(SPECIAL)] = torch.tensor(SPECIAL)
    if count > 3:
        edges[0], edges[-2], edges[-1] = float("-inf"), float("inf"), float("nan")
    searched(Search(is_right, is_narrow=is_right), edges, values)


@pytest.mark.parametrize("count", [FEW_EDGES, 50])
def test_edges_that_are_in_no_order(count):
    generator = torch.Generator().manual_seed(4)
    edges, values = (torch.randn(each, generator=generator) for each in (count, 400))
    edges[::7] = float("nan")
    searched(Search(is_right=False, is_narrow=False), edges, values)


@pytest.mark.parametrize("is_right", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
def test_a_row_for_each_row_of_values(dtype, is_right):
    generator = torch.Generator().manual_seed(3)
    edges = torch.randint(-50, 50, (2, 3, 200), generator=generator).to(dtype)
    values = torch.randint(-60, 60, (2, 3, 17), generator=generator).to(dtype)
    edges = edges.sort(-1).values
    searched(Search(is_right, is_narrow=False), edges, values)
    shuffled = torch.randperm(200, generator=generator)
    back = shuffled.argsort()
    searched(
        Search(is_right, is_narrow=False, order=back.expand(2, 3, 200).contiguous()),
        edges[..., shuffled].contiguous(), values,
    )  # fmt: skip

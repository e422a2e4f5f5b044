"""Dims of at most 2, which torch would take for the number 2: it takes no dim for 1."""

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402


class Rows(torch.nn.Module):
    """Two inputs whose sizes must agree, and a count that one of them decides."""

    def forward(self, x, at):
        return x[torch.arange(x.shape[0]), at] + x.sum(1)


def test_a_dim_of_at_most_two_is_one_dim():
    rows = torch.export.Dim("rows", min=1, max=2)
    example = (torch.randn(2, 3), torch.tensor([1, 2]))
    captured = capture(spec_of(Rows(), example, dynamic_shapes=({0: rows}, {0: rows})))
    found = [(dim.name, dim.low, dim.high, dim.typical) for dim in captured.dims]
    assert found == [("rows", 1, 2, 2)]


def test_derived_dims_stay_what_they_are():
    rows = torch.export.Dim("rows", min=1, max=2)

    class Pairs(torch.nn.Module):
        def forward(self, x, y):
            return x.repeat(2, 1) + y

    example = (torch.randn(2, 3), torch.randn(4, 3))
    captured = capture(spec_of(Pairs(), example, dynamic_shapes=({0: rows}, {0: 2 * rows})))
    assert all(dim.high <= 2 for dim in captured.dims)

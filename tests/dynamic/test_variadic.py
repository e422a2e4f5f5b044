"""Dims of `*arguments`, whose rows of `dynamic_shapes` torch.export has in one."""

import pytest
import torch
from torch.export import Dim

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import spec_of

ROWS = Dim("rows", min=1, max=9)
ROW = {0: ROWS}


class Sums(torch.nn.Module):
    """Adds what it is given: equal rows of all arguments."""

    def forward(self, first, *others):
        return sum(others, start=first)


@pytest.mark.parametrize(
    "shapes", [(ROW, (ROW, ROW)), {"first": ROW, "others": (ROW, ROW)}], ids=["rows", "named"]
)
def test_dims_of_one_name_are_one(shapes):
    inputs = tuple(torch.ones(4, 3) for _ in range(3))
    captured = capture(spec_of(Sums(), inputs, dynamic_shapes=shapes))
    assert [dim.name for dim in captured.dims] == ["rows"]

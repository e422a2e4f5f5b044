"""Parts of a tensor of open size that have no elements at some of its sizes, the example's too."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

PARTS = ((-1, 3, 3), (4, None, 1))  # start, end and step
SIZES = (4, 9, 5)

READERS = {
    "reductions": lambda x, z: x * z.prod(0) + z.sum(0) + z.norm(dim=0) + (z > 0).any(0),
    "softmax": lambda x, z: x + z.softmax(0).sum(0),
    "products": lambda x, z: x @ z.t() @ z + (z @ z.t()).sum(),
    "attention": lambda x, z: F.scaled_dot_product_attention(x[None], z[None], z[None]).mean() + x,
    "joined": lambda x, z: torch.cat([x, z.cumsum(0), z.sort(0).values, z.flip(0)]),
    "written": lambda x, z: torch.slice_scatter(x, z * 2, 0, len(x) - len(z), len(x), 1),
    "written first": lambda x, z: torch.slice_scatter(x, z * 2, 0, 0, len(z), 1) * 3,
    "added": lambda x, z: x.index_add(0, torch.arange(len(z)), z) + F.pad(z, (0, 0, 1, 0)).sum(0),
}


@pytest.mark.parametrize("name", READERS)
def test_a_part_may_have_no_elements(fresh, name):
    for start, end, step in PARTS:
        # Dynamo leaves these numbers open too, as arguments of the function.
        def function(x, start=start, end=end, step=step):
            x = x * 2
            return READERS[name](x, x[start:end:step])

        torch._dynamo.reset()
        options = {"fallback": "error"}
        compiled = torch.compile(function, backend="aotc", dynamic=True, options=options)
        for size in SIZES:
            x = torch.randn(size, 3, requires_grad=True)
            found, expected = compiled(x), function(x)
            torch.testing.assert_close(found, expected)
            pairs = [torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)]
            torch.testing.assert_close(*pairs)


def test_numbers_below_one_alone_are_no_sizes(fresh, caplog):
    """A trace that holds for negative numbers alone is compiled for each, not as for a size."""
    compiled = torch.compile(lambda x, k: x[:k] * 2, backend="aotc")
    x = torch.randn(9)
    for k in (1, 2, -2, -3, -1, 5):
        torch.testing.assert_close(compiled(x, k), x[:k] * 2)
    assert "internal error" not in caplog.text

"""Functions that stand in place of torch's own where these differ from eager's kernels."""

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.nn.functional import multilabel_margin_loss  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.decompositions.replacing import CORRECTED, replaced  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch


def labels(seed):
    """Rows of classes that end, or do not, with -1 and what no row may count."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.stack([torch.randperm(5, generator=generator) for _ in range(8)])
    ends = torch.randint(0, 7, (8,), generator=generator).clamp(max=5)
    return torch.where(torch.arange(5) == ends[:, None], -1, found)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_batch", [True, False])
def test_margins_of_many_labels(reduction, seed, is_batch):
    data = torch.randn(8, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    targets = labels(seed)
    data, targets = (data, targets) if is_batch else (data[0], targets[0])

    def loss(data, targets):
        return multilabel_margin_loss(data, targets, reduction=reduction)

    captured = capture(spec_of(loss, (data, targets)))
    found = interpret(captured.graph, captured.golden_inputs)[0]
    expected = loss(data, targets).numpy()
    numpy.testing.assert_allclose(found, expected, rtol=1e-12)
    compiled = torch.compile(loss, backend="aotc", options={"fallback": "error"})
    leaf, own = (data.clone().requires_grad_() for _ in range(2))
    compiled(leaf, targets).sum().backward()
    loss(own, targets).sum().backward()
    torch.testing.assert_close(leaf.grad, own.grad, rtol=1e-12, atol=1e-12)


def test_torchs_own_functions_come_back():
    before = {op: dict(op.py_kernels) for op in CORRECTED}
    with replaced(CORRECTED):
        assert all(op.py_kernels[key] is function for op, (key, function) in CORRECTED.items())
    assert {op: dict(op.py_kernels) for op in CORRECTED} == before


@pytest.mark.parametrize("sizes", [(3,), (256,), (257,), (300,), (5, 300), (300, 5), (2, 66000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.bool])
def test_identities_of_every_size(sizes, dtype):
    """torch compares their places in u8, u16, i32 or i64, by the size."""

    def identity(x):
        return torch.eye(*sizes, dtype=dtype), x

    captured = capture(spec_of(identity, (torch.ones(2),)))
    found = interpret(captured.graph, captured.golden_inputs)[0]
    numpy.testing.assert_array_equal(found, torch.eye(*sizes, dtype=dtype).numpy())

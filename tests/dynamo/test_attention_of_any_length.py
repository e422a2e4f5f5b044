"""Attention of dynamic lengths on the processor: one kernel, right at every length."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.dynamo import aotc  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
NIGHTLY = pytest.mark.nightly
LENGTHS = (3, 16, 37, 64, 130, 257)


def places(q, k):
    return torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])[None, :]


def windowed(q, k, v, seen):
    at, key = places(q, k)
    return sdpa(q, k, v, attn_mask=(key <= at) & (key > at - 20))


FORMS = {
    "whole": lambda q, k, v, seen: sdpa(q, k, v),
    "causal": lambda q, k, v, seen: sdpa(q, k, v, is_causal=True),
    "window": windowed,
    "padding": lambda q, k, v, seen: sdpa(q, k, v, attn_mask=seen[:, None, None, :]),
    "shared": lambda q, k, v, seen: sdpa(q, k[:, :2], v[:, :2], is_causal=True, enable_gqa=True),
    "rows of heads": lambda q, k, v, seen: sdpa(
        *(each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
    ),
}


def operands(length, dtype=torch.float32, batch=2):
    given = [torch.randn(batch, 4, length, 32).to(dtype) for _ in range(3)]
    return (*given, torch.rand(batch, length) > 0.3)


@pytest.mark.parametrize("form", FORMS)
def test_one_kernel(form):
    length = torch.export.Dim("n", min=2, max=2048)
    spec = spec_of(
        FORMS[form],
        operands(64),
        dynamic_shapes=({2: length}, {2: length}, {2: length}, {1: length}),
    )
    graph, _ = rewrite(capture(spec).graph, traits=CPU)
    called = [node for node in graph.nodes() if node.op == "placed"]
    assert [node.attr("function") for node in called] == ["attention"]
    assert not [node for node in graph.nodes() if node.kind in ("matmul", "reduce")]


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=NIGHTLY)])
@pytest.mark.parametrize("form", FORMS)
def test_results(form, dtype):
    torch.manual_seed(0)
    compiled = torch.compile(FORMS[form], backend=aotc, dynamic=True, options={"fallback": "error"})
    for length in LENGTHS:
        given = operands(length, dtype, batch=1 + length % 3)
        found = compiled(*given)
        expected = FORMS[form](*(each.double() for each in given[:3]), given[3])
        limit = 2e-6 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=limit)

"""Attention over caches on the processor: few rows of heads that share keys, of which data says how
many a row sees; drawn at random, beside f64 in eager torch."""

from __future__ import annotations

import random

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
LIMITS = {torch.float32: 3e-6, torch.bfloat16: 3e-2}
FIRST, MORE = 6, 40  # of the draws that each run takes, and those of a night


def drawn(seed):
    """The attention, and its operands but for the places of its rows."""
    draw = random.Random(seed)
    batch, key_heads = draw.choice((1, 1, 2, 5)), draw.choice((1, 2, 4))
    heads = key_heads * draw.choice((1, 2, 3, 4, 7))
    rows, keys = draw.choice((1, 1, 1, 2, 3, 5, 16, 20)), draw.choice((24, 65, 130, 256))
    size, width = draw.choice(((16, 16), (24, 40), (64, 64), (80, 80)))
    dtype = draw.choice((torch.float32, torch.float32, torch.bfloat16))
    window = draw.choice((0, 0, 3, 40))
    form = draw.choice(("ends", "ends", "ends by batch", "ends and padding", "causal", "all"))
    torch.manual_seed(seed)
    q, k, v = (
        torch.randn(batch, *shape).to(dtype)
        for shape in ((heads, rows, size), (key_heads, keys, size), (key_heads, keys, width))
    )
    sinks = torch.randn(heads) if draw.random() < 0.4 else None
    shown = torch.rand(batch, keys) > 0.3
    shown[:, 0] = True

    def attention(q, k, v, shown, place):
        key = torch.arange(keys)
        if form == "all":
            return sdpa(q, k, v, enable_gqa=True)
        if form == "causal":
            seen = key <= torch.arange(rows)[:, None] + (keys - rows)
            return sdpa(q, k, v, attn_mask=seen, enable_gqa=True)
        last = place[:, None, :, None] if form == "ends by batch" else place[0, :, None]
        seen = key <= last
        if window:
            seen = seen & (key > last - window)
        if form == "ends and padding":
            seen = seen & (shown[:, None, None, :] | (key == last))
        if sinks is None:
            return sdpa(q, k, v, attn_mask=seen, enable_gqa=True)
        return beside(q, k, v, seen, sinks)

    return attention, (q, k, v, shown), form


def beside(q, k, v, seen, sinks):
    """Attention whose rows also see one key of the score `sinks`, a number a head, and no value, as
    models of transformers write it."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = (q @ k.transpose(2, 3)).float() * q.shape[-1] ** -0.5
    scores = scores.where(seen, -torch.inf)
    column = sinks.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
    scores = torch.cat([scores, column], -1)
    weights = (scores - scores.max(-1, keepdim=True).values).softmax(-1)[..., :-1]
    return weights.to(q.dtype) @ v


def placed_at(given, first):
    """With the places of all rows from `first` on, in each sequence of a batch one further."""
    q, k, *_ = given
    place = first + torch.arange(q.shape[0])[:, None] + torch.arange(q.shape[2])
    return (*given, place.clamp(max=k.shape[2] - 1))


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "seed",
    [*range(FIRST), *(pytest.param(each, marks=pytest.mark.nightly) for each in range(6, MORE))],
)
def test_results(seed):
    attention, given, _ = drawn(seed)
    compiled = torch.compile(attention, backend=aotc, options={"fallback": "error"})
    keys = given[1].shape[2]
    for first in (0, 1, keys // 2, keys - given[0].shape[2]):
        operands = placed_at(given, first)
        wide = [x.double() if x.is_floating_point() else x for x in operands]
        limit = LIMITS[given[0].dtype]
        torch.testing.assert_close(
            compiled(*operands).double(), attention(*wide), rtol=0, atol=limit
        )


@pytest.mark.parametrize("seed", range(FIRST))
def test_a_kernel_reads_what_is_seen(seed):
    """It has ends in place of the mask."""
    attention, given, form = drawn(seed)
    if form == "all":
        pytest.skip("no place says what is seen")
    graph, _ = rewrite(capture(spec_of(attention, placed_at(given, 3))).graph, traits=CPU)
    placed = [node for node in graph.nodes() if node.op == "placed"]
    assert {node.attr("function") for node in placed} == {"attention"}
    (operands,) = {(node.inputs, node.attr("operands")) for node in placed}  # of values and sums
    kinds = [operands[0][place[0]].type.kind for place in operands[1][3:]]
    wanted = {"ends": ["int"], "ends by batch": ["int"], "ends and padding": ["bool", "int"]}
    has_sinks = {dict(node.attr("stored")[0][1])["has_sinks"] for node in placed} == {True}
    assert kinds == wanted.get(form, []) + ["float"] * has_sinks

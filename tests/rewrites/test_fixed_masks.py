"""Masks that models hold in buffers: which of them are no weights, and what becomes of them."""

from __future__ import annotations

import math

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.rewrites.fixed_masks import with_fixed_masks
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.targets.cuda.machines import GPUS

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

LONGEST = 24
ONES = torch.ones(LONGEST, LONGEST)
HIDING = torch.full((LONGEST, LONGEST), -math.inf)


class Attends(torch.nn.Module):
    """Attention by a mask in a buffer, and a function of scores, mask and length."""

    def __init__(self, mask, hide, also=None):
        super().__init__()
        self.register_buffer("mask", mask)
        self.hide, self.also = hide, also

    def forward(self, x):
        length = x.shape[1]
        q = x.view(x.shape[0], length, 2, 8).transpose(1, 2)
        scores = self.hide(q @ q.mT, self.mask, length)
        found = scores.softmax(-1) @ q
        return found if self.also is None else (found, self.also(self.mask, length))


def of_zeros(scores, mask, length):
    """nanoGPT's."""
    return scores.masked_fill(mask[..., :length, :length] == 0, -math.inf)


def of_bools(scores, mask, length):
    seen = mask[..., :length, :length].bool()
    return torch.where(seen, scores, torch.finfo(scores.dtype).min)


def of_ones(scores, mask, length):
    return scores.masked_fill(mask[..., :length, :length] > 0.5, -math.inf)


def added(scores, mask, length):
    return scores + mask[..., :length, :length]


BAND = ONES.tril() * ONES.triu(-3)
FIXED = {
    "nanogpt": (ONES.tril().view(1, 1, LONGEST, LONGEST), of_zeros, 0),
    "bytes": (ONES.tril().to(torch.uint8), of_bools, 0),
    "bf16": (ONES.tril().bfloat16(), of_zeros, 0),
    "hidden-ones": (ONES.triu(1), of_ones, 0),
    "window": (BAND, of_zeros, 4),
    "added": (HIDING.triu(1), added, 0),
    "added-finite": (torch.full_like(ONES, torch.finfo(torch.float32).min).triu(1), added, 0),
}
SWIN = torch.where(torch.rand(1, 1, LONGEST, LONGEST) > 0.5, -100.0, 0.0)
KEPT = {
    "returned": (ONES.tril(), of_zeros, lambda mask, length: mask),
    "multiplied": (ONES.tril(), of_zeros, lambda mask, length: mask @ mask),
    "no-band": (ONES.tril() * torch.eye(LONGEST).logical_not(), lambda s, m, n: of_zeros(
        s, m + torch.eye(LONGEST), n), None),
    "of-each-head": (torch.stack([ONES.tril(), BAND])[None], of_zeros, None),
    "swin": (SWIN, added, None),
    "hides-nothing": (ONES, of_zeros, None),
    "a-bias": (ONES.tril() - 1, added, None),
}  # fmt: skip


def captured(mask, hide, also=None, length=LONGEST, is_dynamic=False):
    model = Attends(mask, hide, also).eval()
    dims = {1: torch.export.Dim("length", min=2, max=LONGEST - 1)}
    dynamic = ({**dims},) if is_dynamic else None
    x = torch.randn(2, length, 16, generator=torch.Generator().manual_seed(3))
    return capture(spec_of(model, (x,), dynamic_shapes=dynamic)).graph, model, x


@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", FIXED)
def test_bands_in_buffers_are_attributes(name, is_dynamic):
    mask, hide, window = FIXED[name]
    graph, model, x = captured(mask, hide, length=13, is_dynamic=is_dynamic)
    (found,), masks = with_fixed_masks([graph])
    assert list(masks) == ["mask"]
    result, _ = rewrite(found, GPUS[90])
    (node,) = [each for each in result.nodes() if each.op == "attention"]
    assert (len(node.inputs), node.attr("causal"), node.attr("window")) == (3, True, window)
    assert not result.constants
    if not is_dynamic:
        (numbers,) = interpret(result, [x.numpy()])
        numpy.testing.assert_allclose(numbers, model(x).numpy(), atol=2e-6)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_weights(name):
    graph, _, _ = captured(*KEPT[name])
    (found,), masks = with_fixed_masks([graph])
    assert not masks
    assert found.constants["mask"].names == ("mask",)


def test_one_entry_that_reads_the_numbers_keeps_the_weight():
    masks_alone, _, _ = captured(ONES.tril(), of_zeros)
    returned, _, _ = captured(*KEPT["returned"])
    for graphs in ([masks_alone, returned], [returned, masks_alone]):
        found, masks = with_fixed_masks(graphs)
        assert not masks
        assert all(each.constants["mask"].names for each in found)
    found, masks = with_fixed_masks([masks_alone, masks_alone])
    assert not any(each.constants["mask"].names for each in found)

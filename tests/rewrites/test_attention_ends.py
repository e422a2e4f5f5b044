"""Masks whose bounds data says become ends and windows of the attention, with the same results."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret
from aotc.aot.ir.text import parse_graph
from aotc.aot.rewrites.attention_ends import bounded_masks
from aotc.aot.rewrites.attention_masks import known_masks
from aotc.aot.rewrites.rewrite import rewrite

torch = pytest.importorskip("torch")

from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

BATCH, HEADS, ROWS, KEYS, SIZE = 3, 4, 5, 24, 16
places = torch.arange(KEYS)


def in_groups(mask):
    """A mask [batch, 1, rows, keys] as a model's views for shared heads leave it."""
    return mask[:, :, None].expand(BATCH, 2, 2, ROWS, KEYS).reshape(BATCH, HEADS, ROWS, KEYS)


# Name → a mask of last [batch, 1, rows, 1] and other [batch, 1, 1, 1], whether a mask is left, and
# the window.
MASKS = {
    "up to": (lambda last, other: places <= last, False, 0),
    "before": (lambda last, other: places < last, False, 0),
    "turned": (lambda last, other: last + 2 > places, False, 0),
    "not after": (lambda last, other: ~(places > last - 1), False, 0),
    "in groups": (lambda last, other: in_groups(places <= last), False, 0),
    "window": (lambda last, other: (places <= last) & (places > last - 6), False, 6),
    "window in groups": (
        lambda last, _: in_groups((last >= places) & (last - 6 < places)),
        False,
        6,
    ),
    "two ends": (lambda last, other: (places <= last) & (places < other), False, 0),
    "another start": (lambda last, other: (places <= last) & (places > other), True, 0),
    "keys by twos": (lambda last, other: places * 2 <= last, None, 0),
    "some keys": (lambda last, other: (places <= last) & (places % 3 != 1), True, 0),
    "from on": (lambda last, other: places > last, None, 0),
}


def attention_of(graph):
    (found,) = (node for node in graph.nodes() if node.op == "attention")
    return found


@pytest.mark.parametrize("name", MASKS)
def test_masks_with_ends(name):
    mask, is_left, window = MASKS[name]

    def model(q, k, v, last, other):
        return sdpa(q, k, v, attn_mask=mask(last, other))

    torch.manual_seed(1)
    given = (
        torch.randn(BATCH, HEADS, ROWS, SIZE),
        *(torch.randn(BATCH, HEADS, KEYS, SIZE) for _ in range(2)),
        torch.randint(-3, KEYS + 4, (BATCH, 1, ROWS, 1)),
        torch.randint(-3, KEYS + 4, (BATCH, 1, 1, 1)),
    )
    graph = capture(spec_of(model, given)).graph
    result, _ = rewrite(graph, traits=GPUS[90])
    node = attention_of(result)
    kinds = [each.type.kind for each in node.inputs[3:]]
    assert kinds == (["bool"] if is_left is None else [*["bool"] * is_left, "int"])
    assert node.attr("window") == window
    arrays = [each.numpy() for each in given]
    (before,), (after,) = interpret(graph, arrays), interpret(result, arrays)
    numpy.testing.assert_allclose(after, before, atol=1e-5)


def test_a_vector_of_keys_is_a_row():
    """One row's mask may have lost the axis of rows."""

    def model(q, k, v, last):
        seen = places <= last
        return sdpa(q, k, v, attn_mask=(seen & (places > last - 6))[None])

    given = [torch.randn(1, 2, 1, SIZE), *(torch.randn(1, 2, KEYS, SIZE) for _ in range(2))]
    last = torch.tensor([9])
    result, _ = rewrite(capture(spec_of(model, (*given, last))).graph, traits=GPUS[90])
    node = attention_of(result)
    assert [each.type.kind for each in node.inputs[3:]] == ["int"]
    assert node.attr("window") == 6


COUNTED_BY_BATCH = """
%q = input(name='q') : f32[6, 1, 4, 8]
%k = input(name='k') : f32[6, 1, 7, 8]
%last = input(name='last') : i64[1, 1, 4, 1]
%key = iota(axis=3, shape=(2, 3, 1, 7)) : i64[2, 3, 1, 7]
%seen = le(%key, %last) : bool[2, 3, 4, 7]
%mask = reshape(%seen, shape=(6, 1, 4, 7)) : bool[6, 1, 4, 7]
%out = attention(%q, %k, %k, %mask, causal=False, has_sinks=False, is_safe=True, offset=0, \
scale=0.5, softcap=0.0, window=0) : f32[6, 1, 4, 8]
return out=%out
"""


def test_a_place_that_is_one_for_all_batches_follows_their_views(random_inputs):
    graph = parse_graph(COUNTED_BY_BATCH)
    result, count = bounded_masks(graph)
    assert count == 1
    assert [each.type.kind for each in attention_of(result).inputs[3:]] == ["int"]
    inputs = random_inputs(graph, 3, has_specials=False)
    (before,), (after,) = interpret(graph, inputs), interpret(result, inputs)
    numpy.testing.assert_allclose(after, before, atol=1e-6)


def test_attention_with_ends_is_no_causal_one():
    result, _ = bounded_masks(parse_graph(COUNTED_BY_BATCH))
    again, count = known_masks(result)
    assert (again.outputs, count) == (result.outputs, 0)

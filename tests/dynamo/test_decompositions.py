"""Backward ops written in other ops give what torch's own kernels give."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from aotc.aot.dynamo.decompositions import decompositions

pytestmark = pytest.mark.torch
aten = torch.ops.aten


def assert_same(op, *arguments, **named):
    found = decompositions()[op](*arguments, **named)
    expected = op(*arguments, **named)
    for one, other in zip(found, expected, strict=True):
        if one is not None:  # torch also gives gradients that nobody asked for
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    return found


@settings(deadline=None, max_examples=60)
@given(
    sizes=some.lists(some.integers(3, 9), min_size=1, max_size=3),
    reach=some.integers(1, 3),
    stride=some.integers(1, 3),
    padding=some.integers(0, 2),
    dilation=some.integers(1, 2),
    groups=some.sampled_from([1, 2]),
    mask=some.sampled_from(list(itertools.product([True, False], repeat=3))),
)
def test_gradients_of_convolutions(sizes, reach, stride, padding, dilation, groups, mask):
    assume(all(size + 2 * padding > dilation * (reach - 1) for size in sizes))
    rank = len(sizes)
    rows = ([stride] * rank, [padding] * rank, [dilation] * rank)
    data = torch.randn(2, 4, *sizes)
    weight = torch.randn(6, 4 // groups, *[reach] * rank)
    gradient = torch.randn_like(
        aten.convolution(data, weight, None, *rows, False, [0] * rank, groups)
    )
    rest = (*rows, False, [0] * rank, groups, list(mask))
    made = assert_same(aten.convolution_backward.default, gradient, data, weight, [6], *rest)
    assert tuple(each is not None for each in made) == mask


def test_the_gradient_of_a_transposed_convolution_is_left_alone():
    given_arguments = (torch.randn(1, 2, 5), torch.randn(1, 3, 3), torch.randn(3, 2, 3), [2])
    rest = ([1], [0], [1], True, [0], 1, [True, True, True])
    made = decompositions()[aten.convolution_backward.default](*given_arguments, *rest)
    assert made is NotImplemented


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, 2, 0), (3, 2, 1), (3, 1, 0)])
def test_gradients_of_max_pooling(kernel, stride, padding):
    data = torch.randn(2, 3, 9, 8)
    rows = ([kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], False)
    made, places = aten.max_pool2d_with_indices(data, *rows)
    gradient = torch.randn_like(made)
    op = aten.max_pool2d_with_indices_backward.default
    found = decompositions()[op](gradient, data, *rows, places)
    torch.testing.assert_close(found, op(gradient, data, *rows, places))


@pytest.mark.parametrize(("is_causal", "masked"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_and_its_gradients(is_causal, masked, scale):
    query, key, value = (torch.randn(2, 3, 7, 8) for _ in range(3))
    mask = torch.randn(2, 1, 7, 7) if masked else None
    named = {"attn_mask": mask, "scale": scale}
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    assert_same(forward, query, key, value, 0.0, is_causal, **named)
    made, sums = forward(query, key, value, 0.0, is_causal, **named)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    rest = (torch.randn_like(made), query, key, value, made, sums, 0.0, is_causal)
    assert_same(backward, *rest, **named)

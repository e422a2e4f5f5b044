"""Gradients of embedding bags, of samples at places of a grid, and of bilinear layers: as eager has
them, and compiled without anything left to torch."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.nn import functional

from aotc.aot.capture.decompositions.lookups import GRADIENTS

aten = torch.ops.aten
MODES = ("bilinear", "nearest")
OUTSIDE = ("zeros", "border", "reflection")


def assert_close(found, expected, least=1e-30):
    """In f64: by the roundings of sums of some hundred terms, which are `least` large."""
    scale = float(expected.abs().max().clamp(min=least)) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13 * scale)


@pytest.mark.parametrize(
    ("mode", "outside", "corners"), list(itertools.product((0, 1, 2), (0, 1, 2), (0, 1)))
)
def test_gradients_of_samples(mode, outside, corners):
    """Places inside and far outside, on elements, on the borders and between."""
    backward = aten.grid_sampler_2d_backward.default
    drawn = random.Random(f"{mode} {outside} {corners}")
    for number in range(25):
        torch.manual_seed(number)
        batch, channels, height, width = (drawn.choice((1, 2, 3, 5)) for _ in range(4))
        data = torch.randn(batch, channels, height, width, dtype=torch.float64)
        grid = torch.randn(batch, 3, 4, 2, dtype=torch.float64) * drawn.choice((0.5, 1, 4))
        if number % 2:
            grid = grid.mul(2).round().div(2)  # on borders, and on elements of some sizes
        gradient = torch.randn(batch, channels, 3, 4, dtype=torch.float64)
        needed = drawn.choice(([True, True], [True, False], [False, True]))
        given = (gradient, data, grid, mode, outside, bool(corners), needed)
        for found, expected, is_needed in zip(
            GRADIENTS[backward](*given), backward(*given), needed, strict=True
        ):
            if is_needed:  # slopes of cubics cancel where elements beside each other are one
                assert_close(found, expected, 0.1 if mode == 2 else 1e-30)


def bag_arguments(drawn):
    """Bags of any size, some empty, with a number that counts nothing and with factors or not."""
    rows, count = drawn.choice((1, 4, 9)), drawn.choice((0, 1, 6, 20))
    bags = drawn.choice((1, 2, 7))
    has_last = drawn.random() < 0.3
    offsets = [0, *sorted(drawn.randint(0, count) for _ in range(bags - 1 + has_last))]
    if has_last:
        offsets[-1] = count
    mode = drawn.choice((0, 1))
    factors = (
        torch.randn(count, dtype=torch.float64) if mode == 0 and drawn.random() < 0.5 else None
    )
    return (
        torch.randn(rows, 3, dtype=torch.float64),
        torch.tensor([drawn.randrange(rows) for _ in range(count)], dtype=torch.int64),
        torch.tensor(offsets),
        False,
        mode,
        False,
        factors,
        has_last,
        drawn.choice((-1, -1, 0)),
    )


@pytest.mark.parametrize("number", range(60))
def test_gradients_of_bags(number):
    drawn = random.Random(number)
    torch.manual_seed(number)
    given = bag_arguments(drawn)
    weight, indices, offsets, by_frequency, mode, _, factors, _, padding = given
    found = GRADIENTS[aten._embedding_bag.default](*given)
    expected = aten._embedding_bag.default(*given)
    assert_close(found[0], expected[0])
    gradient = torch.randn_like(found[0])
    rest = (weight.shape[0], by_frequency, mode, False, factors, padding)
    backward = aten._embedding_bag_backward.default
    assert_close(
        GRADIENTS[backward](gradient, indices, offsets, *found[1:], *rest),
        backward(gradient, indices, offsets, *expected[1:], *rest),
    )
    if factors is not None:
        backward = aten._embedding_bag_per_sample_weights_backward.default
        rest = (mode, padding)
        assert_close(
            GRADIENTS[backward](gradient, weight, indices, offsets, found[1], *rest),
            backward(gradient, weight, indices, offsets, expected[1], *rest),
        )


@pytest.mark.parametrize("change", [{3: True}, {4: 2}, {5: True}])
def test_bags_that_are_left_to_torch(change):
    """Gradients by frequency, maxima, and sparse ones."""
    given = list(bag_arguments(random.Random(0)))
    for place, value in change.items():
        given[place] = value
    assert GRADIENTS[aten._embedding_bag.default](*given) is NotImplemented


def sampled(x, grid, mode, outside):
    return functional.grid_sample(x, grid, mode, outside, align_corners=False)


def bags(weight, mode, padding):
    indices, offsets = torch.arange(12) * 5 % 7, torch.tensor([0, 4, 4, 9])
    return functional.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding)


def bilinear(x, y, weight, bias):
    return functional.bilinear(x, y, weight, bias)


COMPILED = [
    *(
        (sampled, ((2, 3, 6, 5), (2, 4, 3, 2)), (mode, outside))
        for mode in MODES
        for outside in OUTSIDE
    ),
    (bags, ((7, 5),), ("sum", None)),
    (bags, ((7, 5),), ("mean", 3)),
    (bilinear, ((4, 6), (4, 5), (3, 6, 5), (3,)), ()),
    (bilinear, ((2, 4, 6), (2, 4, 5), (3, 6, 5), (3,)), ()),
]


@pytest.mark.parametrize(("function", "shapes", "rest"), COMPILED)
def test_compiled_without_anything_left(tmp_path, monkeypatch, function, shapes, rest):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    given = [torch.randn(each, requires_grad=True) for each in shapes]
    compiled = torch.compile(function, backend="aotc", options={"fallback": "error"})
    found, expected = compiled(*given, *rest), function(*given, *rest)
    gradient = torch.randn_like(expected)
    pairs = [(found, expected)] + list(
        zip(
            torch.autograd.grad(found, given, gradient, allow_unused=True),
            torch.autograd.grad(expected, given, gradient, allow_unused=True),
            strict=True,
        )
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)

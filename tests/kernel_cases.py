"""The functions of `aotc.kernels` with their references: one row a function and form.

A reference is torch's own function, run in f64 on the very numbers that ours is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from aotc import kernels

EPSILON = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
EPSILON[torch.float64] = 2.0**-53
"""Half a step of a type at 1: what one rounding changes a number by, relative to it."""


@dataclass(frozen=True)
class Case:
    """ours, reference: functions of the same tensors.

    shapes: from a shape of `x` to the shapes of all float arguments, `x` first.
    sizes: shapes of `x`, small ones first; long: those of the nightly test, beside them.
    """

    name: str
    ours: Callable[..., Any]
    reference: Callable[..., Any]
    shapes: Callable[[tuple[int, ...]], Sequence[tuple[int, ...]]]
    sizes: tuple[tuple[int, ...], ...]
    long: tuple[tuple[int, ...], ...] = ()
    gradcheck: tuple[int, ...] = (3, 5)

    def tensors(
        self, shape: tuple[int, ...], dtype: torch.dtype, is_grad: bool = True
    ) -> list[torch.Tensor]:
        """Random arguments."""
        made = [torch.randn(each, dtype=torch.float64).to(dtype) for each in self.shapes(shape)]
        return [each.requires_grad_(is_grad) for each in made]


def _alone(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape]


def _twice(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, shape]


def _norm(count: int) -> Callable[[tuple[int, ...]], list[tuple[int, ...]]]:
    return lambda shape: [shape, *[shape[-1:]] * count]


def _group(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [shape, (shape[1],), (shape[1],)]


ROWS = ((3, 7), (2, 300))
LONG_ROWS = ((5, 1), (4, 1000), (70, 64), (9, 128), (2, 9000), (3, 17001), (2, 70001))

CASES = (
    Case("vector_add", kernels.vector_add, torch.add, _twice, ((3, 5),), ((70001,), (2, 3, 4))),
    Case("softmax", kernels.softmax, lambda x: torch.softmax(x, -1), _alone, ROWS, LONG_ROWS),
    Case(
        "softmax over channels",
        lambda x: kernels.softmax(x, 1),
        lambda x: torch.softmax(x, 1),
        _alone,
        ((2, 5, 9),),
        ((3, 300, 33), (2, 3000, 40)),
    ),
    Case(
        "log_softmax",
        kernels.log_softmax,
        lambda x: torch.log_softmax(x, -1),
        _alone,
        ROWS[:1],
        LONG_ROWS,
    ),
    Case(
        "layer_norm",
        lambda x, w, b: kernels.layer_norm(x, x.shape[-1:], w, b),
        lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b),
        _norm(2),
        ROWS,
        LONG_ROWS[1:],
    ),
    Case(
        "layer_norm without weights",
        lambda x: kernels.layer_norm(x, x.shape[-1:]),
        lambda x: functional.layer_norm(x, x.shape[-1:]),
        _alone,
        (),
        LONG_ROWS[1:],
    ),
    Case(
        "rms_norm",
        lambda x, w: kernels.rms_norm(x, x.shape[-1:], w, 1e-5),
        lambda x, w: functional.rms_norm(x, x.shape[-1:], w, 1e-5),
        _norm(1),
        ROWS[:1],
        LONG_ROWS[1:],
    ),
    Case(
        "group_norm",
        lambda x, w, b: kernels.group_norm(x, 2, w, b),
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        _group,
        ((3, 4, 5),),
        ((3, 6), (2, 8, 30, 17), (600, 6, 3), (2, 4, 90000)),
        gradcheck=(2, 4, 3),
    ),
)


def tolerance(expected: torch.Tensor, dtype: torch.dtype, length: int) -> float:
    """How far a result may be from f64: relative to the largest element, 4 roundings to its type
    (the result, what the backward pass reads of the forward's results, and their two factors), and
    in the type of the computation those of a sum of `length` terms by a tree and of some 16
    functions and products on the way."""
    wide = EPSILON[torch.float64 if dtype == torch.float64 else torch.float32]
    steps = 16 + 4 * math.log2(max(2, length))
    scale = float(expected.abs().max()) if expected.numel() else 0.0
    return (4 * EPSILON[dtype] + steps * wide) * scale


def assert_near(
    found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, length: int, scale: float = 0.0
) -> None:
    """Fails where an element is further than `tolerance`, at least of `scale`."""
    assert found.dtype == dtype
    assert found.shape == expected.shape
    allowed = max(tolerance(expected, dtype, length), scale)
    away = (found.double() - expected).abs()
    assert bool((away <= allowed).all()), f"{float(away.max())} away, allowed {allowed}"


class Net(torch.nn.Module):
    """Functions of the library between others, so that they have something to fuse with."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(24))
        self.bias = torch.nn.Parameter(torch.randn(24))
        self.linear = torch.nn.Linear(24, 24)

    def forward(self, x):
        x = kernels.layer_norm(x * 2, [24], self.weight, self.bias)
        x = kernels.vector_add(self.linear(x), x)
        x = kernels.group_norm(x, 3, self.weight, self.bias)
        return kernels.softmax(x) * kernels.rms_norm(x, [24], self.weight)

"""Comparisons of floats that come out one way in one order of roundings, and otherwise in another.

Roundings that are moved at random seldom make two computed values equal, or a difference 0. So each
comparison of floats is watched, run after run: at the elements at which the differences that were
seen, widened by their span, have 0 among them, it may come out any way, and further runs take each.
A difference that never moves is no coincidence: an element is the largest one, or it is not.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch

PAIRS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
OF_ZERO = frozenset({
    "logical_not", "logical_and", "logical_or", "logical_xor", "any", "all", "sign", "sgn",
    "count_nonzero", "nonzero",
})  # fmt: skip
WIDENED = 4.0  # times the span of what was seen
WAYS = 5  # equal, above, below; then at random

Key = tuple[str, torch.Size, int]


class Comparisons:
    """The differences that a model's comparisons saw; the same ops in the same order each time."""

    def __init__(self) -> None:
        self._spans: dict[Key, tuple[torch.Tensor, torch.Tensor]] = {}
        self._counts: Counter[tuple[str, torch.Size]] = Counter()
        self._way: int | None = None
        self.found = False  # whether an element of the last run may come out otherwise

    def begin(self, way: int | None = None) -> None:
        """Before a run that is watched, or in which what is open comes out in one of the ways."""
        self._counts.clear()
        self._way, self.found = way, False

    def operands(self, function: Any, args: Any) -> Any:
        """The operands of an op, changed where they are to meet."""
        name = function._schema.name.removeprefix("aten::").rstrip("_")
        if name in PAIRS:
            return (self._met(name, *args[:2]), *args[1:]) if _is_float(args[0]) else args
        if name in OF_ZERO:
            return tuple(self._met(name, each, 0.0) if _is_float(each) else each for each in args)
        return args

    def _met(self, name: str, one: torch.Tensor, other: Any) -> torch.Tensor:
        if isinstance(other, torch.Tensor):
            other = other.detach().double()
        away = one.detach().double() - other
        key = (name, away.shape, self._counts[name, away.shape])
        self._counts[name, away.shape] += 1
        if self._way is None:
            away = away.nan_to_num(nan=torch.inf)
            low, high = self._spans.get(key, (away, away))
            self._spans[key] = torch.minimum(low, away), torch.maximum(high, away)
            return one
        if key not in self._spans:
            return one
        low, high = self._spans[key]
        span = high - low
        is_open = (span > 0) & (low - WIDENED * span <= 0) & (high + WIDENED * span >= 0)
        is_open &= span.isfinite()
        if not bool(is_open.any()):
            return one
        self.found = True
        return torch.where(is_open, self._moved(one, other, span), one).to(one.dtype)

    def _moved(self, one: torch.Tensor, other: Any, span: torch.Tensor) -> torch.Tensor:
        """`other`, or a span beside it."""
        assert self._way is not None
        side = torch.full_like(span, (0.0, 1.0, -1.0, 0.0, 0.0)[self._way])
        if self._way > 2:
            generator = torch.Generator().manual_seed(self._way)
            side = torch.randint(-1, 2, span.shape, generator=generator).double()
        least = torch.finfo(one.dtype).eps * one.detach().double().abs()
        return other + side * torch.maximum(2 * span, 2 * least)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())

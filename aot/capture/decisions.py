"""Float comparisons and roundings to integers whose outcome depends on the order of earlier
roundings.

Rounding errors that are perturbed at random seldom make two computed values equal. So each
comparison of floats is watched over several runs: an element may come out either way if the range
of the differences that were seen, widened by its own span, includes 0; further runs then take each
outcome. A difference that never changes is not due to rounding. Roundings to integers, such as the
codes of a quantised model, are watched in the same way: near a jump of `round`, `floor` or a cast,
either integer may come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from aotc.aot.capture.custom_ops import base_name

PAIRS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
OF_ZERO = frozenset({
    "logical_not", "logical_and", "logical_or", "logical_xor", "any", "all", "sign", "sgn",
    "count_nonzero", "nonzero",
    # A quotient by 0 is no number, or an infinite one, and 0 by 0 is no number.
    "div", "floor_divide", "fmod", "reciprocal", "remainder",
})  # fmt: skip
# Ops that give whole numbers → where they jump, a distance from whole numbers.
WHOLE = {"round": 0.5, "floor": 0.0, "ceil": 0.0, "trunc": 0.0, "frac": 0.0}
CASTS = frozenset({"_to_copy", "to"})  # to integers, which cut off
WIDENED = 4.0  # times the span of what was seen
WAYS = 5  # equal, above, below; then at random

Key = tuple[str, torch.Size, int]


class Comparisons:
    """What a model's comparisons and roundings to whole numbers saw; the same ops in the same order
    each time."""

    def __init__(self) -> None:
        self._spans: dict[Key, tuple[torch.Tensor, torch.Tensor]] = {}
        self._counts: Counter[tuple[str, torch.Size]] = Counter()
        self._way: int | None = None
        self.found = False  # whether an element of the last run may come out otherwise

    def begin(self, way: int | None = None) -> None:
        """Before a run that is watched, or in which what is open comes out in one of the ways."""
        self._counts.clear()
        self._way, self.found = way, False

    def operands(
        self, function: Any, args: Any, kwargs: Mapping[str, Any] = MappingProxyType({})
    ) -> Any:
        """The operands of an op, changed where they are to meet."""
        name = base_name(function).rstrip("_")
        if name in PAIRS:
            return (self._met(name, *args[:2]), *args[1:]) if is_float(args[0]) else args
        if name in WHOLE or (name in CASTS and _is_to_integers(kwargs)):
            return (self._jumped(name, args[0]), *args[1:]) if is_float(args[0]) else args
        if name in OF_ZERO:
            return tuple(self._met(name, each, 0.0) if is_float(each) else each for each in args)
        return args

    def _met(self, name: str, one: torch.Tensor, other: Any) -> torch.Tensor:
        """What is compared, moved to what it is compared with if that is near."""
        if isinstance(other, torch.Tensor):
            other = other.detach().double()
        away = one.detach().double() - other
        found = self._seen(name, away.nan_to_num(nan=torch.inf) if self._way is None else away)
        if found is None:
            return one
        low, high = found
        width = _width(one, high - low)
        return self._opened(one, other, high - low, (low - width <= 0) & (high + width >= 0))

    def _jumped(self, name: str, one: torch.Tensor) -> torch.Tensor:
        """What is made whole, moved to where the result jumps if that is near."""
        found = self._seen(name, one.detach().double())
        if found is None:
            return one
        (low, high), offset = found, WHOLE.get(name, 0.0)
        width = _width(one, high - low)
        edge = (high + width - offset).floor() + offset
        return self._opened(one, edge, high - low, edge >= low - width)

    def _seen(self, name: str, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The smallest and largest values that were seen at this op; None while it is watched."""
        key = (name, value.shape, self._counts[name, value.shape])
        self._counts[name, value.shape] += 1
        if self._way is not None:
            return self._spans.get(key)
        low, high = self._spans.get(key, (value, value))
        self._spans[key] = torch.minimum(low, value), torch.maximum(high, value)
        return None

    def _opened(
        self, one: torch.Tensor, other: Any, span: torch.Tensor, is_near: torch.Tensor
    ) -> torch.Tensor:
        """`one`, but `other` or a span beside it where that is near and what was seen moved."""
        is_open = (_width(one, span) > 0) & is_near & span.isfinite()
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


def _width(one: torch.Tensor, span: torch.Tensor) -> torch.Tensor:
    """How far beside what was seen a value may lie."""
    width = WIDENED * span
    if one.dtype in (torch.float16, torch.bfloat16) and bool((span > 0).any()):
        # What is computed may be rounded to the neighbour, whether or not a run has shown it.
        width = width + torch.finfo(one.dtype).eps * one.detach().double().abs()
    return width


def _is_to_integers(kwargs: Mapping[str, Any]) -> bool:
    dtype = kwargs.get("dtype")
    return dtype is not None and not dtype.is_floating_point and not dtype.is_complex


def is_float(value: Any) -> bool:
    """Whether a value is a tensor of floats with elements."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and bool(value.numel())

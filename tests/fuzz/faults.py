"""Faults of compilers, put into results that are right: what the judge does not see of them is the
price of what it excuses."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import torch

Fault = Callable[[torch.Tensor, random.Random], torch.Tensor]


def _at(value: torch.Tensor, place: int, new: torch.Tensor) -> torch.Tensor:
    changed = value.flatten().clone()
    changed[place] = new
    return changed.reshape(value.shape)


def shifted(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Every element read one place off, along the last axis."""
    return value.roll(1, -1) if value.dim() else value


def rounded(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Rounded to a float of half the digits on the way; whole numbers down from their half."""
    narrow = {torch.float64: torch.float32, torch.float32: torch.bfloat16}
    if value.dtype in narrow:
        return value.to(narrow[value.dtype]).to(value.dtype)
    if value.is_floating_point():  # four bits less
        wide = value.double()
        _, exponents = torch.frexp(wide)
        step = torch.ldexp(torch.full_like(wide, 32 * torch.finfo(value.dtype).eps), exponents)
        return torch.where(wide.isfinite(), (wide / step).round() * step, wide).to(value.dtype)
    return value if value.dtype == torch.bool else value - (value > 0).to(value.dtype)


def without_nan(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """NaN dropped, as a maximum by comparison does."""
    return (
        value.nan_to_num(0.0, float("inf"), float("-inf")) if value.is_floating_point() else value
    )


def negated(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The sign of one element."""
    place = rng.randrange(value.numel())
    one = value.flatten()[place]
    return _at(value, place, ~one if value.dtype == torch.bool else -one)


def with_wrong_tail(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The last element is that before it."""
    return _at(value, value.numel() - 1, value.flatten()[-2]) if value.numel() > 1 else value


def swapped(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The last two axes taken for each other, or two halves."""
    if value.dim() > 1:
        return value.transpose(-1, -2).reshape(value.shape)
    return torch.cat(value.flatten().tensor_split(2)[::-1]).reshape(value.shape)


def without_last_block(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """The last elements that a vector holds were not written."""
    changed = value.flatten().clone()
    changed[-(changed.numel() % 16 or 16) :] = 0
    return changed.reshape(value.shape)


def one_term_short(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """One element off by the root of its type's precision, as a sum without one of its terms."""
    place = rng.randrange(value.numel())
    one = value.flatten()[place]
    if not value.is_floating_point():
        return _at(value, place, one ^ 1)
    return _at(value, place, one * (1 + 2 * torch.finfo(value.dtype).eps ** 0.5))


FAULTS: Mapping[str, Fault] = {
    "an index off by one": shifted,
    "a wrong rounding": rounded,
    "a dropped NaN": without_nan,
    "a sign": negated,
    "a wrong tail element": with_wrong_tail,
    "swapped arguments": swapped,
    "a missing last block": without_last_block,
    "a term too few": one_term_short,
}


def is_changed(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether a fault changed a number by more than roundings do: by eight units in its last place.

    0 and -0 are one number, and so are two NaN.
    """
    if not before.is_floating_point():
        return not torch.equal(before, after)
    one, other = before.double(), after.double()
    size = torch.maximum(one.abs(), other.abs()).nan_to_num(0.0, 1.0, 1.0)
    is_near = (one - other).abs() <= 8 * torch.finfo(before.dtype).eps * size
    is_equal = (one == other) | (one.isnan() & other.isnan()) | is_near
    return not bool(is_equal.all())

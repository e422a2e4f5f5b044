"""Ops that take some of equal elements: each of them in turn.

torch does not say which of equal elements `topk`, `kthvalue`, `median` and an order that is not
stable take, and a gradient goes to those. Equal elements are numbered here, so that none are equal,
and what the op takes of the numbers is taken of the elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

import torch

from fuzz.program import NAMESPACE, Step

MANY = 1 << 20


def taken(
    step: Step, values: Mapping[str, Any], code: CodeType, turn: int, generator: torch.Generator
) -> torch.Tensor:
    """The value of a step, with elements taken that are `turn` places further among their equals;
    from `MANY` on, each group of equals is turned at random."""
    name, axis = next(step.refs()), step.arguments["axis"]
    operand = values[name]
    plain = eval(code, {**NAMESPACE, **values})
    if not operand.dim() or not operand.numel():
        return plain
    numbers = _numbers(operand.detach(), axis, turn, generator)
    with torch.no_grad():
        chosen = eval(code, {**NAMESPACE, **values, name: numbers.double()}).long()
    is_dropped = chosen.dim() < operand.dim()
    chosen = chosen.unsqueeze(axis) if is_dropped else chosen
    found = operand.gather(axis, numbers.argsort(axis).gather(axis, chosen))
    found = found.squeeze(axis) if is_dropped else found
    is_same = (found == plain) | (found.isnan() & plain.isnan())
    # A median is NaN wherever there is one, which no order says.
    return found if bool(is_same.all()) else plain


def largest_group(step: Step, values: Mapping[str, Any]) -> int:
    """How many elements that a step takes from are equal, at most."""
    operand = values[next(step.refs())]
    if not operand.dim() or not operand.numel():
        return 1
    _, _, counts = _groups(operand.detach(), step.arguments["axis"])
    return int(counts.max())


def _numbers(
    operand: torch.Tensor, axis: int, turn: int, generator: torch.Generator
) -> torch.Tensor:
    """The place of each element in order, where equal ones are turned."""
    order, starts, counts = _groups(operand, axis)
    within = _places(order, axis) - starts
    if turn >= MANY:
        drawn = torch.randint(0, 2**31, order.shape, generator=generator)
        turns = drawn.gather(axis, starts)  # one of each group
    else:
        turns = torch.full_like(order, turn)
    return torch.empty_like(order).scatter_(axis, order, starts + (within + turns) % counts)


def _groups(operand: torch.Tensor, axis: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The order of the elements along an axis; in it, where each one's equals begin, and how many
    these are."""
    ordered, order = operand.sort(dim=axis, stable=True)
    before = ordered.roll(1, axis)
    is_new = (ordered != before) & ~((ordered != ordered) & (before != before))
    places = _places(order, axis)
    starts = torch.where(is_new | (places == 0), places, 0).cummax(axis).values
    counts = torch.zeros_like(order).scatter_add_(axis, starts, torch.ones_like(order))
    return order, starts, counts.gather(axis, starts)


def _places(like: torch.Tensor, axis: int) -> torch.Tensor:
    shape = [1] * like.dim()
    shape[axis] = -1
    return torch.arange(like.shape[axis]).reshape(shape).expand(like.shape)

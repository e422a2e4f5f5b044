"""Programs with 16-bit values of several readers, whose results are exact if these readers agree.

`chain(seed)` computes a value `v` of a 16-bit type by random arithmetic, and reads it by random
`AGREEING` pairs: both sides of a pair are `v` once more, by an operation that is exact on numbers
of that type. So each result is 0, whatever `v` was rounded to, unless a reader had more bits of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor

HALF, BRAIN = torch.float16, torch.bfloat16
SIZE = 8  # rows and columns of all arguments
COUNT = 3  # pairs that read one value

Chain = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, ...]]


def _greatest(v: Tensor) -> Tensor:
    """0 in each row whose largest element is one of its elements."""
    return 1 - (v == v.amax(1, keepdim=True)).any(1, keepdim=True).to(v.dtype)


def _one_of_each_row(v: Tensor) -> Tensor:
    """The sum of a row in which only one element is left, against that element."""
    places = torch.arange(SIZE).expand(SIZE, SIZE)
    left = torch.where(places == 3, v, 0)
    return left.sum(1) - v[:, 3]


AGREEING: dict[str, Callable[[Tensor], Tensor]] = {
    "mean_of_one": lambda v: v - v[:, :, None].mean(2),
    "sum_of_one": lambda v: v[:, None] - v[:, None].sum(1, keepdim=True),
    "product_of_one": lambda v: v[None] - v[None].prod(0, keepdim=True),
    "running_sum": lambda v: v.cumsum(1)[:, :1] - v[:, :1],
    "greatest": _greatest,
    "greatest_of_one": lambda v: v - v[..., None].amax(2),
    "distance_to_the_greatest": lambda v: (v - v.amax(1, keepdim=True)).amax(1),
    "widened": lambda v: v.float() - v,
    "widened_and_back": lambda v: v - v.float().to(v.dtype),
    "in_another_order": lambda v: v - v.t().flip(0).contiguous().flip(0).t(),
    "in_parts": lambda v: v - torch.cat([v[:3] * 1.0, v[3:].clone()]),
    "by_its_places": lambda v: v.flip(1) - v[:, torch.arange(SIZE - 1, -1, -1)],
    "of_both_signs": lambda v: v - (v.relu() - (-v).relu()),
    "twice": lambda v: v * 2 - (v + v),
    "half": lambda v: v - (v * 0.5 + v * 0.5),
    "by_a_product": lambda v: v @ torch.eye(SIZE, dtype=v.dtype) - v,
    "in_a_product": lambda v: torch.eye(SIZE, dtype=v.dtype) @ v - v.clone(),
    "one_of_each_row": _one_of_each_row,
    "chosen": lambda v: torch.where(v > 0.25, v, -v) - torch.where(v > 0.25, v.float(), -v.float()),
    "whole_and_rest": lambda v: v.trunc() + v.frac() - v,
    "part_of_itself": lambda v: (v - v.detach().float()).abs(),
}
# What is read twice: of two arguments, and a number that no other value has.
_SOURCES: tuple[Callable[[Tensor, Tensor, float], Tensor], ...] = (
    lambda a, b, number: a * number,
    lambda a, b, number: a * number + b,
    lambda a, b, number: (a * number) @ b,
    lambda a, b, number: torch.stack([a * number, b]).prod(0),
)


def _sources(place: int) -> list[Callable[[Tensor, Tensor, float], Tensor]]:
    """One for f16 and one for bf16."""
    return [_SOURCES[(place + at) % len(_SOURCES)] for at in (0, place // 4 % 3 + 1)]


_STEPS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.add,
    torch.sub,
    lambda a, b: a * b * 0.3,
    lambda a, b: a * 0.37 - b,
    lambda a, b: a / 3 + b,
    lambda a, b: a @ b * 0.13,
    lambda a, b: a.sigmoid() * 3 - b,
    lambda a, b: torch.softmax(a, 1) + b,
    lambda a, b: a - b.mean(1, keepdim=True),
    lambda a, b: a.amax(0) - b.t(),
    lambda a, b: torch.nn.functional.gelu(a) + b,
    lambda a, b: torch.nn.functional.layer_norm(a, (SIZE,)) * b.tanh(),
)


def chain(seed: int) -> Chain:
    """A program of three f32 arguments `[SIZE, SIZE]`: zeros, and at times the value at last."""
    draw = random.Random(seed)
    dtype = draw.choice((HALF, BRAIN))
    steps = [
        (draw.choice(_STEPS), draw.randrange(99), draw.randrange(99))
        for _ in range(draw.randint(1, 5))
    ]
    names = draw.sample(sorted(AGREEING), COUNT)
    is_middle = draw.random() < 0.5  # whether what `v` is made of has such readers too
    is_stored = draw.random() < 0.4

    def program(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        values = [value.to(dtype) for value in (x, y, z)]
        for step, first, second in steps:
            values.append(step(values[first % len(values)], values[second % len(values)]))
        last = values[-1]
        found = [AGREEING[name](last) for name in names]
        if is_middle and len(values) > 4:
            found += [AGREEING[name](values[-2]) for name in names[:2]]
        return tuple(found) + ((last,) if is_stored else ())

    return program


def arguments(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three f32 arguments, none of whose elements 16-bit types hold."""
    torch.manual_seed(seed)
    first, second, third = (torch.randn(SIZE, SIZE) for _ in range(3))
    return first, second, third


class Readers(torch.nn.Module):
    """Each pair of readers of values of its own, and chains from a seed on: one export for many."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self.chains = [chain(seed) for seed in range(first, first + count)]

    def forward(self, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        found = []
        for place, pair in enumerate(AGREEING.values()):
            for at, source in enumerate(_sources(place)):
                dtype = (HALF, BRAIN)[at]
                found.append(pair(source(x.to(dtype), y.to(dtype), 0.37 + place / 64)))
        for drawn in self.chains:
            found += drawn(x, y, z)
        return tuple(found)

    def names(self) -> list[str]:
        """What each result is of."""
        named = [f"{name} of a {dtype}" for name in AGREEING for dtype in (HALF, BRAIN)]
        results = [len(drawn(*arguments(0))) for drawn in self.chains]
        return named + [f"chain {at}" for at, count in enumerate(results) for _ in range(count)]

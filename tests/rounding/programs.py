"""Programs in which eager's numbers are exact: conversions, and what is decided by a 16-bit value.

`NAMED` are one reason each. `chain(seed)` draws a random program: every arithmetic operation on
16-bit values is read by a conversion or by an operation that is not continuous, so that whoever
rounds where eager rounds gives eager's bits. As a SPEC, this file is a model of all of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor

HALF, BRAIN = torch.float16, torch.bfloat16
SIZE = 9  # rows and columns of both arguments


def _sorted(data: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sort(data, dim=-1, stable=True)


def _recomputed(x: Tensor) -> tuple[Tensor, ...]:
    """A value that is stored and one that is not: what two readers make of them agrees."""
    stored = x.to(BRAIN) + 100
    scaled = (stored * x.to(BRAIN)).float()
    return stored, scaled, scaled.sum(-1) * 0 + scaled.amax(-1)


NAMED: dict[str, Callable[[Tensor], object]] = {
    "half_and_back": lambda x: x.to(HALF).float(),
    "half_by_its_name": lambda x: x.half().float() + x.bfloat16().float(),
    "brain_and_back": lambda x: x.to(BRAIN).float() * 2,
    "type_of_another": lambda x: x.type(HALF).to(x),
    "double_through_half": lambda x: x.double().half().double(),
    "half_to_brain": lambda x: (x.half() * 3).to(BRAIN).float(),
    "wide_and_back": lambda x: (x.half() * 3).float().half().float(),
    "function_between": lambda x: x.to(BRAIN).float().abs().sqrt().to(BRAIN).float(),
    "threshold": lambda x: (x * 0.001 + 1).to(BRAIN) == 1,
    "threshold_of_arithmetic": lambda x: (x.half() * 0.37) > (x.half() + 0.125),
    "literal_beside": lambda x: (x.to(BRAIN) * 0 + 0.10009765625) > 0.1,
    "equality": lambda x: (x.half() + 1) == (x + 1).half(),
    "order": lambda x: _sorted(x.to(BRAIN) + 100),
    "greatest_of_equals": lambda x: (x.to(BRAIN) + 100).argmax(-1),
    "greatest_and_place": lambda x: (x.to(BRAIN) + 100).max(-1),
    "running_greatest": lambda x: (x.to(BRAIN) + 100).cummax(-1),
    "largest_two": lambda x: (x.to(BRAIN) + 100).topk(2, -1).values,
    "floor": lambda x: (x.half() * 333).floor(),
    "ceil_round_trunc": lambda x: (
        (x.half() * 333).ceil(),
        (x.half() * 37).round(),
        (x.half() * 3.7).trunc(),
    ),
    "remainder": lambda x: (x.half() * 37) % 1.5,
    "floor_division": lambda x: (x.half() * 37) // 1.5,
    "to_integers": lambda x: (x * 333).half().to(torch.int32),
    "arithmetic_to_integers": lambda x: (x.half() * 333).to(torch.int32),
    "integers_to_brain": lambda x: (x * 9999).to(torch.int32).to(BRAIN).float(),
    "to_bytes": lambda x: (x * 30).to(torch.int8).float(),
    "overflow": lambda x: (x.half() * 30000).isinf(),
    "underflow": lambda x: (x.half() * 1e-8).sign(),
    "filled": lambda x: x + torch.full((SIZE,), 0.1, dtype=BRAIN).float(),
    "bits": lambda x: (x.half() * 3).view(torch.int16) & 7,
    "from_bits": lambda x: (x.view(torch.int32) & -(1 << 16)).view(torch.float32),
    "tensor_of_one_number": lambda x: (x.half() * torch.tensor(3.3), x.half() / torch.tensor(3.3)),
    "places_of_a_pool": lambda x: torch.nn.functional.max_pool1d(
        (x.to(BRAIN) + 100)[None], 3, return_indices=True
    ),
    "places_in_order": lambda x: torch.bucketize(
        x.to(BRAIN) + 100, torch.tensor([98.0, 99.5, 100.5], dtype=BRAIN)
    ),
    "stored_and_read": _recomputed,
    "fake_quantised": lambda x: ((x / 0.03).half().round().clamp(-8, 7) * 0.03).float(),
}

Values = list[Tensor]
Step = Callable[[Values], Tensor]
_TYPES = (HALF, BRAIN)
_ARITHMETIC: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    torch.add,
    torch.sub,
    torch.mul,
    lambda a, b: a * 0.37 if a.dim() else b,
    lambda a, b: a + 0.125,  # eager on the CPU rounds other numbers of a sum to 16 bits
    lambda a, b: 3 - b,
)
_MOVES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda a: a,
    lambda a: a.t(),
    lambda a: a.flip(0),
    lambda a: torch.cat([a[:, 4:], a[:, :4]], 1),
    lambda a: a.amax(1, keepdim=True).expand(SIZE, SIZE),
    lambda a: torch.where(a > 0.25, a, -a),
    lambda a: a.relu(),
)
_DECIDED: tuple[Callable[[Tensor, Tensor], object], ...] = (
    lambda a, b: a > b,
    lambda a, b: a == b,
    lambda a, b: (a * 1) <= 0.3,
    lambda a, b: a.floor(),
    lambda a, b: b.round(),
    lambda a, b: a.clamp(-99, 99).to(torch.int32),
    lambda a, b: a.argmax(1),
    lambda a, b: _sorted(a),
    lambda a, b: b.cummax(0),
    lambda a, b: a.float(),
    lambda a, b: torch.gather(a.float(), 1, b.float().argmax(1, keepdim=True)),
)


def chain(seed: int) -> Callable[[Tensor, Tensor], tuple[object, ...]]:
    """A program of two f32 arguments `[SIZE, SIZE]`; some of its values in between are results."""
    draw = random.Random(seed)
    steps = [
        (
            draw.choice(_TYPES),
            draw.choice(_ARITHMETIC),
            draw.choice(_MOVES),
            draw.choice((None, HALF, BRAIN)),  # the type that the result is converted to
            draw.random() < 0.3,  # whether it is a result of the program
            (draw.randrange(99), draw.randrange(99)),
        )
        for _ in range(draw.randint(3, 9))
    ]
    ends = [(draw.choice(_DECIDED), draw.choice(_ARITHMETIC)) for _ in range(2)]

    def program(x: Tensor, y: Tensor) -> tuple[object, ...]:
        values, results = [x, y], []
        for dtype, arithmetic, move, target, is_result, places in steps:
            first, second = (values[place % len(values)].to(dtype) for place in places)
            made = move(arithmetic(first, second)).float().clamp(-500, 500)
            values.append(made if target is None else made.to(target).float())
            results += [values[-1]] if is_result else []
        first, second = (value.to(BRAIN) for value in values[-2:])
        for decide, arithmetic in ends:
            results.append(decide(arithmetic(first, second), arithmetic(second, first)))
        return tuple(results)

    return program


def mixed(seed: int) -> Callable[[Tensor, Tensor], tuple[object, ...]]:
    """A program of 16-bit operations that read each other: eager's bits where each one rounds."""
    draw = random.Random(seed)
    dtype = draw.choice(_TYPES)
    steps = [
        (draw.choice(_ARITHMETIC), draw.choice(_MOVES), (draw.randrange(99), draw.randrange(99)))
        for _ in range(draw.randint(4, 12))
    ]

    def program(x: Tensor, y: Tensor) -> tuple[object, ...]:
        values = [x.to(dtype), y.to(dtype)]
        for arithmetic, move, places in steps:
            first, second = (values[place % len(values)] for place in places)
            values.append(move(arithmetic(first, second)).clamp(-500, 500))
        last = values[-1]
        return last, last * 3 + values[-2] > 1, (last - values[-3]).cummax(1)

    return program


def gradient_chain(seed: int) -> Callable[[Tensor], Tensor]:
    """A program of one argument whose gradient is converted at each step back."""
    draw = random.Random(seed)
    rows = [
        (draw.choice(_TYPES), draw.choice((0.37, 3.0, -1.7)), draw.random() < 0.5)
        for _ in range(draw.randint(2, 6))
    ]

    def program(x: Tensor) -> Tensor:
        for dtype, factor, is_gated in rows:
            narrow = (x * factor).to(dtype)
            x = torch.where(narrow.abs() > 0.3, narrow, 0).float() if is_gated else narrow.float()
        return x

    return program


def leaves(result: object) -> list[Tensor]:
    """The tensors of a result, however it nests."""
    if isinstance(result, Tensor):
        return [result]
    return [leaf for item in result for leaf in leaves(item)]


class Together(torch.nn.Module):
    """All named programs, and chains from a seed on: one export for many."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self.chains = [chain(seed) for seed in range(first, first + count)]

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        named = [leaves(program(x)) for program in NAMED.values()]
        drawn = [leaves(program(x, y)) for program in self.chains]
        return tuple(leaf for row in (*named, *drawn) for leaf in row)


def arguments(seed: int) -> tuple[Tensor, Tensor]:
    """Two f32 arguments, none of whose elements 16-bit types hold."""
    torch.manual_seed(seed)
    return torch.randn(SIZE, SIZE) * 3, torch.randn(SIZE, SIZE)


class Mixed(torch.nn.Module):
    """Programs that are eager's only where each operation rounds."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return tuple(leaf for seed in (60, 61) for leaf in leaves(mixed(seed)(x, y)))


def build_mixed() -> torch.nn.Module:
    return Mixed()


def build_model() -> torch.nn.Module:
    return Together(0, 2)


example_inputs = arguments(0)

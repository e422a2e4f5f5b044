"""Random chains of ops that only move elements, as programs of one input."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

MOST = 4096  # elements of a value in a chain
Draw = random.Random
Tensor = torch.Tensor


class Chain:
    """2 to 7 movements drawn for one input shape.

    `steps` are their texts, expressions in `x`; `apply` is the function that does them, whose
    numbers are constants of its code.
    """

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        rank = draw.choice((1, 2, 2, 3, 3, 4))
        self.shape = tuple(draw.randint(1, 8) for _ in range(rank))
        self.steps: list[str] = []
        value, length = self.input(), draw.randint(2, 7)
        while len(self.steps) < length:
            move = draw.choice(MOVES)
            if value.dim() < _LEAST.get(move, 1):
                continue
            text = move(draw, value)
            try:
                moved = eval(text, {"torch": torch, "x": value})
            except RuntimeError:  # a pad that takes more than there is, a diagonal outside
                continue
            if 0 < moved.numel() <= MOST and moved.dim() <= 6:
                value = moved
                self.steps.append(text)
        names: dict[str, Callable[[Tensor], Tensor]] = {}
        lines = "".join(f"    x = {step}\n" for step in self.steps)
        exec(f"def apply(x):\n{lines}    return x\n", {"torch": torch}, names)
        self.apply = names["apply"]

    def input(self) -> Tensor:
        count = torch.Size(self.shape).numel()
        return torch.arange(1.0, 1 + count).reshape(self.shape)

    def __str__(self) -> str:
        return f"{self.shape}: " + "; ".join(self.steps)


def _dim(draw: Draw, x: Tensor) -> int:
    return draw.randrange(-x.dim(), x.dim())


def _factor(draw: Draw, extent: int, most: int) -> int:
    return draw.choice([each for each in range(1, most) if extent % each == 0])


def _flip(draw: Draw, x: Tensor) -> str:
    return f"x.flip({draw.sample(range(x.dim()), draw.randint(1, min(2, x.dim())))})"


def _permute(draw: Draw, x: Tensor) -> str:
    return f"x.permute({draw.sample(range(x.dim()), x.dim())})"


def _rot90(draw: Draw, x: Tensor) -> str:
    return f"x.rot90({draw.randint(1, 3)}, {draw.sample(range(x.dim()), 2)})"


def _flatten(draw: Draw, x: Tensor) -> str:
    first = draw.randrange(x.dim() - 1)
    return f"x.flatten({first}, {draw.randrange(first + 1, x.dim())})"


def _reshape(draw: Draw, x: Tensor) -> str:
    """All elements in another shape whose dims divide their number."""
    rest, shape = x.numel(), []
    for _ in range(draw.randint(0, 3)):
        shape.append(_factor(draw, rest, 13))
        rest //= shape[-1]
    shape.insert(draw.randrange(len(shape) + 1), -1)
    return f"x.reshape({shape})"


def _swap(draw: Draw, x: Tensor) -> str:
    """The last two dims of all elements in the other order, which moves none."""
    return "x.reshape(*x.shape[:-2], x.shape[-1], x.shape[-2])"


def _unflatten(draw: Draw, x: Tensor) -> str:
    dim = _dim(draw, x)
    by = _factor(draw, x.shape[dim], 9)
    return f"x.unflatten({dim}, {draw.choice(((by, -1), (-1, by)))})"


def _roll(draw: Draw, x: Tensor) -> str:
    by = draw.randint(-5, 5)
    return f"x.roll({by})" if draw.random() < 0.2 else f"x.roll({by}, {_dim(draw, x)})"


def _slice(draw: Draw, x: Tensor) -> str:
    start, stop = draw.choice(("", "", "1", "-2", "2")), draw.choice(("", "", "-1", "4"))
    step = draw.choice((1, 1, 2, 3))
    return f"x[{':, ' * draw.randrange(x.dim())}{start}:{stop}:{step}]"


def _select(draw: Draw, x: Tensor) -> str:
    dim = _dim(draw, x)
    return f"x.select({dim}, {draw.choice((0, -1, x.shape[dim] // 2))})"


def _narrow(draw: Draw, x: Tensor) -> str:
    dim = _dim(draw, x)
    start = draw.randrange(x.shape[dim])
    return f"x.narrow({dim}, {start}, {draw.randint(1, x.shape[dim] - start)})"


def _cat(draw: Draw, x: Tensor) -> str:
    dim = _dim(draw, x)
    return f"torch.cat([x, {draw.choice(('x', f'x.flip({dim})', '-x'))}], {dim})"


def _stack(draw: Draw, x: Tensor) -> str:
    return f"torch.stack([x, -x], {draw.randrange(-x.dim() - 1, x.dim() + 1)})"


def _pad(draw: Draw, x: Tensor) -> str:
    sizes = [draw.choice((0, 1, 2, 1, -1)) for _ in range(2 * draw.randint(1, min(2, x.dim())))]
    return f"torch.nn.functional.pad(x, {sizes})"


def _pad_by_elements(draw: Draw, x: Tensor) -> str:
    sizes = [min(each, x.shape[-1] - 1) for each in (1, 2)]
    mode = draw.choice(("reflect", "replicate", "circular"))
    return f"torch.nn.functional.pad(x, {sizes}, {mode!r})"


def _expand(draw: Draw, x: Tensor) -> str:
    return f"x.unsqueeze(0).expand({draw.choice((2, 3))}, {', '.join(['-1'] * x.dim())})"


def _unfold(draw: Draw, x: Tensor) -> str:
    dim = _dim(draw, x)
    return f"x.unfold({dim}, {draw.randint(1, min(3, x.shape[dim]))}, {draw.choice((1, 1, 2, 3))})"


def _repeat(draw: Draw, x: Tensor) -> str:
    return f"x.repeat({[draw.choice((1, 1, 2, 3)) for _ in range(x.dim())]})"


def _interleave(draw: Draw, x: Tensor) -> str:
    return f"x.repeat_interleave(2, {_dim(draw, x)})"


def _diagonal(draw: Draw, x: Tensor) -> str:
    first, second = draw.sample(range(x.dim()), 2)
    return f"x.diagonal({draw.choice((0, 0, 1, -1))}, {first}, {second})"


def _triangle(draw: Draw, x: Tensor) -> str:
    return f"x.tril({draw.choice((0, 1, -1))})"


def _chunks(draw: Draw, x: Tensor) -> str:
    """The parts of an axis in the other order."""
    dim = _dim(draw, x)
    return f"torch.cat(x.chunk({draw.choice((2, 3))}, {dim})[::-1], {dim})"


MOVES = (
    _flip,
    _permute,
    _rot90,
    _flatten,
    _reshape,
    _swap,
    _unflatten,
    _roll,
    _slice,
    _select,
    _narrow,
    _cat,
    _stack,
    _pad,
    _pad_by_elements,
    _expand,
    _unfold,
    _repeat,
    _interleave,
    _diagonal,
    _triangle,
    _chunks,
)
# Dims that a movement needs, where that is more than one.
_LEAST = dict.fromkeys((_rot90, _flatten, _swap, _select, _diagonal, _triangle), 2)

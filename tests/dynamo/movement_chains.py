"""Random chains of ops that only move elements, as programs of one input."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

Step = Callable[[torch.Tensor], torch.Tensor]
MOST = 4096  # elements of a value in a chain


class Chain:
    """2 to 7 movements drawn for one input shape; `steps` says which, `apply` does them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        rank = self.draw.choice((1, 2, 2, 3, 3, 4))
        self.shape = tuple(self.draw.choice((1, 2, 3, 4, 5, 6, 7, 8)) for _ in range(rank))
        self.steps: list[tuple[str, Step]] = []
        value = self.input()
        length = self.draw.randint(2, 7)
        while len(self.steps) < length:
            name = self.draw.choice(list(_MOVES))
            step = _MOVES[name](self.draw, value)
            if step is None:
                continue
            text, function = step
            try:
                moved = function(value)
            except RuntimeError:  # a pad that takes more than there is, a diagonal outside
                continue
            if 0 < moved.numel() <= MOST and moved.dim() <= 6:
                value = moved
                self.steps.append((text, function))

    def input(self) -> torch.Tensor:
        numbers = torch.arange(1.0, 1 + torch.Size(self.shape).numel())
        return numbers.reshape(self.shape)

    def apply(self, x: torch.Tensor) -> torch.Tensor:
        for _, function in self.steps:
            x = function(x)
        return x

    def __str__(self) -> str:
        return f"{self.shape}: " + ", ".join(text for text, _ in self.steps)


def _dim(draw: random.Random, x: torch.Tensor) -> int:
    return draw.randrange(-x.dim(), x.dim())


def _flip(draw, x):
    if not x.dim():
        return None
    dims = draw.sample(range(x.dim()), draw.randint(1, min(2, x.dim())))
    return f"flip{dims}", lambda x: x.flip(dims)


def _permute(draw, x):
    dims = draw.sample(range(x.dim()), x.dim())
    return f"permute{dims}", lambda x: x.permute(dims)


def _rot90(draw, x):
    if x.dim() < 2:
        return None
    dims, count = draw.sample(range(x.dim()), 2), draw.randint(1, 3)
    return f"rot90({count}, {dims})", lambda x: x.rot90(count, dims)


def _flatten(draw, x):
    if x.dim() < 2:
        return None
    first = draw.randrange(x.dim() - 1)
    last = draw.randrange(first + 1, x.dim())
    return f"flatten({first}, {last})", lambda x: x.flatten(first, last)


def _reshape(draw, x):
    """All elements in another shape whose dims divide their number."""
    rest, shape = x.numel(), []
    for _ in range(draw.randint(0, 3)):
        shape.append(draw.choice([each for each in range(1, 13) if rest % each == 0]))
        rest //= shape[-1]
    place = draw.randrange(len(shape) + 1)
    shape.insert(place, -1)
    return f"reshape{shape}", lambda x: x.reshape(shape)


def _swap(draw, x):
    """Two sizes of the input, whatever they are, in the other order."""
    if x.dim() != 2:
        return None
    return "reshape(n, m)", lambda x: x.reshape(x.shape[1], x.shape[0])


def _unflatten(draw, x):
    if not x.dim():
        return None
    dim = _dim(draw, x)
    by = draw.choice([each for each in range(1, 9) if x.shape[dim] % each == 0])
    sizes = (by, -1) if draw.random() < 0.5 else (-1, by)
    return f"unflatten({dim}, {sizes})", lambda x: x.unflatten(dim, sizes)


def _roll(draw, x):
    if not x.dim():
        return None
    dim, by = _dim(draw, x), draw.randint(-5, 5)
    if draw.random() < 0.2:
        return f"roll({by})", lambda x: x.roll(by)
    return f"roll({by}, {dim})", lambda x: x.roll(by, dim)


def _slice(draw, x):
    if not x.dim():
        return None
    dim, step = _dim(draw, x) % x.dim(), draw.choice((1, 1, 2, 3))
    start = draw.choice((0, 0, 1, -2, 2))
    stop = draw.choice((None, None, -1, 4))
    place = (slice(None),) * dim + (slice(start, stop, step),)
    return f"slice({dim}, {start}:{stop}:{step})", lambda x: x[place]


def _select(draw, x):
    if x.dim() < 2:
        return None
    dim = _dim(draw, x)
    index = draw.choice((0, -1, x.shape[dim] // 2))
    return f"select({dim}, {index})", lambda x: x.select(dim, index)


def _narrow(draw, x):
    if not x.dim():
        return None
    dim = _dim(draw, x)
    start = draw.randrange(x.shape[dim])
    length = draw.randint(1, x.shape[dim] - start)
    return f"narrow({dim}, {start}, {length})", lambda x: x.narrow(dim, start, length)


def _cat(draw, x):
    if not x.dim():
        return None
    dim = _dim(draw, x)
    kind = draw.choice(("twice", "flipped", "negated"))
    other = {"twice": lambda x: x, "flipped": lambda x: x.flip(dim), "negated": lambda x: -x}[kind]
    return f"cat({kind}, {dim})", lambda x: torch.cat([x, other(x)], dim)


def _stack(draw, x):
    dim = draw.randrange(-x.dim() - 1, x.dim() + 1)
    return f"stack({dim})", lambda x: torch.stack([x, -x], dim)


def _pad(draw, x):
    if not x.dim():
        return None
    count = draw.randint(1, min(2, x.dim()))
    sizes = [draw.choice((0, 1, 2, 1, -1)) for _ in range(2 * count)]
    mode = draw.choice(("constant", "constant", "constant", "flip"))
    if mode == "flip" and x.dim() in (2, 3):
        sizes = [min(each, x.shape[-1] - 1) for each in (1, 2)]
        mode = draw.choice(("reflect", "replicate", "circular"))
        return f"pad({sizes}, {mode})", lambda x: torch.nn.functional.pad(x, sizes, mode)
    return f"pad({sizes})", lambda x: torch.nn.functional.pad(x, sizes)


def _expand(draw, x):
    count = draw.choice((2, 3))
    return f"expand({count})", lambda x: x.unsqueeze(0).expand(count, *x.shape)


def _unfold(draw, x):
    if not x.dim():
        return None
    dim, step = _dim(draw, x), draw.choice((1, 1, 2, 3))
    size = draw.randint(1, min(3, x.shape[dim]))
    return f"unfold({dim}, {size}, {step})", lambda x: x.unfold(dim, size, step)


def _repeat(draw, x):
    counts = [draw.choice((1, 1, 2, 3)) for _ in range(x.dim())]
    return f"repeat{counts}", lambda x: x.repeat(counts) if counts else x.repeat(2)


def _interleave(draw, x):
    if not x.dim():
        return None
    dim = _dim(draw, x)
    return f"repeat_interleave(2, {dim})", lambda x: x.repeat_interleave(2, dim)


def _diagonal(draw, x):
    if x.dim() < 2:
        return None
    first, second = draw.sample(range(x.dim()), 2)
    offset = draw.choice((0, 0, 1, -1))
    return f"diagonal({offset}, {first}, {second})", lambda x: x.diagonal(offset, first, second)


def _triangle(draw, x):
    if x.dim() < 2:
        return None
    offset = draw.choice((0, 1, -1))
    return f"tril({offset})", lambda x: x.tril(offset)


def _chunks(draw, x):
    """Two halves of an axis in the other order."""
    if not x.dim():
        return None
    dim = _dim(draw, x)
    if x.shape[dim] < 2:
        return None
    return f"chunks({dim})", lambda x: torch.cat(x.chunk(2, dim)[::-1], dim)


_MOVES = {
    function.__name__.strip("_"): function
    for function in (
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
        _expand,
        _unfold,
        _repeat,
        _interleave,
        _diagonal,
        _triangle,
        _chunks,
    )
}

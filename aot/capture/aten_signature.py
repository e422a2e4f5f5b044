"""Inputs and outputs of an ATen graph: how its arguments are passed, and where its results come
from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Numbers = tuple[Any, ...]  # ints, or what stands for a size of the call
READ_AS_IT_LIES = "aotc_read_as_it_lies"  # note on a result: views of memory need no copy
RELAID = "aotc_relaid"  # an argument's value as torch traced it, where it lies otherwise
CHOSEN = "aotc_chosen"  # note on a call that is torch's to compute, though it has an import


@dataclass(frozen=True, slots=True)
class Taken:
    """An input of the program: the argument at `place`, its dims in the `order` of its memory.

    With `steps` it is all memory from the argument's first element to its last, as one dim; the
    argument has these strides. A complex tensor (`has_parts`) has one more dim, of its two parts.
    may_be_marked: whether calls may give a tensor that torch negates or conjugates by a mark, and
    that is read where it lies.
    """

    place: int
    order: tuple[int, ...]
    steps: tuple[int, ...] | None = None
    has_parts: bool = False
    may_be_marked: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """An input that is never read: its one dim is the argument at `place`, a size."""

    place: int


@dataclass(frozen=True, slots=True)
class Made:
    """An output of the program, its dims in the `order` of its memory.

    With `strides` it is copied to memory with gaps. A complex tensor has one more dim there, of its
    two parts.
    """

    order: tuple[int, ...]
    dtype: torch.dtype
    strides: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Given:
    """A result that is output `number` of the program."""

    number: int


@dataclass(frozen=True, slots=True)
class Passed:
    """A result that is the argument at `place`."""

    place: int


@dataclass(frozen=True, slots=True)
class Viewed:
    """A result that lies in the memory of an argument, or of an output of the program.

    `base` is the strides that an argument must have for it; `offset` counts elements from the start
    of what is viewed.
    """

    is_argument: bool
    place: int  # of the argument, or the number of the output
    base: Numbers
    shape: Numbers
    strides: Numbers
    offset: Any

    def at(self, number: Callable[[Any], Any]) -> Viewed:
        """The view with every number replaced."""
        base, shape, strides = (
            tuple(map(number, each)) for each in (self.base, self.shape, self.strides)
        )
        return Viewed(self.is_argument, self.place, base, shape, strides, number(self.offset))


@dataclass(frozen=True, slots=True)
class Fixed:
    """A result that is a number or nothing, known now."""

    value: int | float | bool | None


@dataclass(frozen=True, slots=True)
class Sized:
    """A result that is a size of the call."""

    size: Any


Result = Given | Passed | Viewed | Fixed | Sized


def reach(shape: Sequence[int], steps: Sequence[int]) -> int:
    """Elements from the first to the last one of a tensor with these strides."""
    return 1 + sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))

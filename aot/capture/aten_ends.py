"""The ends of an ATen graph: what becomes of its arguments, and where its results come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from aotc.aot.ir.size import Extent


@dataclass(frozen=True, slots=True)
class Taken:
    """An input of the program: the argument at `place`, its dims in the `order` of its memory."""

    place: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """An input that is never read: its one dim is the argument at `place`, a size."""

    place: int


@dataclass(frozen=True, slots=True)
class Made:
    """A result that the program computes as its output `number`, in the `order` of its memory."""

    number: int
    order: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Passed:
    """A result that is the argument at `place`."""

    place: int


@dataclass(frozen=True, slots=True)
class Viewed:
    """A result that lies in the memory of the argument at `place`.

    `strides` are those that the argument must have for it; `offset` counts elements from its start.
    """

    place: int
    strides: tuple[int, ...]
    shape: tuple[int, ...]
    view_strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """A result that is a number or nothing, known now."""

    value: int | float | bool | None


@dataclass(frozen=True, slots=True)
class Sized:
    """A result that is a size of the call."""

    size: Extent


Result = Made | Passed | Viewed | Fixed | Sized

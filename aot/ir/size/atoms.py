"""What sizes are made of: dims, and quotients and choices where nothing simpler is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from aotc.aot.ir.types import TypeRuleError

if TYPE_CHECKING:
    from aotc.aot.ir.size.polynomial import Extent, Size


class UndecidedSize(TypeRuleError):
    """A rule asked for a dynamic size."""


@dataclass(frozen=True, slots=True)
class Dim:
    """A size given at the call: `low` ≤ value ≤ `high`; `typical` is for costs."""

    name: str
    low: int
    high: int
    typical: int


@dataclass(frozen=True, slots=True)
class Floor:
    """floor(dividend / divisor) for a divisor of at least 1."""

    dividend: Extent
    divisor: Extent


@dataclass(frozen=True, slots=True)
class Choice:
    """The largest (`max`) or the smallest (`min`) of two sizes."""

    name: str
    left: Extent
    right: Extent


Atom = Dim | Floor | Choice
Monomial = tuple[Atom, ...]  # sorted by text; () is the constant
Terms = tuple[tuple[Monomial, int], ...]
KERNEL_PREFIX = "size_"  # of the kernel parameter that holds a dim


@lru_cache(maxsize=65536)
def formula(size: Size, is_kernel: bool = False) -> str:
    """The text of a polynomial: `2*batch + 1`; in a kernel, with the names of its parameters."""
    words = ""
    for monomial, count in size.terms:
        factors = [atom_text(atom, is_kernel) for atom in monomial]
        if abs(count) != 1 or not factors:
            factors.insert(0, number_text(abs(count), is_kernel))
        sign = (" - " if count < 0 else " + ") if words else ("-" if count < 0 else "")
        words += sign + "*".join(factors)
    return words


@lru_cache(maxsize=65536)
def atom_text(atom: Atom, is_kernel: bool = False) -> str:
    """The text of one atom, parenthesized where it is a quotient."""
    if isinstance(atom, Dim):
        return KERNEL_PREFIX + atom.name if is_kernel else atom.name
    if isinstance(atom, Floor):
        return f"({_part(atom.dividend, is_kernel)}//{_part(atom.divisor, is_kernel)})"
    call = {"max": "tl.maximum", "min": "tl.minimum"}[atom.name] if is_kernel else atom.name
    parts = (_plain(part, is_kernel) for part in (atom.left, atom.right))
    return f"{call}({', '.join(parts)})"


def _plain(extent: Extent, is_kernel: bool) -> str:
    if isinstance(extent, int):
        return number_text(extent, is_kernel)
    return formula(extent, is_kernel)


def number_text(number: int, is_kernel: bool) -> str:
    """The text of a number; in a kernel one of 64 bits says so, since Triton takes a literal as of
    the type of what it stands beside."""
    is_long = is_kernel and not -(1 << 31) <= number < 1 << 31
    return f"tl.full([], {number}, tl.int64)" if is_long else str(number)


def _part(extent: Extent, is_kernel: bool) -> str:
    written = _plain(extent, is_kernel)
    return written if written.isalnum() or written.isidentifier() else f"({written})"

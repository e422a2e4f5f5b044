"""A row of the table: an op with its text, and how legal arguments for it are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fuzz.draw import Draw

# How eager's value is to be met where all operands are met so: to the bit, as a number (the sign
# of zero is free), to the bit among integers, or within what rounding explains.
Level = Literal["bits", "values", "integers", ""]


@dataclass(frozen=True, slots=True)
class Op:
    """An op. `text` has the names of its arguments in braces."""

    name: str
    family: str
    text: str
    draw: Callable[[Draw], Mapping[str, Any]]
    level: Level = ""
    accumulates: bool = False  # sums rounded operands: its error grows with them
    degree: float = 1.0  # of its sums' terms in an operand: 2 where it squares, 0 if none overflows
    sum_text: str = ""  # the sum that it takes on its way, where its value is none
    cancels: bool = False  # rounds on its way at the size of its operand, or of 1
    slope_cancels: bool = False  # its slope is a difference of terms as large as 1
    is_of_norm: bool = False  # rounds every element at the size of the largest one
    breaks_ties: bool = False  # torch does not say which of equal elements along `axis` it takes
    weight: float = 1.0
    is_fixed_only: bool = False  # its arguments cannot follow sizes that vary
    is_statement: bool = False  # changes a state and gives no value
    # What eager torch asks of the arguments and does not check: it would write beside memory, or
    # end the process.
    is_legal: Callable[..., bool] | None = None

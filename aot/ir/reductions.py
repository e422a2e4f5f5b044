"""The reductions: one row each. To add one, add a row here and one to the imports in `capture`.

Everything else follows the rows: type rule, meaning, kernels in registers, in chunks and among
programs, reductions that are written out, running ones (`rewrites/scan.py`), merges of
values written to one place (`capture/imports/indexing.py`), and what a reduction of nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aotc.aot.ir.types import DTYPES, Scalar


def lowest(dtype: str) -> Scalar:
    """Smallest value of an element type; -inf of floats."""
    return _ends(dtype)[0]


def highest(dtype: str) -> Scalar:
    """Largest value of an element type; inf of floats."""
    return _ends(dtype)[1]


def _ends(dtype: str) -> tuple[Scalar, Scalar]:
    row = DTYPES[dtype]
    if row.kind == "float":
        return float("-inf"), float("inf")
    if row.kind == "bool":
        return False, True
    bits = row.itemsize_bytes * 8
    return (0, 2**bits - 1) if dtype == "u8" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@dataclass(frozen=True, slots=True)
class Reduction:
    """What the compiler knows of one reduction over the axes of an attribute `axes`.

    Its partial values are joined by the pointwise op `combine`, in any order; where the last four
    texts are empty, kernels are written by that op alone. A search has the place of the first of
    the values that reduction `index_of` finds as its result.
    """

    name: str  # the name of its meaning in numpy, too, where `numpy` is empty
    kinds: tuple[str, ...]  # of the element types that it takes
    combine: str  # pointwise op that joins two partial values; of a search, the comparison `>`
    identity: Callable[[str], Scalar]  # by element type: what changes nothing that it joins
    triton: str = ""  # of a tile `{0}`; `{along}` is the axis, and whether it stays
    joined: str = ""  # Triton text of `combine` in an accumulator, where it is not that of the op
    accumulator: str = ""  # element type of partial values, where it is not the operand's
    finish: str = "{0}"  # Triton text of the result, from the last partial value
    result: str = ""  # element type of the result, where it is not the operand's
    numpy: str = ""  # its function that is the reduction
    of_bools: str = ""  # reduction that is the same of bools
    index_of: str = ""
    # The result is one of the elements: there is none of nothing. Kernels pass over NaN, which the
    # meaning does not (`build.extreme`).
    is_choice: bool = False

    @property
    def of_tile(self) -> str:
        """Triton text of a tile's reduction; `kernel_file` writes the functions that it names."""
        return self.triton or f"tl.reduce({{0}}, combine_fn={self.combine}, {{along}})"

    @property
    def is_search(self) -> bool:
        """Whether the result is a place."""
        return bool(self.index_of)

    @property
    def is_defined_of_nothing(self) -> bool:
        """Whether a reduction of no elements has a result, which is the identity."""
        return not (self.is_choice or self.is_search)


_NUMBER = ("float", "int")
_ROWS = (
    Reduction("sum", _NUMBER, "add", lambda _: 0, "tl.sum({0}, {along})", of_bools="any"),
    Reduction("prod", _NUMBER, "mul", lambda _: 1, of_bools="all"),
    Reduction(
        "max", _NUMBER, "maximum", lowest, "tl.max({0}, {along})", "tl.maximum({0}, {1})",
        of_bools="any", is_choice=True,
    ),
    Reduction(
        "min", _NUMBER, "minimum", highest, "tl.min({0}, {along})", "tl.minimum({0}, {1})",
        of_bools="all", is_choice=True,
    ),
    Reduction(
        "any", ("bool",), "logical_or", lambda _: 0, "tl.max({0}, {along})", "tl.maximum({0}, {1})",
        "i32", "{0} != 0",
    ),
    Reduction(
        "all", ("bool",), "logical_and", lambda _: 1, "tl.min({0}, {along})",
        "tl.minimum({0}, {1})", "i32", "{0} != 0",
    ),
    # i32 holds the count of any tensor: kernels' indices have 32 bits.
    Reduction(
        "count", ("bool",), "add", lambda _: 0, "tl.sum({0}, {along})", accumulator="i32",
        finish="{0}.to(tl.int64)", result="i64", numpy="count_nonzero",
    ),
    Reduction(
        "argmax", _NUMBER, ">", lowest, "tl.argmax({0}, {along}).to(tl.int64)",
        result="i64", index_of="max",
    ),
    Reduction(
        "argmin", _NUMBER, "<", highest, "tl.argmin({0}, {along}).to(tl.int64)",
        result="i64", index_of="min",
    ),
)  # fmt: skip

REDUCTIONS: Mapping[str, Reduction] = {row.name: row for row in _ROWS}

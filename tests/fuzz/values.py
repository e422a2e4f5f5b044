"""Kinds of input values, one row each: an expression of torch code that makes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fuzz.program import FLOATS, INTEGERS

RANDINT = "torch.randint({low}, {high}, {{shape}}, generator={{generator}})"
ONE_OF = "torch.tensor([{values}], dtype={{dtype}})[" + RANDINT + "]"
SPECIAL = (
    "0.0", "-0.0", 'float("inf")', 'float("-inf")', 'float("nan")', "1.0", "-1.0", "0.5", "-2.5",
)  # fmt: skip
# The largest, the smallest normal and the smallest denormal number of each type.
EDGES = {
    "f64": ("1.7976931348623157e308", "2.2250738585072014e-308", "5e-324"),
    "f32": ("3.4028234663852886e38", "1.1754943508222875e-38", "1.401298464324817e-45"),
    "f16": ("65504.0", "6.103515625e-05", "5.960464477539063e-08"),
    "bf16": ("3.3895313892515355e38", "1.1754943508222875e-38", "9.183549615799121e-41"),
}
BOUNDS = {
    "i64": (-(2**63), 2**63 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "i8": (-128, 127),
    "u8": (0, 255),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values: the element types that have it, and its expression."""

    dtypes: tuple[str, ...]
    text: str = ""  # with `{shape}`, `{dtype}`, `{generator}`


KINDS: Mapping[str, Kind] = {
    "normal": Kind(FLOATS, "torch.randn({shape}, generator={generator}).to({dtype})"),
    "unit": Kind(FLOATS, "torch.rand({shape}, generator={generator}).to({dtype})"),
    "few": Kind(FLOATS, RANDINT.format(low=-2, high=3) + ".to({dtype})"),  # with ties
    "wide": Kind(FLOATS, "torch.randn({shape}, generator={generator}).mul(30).to({dtype})"),
    "special": Kind(FLOATS),
    "edges": Kind(FLOATS),
    "small": Kind(INTEGERS),
    "range": Kind(INTEGERS),
    "extremes": Kind(INTEGERS),
    "flags": Kind(("bool",), RANDINT.format(low=0, high=2) + ".bool()"),
}
PLAIN = {
    "normal": 5.0,
    "unit": 2.0,
    "few": 1.0,
    "wide": 0.5,
    "small": 3.0,
    "range": 0.6,
    "flags": 1.0,
}
EDGED = {**PLAIN, "special": 3.0, "edges": 3.0, "extremes": 3.0}


def text(dtype: str, kind: str) -> str:
    """The expression of a kind for an element type."""
    assert dtype in KINDS[kind].dtypes, (dtype, kind)
    if KINDS[kind].text:
        return KINDS[kind].text
    if kind == "special":
        return _one_of(SPECIAL)
    if kind == "edges":
        edges = EDGES[dtype]
        return _one_of((*edges, *(f"-{edge}" for edge in edges), "1.0", "0.0", "-0.0"))
    low, high = BOUNDS[dtype]
    if kind == "small":
        return RANDINT.format(low=max(low, -9), high=10) + ".to({dtype})"
    if kind == "extremes":
        return _one_of(
            [str(each) for each in (low, low + 1, high, high - 1, 0, 1, 2, max(low, -1))]
        )
    return RANDINT.format(low=max(low, -(2**40)), high=min(high, 2**40) + 1) + ".to({dtype})"


def index_text(bound: int) -> str:
    """Legal places along an axis of `bound` elements."""
    return RANDINT.format(low=0, high=bound) + ".to({dtype})"


def place_bound(text: str) -> int | None:
    """The bound of an input of places; None for other inputs."""
    pattern = re.escape(index_text(0)).replace(re.escape("(0, 0,"), r"\(0, (\d+),")
    found = re.fullmatch(pattern, text)
    return int(found[1]) if found else None


def _one_of(values: list[str] | tuple[str, ...]) -> str:
    return ONE_OF.format(values=", ".join(values), low=0, high=len(values))

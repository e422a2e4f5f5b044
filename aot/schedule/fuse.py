"""The fusion table: may a consumer compute a producer's value in its own kernel?

One row for each pair of kinds, with the reason. `same-elements` rows extend a kernel past its
reduction or matmul: the consumer runs on the values in registers, which requires the same rows.
`priced` rows recompute the producer wherever it is read, if by cost.py that is cheaper than a
buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["same-elements", "priced", "always", "never"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """One row: kinds of producer and consumer, the verdict and why."""

    producer: str
    consumer: str
    verdict: Verdict
    reason: str


_ON_TILE = "runs on the tile in registers, saves a write and a read of the tensor"
_MOVES = "only moves elements: an index expression of its reader"
_WHOLE_ROWS = "a program has a tile of the result, a reduction needs whole rows"
_IS_MEMORY = "a kernel of the user's, and so an op that torch runs, reads and stores memory"
_JOINS = "looks at each of many parts for every element"
_CHOOSES = "a load and a choice for each of its few parts"
_PER_TILE = "every column tile of a matmul would compute it again"

FUSIONS: dict[tuple[str, str], Fusion] = {
    (row.producer, row.consumer): row
    for row in (
        Fusion("matmul", "pointwise", "same-elements", _ON_TILE),
        Fusion("matmul", "view", "same-elements", "the store writes in the order of the view"),
        Fusion("matmul", "reduce", "never", _WHOLE_ROWS),
        Fusion("matmul", "matmul", "never", "a program has a tile, the next one needs all columns"),
        Fusion("attention", "pointwise", "same-elements", _ON_TILE),
        Fusion("attention", "view", "same-elements", "the store writes in the order of the view"),
        Fusion("pointwise", "attention", "never", "every tile of queries would compute it again"),
        Fusion("unrolled", "attention", "never", "every tile of queries would compute it again"),
        Fusion("row", "pointwise", "same-elements", _ON_TILE),
        Fusion("row", "view", "same-elements", "the store writes in the order of the view"),
        Fusion("row", "reduce", "same-elements", "the rows are in registers already"),
        Fusion("row", "matmul", "never", f"{_PER_TILE}; a norm of one row: `absorbed`"),
        Fusion("pointwise", "pointwise", "priced", "free for one reader, else priced"),
        Fusion("pointwise", "row", "priced", "free for one reader, else priced"),
        Fusion("pointwise", "matmul", "priced", _PER_TILE),
        Fusion("unrolled", "pointwise", "priced", "a few elements, combined where read"),
        Fusion("unrolled", "row", "priced", "a few elements, combined where read"),
        Fusion("unrolled", "matmul", "priced", _PER_TILE),
        Fusion("window-sum", "pointwise", "priced", "combined where read"),
        Fusion("window-sum", "row", "never", "every pass over a row would compute it again"),
        Fusion("window-sum", "matmul", "never", _PER_TILE),
        Fusion("window-sum", "attention", "never", _PER_TILE),
        Fusion("window-sum", "call", "never", _IS_MEMORY),
        Fusion("join", "pointwise", "priced", _JOINS),
        Fusion("join", "row", "priced", _JOINS),
        Fusion("join", "matmul", "never", _PER_TILE),
        Fusion("join", "attention", "never", _PER_TILE),
        Fusion("join", "call", "never", _IS_MEMORY),
        Fusion("view", "pointwise", "always", _MOVES),
        Fusion("view", "row", "always", _MOVES),
        Fusion("view", "matmul", "always", _MOVES),
        Fusion("view", "attention", "always", _MOVES),
        Fusion("pointwise", "call", "never", _IS_MEMORY),
        Fusion("unrolled", "call", "never", _IS_MEMORY),
        Fusion("view", "call", "never", _IS_MEMORY),
        Fusion("lookup", "pointwise", "always", _MOVES),
        Fusion("lookup", "row", "always", _MOVES),
        Fusion("lookup", "matmul", "priced", f"a look-up for each element; {_PER_TILE}"),
        Fusion("lookup", "attention", "always", _MOVES),
        Fusion("concat", "pointwise", "always", _CHOOSES),
        Fusion("concat", "row", "always", _CHOOSES),
        Fusion("concat", "matmul", "priced", f"loads and a choice a part; {_PER_TILE}"),
        Fusion("concat", "attention", "always", _CHOOSES),
    )
}

# Their value is an element of an operand: read like a view, but for those that have rows above.
_MOVEMENT = frozenset({"view", "pad", "window", "concat", "take", "gather"})
_PRODUCERS = {"concat": "concat", "take": "lookup", "gather": "lookup"}


def fusion(producer: str, consumer: str) -> Fusion:
    """The row for a node or group kind that feeds a node or group kind."""
    produced = _PRODUCERS.get(producer) or _row_kind(producer)
    consumed = _row_kind(consumer)
    missing = Fusion(produced, consumed, "never", "no row allows it")
    return FUSIONS.get((produced, consumed), missing)


def _row_kind(kind: str) -> str:
    """The kind that the table has a row for."""
    if kind in _MOVEMENT:
        return "view"
    return "call" if kind in ("torch", "control") else kind.removesuffix("_packed")

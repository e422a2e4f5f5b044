"""All rows, and how families of programs weigh them."""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.rows import fourier, movement, pointwise, products, reductions, states
from fuzz.rows.row import Op

ROWS: Mapping[str, Op] = {
    row.name: row
    for row in (
        *movement.ROWS,
        *pointwise.ROWS,
        *reductions.ROWS,
        *products.ROWS,
        *states.ROWS,
        *fourier.ROWS,
    )
}

# Family of programs → weights of families of rows.
FAMILIES: Mapping[str, Mapping[str, float]] = {
    "movement": {"movement": 8, "pointwise": 2, "reductions": 0.5},
    "pointwise": {"pointwise": 8, "movement": 2, "types": 1, "reductions": 0.5},
    "types": {"types": 4, "pointwise": 5, "movement": 2, "reductions": 1},
    "reductions": {"reductions": 5, "pointwise": 4, "movement": 3},
    "norms": {"norms": 5, "pointwise": 3, "movement": 3, "reductions": 1},
    "scans": {"scans": 4, "pointwise": 2, "movement": 3},
    "sorts": {"sorts": 4, "pointwise": 2, "movement": 3},
    "products": {"products": 5, "pointwise": 3, "movement": 3, "reductions": 0.5, "norms": 0.5},
    "convolutions": {"convolutions": 5, "pointwise": 3, "movement": 1, "norms": 1, "pooling": 0.5},
    "pooling": {"pooling": 5, "pointwise": 3, "movement": 2, "convolutions": 0.5},
    "attention": {"attention": 4, "products": 2, "pointwise": 2, "movement": 3, "norms": 1},
    "fourier": {"fourier": 4, "pointwise": 3, "movement": 3, "reductions": 0.5},
    "states": {"states": 3, "pointwise": 4, "movement": 4, "reductions": 1},
    "lookups": {"lookups": 5, "pointwise": 3, "movement": 3, "reductions": 1},
}

assert all(
    name in {row.family for row in ROWS.values()} for each in FAMILIES.values() for name in each
)

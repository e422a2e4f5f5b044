"""The op `check`: which elements of an index or a divisor the model may not be given.

    kind       "index", "exchange": an element must lie from `low` to `high`; "divisor",
               "assertion": it must not be 0
    operation  the op of the model that asks for it, for people: `embedding`, `index_put`; of an
               assertion its message
    place      the user's line, `model.py:31 in forward`, or nothing where it is not known
    low, high  the ends of the range, both inside; 0 of other kinds

The value is 0 for an element that is right and `marked` of it for another. A check is an output of
its graph behind all others, and the outputs before it do not depend on it: a program computes what
it computes, with lookups that never leave their memory, and beside that the session learns what
was wrong. It follows the op's own operand, whatever becomes of the result: each element counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotc.aot.ir.storage import Array

ATTRIBUTES = ("kind", "operation", "place", "low", "high")
RANGED = ("index", "exchange")
LARGEST = (1 << 63) - 1


def reference(data: Array, kind: str, operation: str, place: str, low: Any, high: Any) -> Array:
    """The op in numpy, which is imported here: the table of ops is read where there is none."""
    import numpy

    wide = data.astype(numpy.int64)
    is_wrong = (wide < low) | (wide > high) if kind in RANGED else wide == 0
    return numpy.where(is_wrong, marked(wide), 0)


def marked(wide: Array) -> Array:
    """A number but 0 for each integer: v + 1 of those from 0 on, v of others."""
    import numpy

    return numpy.where(wide < 0, wide, numpy.minimum(wide, LARGEST - 1) + 1)

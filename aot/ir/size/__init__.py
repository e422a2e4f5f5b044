"""Dynamic sizes: integer polynomials over named dims, canonical at once.

An `Extent` is an int or a `Size`; a `Size` is never constant, since arithmetic answers an int
wherever it can. So shapes of static graphs hold plain ints and every rule reads both alike. An atom
of a polynomial is a `Dim`, or the floor quotient, maximum or minimum of sizes where nothing simpler
is known. Equality is that of the canonical form: two equal sizes are equal at every call, two
different ones may still meet at some. An order is decided by the ranges of the dims or refused by
`UndecidedSize`, so that nothing is assumed of a size that a call could break.
"""

from aotc.aot.ir.size.facts import (
    Guard,
    common_factor,
    content,
    divides,
    fixed,
    highest,
    is_static,
    kernel_text,
    largest,
    size_of,
    smallest,
    substitute,
    typical,
    with_remainder,
)
from aotc.aot.ir.size.polynomial import (
    KERNEL_PREFIX,
    Atom,
    Choice,
    Dim,
    Extent,
    Floor,
    Shape,
    Size,
    UndecidedSize,
    bounds,
    proves_at_most,
    proves_below,
)

__all__ = [
    "KERNEL_PREFIX",
    "Atom",
    "Choice",
    "Dim",
    "Extent",
    "Floor",
    "Guard",
    "Shape",
    "Size",
    "UndecidedSize",
    "bounds",
    "common_factor",
    "content",
    "divides",
    "fixed",
    "highest",
    "is_static",
    "kernel_text",
    "largest",
    "proves_at_most",
    "proves_below",
    "size_of",
    "smallest",
    "substitute",
    "typical",
    "with_remainder",
]

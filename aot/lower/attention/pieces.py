"""Splits the elements of a head into pieces, for f32 products that are three products of TF32.

A tile of Triton has a power of two of columns. A head of 80 elements is split into 64 and 16
instead of padded to 128, which takes fewer registers and products. No piece is wider than 64, the
most that a thread has registers for.
"""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Symbol
from aotc.aot.schedule.trace import Access

WIDEST = 64
NARROWEST = 16  # elements along each axis of a dot
KEYS_TOGETHER = 4  # of a thread: it stores 16 bytes of f32 at once


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements `first` to `first + width` of a head, of which the last may not be there."""

    first: int
    width: int


def pieces_of(extent: int) -> tuple[Piece, ...]:
    """Pieces that cover a head of so many elements."""
    whole, rest = divmod(extent, WIDEST)
    found = [Piece(at * WIDEST, WIDEST) for at in range(whole)]
    if rest:
        width = max(NARROWEST, 1 << (rest - 1).bit_length())
        found.append(Piece(whole * WIDEST, width))
    return tuple(found)


def width_of(extent: int) -> int:
    """Elements of all pieces together."""
    return sum(piece.width for piece in pieces_of(extent))


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a head in a kernel's source: the symbol is its columns."""

    piece: Piece
    name: str  # what tiles of it end in; empty for the first
    symbol: Symbol

    @property
    def width(self) -> int:
        """Columns of its tiles."""
        return self.piece.width

    @property
    def columns(self) -> str:
        """The elements of the piece, as text."""
        lanes = f"tl.arange(0, {self.width})[None, :]"
        return f"{self.piece.first} + {lanes}" if self.piece.first else lanes

    @property
    def has_tail(self) -> bool:
        """Whether some of its columns are no elements."""
        return self.piece.first + self.width > self.symbol.length

    def along(self, need: Access, whole: Symbol) -> Access:
        """The access with the piece in place of the whole head."""
        values = {whole: ix.of(self.symbol)}
        return Access(need.node, tuple(part.substitute(values) for part in need.index))


def parts_of(whole: Symbol) -> tuple[Part, ...]:
    """The pieces of a head along a symbol, which is that of the first."""
    first, *more = pieces_of(whole.length)
    others = (
        Part(piece, str(at), Symbol(f"{whole.name}{at}", whole.extent))
        for at, piece in enumerate(more, 1)
    )
    return Part(first, "", whole), *others

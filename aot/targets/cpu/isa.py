"""Instruction sets that the CPU target generates for: one row each."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.errors import UnknownTarget


@dataclass(frozen=True, slots=True)
class Isa:
    name: str
    """Name in targets and bundles; also LLVM's name of the processor."""
    lanes: int
    """f32 elements in a vector register."""
    tile_rows: int
    """Rows of the accumulator tile of a dot, which must leave registers for its operands."""
    tile_vectors: int
    """Vectors in a row of the accumulator tile of a dot."""
    widest_masked_bits: int
    """Wider reads and writes with a mask become several of these: where LLVM splits one and knows
    half of its mask to be false, it may leave that mask out (Triton 3.6, without AVX-512)."""
    smaller: str = ""
    """The row whose code runs here too: of kernels whose code for this one ends LLVM's process."""


ISAS = {
    row.name: row
    for row in (
        Isa("x86-64-v3", lanes=8, tile_rows=6, tile_vectors=2, widest_masked_bits=256),
        Isa(
            "x86-64-v4",
            lanes=16,
            tile_rows=6,
            tile_vectors=4,
            widest_masked_bits=4096,
            smaller="x86-64-v3",
        ),
    )
}


def isa(name: str) -> Isa:
    """The row called `name`; raises UnknownTarget, which lists the known ones."""
    if name not in ISAS:
        raise UnknownTarget(target=name, known=", ".join(sorted(ISAS)))
    return ISAS[name]

"""Instruction sets that the CPU target generates for: one row each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aotc.aot.errors import UnknownTarget


@dataclass(frozen=True, slots=True)
class Isa:
    name: str
    """Name in targets and bundles."""
    lanes: int
    """f32 elements in a vector register."""
    registers: int
    """Vector registers: `compiled.n_regs`."""
    function_lanes: int
    """Lanes of the widest form that functions of vector math have in its instructions."""
    widest_masked_bits: int
    """Wider reads and writes with a mask become several of these."""
    masks_by_sign: bool = False
    """Whether these are the processor's own instructions, whose masks are the signs of integers
    (AVX2). A general masked load of LLVM reads all lanes where code generation finds only late
    that its mask is false, as it is of half a wider mask (Triton 3.6.0)."""
    processor: str = ""
    """LLVM's name of the processor, if not the row's own."""
    features: tuple[str, ...] = ()
    """What it has beside, as LLVM names it."""
    multiplies_words: tuple[tuple[str, str], ...] = (("i8", "vpmaddwd"),)
    """Element types whose neighbours along the inner dimension a vector instruction multiplies."""
    product_rates: tuple[tuple[str, float], ...] = ()
    """How fast such products are beside multiply-adds of f32, by their instructions' operations."""
    has_tiles: bool = False
    """Products of bf16 and of 8-bit integers by tiles (AMX)."""
    base: str = ""
    """The row that this one adds instructions to: whose code a kernel without them has."""
    adds: tuple[str, ...] = ()
    """LLVM's intrinsics of these instructions, as their names behind `llvm.x86.` begin."""
    smaller: str = ""
    """The row whose code runs here too: of kernels whose code for this one ends LLVM's process."""

    @property
    def cpu(self) -> str:
        """LLVM's name of the processor."""
        return self.processor or self.name

    @property
    def attributes(self) -> str:
        """Attributes of LLVM's functions for what the processor has beside, or nothing."""
        listed = ",".join(f"+{feature}" for feature in self.features)
        return f' "target-features"="{listed}"' if listed else ""


AVX2 = Isa(
    "x86-64-v3",
    lanes=8,
    registers=16,
    function_lanes=8,
    widest_masked_bits=256,
    masks_by_sign=True,
)
AVX512 = Isa(
    "x86-64-v4",
    lanes=16,
    registers=32,
    function_lanes=32,
    widest_masked_bits=4096,
    smaller=AVX2.name,
)
NARROW = ("avx512bf16", "avx512vnni")
OF_BYTES = ("avx512.vpdp",)
BYTES, PAIRS = (("i8", "vpdpbusd"),), (("bf16", "vdpbf16ps"),)

ISAS = {
    row.name: row
    for row in (
        AVX2,
        replace(
            AVX2,
            name="x86-64-v3-vnni",
            processor=AVX2.name,
            features=("avxvnni",),
            multiplies_words=BYTES,
            product_rates=(("i8", 4.0),),
            base=AVX2.name,
            adds=OF_BYTES,
            smaller=AVX2.name,
        ),
        AVX512,
        replace(
            AVX512,
            name="x86-64-v4-vnni",
            processor=AVX512.name,
            features=("avx512vnni",),
            multiplies_words=BYTES,
            product_rates=(("i8", 4.0),),
            base=AVX512.name,
            adds=OF_BYTES,
        ),
        replace(
            AVX512,
            name="x86-64-v4-bf16",
            processor=AVX512.name,
            features=NARROW,
            multiplies_words=(*BYTES, *PAIRS),
            product_rates=(("i8", 4.0), ("bf16", 2.0)),
            base="x86-64-v4-vnni",
            adds=("avx512bf16",),
        ),
        replace(
            AVX512,
            name="x86-64-amx",
            processor=AVX512.name,
            features=(*NARROW, "amx-tile", "amx-bf16", "amx-int8"),
            multiplies_words=(*BYTES, *PAIRS),
            product_rates=(("i8", 32.0), ("bf16", 16.0)),
            has_tiles=True,
            base="x86-64-v4-bf16",
            adds=("ldtilecfg", "tile", "tdp"),
            smaller=AVX512.smaller,
        ),
    )
}


def isa(name: str) -> Isa:
    """The row called `name`; raises UnknownTarget, which lists the known ones."""
    if name not in ISAS:
        raise UnknownTarget(target=name, known=", ".join(sorted(ISAS)))
    return ISAS[name]

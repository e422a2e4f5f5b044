"""KernelBinary: the machine code of one kernel, of any family. Library: that of one target."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aotc.runtime.bundle.plan import Image

# Texts of which assembly is made when it is asked for: few builds ask, and it costs a sixth of the
# compilation. The second names what the first is generated for.
OPTIMIZED, PROCESSOR = "optimized", "processor"
FACTS = (
    "scratch_bytes",
    "threads",
    "shared_bytes",
    "registers",
    "spill_bytes",
    "is_programmatic",
    "architecture",
)


@dataclass(frozen=True, slots=True)
class KernelBinary:
    """Machine code of one kernel, with the texts that it came through.

    On the CPU `code` is a relocatable ELF object that exports `symbol` (KERNEL ABI 1) and
    `scratch_bytes` the memory of each thread for the kernel. On CUDA `code` is a cubin with the one
    entry `symbol`, `scratch_bytes` the global memory that each program needs for itself, `threads`
    and `shared_bytes` (dynamic) those of one program, `registers` and `spill_bytes` those of one
    thread; `is_programmatic`: it may be launched before the kernels before it have ended, since it
    waits for that by itself. `architecture` is that which the code needs, where that is not the
    target's own: a kernel without products by tiles runs on processors without them.
    """

    symbol: str
    code: bytes
    scratch_bytes: int = 0
    threads: int = 0
    shared_bytes: int = 0
    registers: int = 0
    spill_bytes: int = 0
    is_programmatic: bool = False
    architecture: str = ""
    packed_texts: bytes = b""  # see `pack_texts`: hundreds of candidates keep theirs in the cache

    @property
    def texts(self) -> Mapping[str, str]:
        """File suffix (`ttir`, `ttgir`, `ll`, `ptx`, `s`) → text; empty where none were kept."""
        if not self.packed_texts:
            return {}
        texts: dict[str, str] = json.loads(zlib.decompress(self.packed_texts))
        if OPTIMIZED in texts:
            from aotc.aot.targets.toolchain import assembly_of

            texts["s"] = assembly_of(texts.pop(OPTIMIZED), texts.pop(PROCESSOR))
        return texts

    @property
    def facts(self) -> dict[str, int | str]:
        """What is known of the code, by name."""
        return {name: getattr(self, name) for name in FACTS}


def kernel_symbol(
    source: str,
    function: str,
    params: Sequence[tuple[str, str]],
    config: Sequence[tuple[str, int]],
    architecture: str,
) -> str:
    """Name of a kernel's machine code for an instruction set or architecture: `k` and the first 16
    digits of the digest of its inputs."""
    record = repr((source, function, tuple(params), tuple(config), architecture))
    return "k" + hashlib.sha256(record.encode()).hexdigest()[:16]


def pack_texts(texts: Mapping[str, str]) -> bytes:
    """Texts by file suffix, compressed: a tenth of their size."""
    return zlib.compress(json.dumps(texts, sort_keys=True).encode())


@dataclass(frozen=True, slots=True)
class Library:
    """The file's bytes and, where kernels are found by their place, the place of each symbol.

    `needs`: what a machine must have to run it, where that is not what the target needs.
    """

    data: bytes
    images: Mapping[str, Image] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

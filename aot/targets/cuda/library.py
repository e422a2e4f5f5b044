"""The CUDA library: cubins one after the other, each at an aligned offset."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.cuda import pipeline
from aotc.aot.targets.library import Library
from aotc.runtime.bundle.plan import Image

IMAGE_ALIGNMENT_BYTES = 64


def support_code() -> dict[str, bytes]:
    """Versions of the assemblers; cubins need nothing beside them."""
    pipeline.load()
    return {"assemblers.json": json.dumps(pipeline.assembler_versions(), sort_keys=True).encode()}


def library(kernels: Sequence[KernelBinary], support_code: Mapping[str, bytes]) -> Library:
    """The cubins in the order of their symbols, and what a launch of each takes."""
    parts: list[bytes] = []
    images: dict[str, Image] = {}
    end = 0
    for kernel in sorted({row.symbol: row for row in kernels if row.code}.values(), key=_symbol):
        images[kernel.symbol] = Image(
            end,
            len(kernel.code),
            kernel.threads,
            kernel.shared_bytes,
            kernel.scratch_bytes,
            kernel.is_programmatic,
        )
        padding = bytes(-len(kernel.code) % IMAGE_ALIGNMENT_BYTES)
        parts += [kernel.code, padding]
        end += len(kernel.code) + len(padding)
    return Library(b"".join(parts), images)


def _symbol(kernel: KernelBinary) -> str:
    return kernel.symbol

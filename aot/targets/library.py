"""Library: all machine code of one target as one file of the bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aotc.runtime.bundle.plan import Image


@dataclass(frozen=True, slots=True)
class Library:
    """The file's bytes and, where kernels are found by their place, the place of each symbol."""

    data: bytes
    images: Mapping[str, Image] = field(default_factory=dict)

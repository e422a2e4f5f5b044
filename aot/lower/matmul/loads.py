"""Lines that load a tile of each operand of a product on a GPU, and multiply them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Loads:
    """Lines that load a tile of each operand, and those before the loop over k."""

    a: list[str]
    b: list[str]
    describe: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    multiply: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)  # of B, before the wait for other kernels
    following: list[str] = field(default_factory=list)  # of B, at the end of a step

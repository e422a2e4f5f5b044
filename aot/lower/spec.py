"""KernelSpec: a kernel as complete Triton source, its parameters and its candidate configs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Param:
    """A run-time parameter: its name in the source and Triton's type, `*fp32`, `*i1`, `i32` …"""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of the constexpr parameters and the grid that belongs to it."""

    config: tuple[tuple[str, int], ...]
    grid: tuple[int, int, int]

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.config)
        return f"{words} grid {'×'.join(map(str, self.grid))}"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What the tuner and a target need of a kernel.

    `source` is a file of its own: imports and the `@triton.jit` function called `function`. Its
    parameters are `params` (reads in the order of the group, then stores), then the names of the
    configs as constexprs. Candidate 0 is the model's pick.
    """

    name: str
    source: str
    function: str
    params: tuple[Param, ...]
    candidates: tuple[Candidate, ...]
    bytes: int
    operations: int

    @property
    def digest(self) -> str:
        """sha256 of what decides the machine code: source and parameters, not the name."""
        rows = [self.source, self.function, *(f"{row.name}:{row.type}" for row in self.params)]
        return hashlib.sha256("\0".join(rows).encode()).hexdigest()

"""What a target's kernels and plan are made from, for all sizes or for ranges of them."""

from __future__ import annotations

from dataclasses import dataclass

from aotc.aot.ir.size import Dim, Extent
from aotc.aot.lower import KernelSpec
from aotc.aot.plan import BufferAssignment


@dataclass(frozen=True, slots=True)
class Lowered:
    """Kernels and their buffer assignment for all sizes, or for one range of dynamic ones."""

    specs: tuple[KernelSpec, ...]  # one a launch
    assignment: BufferAssignment
    dims: tuple[Dim, ...] = ()  # those of the program, narrowed


@dataclass(frozen=True, slots=True)
class Sources:
    """What one target of a bundle was compiled from; fixed shapes have one variant.

    dims: the dynamic sizes; limits: numbers of elements that must fit 31 bits.
    """

    target: str
    dot_precision: str
    variants: tuple[Lowered, ...]
    dims: tuple[Dim, ...] = ()
    limits: tuple[Extent, ...] = ()

    @property
    def specs(self) -> tuple[KernelSpec, ...]:
        """The kernels of all launches of all variants."""
        return tuple(spec for each in self.variants for spec in each.specs)

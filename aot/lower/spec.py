"""KernelSpec: a kernel as complete Triton source, its parameters and its candidate configs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.size import KERNEL_PREFIX, Dim, Extent, fixed
from aotc.aot.ir.types import DTYPES
from aotc.aot.traits import LAUNCH_OPTIONS
from aotc.runtime.bundle.plan import Map

BOX_LIMIT = 256  # elements along one dim that one copy of a tensor descriptor takes
SWIZZLES_BYTES = (128, 64, 32)


@dataclass(frozen=True, slots=True)
class Param:
    """A run-time parameter: its name in the source and Triton's type, `*fp32`, `*i1`, `i32` …"""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that a candidate needs beside its parameters: one more pointer, after them.

    `is_zeroed`: it is zero at the first launch, and every launch leaves it zero. turns: launches
    with such scratch take so many parts of memory in turn, which others do not use; 0: all share.
    """

    name: str
    type: str
    nbytes: Extent
    is_zeroed: bool = False
    turns: int = 0


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor descriptor that the launch makes of a parameter: one more, after the scratch.

    It names elements of `dtype` (Triton's name) in the memory at parameter number `param`, from
    element `start` on: `shape` of them at `strides`, the last of which is 1, loaded by `block`.
    """

    name: str
    param: int
    dtype: str
    start: Extent
    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    block: tuple[int, ...]

    @property
    def type(self) -> str:
        """Triton's type of the parameter."""
        return f"tensordesc<{self.dtype}[{', '.join(map(str, self.block))}]>"

    def placed(self, number: Callable[[Extent], Any] = fixed) -> Map:
        """The tensor map that a launch makes: its boxes are those of Triton's copies of a block.

        `number`: how its extents are given.

        Rows of a block lie in shared memory in the widest pattern that they fill; wider blocks are
        several copies.
        """
        kind = next(row for row in DTYPES.values() if row.triton == self.dtype)
        width_bytes = self.block[-1] * kind.itemsize_bytes
        swizzle_bytes = next((each for each in SWIZZLES_BYTES if width_bytes >= each), 0)
        width = min(self.block[-1], (swizzle_bytes or width_bytes) // kind.itemsize_bytes)
        box = (*(min(extent, BOX_LIMIT) for extent in self.block[:-1]), width)
        start, shape, strides = (
            number(self.start),
            map(number, self.shape),
            map(number, self.strides),
        )
        return Map(self.param, kind.name, start, tuple(shape), tuple(strides), box, swizzle_bytes)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One choice of the constexpr parameters and the grid that belongs to it.

    `config` also holds the launch options of a GPU (LAUNCH_OPTIONS); `form` names one of the
    spec's sources.
    """

    config: tuple[tuple[str, int], ...]
    grid: tuple[Extent, Extent, Extent]
    form: str = ""
    scratch: tuple[Scratch, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    ranks: int = 0  # GPUs whose memory it reaches: an i64 for each, where that one's arena lies

    @property
    def constexprs(self) -> tuple[tuple[str, int], ...]:
        """The part of the config that the source takes as parameters."""
        return tuple(row for row in self.config if row[0] not in LAUNCH_OPTIONS)

    @property
    def options(self) -> dict[str, int]:
        """The part of the config that the launch takes."""
        return {name: value for name, value in self.config if name in LAUNCH_OPTIONS}

    def __str__(self) -> str:
        words = " ".join(f"{name}={value}" for name, value in self.config)
        form = f"{self.form} " if self.form else ""
        return f"{form}{words} grid {'×'.join(map(str, self.grid))}"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write a kernel: imports and the `@triton.jit` function called `function`.

    Its parameters are those of the spec (reads in the order of the group, then stores), then the
    candidate's scratch, peers and tensor maps, then the names of its constexprs.

    waits: it waits for the kernels before it by itself, after it has loaded or asked for something.
    """

    name: str
    source: str
    function: str
    waits: bool = False


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What the tuner and a target need of a kernel. Candidate 0 is the cost model's choice.

    `params` are pointers; an i32 for each of `sizes`, the dims that the source reads, follows them.

    are_most: whole numbers that it reads say how much else it does; `bytes` and `operations` are
    the most.
    """

    name: str
    forms: tuple[Form, ...]
    params: tuple[Param, ...]
    candidates: tuple[Candidate, ...]
    bytes: int
    operations: int
    sizes: tuple[Dim, ...] = ()
    are_most: bool = False

    def form(self, candidate: Candidate) -> Form:
        """The source that a candidate configures."""
        return next(form for form in self.forms if form.name == candidate.form)

    def params_of(self, candidate: Candidate) -> tuple[Param, ...]:
        """The run-time parameters of a candidate, its scratch and tensor maps included."""
        sizes = (Param(KERNEL_PREFIX + dim.name, "i32") for dim in self.sizes)
        scratch = (Param(row.name, row.type) for row in candidate.scratch)
        peers = (Param(f"peer_{rank}", "i64") for rank in range(candidate.ranks))
        maps = (Param(row.name, row.type) for row in candidate.maps)
        return (*self.params, *sizes, *scratch, *peers, *maps)

    @property
    def digest(self) -> str:
        """sha256 of what decides the machine code: sources and parameters, not the name."""
        rows = [text for form in self.forms for text in (form.name, form.source, form.function)]
        rows += [f"{row.name}:{row.type}" for row in self.params]
        # A source names its tensor maps only; what they are of is in the candidates.
        maps = {each for row in self.candidates for each in row.maps}
        rows += sorted({f"{row.param}:{row.start}:{row.shape}:{row.strides}" for row in maps})
        # The typical size is no part of the source, but of what is measured.
        rows += [f"{dim.name}:i32 {dim.typical}" for dim in self.sizes]
        return hashlib.sha256("\0".join(rows).encode()).hexdigest()

"""What a target's kernels and plan are made from, and the grammar of its file:
`sources/TARGET.json` is a `SourcesRow`.

    extent     number | [number of a value]          values and rows: `runtime/bundle/extent.py`
    scratch    [name, type, bytes, 0 | 1 for zeroed]
    operand    [space, value, bytes, first byte that is read]
    space      "buffer" | "input" | "output" | "state" | "check"   value: its number
               | "weight"                                          value: its name
    call       [launches before it, a step that torch runs, as in a plan but with memory in these
               spaces]
    mark       [its place among calls and marks, launches before it, a mark of a block of steps]
    dim, range [name, low, high, typical] of the bundle, [low, high, typical] of a variant

A bundle of fixed shapes has no dims and one variant. The ranges of a variant have a row for each of
`dims`; a kernel's extents are those of the variant that it names, the first one that launches it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.size import Dim, Extent
from aotc.aot.lower import KernelSpec
from aotc.aot.lower.spec import Candidate, Param, Scratch, TensorMap
from aotc.aot.plan import BufferAssignment
from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.buffer_assignment import SPACES
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.extent import DIMS_LIMIT, ROWS, Number
from aotc.runtime.bundle.extent import Row as SizeRow
from aotc.runtime.bundle.plan import VARIANTS_LIMIT, Check, StateSlot
from aotc.runtime.bundle.plan_parts import ENTRIES_LIMIT, RANKS_LIMIT
from aotc.runtime.bundle.schema import (
    FILE_NAME,
    Choice,
    Fields,
    Flag,
    Integer,
    List,
    Optional,
    Row,
    Tagged,
    Text,
)
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall
from aotc.runtime.record import Record, field


@dataclass(frozen=True, slots=True)
class Lowered:
    """Kernels and their buffer assignment for all sizes, or for one range of dynamic ones."""

    specs: tuple[KernelSpec, ...]  # one a launch
    assignment: BufferAssignment
    dims: tuple[Dim, ...] = ()  # those of the program, narrowed
    entry: int = 0  # which of the bundle's


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


VERSION = 8
FOLDER = "sources"
COUNT_LIMIT = 1 << 16
SIZE_LIMIT_BYTES = 1 << 48

COUNT = Integer(0, COUNT_LIMIT)
BYTES = Integer(0, SIZE_LIMIT_BYTES)
SIZE = Number(0, SIZE_LIMIT_BYTES)
PROGRAMS = Number(1, (1 << 31) - 1)
DIM = Integer(1, (1 << 31) - 1)
WORD = Text(64, least=0)  # empty: the name of a spec's plain form
MAP = Fields(
    TensorMap,
    {
        "name": Text(),
        "param": Integer(0, 255),
        "dtype": Text(16),
        "start": SIZE,
        "shape": List(SIZE, 5, 1),
        "strides": List(SIZE, 5, 1),
        "block": List(BYTES, 5, 1),
    },
)
CANDIDATE = Fields(
    Candidate,
    {
        "form": WORD,
        "config": List(Row(Text(), Integer(-(1 << 31), 1 << 31)), 64),
        "grid": List(PROGRAMS, 3, 3),
        "scratch": List(Row(Text(), Text(16), SIZE, Flag(), Integer(0, 16), type=Scratch), 16),
        "maps": List(MAP, 16),
        "ranks": Integer(0, RANKS_LIMIT),
    },
)
BUFFER = Fields(Lifetime, {"name": Text(256), "nbytes": SIZE, "first": COUNT, "last": COUNT})


def _by_space(*more: Any) -> Tagged:
    kinds = {space: (Text(256) if space == "weight" else COUNT, *more) for space in SPACES}
    return Tagged("a list with a space of " + ", ".join(SPACES), kinds)


TENSOR = Fields(CallTensor, {**Fields(CallTensor).fields, "memory": _by_space()})
CALL = Fields(
    TorchCall,
    {
        **Fields(TorchCall).fields,
        "operands": List(TENSOR, 256),
        "results": List(Optional(TENSOR), 64, 1),
    },
)

MARK = Fields(ControlStep, {**Fields(ControlStep).fields, "condition": Optional(_by_space())})


class KernelRow(Record):
    """A kernel; `forms` are (name, function, file, whether it waits), `sizes` numbers of dims."""

    name: str = field(Text(256))
    digest: str = field(Text(64))
    forms: tuple[tuple[str, str, str, bool], ...] = field(
        List(Row(WORD, Text(), FILE_NAME, Flag()), 64, 1)
    )
    params: tuple[Param, ...] = field(List(Row(Text(), Text(16), type=Param), 256))
    candidates: tuple[Candidate, ...] = field(List(CANDIDATE, 4096, 1))
    bytes: int = field(BYTES)
    operations: int = field(Integer(0, 1 << 62))
    variant: int = field(COUNT)
    sizes: tuple[int, ...] = field(List(Integer(0, DIMS_LIMIT - 1), DIMS_LIMIT))


class LaunchRow(Record):
    """A launch: the digest of its kernel, its operands, how many of them are stored."""

    kernel: str = field(Text(64))
    operands: tuple[tuple[Any, ...], ...] = field(List(_by_space(SIZE, BYTES), 256))
    stored: int = field(COUNT)


class VariantRow(Record):
    """The assignment for a range of sizes."""

    buffers: tuple[Lifetime, ...] = field(List(BUFFER, COUNT_LIMIT))
    launches: tuple[LaunchRow, ...] = field(List(LaunchRow, COUNT_LIMIT))
    calls: tuple[tuple[int, TorchCall], ...] = field(List(Row(COUNT, CALL), COUNT_LIMIT))
    states: tuple[StateSlot, ...] = field(List(StateSlot, 4096))
    checks: tuple[Check, ...] = field(List(Check, COUNT_LIMIT))
    ranges: tuple[tuple[int, int, int], ...] = field(List(Row(DIM, DIM, DIM), DIMS_LIMIT))
    entry: int = field(Integer(0, ENTRIES_LIMIT - 1), default=0)
    marks: tuple[tuple[int, int, ControlStep], ...] = field(
        List(Row(COUNT, COUNT, MARK), COUNT_LIMIT), default=()
    )


class SourcesRow(Record):
    """The whole file."""

    version: int = field(Integer(VERSION, VERSION))
    target: str = field(Text())
    dot_precision: str = field(Choice("ieee", "tf32"))
    kernels: tuple[KernelRow, ...] = field(List(KernelRow, COUNT_LIMIT))
    dims: tuple[tuple[str, int, int, int], ...] = field(
        List(Row(Text(), DIM, DIM, DIM), DIMS_LIMIT)
    )
    sizes: tuple[SizeRow, ...] = field(ROWS)
    limits: tuple[Any, ...] = field(List(Number(0, 1 << 62), 1 << 12))
    variants: tuple[VariantRow, ...] = field(List(VariantRow, VARIANTS_LIMIT, 1))


SOURCES, KERNEL, VARIANT = map(Fields, (SourcesRow, KernelRow, VariantRow))

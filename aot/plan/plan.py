"""The plan stage: buffer assignment and the chosen kernels, for each range of sizes → Plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import Dim, Extent, fixed
from aotc.aot.ir.size_table import SizeTable
from aotc.aot.lower.spec import Scratch, TensorMap
from aotc.aot.plan.arena import Lifetime, aligned, assign_offsets, assign_slots
from aotc.aot.plan.buffer_assignment import BufferAssignment, LaunchBuffers, Operand, assign_buffers
from aotc.aot.schedule.group import Schedule
from aotc.runtime.bundle import plan as runtime
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.launch_plan import VARIANT
from aotc.runtime.bundle.native_plan import NativeLaunch
from aotc.runtime.bundle.plan import (
    ALIGNMENT_BYTES,
    KERNEL,
    STATE_SLOT,
    Image,
    Kernel,
    Plan,
)
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.errors import BundleMalformed

GPU_ALIGNMENT_BYTES = 256  # of buffers: what descriptors, vector loads and sectors ask for
ZEROED = "zeroed scratch"
Memory = tuple[str, Any]  # (space, value) as a plan has it


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """What a group became: the symbol in the library, a name for people, the grid in programs.

    `image`: where the kernel lies by itself, on a GPU. `scratch`: memory beside its parameters.
    `maps`: tensor descriptors that its launches make.
    `sizes`: what it takes as numbers, after its pointers. `ranks`: GPUs whose memory it reaches.
    `native`: the function that it calls.
    """

    symbol: str
    name: str
    grid: tuple[Extent, Extent, Extent]
    image: Image | None = None
    scratch: tuple[Scratch, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    sizes: tuple[Extent, ...] = ()
    ranks: int = 0
    native: NativeCall | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """The launches of an entry for a range of each dim: `dims` are those of the program,
    narrowed."""

    dims: tuple[Dim, ...]
    assignment: BufferAssignment
    chosen: tuple[ChosenKernel, ...]
    entry: int = 0


def plan(schedule: Schedule, chosen: Sequence[ChosenKernel], scratch_bytes: int) -> Plan:
    """One step a group, in the schedule's order; `chosen[i]` is the kernel of group i.

    Inputs and outputs are the caller's memory, constants are weights by name, all other roots are
    parts of the arena. No kernel's store overlaps with what it reads.
    """
    return plan_assigned(assign_buffers(schedule), chosen, scratch_bytes)


def plan_assigned(
    assignment: BufferAssignment, chosen: Sequence[ChosenKernel], scratch_bytes: int
) -> Plan:
    """The same of a schedule's buffer assignment, for fixed shapes."""
    return plan_variants((), [Variant((), assignment, tuple(chosen))], scratch_bytes)


def plan_variants(
    dims: Sequence[Dim],
    variants: Sequence[Variant],
    scratch_bytes: int,
    limits: Sequence[Extent] = (),
    step: int = 0,
) -> Plan:
    """One plan for all sizes; the first variant whose ranges hold them serves a call.

    `limits` are numbers of elements that must fit 31 bits. `step`: alignment of buffers in bytes,
    0 for what the kernels' device asks for.
    """
    table = SizeTable(dims)
    symbols: dict[str, ChosenKernel] = {}
    for variant in variants:
        symbols |= {row.symbol: row for row in variant.chosen if row.native is None}
    if not step:
        is_gpu = any(row.image is not None for row in symbols.values())
        step = GPU_ALIGNMENT_BYTES if is_gpu else ALIGNMENT_BYTES
    chosen = [row for each in variants for row in each.chosen]
    apart_bytes = max((_apart_bytes(row, step) for row in chosen), default=0)
    writer = _Writer(
        {symbol: number for number, symbol in enumerate(symbols)},
        {symbol: {} for symbol in symbols},
        step,
        apart_bytes + max((zeroed_bytes(row, step) for row in chosen), default=0),
        apart_bytes,
    )
    rows = [VARIANT.at(writer.variant(each), table.numbered) for each in variants]
    kernels = [
        Kernel(row.symbol, row.name, row.image, tuple(writer.uses[row.symbol]))
        for row in symbols.values()
    ]
    parts = (
        len(dims),
        rows,
        [KERNEL.at(kernel, table.numbered) for kernel in kernels],
        [STATE_SLOT.at(slot, table.numbered) for slot in variants[0].assignment.states],
        scratch_bytes,
        table.rows,
        list(map(table.numbered, limits)),
    )
    planned = Plan.made(*parts)
    read_at = [
        (number, tuple(dim.typical for dim in each.dims))
        for number, each in enumerate(variants)
        if not _is_of_a_call(planned, each)
    ]
    return Plan.made(*parts, read_at) if read_at else planned


def _is_of_a_call(plan: Plan, variant: Variant) -> bool:
    """Whether a call may have the smallest sizes of all dims. If a guard excludes them, numbers of
    bytes or programs may be negative there."""
    try:
        plan.at([dim.low for dim in variant.dims], variant.entry)
    except BundleMalformed:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes variants, their numbers as extents of the graph.

    The arena's first `zeroed_bytes` are the zeroed scratch of all launches of all variants, which
    each leaves zero: so a session may go from one variant to another. What ranks set on each other
    lies in front of it, in parts of its own.
    """

    numbers: dict[str, int]  # symbol → number of the kernel
    uses: dict[str, dict[runtime.Use, int]]  # symbol → the kernel's uses, with their numbers
    step: int
    zeroed_bytes: int
    apart_bytes: int  # of these, the first ones: scratch that launches have in turns

    def variant(self, variant: Variant) -> runtime.Variant:
        """One variant."""
        assignment, lifetimes = variant.assignment, list(variant.assignment.buffers)
        turns = count()  # of launches with scratch that is not shared
        scratch = [
            self._scratch(number, assignment.step(number), kernel, lifetimes, turns)
            for number, kernel in enumerate(variant.chosen)
        ]
        offsets, total = self._offsets(lifetimes, has_dims=bool(variant.dims))
        steps: list[Any] = []
        calls = list(assignment.calls)
        rows = zip(assignment.launches, variant.chosen, scratch, strict=True)
        for number, (launch, kernel, own) in enumerate(rows):
            while calls and calls[0][0] <= number:
                steps.append(_call(calls.pop(0)[1], offsets))
            own_memory = [("arena", at if is_zeroed else offsets[at]) for at, is_zeroed in own]
            steps.append(self._launch(launch, kernel, own_memory, offsets, variant.dims))
        steps += [_call(call, offsets) for _, call in calls]
        buffers: list[Any] = [
            runtime.Buffer(row.name, at, row.nbytes)  # type: ignore[arg-type]
            for row, at in zip(lifetimes, offsets, strict=True)
        ]
        if self.zeroed_bytes:
            buffers.append(runtime.Buffer(ZEROED, 0, self.zeroed_bytes))
        arena_bytes: Any = self.zeroed_bytes + total
        return runtime.Variant(
            arena_bytes,
            tuple(buffers),
            assignment.checks,
            tuple((dim.low, dim.high) for dim in variant.dims),
            tuple(steps),
            self.zeroed_bytes,
            variant.entry,
        )

    def _offsets(
        self, lifetimes: Sequence[Lifetime], has_dims: bool
    ) -> tuple[list[Extent], Extent]:
        """(offset of each buffer, end of the arena), behind what is zeroed in front."""
        found: tuple[Sequence[Extent], Extent]
        found = (assign_slots if has_dims else assign_offsets)(lifetimes, self.step)
        offsets, total = found
        return [self.zeroed_bytes + offset for offset in offsets], total

    def _scratch(
        self,
        number: int,
        step: int,
        kernel: ChosenKernel,
        lifetimes: list[Lifetime],
        turns: Iterator[int],
    ) -> list[tuple[int, bool]]:
        """(place, whether zeroed) of each scratch of a launch: offset of a zeroed one, else the
        number of its buffer, which is added to the lifetimes."""
        found, zeroed_end = [], self.apart_bytes
        for each in kernel.scratch:
            if each.turns:
                part = next(turns) % each.turns  # of as many bytes for all: they lie apart
                found.append((part * (self.apart_bytes // each.turns), True))
            elif each.is_zeroed:
                found.append((zeroed_end, True))
                zeroed_end += aligned(fixed(each.nbytes), self.step)
            else:
                found.append((len(lifetimes), False))
                lifetimes.append(Lifetime(f"{number} scratch {each.name}", each.nbytes, step, step))
        return found

    def _launch(
        self,
        launch: LaunchBuffers,
        kernel: ChosenKernel,
        scratch: list[Memory],
        offsets: Sequence[Extent],
        dims: Sequence[Dim],
    ) -> runtime.Launch | NativeLaunch:
        operands = [_argument(operand, offsets) for operand in launch.operands]
        if kernel.native is not None:
            return kernel.native.step(operands, kernel.grid[0], scratch[0] if scratch else None)
        sizes: list[Memory] = [("int", size) for size in kernel.sizes]
        maps = tuple(each.placed(lambda extent: extent) for each in kernel.maps)
        grid: Any = kernel.grid
        # What a kernel of ours reaches is its operands' memory, and what it asks for beside.
        first_stored = len(launch.operands) - launch.stored
        parameters: list[Any] = [
            ("read" if place < first_stored else "write", operand.nbytes - operand.start_bytes)
            for place, operand in enumerate(launch.operands)
        ]
        parameters += sizes
        parameters += [
            ("zeroed" if each.is_zeroed else "write", each.nbytes) for each in kernel.scratch
        ]
        peers: list[Memory] = [("peer", rank) for rank in range(kernel.ranks)]
        parameters += peers
        ranges = tuple((dim.low, dim.high) for dim in dims)
        uses = self.uses[kernel.symbol]
        use = uses.setdefault(runtime.Use(grid, maps, tuple(parameters), ranges), len(uses))
        number = self.numbers[kernel.symbol]
        return runtime.Launch(number, grid, (*operands, *sizes, *scratch, *peers), maps, use)


def _call(call: TorchCall | ControlStep, offsets: Sequence[Extent]) -> TorchCall | ControlStep:
    """An op that torch runs, or a control step, with offsets in the arena in place of buffer
    numbers."""

    def memory(space: str, value: int | str) -> tuple[str, Any]:
        return ("arena", offsets[int(value)]) if space == "buffer" else (space, value)

    return call.moved(memory)


def _argument(operand: Operand, offsets: Sequence[Extent]) -> Memory:
    if operand.space == "buffer":
        return "arena", offsets[int(operand.value)] + operand.start_bytes
    return operand.space, operand.value


def zeroed_bytes(kernel: ChosenKernel, step: int) -> int:
    """Zeroed scratch of a launch that all share, each part aligned to `step` bytes."""
    shared = [each for each in kernel.scratch if each.is_zeroed and not each.turns]
    return sum(aligned(fixed(each.nbytes), step) for each in shared)


def _apart_bytes(kernel: ChosenKernel, step: int) -> int:
    """Bytes of scratch of launches that alternate between several places."""
    rows = [each for each in kernel.scratch if each.turns]
    return max((each.turns * aligned(fixed(each.nbytes), step) for each in rows), default=0)

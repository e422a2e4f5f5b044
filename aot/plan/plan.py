"""The plan stage: buffer assignment and the chosen kernels, for each range of sizes → Plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import Dim, Extent, fixed
from aotc.aot.ir.size_table import SizeTable
from aotc.aot.lower.spec import Scratch, TensorMap
from aotc.aot.plan.arena import Lifetime, aligned, place, place_slots
from aotc.aot.plan.buffer_assignment import (
    BufferAssignment,
    CheckRow,
    LaunchBuffers,
    Operand,
    assign_buffers,
)
from aotc.aot.schedule.group import Schedule
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES, PLAN_ABI, Image, Kernel, Plan
from aotc.runtime.bundle.plan_rules import features_of

GPU_ALIGNMENT_BYTES = 256  # of buffers: what descriptors, vector loads and sectors ask for
ZEROED = "zeroed scratch"
Memory = list[Any]  # [space, value] as a plan has it


@dataclass(frozen=True, slots=True)
class ChosenKernel:
    """What a group became: the symbol in the library, a name for people, the grid in programs.

    `image`: where the kernel lies by itself, on a GPU. `scratch`: memory beside its parameters.
    `maps`: tensor descriptors that its launches make.
    `sizes`: what it takes as numbers, after its pointers. `native`: the function that it calls.
    """

    symbol: str
    name: str
    grid: tuple[Extent, Extent, Extent]
    image: Image | None = None
    scratch: tuple[Scratch, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    sizes: tuple[Extent, ...] = ()
    native: NativeCall | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """The launches for a range of each dim: `dims` are those of the program, narrowed."""

    dims: tuple[Dim, ...]
    assignment: BufferAssignment
    chosen: tuple[ChosenKernel, ...]


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
    writer = _Writer(
        table,
        {symbol: number for number, symbol in enumerate(symbols)},
        step,
        max((zeroed_bytes(row, step) for each in variants for row in each.chosen), default=0),
    )
    kernels = [Kernel(row.symbol, row.name, row.image) for row in symbols.values()]
    tree = {
        "abi": PLAN_ABI,
        "dims": len(dims),
        "features": [],
        "kernels": [kernel.to_map() for kernel in kernels],
        "limits": [table.reference(limit) for limit in limits],
        "scratch_bytes": scratch_bytes,
        "states": [row.to_map() for row in variants[0].assignment.states],
        "variants": [writer.variant(variant) for variant in variants],
    }
    return Plan({**tree, "sizes": [list(row) for row in table.rows], "features": features_of(tree)})


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes variants as the plan's maps.

    The arena's first `zeroed_bytes` are the zeroed scratch of all launches of all variants, which
    each leaves zero: so a session may go from one variant to another.
    """

    table: SizeTable
    numbers: dict[str, int]  # symbol → number of the kernel
    step: int
    zeroed_bytes: int

    def variant(self, variant: Variant) -> dict[str, Any]:
        """One variant."""
        table, assignment, lifetimes = (
            self.table,
            variant.assignment,
            list(variant.assignment.buffers),
        )
        scratch = [
            self._scratch(number, assignment.step(number), kernel, lifetimes)
            for number, kernel in enumerate(variant.chosen)
        ]
        offsets, total = self._offsets(lifetimes, has_dims=bool(variant.dims))
        steps: list[dict[str, Any]] = []
        calls = list(assignment.calls)
        rows = zip(assignment.launches, variant.chosen, scratch, strict=True)
        for number, (launch, kernel, own) in enumerate(rows):
            while calls and calls[0][0] <= number:
                steps.append(self._call(calls.pop(0)[1], offsets))
            own_memory = [
                ["arena", at if is_zeroed else table.reference(offsets[at])]
                for at, is_zeroed in own
            ]
            steps.append(self._launch(launch, kernel, own_memory, offsets))
        steps += [self._call(call, offsets) for _, call in calls]
        buffers = [
            {"name": row.name, "nbytes": table.reference(row.nbytes), "offset": table.reference(at)}
            for row, at in zip(lifetimes, offsets, strict=True)
        ]
        if self.zeroed_bytes:
            buffers.append({"name": ZEROED, "nbytes": self.zeroed_bytes, "offset": 0})
        return {
            "arena_bytes": table.reference(self.zeroed_bytes + total),
            "buffers": buffers,
            "checks": list(map(self._check, assignment.checks)),
            "ranges": [[dim.low, dim.high] for dim in variant.dims],
            "steps": steps,
            "zeroed_bytes": self.zeroed_bytes,
        }

    def _offsets(
        self, lifetimes: Sequence[Lifetime], has_dims: bool
    ) -> tuple[list[Extent], Extent]:
        """(offset of each buffer, end of the arena), behind what is zeroed in front."""
        found: tuple[Sequence[Extent], Extent]
        found = (place_slots if has_dims else place)(lifetimes, self.step)
        offsets, total = found
        return [self.zeroed_bytes + offset for offset in offsets], total

    def _check(self, row: CheckRow) -> dict[str, Any]:
        number = self.table.reference
        return {**asdict(row), "low": number(row.low), "high": number(row.high)}

    def _scratch(
        self, number: int, step: int, kernel: ChosenKernel, lifetimes: list[Lifetime]
    ) -> list[tuple[int, bool]]:
        """(place, whether zeroed) of each scratch of a launch: offset of a zeroed one, else the
        number of its buffer, which is added to the lifetimes."""
        found, zeroed_end = [], 0
        for each in kernel.scratch:
            if each.is_zeroed:
                found.append((zeroed_end, True))
                zeroed_end += aligned(fixed(each.nbytes), self.step)
                continue
            found.append((len(lifetimes), False))
            lifetimes.append(Lifetime(f"{number} scratch {each.name}", each.nbytes, step, step))
        return found

    def _launch(
        self,
        launch: LaunchBuffers,
        kernel: ChosenKernel,
        scratch: list[Memory],
        offsets: Sequence[Extent],
    ) -> dict[str, Any]:
        number = self.table.reference
        operands = [self._argument(operand, offsets) for operand in launch.operands]
        if kernel.native is not None:
            workspace = scratch[0] if scratch else None
            return kernel.native.step(operands, number(kernel.grid[0]), workspace, number)
        sizes = [["int", number(size)] for size in kernel.sizes]
        return {
            "kind": "kernel",
            "kernel": self.numbers[kernel.symbol],
            "grid": [number(extent) for extent in kernel.grid],
            "args": [*operands, *sizes, *scratch],
            "maps": [each.placed(number).to_map() for each in kernel.maps],
        }

    def _call(self, call: Any, offsets: Sequence[Extent]) -> dict[str, Any]:
        """What torch runs, with the arena's offsets in place of buffers' numbers."""

        def memory(space: str, value: int | str) -> tuple[str, Any]:
            return ("arena", offsets[int(value)]) if space == "buffer" else (space, value)

        row: dict[str, Any] = call.moved(memory).to_map(self._named)
        return row

    def _named(self, value: Any) -> Any:
        """What stands for a number; the name of a weight is itself."""
        return value if isinstance(value, str) else self.table.reference(value)

    def _argument(self, operand: Operand, offsets: Sequence[Extent]) -> Memory:
        if operand.space == "buffer":
            at = offsets[int(operand.value)] + operand.start_bytes
            return ["arena", self.table.reference(at)]
        return [operand.space, operand.value]


def zeroed_bytes(kernel: ChosenKernel, step: int) -> int:
    """Zeroed scratch of a launch, each part aligned to `step` bytes."""
    return sum(aligned(fixed(each.nbytes), step) for each in kernel.scratch if each.is_zeroed)

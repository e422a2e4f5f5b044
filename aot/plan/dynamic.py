"""The plan stage where sizes depend on the call: variants for ranges of sizes → DynamicPlan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.ir.size import Dim, Extent, fixed, proves_at_most, typical
from aotc.aot.plan.arena import Lifetime, aligned
from aotc.aot.plan.form import ZEROED, ChosenKernel, zeroed_bytes
from aotc.aot.plan.sizes import SizeTable
from aotc.aot.plan.wiring import CheckRow, Operand, Wiring
from aotc.runtime.bundle.dynamic_plan import DynamicPlan
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES, DYNAMIC_ABI, Kernel


@dataclass(frozen=True, slots=True)
class Variant:
    """The launches for a range of each dim: `dims` are those of the program, narrowed."""

    dims: tuple[Dim, ...]
    wiring: Wiring
    chosen: tuple[ChosenKernel, ...]


def plan_dynamic(
    dims: Sequence[Dim],
    variants: Sequence[Variant],
    scratch_bytes: int,
    limits: Sequence[Extent],
    step: int = ALIGNMENT_BYTES,
) -> DynamicPlan:
    """One plan for all sizes; the first variant whose ranges hold them serves a call.

    `limits` are numbers of elements that must fit 31 bits. `step`: alignment of buffers in bytes.
    """
    table = SizeTable(dims)
    symbols: dict[str, ChosenKernel] = {}
    for variant in variants:
        symbols |= {kernel.symbol: kernel for kernel in variant.chosen}
    writer = _Writer(
        table,
        {symbol: number for number, symbol in enumerate(symbols)},
        step,
        max((zeroed_bytes(row, step) for each in variants for row in each.chosen), default=0),
    )
    rows = [writer.variant(variant) for variant in variants]
    kernels = [Kernel(row.symbol, row.name, row.image) for row in symbols.values()]
    tree = {
        "abi": DYNAMIC_ABI,
        "dims": len(dims),
        "limits": [table.reference(limit) for limit in limits],
        "scratch_bytes": scratch_bytes,
        "kernels": [
            {
                "symbol": row.symbol,
                "name": row.name,
                "image": None if row.image is None else row.image.to_map(),
            }
            for row in kernels
        ],
        "variants": rows,
        "sizes": [list(row) for row in table.rows],
    }
    return DynamicPlan(tree)


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
        table, lifetimes = self.table, list(variant.wiring.buffers)
        scratch = [self._scratch(*pair, lifetimes) for pair in enumerate(variant.chosen)]
        offsets, total = place_slots(lifetimes, self.step)
        offsets = [self.zeroed_bytes + offset for offset in offsets]
        launches = []
        for launch, kernel, own in zip(
            variant.wiring.launches, variant.chosen, scratch, strict=True
        ):
            args = [_argument(operand, offsets, table) for operand in launch.operands]
            args += [["int", table.reference(size)] for size in kernel.sizes]
            for at, is_zeroed in own:
                args.append(["arena", at if is_zeroed else table.reference(offsets[at])])
            launches.append(self._launch(kernel, args))
        buffers = [
            {"name": row.name, "nbytes": table.reference(row.nbytes), "offset": table.reference(at)}
            for row, at in zip(lifetimes, offsets, strict=True)
        ]
        checks = list(map(self._check, variant.wiring.checks))
        if self.zeroed_bytes:
            buffers.append({"name": ZEROED, "nbytes": self.zeroed_bytes, "offset": 0})
        return {
            "ranges": [[dim.low, dim.high] for dim in variant.dims],
            "arena_bytes": table.reference(self.zeroed_bytes + total),
            "zeroed_bytes": self.zeroed_bytes,
            "buffers": buffers,
            "launches": launches,
            **({"checks": checks} if checks else {}),
        }

    def _check(self, row: CheckRow) -> dict[str, Any]:
        number = self.table.reference
        return {**asdict(row), "low": number(row.low), "high": number(row.high)}

    def _scratch(
        self, number: int, kernel: ChosenKernel, lifetimes: list[Lifetime]
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
            lifetimes.append(Lifetime(f"{number} scratch {each.name}", each.nbytes, number, number))
        return found

    def _launch(self, kernel: ChosenKernel, args: list[Any]) -> dict[str, Any]:
        table = self.table
        row = {
            "kernel": self.numbers[kernel.symbol],
            "grid": [table.reference(extent) for extent in kernel.grid],
            "args": args,
        }
        if kernel.maps:
            row["maps"] = [each.placed(table.reference).to_map() for each in kernel.maps]
        return row


def _argument(operand: Operand, offsets: Sequence[Extent], table: SizeTable) -> list[Any]:
    if operand.space == "buffer":
        return ["arena", table.reference(offsets[int(operand.value)] + operand.start_bytes)]
    return [operand.space, operand.value]


@dataclass(slots=True)
class _Slot:
    """A part of the arena that buffers take in turns; as large as the largest of them."""

    nbytes: Extent
    members: list[Lifetime]


def place_slots(lifetimes: Sequence[Lifetime], step: int) -> tuple[list[Extent], Extent]:
    """(offset of each buffer in bytes, size of the arena in bytes), for sizes of a call.

    Buffers share a slot where they are never needed together and one of them is the larger at
    every call: without numbers, gaps cannot be compared.
    """
    order = sorted(range(len(lifetimes)), key=lambda at: (-typical(lifetimes[at].nbytes), at))
    slots: list[_Slot] = []
    slot_of: dict[int, _Slot] = {}
    for at in order:
        row = lifetimes[at]
        nbytes = -(-row.nbytes // step) * step
        slot = next((each for each in slots if _fits(row, nbytes, each)), None)
        if slot is None:
            slot = _Slot(nbytes, [])
            slots.append(slot)
        slot.members.append(row)
        slot_of[at] = slot
        if proves_at_most(slot.nbytes, nbytes):
            slot.nbytes = nbytes
    starts: dict[int, Extent] = {}
    end: Extent = 0
    for slot in slots:
        starts[id(slot)] = end
        end = end + slot.nbytes
    return [starts[id(slot_of[at])] for at in range(len(lifetimes))], end


def _fits(row: Lifetime, nbytes: Extent, slot: _Slot) -> bool:
    if any(row.meets(other) for other in slot.members):
        return False
    return proves_at_most(nbytes, slot.nbytes) or proves_at_most(slot.nbytes, nbytes)

"""The plan stage where sizes depend on the call: variants for ranges of sizes → DynamicPlan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.size import Dim, Extent, proves_at_most, typical
from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.form import ChosenKernel
from aotc.aot.plan.sizes import SizeTable
from aotc.aot.plan.wiring import Operand, Wiring
from aotc.runtime.dynamic_plan import DynamicPlan
from aotc.runtime.plan import ALIGNMENT_BYTES, DYNAMIC_ABI, Kernel


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
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    rows = [_variant(variant, table, numbers, step) for variant in variants]
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


def _variant(
    variant: Variant, table: SizeTable, numbers: dict[str, int], step: int
) -> dict[str, Any]:
    """A variant as the plan's map."""
    lifetimes = list(variant.wiring.buffers)
    scratch: list[list[int]] = []
    for number, kernel in enumerate(variant.chosen):
        scratch.append([])
        for each in kernel.scratch:
            assert not each.is_zeroed  # such candidates are not offered for sizes of a call
            scratch[number].append(len(lifetimes))
            name = f"{number} scratch {each.name}"
            lifetimes.append(Lifetime(name, each.nbytes, number, number))
    offsets, total = place_slots(lifetimes, step)
    launches = []
    for number, (launch, kernel) in enumerate(
        zip(variant.wiring.launches, variant.chosen, strict=True)
    ):
        args = [_argument(operand, offsets, table) for operand in launch.operands]
        args += [["int", table.reference(size)] for size in kernel.sizes]
        args += [["arena", table.reference(offsets[at])] for at in scratch[number]]
        grid = [table.reference(extent) for extent in kernel.grid]
        launches.append({"kernel": numbers[kernel.symbol], "grid": grid, "args": args})
    return {
        "ranges": [[dim.low, dim.high] for dim in variant.dims],
        "arena_bytes": table.reference(total),
        "zeroed_bytes": 0,
        "buffers": [
            {
                "name": row.name,
                "nbytes": table.reference(row.nbytes),
                "offset": table.reference(offset),
            }
            for row, offset in zip(lifetimes, offsets, strict=True)
        ],
        "launches": launches,
    }


def _argument(operand: Operand, offsets: Sequence[Extent], table: SizeTable) -> list[Any]:
    if operand.space == "buffer":
        return ["arena", table.reference(offsets[int(operand.value)])]
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

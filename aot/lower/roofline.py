"""A roofline model of matmul kernels on GPUs: nanoseconds of a choice, to rank them by."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from aotc.aot.schedule.traits import TargetTraits

if TYPE_CHECKING:
    from aotc.aot.lower.matmul_space import Choice


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates of one GPU; all per nanosecond, those of a multiprocessor where not said otherwise."""

    multiprocessors: int
    shared_bytes: int
    has_tensor_copies: bool
    has_maps: bool  # launches make tensor descriptors
    dot_operations: float  # bf16 operations of the tensor cores
    shared_rate: float  # bytes in and out of shared memory
    cache_rate: float  # bytes from the second-level cache, all multiprocessors together
    memory_rate: float  # bytes from memory, all multiprocessors together
    launch_ns: float = 2000.0
    fill_ns: float = 1200.0  # until the first tiles have come
    step_ns: float = 60.0  # of one step of the loop, beside its work
    descriptor_ns: float = 700.0  # to make the tensor descriptors
    reduction_ns: float = 1800.0  # to write partials, count, and read them


def machine_of(traits: TargetTraits) -> Machine:
    """The rates of a target's row."""
    return Machine(
        multiprocessors=traits.multiprocessors,
        shared_bytes=traits.shared_bytes,
        has_tensor_copies=traits.shared_bytes >= 227 << 10,
        has_maps=traits.has_maps,
        dot_operations=7490.0,
        shared_rate=225.0,
        cache_rate=8000.0,
        memory_rate=1 / traits.byte_ns,
    )


def nanoseconds(choice: Choice, machine: Machine) -> float:
    """Expected time of one launch."""
    problem, tile, style = choice.problem, choice.tile, choice.style
    size = problem.itemsize_bytes
    programs = choice.tiles * choice.split * problem.batch
    traffic = problem.operand_bytes + problem.result_bytes
    memory_ns = traffic / machine.memory_rate
    if style.template == "gemv":
        return machine.launch_ns + max(memory_ns, 1.0) * _gemv_waste(choice, machine)
    resident = max(1, min(machine.shared_bytes // max(1, choice.shared_bytes), 16 // tile.warps))
    busy = min(programs, machine.multiprocessors)
    waves = ceil(programs / machine.multiprocessors)
    steps = ceil(problem.depth / tile.depth / choice.split)
    area = tile.rows * tile.columns * tile.depth
    loaded = (tile.rows + tile.columns) * tile.depth * size
    reread = (tile.rows + tile.columns * max(1, tile.rows // 64)) * tile.depth * size
    step = max(
        2 * max(tile.rows, 64) * tile.columns * tile.depth / machine.dot_operations,
        (loaded + reread) / machine.shared_rate,
        loaded * busy / machine.cache_rate,
    )
    step += machine.step_ns * (area / (128 * 128 * 64)) ** 0.25 / min(resident, waves)
    stored = tile.rows * tile.columns * size * busy / machine.cache_rate
    total = machine.launch_ns + machine.fill_ns + waves * (steps * step + stored)
    if style.template != "persistent":
        total += (ceil(waves / resident) - 1) * machine.fill_ns * 0.5
    if style.has_descriptors and not style.has_maps:
        total += machine.descriptor_ns
    if choice.split > 1:
        partial = choice.partial_bytes / choice.split
        total += machine.reduction_ns + partial * (1 + choice.split) / machine.cache_rate
    return max(total, machine.launch_ns + memory_ns * 1.1)


def _gemv_waste(choice: Choice, machine: Machine) -> float:
    """How much longer than its bytes a kernel without tensor cores takes."""
    programs = choice.tiles * choice.problem.batch
    idle = ceil(programs / machine.multiprocessors) * machine.multiprocessors / programs
    return 1.1 * idle + 0.02 * choice.tile.rows

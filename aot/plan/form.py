"""The plan stage: wiring and the chosen kernels → LaunchPlan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import Extent, fixed
from aotc.aot.lower.spec import Scratch, TensorMap
from aotc.aot.plan.arena import Lifetime, aligned, place
from aotc.aot.plan.wiring import CheckRow, LaunchWiring, Operand, Wiring, wire
from aotc.aot.schedule.group import Schedule
from aotc.runtime.bundle.plan import (
    ALIGNMENT_BYTES,
    NATIVE_ABI,
    PLAN_ABI,
    STATE_ABI,
    TORCH_ABI,
    Argument,
    Buffer,
    Check,
    Image,
    Kernel,
    Launch,
    LaunchPlan,
)
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall

GPU_ALIGNMENT_BYTES = 256  # of buffers: what descriptors, vector loads and sectors ask for
ZEROED = "zeroed scratch"


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


def plan(schedule: Schedule, chosen: Sequence[ChosenKernel], scratch_bytes: int) -> LaunchPlan:
    """One launch a group, in the schedule's order; `chosen[i]` is the kernel of group i.

    Inputs and outputs are the caller's memory, constants are weights by name, all other roots are
    parts of the arena. No kernel's store overlaps with what it reads.
    """
    return plan_wired(wire(schedule), chosen, scratch_bytes)


def plan_wired(wiring: Wiring, chosen: Sequence[ChosenKernel], scratch_bytes: int) -> LaunchPlan:
    """The same of a schedule's wiring."""
    arena = _lay_out(wiring, chosen)
    kernels = {kernel.symbol: kernel for kernel in chosen}
    numbers = {symbol: number for number, symbol in enumerate(kernels)}
    launches = [
        Launch(
            numbers[kernel.symbol],
            _grid(kernel),
            (*_arguments(launch, kernel, arena), *scratch),
            tuple(row.placed() for row in kernel.maps),
        )
        for launch, kernel, scratch in zip(wiring.launches, chosen, arena.scratch, strict=True)
    ]
    natives = tuple(
        kernel.native.launch(number) for number, kernel in enumerate(chosen) if kernel.native
    )
    return LaunchPlan(
        abi=_abi(wiring, bool(natives)),
        arena_bytes=arena.nbytes,
        scratch_bytes=scratch_bytes,
        buffers=arena.buffers,
        kernels=tuple(Kernel(row.symbol, row.name, row.image) for row in kernels.values()),
        launches=tuple(launches),
        zeroed_bytes=arena.zeroed_bytes,
        calls=tuple(_call(row, arena) for row in wiring.calls),
        natives=natives,
        states=wiring.states,
        checks=tuple(_check(row) for row in wiring.checks),
    )


def _check(row: CheckRow) -> Check:
    return Check(row.kind, row.operation, row.place, fixed(row.low), fixed(row.high))


def _abi(wiring: Wiring, has_natives: bool) -> int:
    """The least that can say it."""
    if wiring.states:
        return STATE_ABI
    if has_natives:
        return NATIVE_ABI
    return TORCH_ABI if wiring.calls else PLAN_ABI


def _arguments(launch: LaunchWiring, kernel: ChosenKernel, arena: _Arena) -> list[Argument]:
    """The memory of the launch's operands; of a native function, in the order of its tensors."""
    found = [arena.argument(operand) for operand in launch.operands]
    return found if kernel.native is None else [found[row[0]] for row in kernel.native.tensors]


def _call(row: TorchCall, arena: _Arena) -> TorchCall:
    """The call with the arena's offsets in place of buffers' numbers."""

    def placed(each: CallTensor) -> CallTensor:
        return CallTensor(each.dtype, arena.memory(*each.memory), each.shape)

    results = [each and placed(each) for each in row.results]
    return TorchCall(row.op, row.after, list(map(placed, row.operands)), results, row.arguments)


def _grid(kernel: ChosenKernel) -> tuple[int, int, int]:
    x, y, z = map(fixed, kernel.grid)
    return x, y, z


@dataclass(frozen=True, slots=True)
class _Arena:
    """Where everything lies: the wiring's buffers come first in `buffers`, in their order."""

    buffers: tuple[Buffer, ...]
    scratch: tuple[tuple[Argument, ...], ...]  # of each launch
    nbytes: int
    zeroed_bytes: int

    def argument(self, operand: Operand) -> Argument:
        space, value = self.memory(operand.space, operand.value)
        return (space, int(value) + operand.start_bytes) if space == "arena" else (space, value)

    def memory(self, space: str, value: int | str) -> Argument:
        return ("arena", self.buffers[int(value)].offset) if space == "buffer" else (space, value)


def _lay_out(wiring: Wiring, chosen: Sequence[ChosenKernel]) -> _Arena:
    """Scratch lies in the arena for the length of its launch. The zeroed scratch of all launches
    shares the arena's first bytes, since each leaves it zero."""
    is_gpu = any(kernel.image is not None for kernel in chosen)
    step = GPU_ALIGNMENT_BYTES if is_gpu else ALIGNMENT_BYTES
    zeroed_total = max((zeroed_bytes(kernel, step) for kernel in chosen), default=0)
    rows = list(wiring.buffers)
    for number, kernel in enumerate(chosen):
        for each in kernel.scratch:
            if not each.is_zeroed:
                step_number = wiring.step(number)
                name = f"{number} scratch {each.name}"
                rows.append(Lifetime(name, each.nbytes, step_number, step_number))
    offsets, arena_bytes = place(rows, step)
    buffers = [
        Buffer(row.name, zeroed_total + offset, fixed(row.nbytes))
        for row, offset in zip(rows, offsets, strict=True)
    ]
    plain = iter(buffers[len(wiring.buffers) :])
    scratch = tuple(_scratch_arguments(kernel, plain, step) for kernel in chosen)
    if zeroed_total:
        buffers.append(Buffer(ZEROED, 0, zeroed_total))
    return _Arena(tuple(buffers), scratch, zeroed_total + arena_bytes, zeroed_total)


def zeroed_bytes(kernel: ChosenKernel, step: int) -> int:
    """Zeroed scratch of a launch, each part aligned to `step` bytes."""
    return sum(aligned(fixed(each.nbytes), step) for each in kernel.scratch if each.is_zeroed)


def _scratch_arguments(
    kernel: ChosenKernel, plain: Iterator[Buffer], step: int
) -> tuple[Argument, ...]:
    """The addresses of a launch's scratch; `plain` are the next buffers that are not zeroed."""
    arguments: list[Argument] = []
    zeroed_end = 0
    for each in kernel.scratch:
        if each.is_zeroed:
            arguments.append(("arena", zeroed_end))
            zeroed_end += aligned(fixed(each.nbytes), step)
        else:
            arguments.append(("arena", next(plain).offset))
    return tuple(arguments)

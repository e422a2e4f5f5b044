"""Guard bytes around all memory that a session's kernels write to, looked at after each call.

Inputs, outputs, states, scratch and the parts of the arena lie between bytes of one value, of which
floats are NaN and integers -1: who reads them and counts on it gives other numbers than eager, and
who writes there is found here. Parts of the arena that share bytes stay together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.runtime.bundle.plan import Buffer, LaunchPlan
from aotc.runtime.drivers import memory
from aotc.runtime.drivers.cpu import driver as cpu
from aotc.runtime.programs.session import Session

GUARD_BYTES = 1024  # on either side, a multiple of all alignments
VALUE = 0xFF
_Spans = list[tuple[str, int, int]]  # name, address, bytes


class WritesBeside(Exception):
    """A kernel wrote to memory that is not its own."""


@dataclass(slots=True)
class Block:
    """Memory for one array of a call between two guards."""

    name: str
    nbytes: int
    memory: Any
    address: int

    @classmethod
    def of(cls, name: str, nbytes: int) -> Block:
        """Memory whose bytes are all `VALUE`."""
        memory = ctypes.create_string_buffer(nbytes + 3 * GUARD_BYTES)
        start = -(-ctypes.addressof(memory) // GUARD_BYTES) * GUARD_BYTES
        ctypes.memset(start, VALUE, nbytes + 2 * GUARD_BYTES)
        return cls(name, nbytes, memory, start + GUARD_BYTES)

    def spans(self) -> _Spans:
        """Both guards."""
        before, behind = self.address - GUARD_BYTES, self.address + self.nbytes
        return [
            (f"before {self.name}", before, GUARD_BYTES),
            (f"behind {self.name}", behind, GUARD_BYTES),
        ]


def spread(plan: LaunchPlan) -> tuple[LaunchPlan, list[tuple[int, int]]]:
    """The plan with a guard behind each part of its arena, and where the guards lie."""
    islands = list(_islands(plan))
    guards, moved, end = [], [], 0
    for start, stop in islands:
        moved.append((start, stop, end))
        end += -(-(stop - start) // GUARD_BYTES) * GUARD_BYTES + GUARD_BYTES
        guards.append((moved[-1][2] + stop - start, end - moved[-1][2] - (stop - start)))

    def at(offset: int) -> int:
        for start, stop, new in moved:
            if start <= offset < stop or start == offset:
                return new + offset - start
        return offset

    steps = []
    for launch in plan.launches:
        args = [(space, at(value) if space == "arena" else value) for space, value in launch.args]
        steps.append(launch.replace(args=tuple(args)))
    buffers = [Buffer(each.name, at(each.offset), each.nbytes) for each in plan.buffers]
    scratch = plan.scratch_bytes + GUARD_BYTES if plan.scratch_bytes else 0
    new = plan.replace(
        arena_bytes=max(end, plan.arena_bytes),
        buffers=tuple(buffers),
        steps=tuple(steps),
        scratch_bytes=scratch,
    )
    return new, guards


def _islands(plan: LaunchPlan) -> Iterator[tuple[int, int]]:
    """Parts of the arena that share no bytes; the first begins with what must be zero."""
    spans = sorted((each.offset, each.offset + each.nbytes) for each in plan.buffers)
    begun: tuple[int, int] | None = (0, plan.zeroed_bytes) if plan.zeroed_bytes else None
    for start, stop in spans:
        if begun is not None and start < begun[1]:
            begun = begun[0], max(begun[1], stop)
            continue
        if begun is not None:
            yield begun
        begun = start, stop
    if begun is not None:
        yield begun


def put_up() -> None:
    """From now on the sessions of this process have guards."""
    Session._enter = _guarded_enter  # type: ignore[method-assign]
    cpu.Executable.session = _guarded_native  # type: ignore[method-assign]
    memory.offsets_of = _offsets_of


def take_down() -> None:
    """Sessions that are made from now on have none."""
    Session._enter = _FIRST_ENTER  # type: ignore[method-assign]
    cpu.Executable.session = _FIRST_NATIVE  # type: ignore[method-assign]
    memory.offsets_of = _FIRST_OFFSETS


_FIRST_ENTER, _FIRST_NATIVE = Session._enter, cpu.Executable.session
_FIRST_OFFSETS = memory.offsets_of
_FIXED: dict[int, _Spans] = {}  # of sessions of the driver that no call met yet, by their id


def _offsets_of(slots: Sequence[Any], alignment: int) -> tuple[list[int], int]:
    offsets, end = [], 0
    for slot in slots:
        offsets.append(end)
        end += -(-max(1, slot.nbytes) // alignment) * alignment + GUARD_BYTES
    return offsets, end


def _guarded_native(executable: Any, shared: Any = None) -> Any:
    """A session of the driver with an arena of its own, whoever would share one."""
    plan = executable.plan
    if plan.calls or plan.natives or (shared is not None and plan.states):
        on_driver = _FIRST_NATIVE(executable, shared)
        _FIXED[id(on_driver)] = []
        return on_driver
    wide, guards = spread(plan)
    on_driver = _FIRST_NATIVE(executable.at(wide))
    base = on_driver.arena_address
    ctypes.memset(base + plan.zeroed_bytes, VALUE, wide.arena_bytes - plan.zeroed_bytes)
    spans = [("in the arena", base + start, count) for start, count in guards]
    scratch = on_driver._blocks[0].scratch
    stride = scratch.nbytes // executable.threads
    if plan.scratch_bytes:
        for number in range(executable.threads):
            first = scratch.address + number * stride + plan.scratch_bytes
            spans.append(("behind scratch memory", first, stride - plan.scratch_bytes))
    for slot, address in zip(plan.states, on_driver.states.addresses, strict=True):
        spans.append(("behind a state", address + max(1, slot.nbytes), GUARD_BYTES))
    for _, address, count in spans:
        ctypes.memset(address, VALUE, count)
    _FIXED[id(on_driver)] = spans
    return on_driver


def _guarded_enter(session: Any, instance: Any) -> None:
    on_driver = instance.on_driver
    if id(on_driver) in _FIXED:
        on_driver.run = _guarded_run(instance, _FIXED.pop(id(on_driver)))
    _FIRST_ENTER(session, instance)


def _guarded_run(instance: Any, fixed: _Spans) -> Callable[[], None]:
    """A run on copies of inputs and outputs between guards."""
    on_driver, first = instance.on_driver, instance.on_driver.run
    inputs = [Block.of(f"input `{each.name}`", each.nbytes) for each in instance.inputs]
    outputs = [Block.of(f"output `{each.name}`", each.nbytes) for each in instance.outputs]
    blocks = [*inputs, *outputs]
    guards = [*fixed, *(span for block in blocks for span in block.spans())]

    def run() -> None:
        given = on_driver.addresses[:]
        for block, address in zip(inputs, given, strict=False):
            if block.nbytes and address:
                ctypes.memmove(block.address, address, block.nbytes)
        on_driver.addresses[:] = [block.address for block in blocks]
        try:
            first()
        finally:
            on_driver.addresses[:] = given
        for block, address in zip(outputs, given[len(inputs) :], strict=True):
            if block.nbytes:
                ctypes.memmove(address, block.address, block.nbytes)
        check(guards)
        for block, address in zip(inputs, given, strict=False):
            if block.nbytes and address:
                own, theirs = (ctypes.string_at(each, block.nbytes)
                               for each in (block.address, address))  # fmt: skip
                if own != theirs:
                    raise WritesBeside(f"a kernel wrote to {block.name}")

    return run


def check(spans: _Spans) -> None:
    """Raise where a guard is not as it was made, and make it anew."""
    for name, address, count in spans:
        found = ctypes.string_at(address, count)
        if found != bytes([VALUE]) * count:
            ctypes.memset(address, VALUE, count)
            at = next(place for place, byte in enumerate(found) if byte != VALUE)
            raise WritesBeside(f"a kernel wrote {name}, {at} bytes into its guard")

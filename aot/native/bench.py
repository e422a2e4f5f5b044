"""A native function among the candidates that are measured on a device.

It is called as a plan would call it, once for each launch, and adds its work to the stream: what a
call costs the host is in its time, as it is in a program's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.native import CALL, NativeCall
from aotc.aot.ir.size import typical
from aotc.aot.measure.program import Program
from aotc.aot.targets.cuda.measure import Loaded
from aotc.runtime.backends.library import open_bytes
from aotc.runtime.backends.steps import BoundNative, DeviceStep
from aotc.runtime.drivers.cuda.driver import DEVICE


class LoadedFunction(Loaded):
    """A function that is ready to be measured, with its workspace."""

    purpose = "workspace of a function that is measured"

    def __init__(self, bench: Any, program: Program) -> None:
        super().__init__(bench)
        self._program = program
        self._steps: list[DeviceStep] = []

    def _load(self) -> None:
        """Raises what a plan raises that calls the function."""
        call = CALL.at(NativeCall.parse(self._program.native), typical)
        library = open_bytes(self._program.code, call.sha256, call.backend)
        place = (DEVICE, self._device.ordinal)
        function = library.function(call.function)
        with self._device.current():
            workspaces = [("arena", self._memory(nbytes)) for nbytes, _ in self._program.scratch]
            for number in range(self._bench.launches):
                memory = [("arena", address) for address in self._bench.addresses(number)]
                step = call.step(memory, 1, workspaces[0] if workspaces else None)
                bound = BoundNative(step, function, place)
                if not number:
                    bound.check("the tuning")
                    is_placed = bool(workspaces) or not bound.needed_bytes
                    workspace = 0 if is_placed else self._memory(bound.needed_bytes)
                self._steps.append(DeviceStep(bound, lambda _, address: int(address), workspace))

    def launch(self, stream: int) -> None:
        """One call on the first copies."""
        self._run(self._steps[:1], stream)

    def graph(self) -> Calls:
        """All calls, in the place of a graph."""
        return Calls(lambda stream: self._run(self._steps, stream))

    def _run(self, steps: Sequence[DeviceStep], stream: int) -> None:
        with self._device.current():
            for step in steps:
                step(_nothing_changes, stream)


@dataclass(frozen=True, slots=True)
class Calls:
    """What a bench replays."""

    launch: Callable[[int], None]  # on a stream


def _nothing_changes(space: str, index: int) -> int:
    raise AssertionError(f"{space} {index} has no address of its own")

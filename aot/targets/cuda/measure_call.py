"""Measures a whole call on a CUDA device: its graph of launches, with each kernel's candidates in
turn in their places.

A kernel that is measured by itself follows launches of its own kind. In a call it follows others,
begins while they end, meets in the cache what they left there, and keeps the next one waiting.
`measure_call` runs in a process that may be lost, as `measure` does.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from aotc.aot.measure.call import CallMeasurement
from aotc.aot.measure.device_lock import device_turn
from aotc.aot.targets.cuda.measure import LoadedProgram, OnDevice, device_of, ordinals_of

SAMPLE_MS = 3.0  # one sample replays the graph until it is this long
REPLAYS_LIMIT = 400
ROUNDS = 7  # of samples in turns; medians count
GAIN = 0.003  # of the call, below which a kernel keeps the candidate that it has

# Of weights: sums of a thousand products are about as large as what was multiplied, and do not grow
# from layer to layer.
WEIGHT_DEVIATION = 1 / 32

Found = tuple[float, float, list[int]]


def measure_call(data: bytes) -> Found:
    """Microseconds of a call with the first candidates and with those that were found, and for each
    group of kernels the place of those that were found. Raises DeviceDiffers, DeviceLost,
    DeviceMemoryFull."""
    task = CallMeasurement.from_bytes(data)
    with (
        device_turn(*ordinals_of(task.device)) as ordinal,
        CallBench(device_of(ordinal), task) as bench,
    ):
        return bench.measure()


class CallBench(OnDevice):
    """A call's memory and candidates on a device.

    addresses: those of a launch's pointers, by its number; launches: of the call.
    """

    purpose = "the memory of a call that is measured"

    def __init__(self, device: Any, task: CallMeasurement) -> None:
        """Fill all memory and load all candidates."""
        self.launches = len(task.launches)
        self._task = task
        counts = {kernel.group: len(kernel.programs) for kernel in task.kernels}
        self._counts = [counts[group] for group in range(len(counts))]  # of each group's candidates
        super().__init__(device)

    def _fill(self) -> None:
        self._blocks = [
            self.filled(row, WEIGHT_DEVIATION if row.role == "weight" else 1.0)
            for row in self._task.blocks
        ]
        self._programs = [
            [self._stack.enter_context(LoadedProgram(self, each)) for each in kernel.programs]
            for kernel in self._task.kernels
        ]
        self.device.synchronize()

    def addresses(self, number: int) -> list[int]:
        """See the class."""
        operands = self._task.launches[number].operands
        return [self._blocks[block] + offset for block, offset in operands]

    def measure(self) -> Found:
        """Each group in turn takes the candidates with which the call is the fastest, and once more
        where others have changed since."""
        first = [0] * len(self._counts)
        chosen = self._swept(first)
        if chosen != first:
            chosen = self._swept(chosen)
        first_us, last_us = self._times([first, chosen])  # beside each other
        if last_us > first_us * (1 - GAIN):
            chosen, last_us = first, first_us
        return first_us, last_us, chosen

    def _swept(self, chosen: list[int]) -> list[int]:
        """What each group takes in turn, from these choices on."""
        for number, count in enumerate(self._counts):
            if count == 1:
                continue
            before, now, behind = chosen[:number], chosen[number], chosen[number + 1 :]
            tried = [[*before, each, *behind] for each in range(count)]
            times_us = self._times(tried)
            best = min(range(count), key=times_us.__getitem__)
            if times_us[best] <= times_us[now] * (1 - GAIN):
                chosen = tried[best]
        return chosen

    def _times(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """Microseconds of the call with each of these choices: medians of rounds in turns."""
        with ExitStack() as stack:
            graphs = [stack.enter_context(closing(self._graph(row))) for row in rows]
            samples = [self._sampler(graph) for graph in graphs]
            rounds = [[sample() for sample in samples] for _ in range(ROUNDS)]
        return [statistics.median(column) for column in zip(*rounds, strict=True)]

    def _graph(self, chosen: Sequence[int]) -> Any:
        graph = self.device.graph()
        try:
            with graph:
                for number, launch in enumerate(self._task.launches):
                    place = chosen[self._task.kernels[launch.kernel].group]
                    self._programs[launch.kernel][place].add(graph, number)
            graph.instantiate()
        except BaseException:
            graph.close()
            raise
        return graph

    def _sampler(self, graph: Any) -> Callable[[], float]:
        self.replay_ms(graph, 1)  # this one meets cold instructions
        replays = math.ceil(SAMPLE_MS / max(self.replay_ms(graph, 1), 1e-3))
        replays = max(1, min(REPLAYS_LIMIT, replays))
        return lambda: self.replay_ms(graph, replays) / replays * 1e3

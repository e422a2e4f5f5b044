"""Who measures kernels of a target: tasks for the devices that an executor has.

The candidates of a kernel are one task (`aot/measure/program.py`), measured by the family's own
function. Several kernels are in flight where the executor has several devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

from aotc.aot.extensions import extension
from aotc.aot.ir.native import NativeCall
from aotc.aot.ir.size import typical
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.measure.program import Buffer, Measurement, Program, ask
from aotc.aot.measure.sampling import fastest
from aotc.aot.targets.families import FAMILIES
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Batch, Devices, Executor, Outcome, Request
from aotc.aot.tune.job import SPILL_LIMIT_BYTES, Job, Operand, Option
from aotc.aot.tune.record import Choice
from aotc.runtime.bundle.native_plan import SYMBOL

# What a launch takes roughly, for the length of what is measured.
BYTES_PER_US = 3.5e6
OPERATIONS_PER_US = 4e8
LARGE = b"\x3f"  # bytes of a large whole number of any width

Work = tuple[Job, list[Option]]
Asking = Generator[Request, Outcome, list[float]]  # asks as often as it must, then has the times
Report = Callable[[Job, str], None]  # what is being tried, and the best so far


class Measurer:
    """The devices of one name that kernels of one target are measured on."""

    def __init__(
        self,
        target: Target,
        support_code: Mapping[str, bytes],
        devices: Devices,
        function: str = "",
    ) -> None:
        """`function` takes the place of the family's own (empty: it does not)."""
        family = FAMILIES[target.device]
        self.is_apart = family.is_apart  # compiling does not disturb it
        self.devices = devices
        self._family = target.device
        self._support_code = tuple(sorted(support_code.items()))
        self._function = function or family.measure

    def measure_each(
        self, work: Iterator[Work], report: Report
    ) -> Iterator[tuple[Job, list[Option], list[float]]]:
        """Each job with its options and median microseconds of a launch of each, as they end.

        Infinite for an option that is too wasteful to run, fails, or gives other numbers than the
        first. Raises TaskError where the devices themselves fail.
        """
        executor = self.devices.executor
        with executor.begin() as batch:
            flights: dict[int, tuple[Job, list[Option], Asking]] = {}
            results = batch.results()
            for job, options in work:
                asking = self._times(job, options, report)
                flights[batch.submit(next(asking))] = job, options, asking
                while len(flights) >= executor.queued * executor.count:
                    yield from self._advance(batch, results, flights)
            while flights:
                yield from self._advance(batch, results, flights)

    @property
    def runs_functions(self) -> bool:
        """Whether more can be asked for than measurements of single kernels."""
        return self.devices.executor.runs_functions

    def close(self) -> None:
        """Give the devices back."""
        self.devices.executor.close()

    def _advance(
        self,
        batch: Batch,
        results: Iterator[tuple[int, Outcome]],
        flights: dict[int, tuple[Job, list[Option], Asking]],
    ) -> Iterator[tuple[Job, list[Option], list[float]]]:
        """Take one result: the times of a job, or what it asks next."""
        number, outcome = next(results)
        job, options, asking = flights.pop(number)
        try:
            request = asking.send(outcome)
        except StopIteration as ended:
            yield job, options, ended.value
        else:
            flights[batch.submit(request)] = job, options, asking

    def _times(self, job: Job, options: Sequence[Option], report: Report) -> Asking:
        is_tried = [option.binary.spill_bytes <= SPILL_LIMIT_BYTES for option in options]
        tried = [index for index in range(len(options)) if is_tried[index] or not any(is_tried)]
        report(job, f"{len(tried)} of {len(options)} candidates")
        task = self._task(job.spec, job.operands, [options[index] for index in tried])
        rows = yield from ask(task, self._function)
        times_us = [math.inf] * len(options)
        for index, (time_us, _) in zip(tried, rows, strict=True):
            times_us[index] = time_us
        best = fastest(times_us)[0]
        choice, first_us = Choice.of(options[best].candidate), times_us[0]
        report(
            job,
            f"best {times_us[best]:.2f} µs, the cost model's choice {first_us:.2f} µs: {choice}",
        )
        return times_us

    def _task(
        self, spec: KernelSpec, operands: Sequence[Operand], options: Sequence[Option]
    ) -> Measurement:
        expected_us = max(spec.bytes / BYTES_PER_US, spec.operations / OPERATIONS_PER_US)
        buffers = [
            buffer_of(param.type.removeprefix("*"), operand, spec.are_most)
            for param, operand in zip(spec.params, operands, strict=True)
        ]
        return Measurement(
            format="aotc.measurement/1",
            kernel=spec.name,
            family=self._family,
            device=self.devices.name if self.devices.is_elsewhere else "",
            support_code=self._support_code,
            buffers=tuple(buffers),
            programs=tuple(program_of(spec, option) for option in options),
            expected_ns=int(expected_us * 1e3),
        )


def measurer_for(
    target: Target, support_code: Mapping[str, bytes], executor: Executor
) -> Measurer | None:
    """The devices of the executor that run the target; None where it has none."""
    is_apart = FAMILIES[target.device].is_apart
    devices = executor.devices(target.device, target.needs, is_apart)
    return None if devices is None else Measurer(target, support_code, devices)


def buffer_of(kind: str, operand: Operand, are_most: bool) -> Buffer:
    """An operand's memory. Zeros as whole numbers would have attention read no key of a cache:
    where they say how much is read, they are large ones, which kernels take for the most."""
    is_read = operand.role == "read" and kind[1:].isdigit() and kind[0] == "i" and kind != "i1"
    data = LARGE * operand.nbytes if are_most and is_read else b""
    return Buffer(kind, operand.nbytes, operand.role, data)


def program_of(spec: KernelSpec, option: Option) -> Program:
    """A candidate at typical sizes."""
    binary, candidate = option.binary, option.candidate
    form, code, native = spec.form(candidate), binary.code, ""
    if form.function == SYMBOL:
        native = form.source
        code = extension("native libraries").tied(NativeCall.parse(native).backend).data
    x, y, z = map(typical, candidate.grid)
    return Program(
        binary.symbol,
        code,
        (x, y, z),
        binary.threads,
        binary.shared_bytes,
        binary.scratch_bytes,
        tuple((typical(row.nbytes), row.is_zeroed) for row in candidate.scratch),
        tuple(dim.typical for dim in spec.sizes),
        tuple(row.placed(typical) for row in candidate.maps),
        native,
        binary.is_programmatic,
    )

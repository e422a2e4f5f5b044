"""What is measured, as bytes that go to any machine: a kernel's buffers and compiled candidates."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self

from aotc.aot.tasks.task import Outcome, Request
from aotc.runtime.bundle.canonical import Limits, decode, encode
from aotc.runtime.bundle.plan_parts import GRID, MAPS, Map
from aotc.runtime.bundle.schema import (
    FILE_NAME,
    FLOAT,
    Choice,
    Flag,
    Integer,
    List,
    Matching,
    Row,
    Text,
    read,
    write,
)
from aotc.runtime.record import Record, field

Rows = list[tuple[float, str]]  # microseconds of a launch, and why it may not be used

LIMITS = Limits(file_bytes=1 << 30, values=1 << 18, depth=16, text_bytes=1 << 20)
NBYTES = Integer(0, 1 << 44)
CODE = Matching(bytes, lambda value: True, "bytes")
REASON = Matching(str, lambda value: True, "text")
PROGRAMS_LIMIT = 4096
TIMEOUT_SECONDS = 60.0  # of all programs of one kernel


class Sent(Record):
    """What goes between machines as canonical MessagePack."""

    @classmethod
    def from_bytes(cls, data: bytes, path: str = "the task") -> Self:
        """Read and check; raises BundleMalformed, BundleLimit, BundleTruncated."""
        found: Self = read(cls, decode(data, LIMITS, path), path)
        return found

    def to_bytes(self) -> bytes:
        """Equal for equal values, so that a task's digest names it."""
        return encode(write(type(self), self))


class Buffer(Record):
    """A parameter of the kernel: Triton's type without its star, bytes, and role (see Operand).

    data: what is there before each call, of so many bytes; empty for a pattern of the type.
    """

    kind: str = field(Text(16))
    nbytes: int = field(NBYTES)
    role: str = field(Choice("weight", "read", "stored"))
    data: bytes = field(CODE, default=b"")


class Program(Record):
    """A compiled candidate: its object or cubin, and what a launch of it takes.

    Of a native function `code` is the library.
    """

    symbol: str = field(Text(256))
    code: bytes = field(CODE)
    grid: tuple[int, int, int] = field(GRID)
    threads: int = field(Integer(0, 1 << 16))
    shared_bytes: int = field(NBYTES)
    scratch_bytes: int = field(NBYTES)  # of each thread on the CPU, of each program on a device
    # Size in bytes of each scratch, and if it is zeroed.
    scratch: tuple[tuple[int, bool], ...] = field(List(Row(NBYTES, Flag()), limit=64), default=())
    sizes: tuple[int, ...] = field(List(NBYTES, limit=256), default=())  # after the pointers
    maps: tuple[Map, ...] = field(MAPS, default=())
    native: str = field(REASON, default="")  # the call of a native function, as a kernel's text
    is_programmatic: bool = field(Flag(), default=False)  # waits by itself for the launch before it


class Measurement(Sent):
    """One task: the candidates of one kernel, to be measured on one kind of device."""

    format: str = field(Choice("aotc.measurement/1"))
    kernel: str = field(REASON)  # its name, for people
    family: str = field(Text(64))  # of devices: `cuda`
    device: str = field(Text(256, least=0))  # as tuning records call it; empty for the first here
    support_code: tuple[tuple[str, bytes], ...] = field(List(Row(FILE_NAME, CODE), limit=16))
    buffers: tuple[Buffer, ...] = field(List(Buffer, limit=256))
    programs: tuple[Program, ...] = field(List(Program, limit=PROGRAMS_LIMIT, least=1))
    expected_ns: int = field(Integer(0, 1 << 62))  # roughly what a launch takes, from the model

    @property
    def files(self) -> Mapping[str, bytes]:
        """The support code by file name."""
        return dict(self.support_code)


def ask(task: Measurement, function: str) -> Generator[Request, Outcome, Rows]:
    """Ask for all programs at once; where one ends the process, for each alone, and for the sound
    ones at once again. Gives the rows of all; `function` measures."""

    def request(programs: Sequence[Program]) -> Request:
        data = task.replace(programs=tuple(programs)).to_bytes()
        return Request(task.kernel, function, (data,), TIMEOUT_SECONDS)

    outcome = yield request(task.programs)
    if outcome.error is None:
        return list(map(tuple, outcome.value))
    if len(task.programs) == 1:
        return [(math.inf, str(outcome.error).partition("\n")[0])]
    found: Rows = []
    for program in task.programs:
        found += yield from ask(task.replace(programs=(program,)), function)
    sound = [index for index, (time_us, _) in enumerate(found) if time_us < math.inf]
    if sound:
        again = yield request([task.programs[index] for index in sound])
        if again.error is None:  # else the times of each alone must do
            for index, row in zip(sound, again.value, strict=True):
                found[index] = tuple(row)
    return found


class Times(Sent):
    """The result of a task: for each program microseconds of a launch, or why there are none."""

    format: str = field(Choice("aotc.times/1"))
    rows: Any = field(List(Row(FLOAT, REASON), limit=PROGRAMS_LIMIT))

    @classmethod
    def of(cls, rows: Sequence[tuple[float, str]]) -> Self:
        """The rows that a measurement gave."""
        return cls("aotc.times/1", tuple((time_us.hex(), reason) for time_us, reason in rows))

    @property
    def values(self) -> Rows:
        """What `of` was given."""
        return [(float.fromhex(text), reason) for text, reason in self.rows]


def read_times(data: bytes, path: str) -> Rows:
    """The rows of a file of results; raises BundleMalformed, BundleLimit, BundleTruncated."""
    return Times.from_bytes(data, path).values

"""A measurement of a whole call as bytes that can be sent to any machine.

It has the launches in order, and for each kernel the compiled candidates.
"""

from __future__ import annotations

from aotc.aot.measure.program import NBYTES, REASON, Buffer, Program, Sent
from aotc.runtime.bundle.schema import Choice, Integer, List, Row, Text
from aotc.runtime.record import Record, field

LAUNCHES_LIMIT = 1 << 14
BLOCKS_LIMIT = 1 << 16
KERNELS_LIMIT = 4096
TIMEOUT_SECONDS = 180.0  # of all candidates of all kernels of one call


class Launch(Record):
    """A launch: the number of its kernel, and for each pointer a block and the bytes before it."""

    kernel: int = field(Integer(0, KERNELS_LIMIT - 1))
    operands: tuple[tuple[int, int], ...] = field(
        List(Row(Integer(0, BLOCKS_LIMIT - 1), NBYTES), limit=256)
    )


class Kernel(Record):
    """A kernel's candidates; the first is what the call has before anything is tried.

    group: the number of the kernels that are alike, those of the layers of a model, which take the
    candidates of one place together; they have as many.
    """

    name: str = field(REASON)  # for people
    group: int = field(Integer(0, KERNELS_LIMIT - 1))
    programs: tuple[Program, ...] = field(List(Program, limit=16, least=1))


class CallMeasurement(Sent):
    """One task: a call, to be measured on one kind of device with each kernel's candidates.

    blocks: memory that the launches name; kernels: their groups are numbered from those that take
    most of the call on.
    """

    format: str = field(Choice("aotc.call-measurement/1"))
    device: str = field(Text(256, least=0))  # as tuning records call it; empty for the first here
    blocks: tuple[Buffer, ...] = field(List(Buffer, limit=BLOCKS_LIMIT))
    kernels: tuple[Kernel, ...] = field(List(Kernel, limit=KERNELS_LIMIT, least=1))
    launches: tuple[Launch, ...] = field(List(Launch, limit=LAUNCHES_LIMIT, least=1))

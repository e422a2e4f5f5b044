"""What the fake driver keeps books of: memory, streams, events, graphs, launches."""

import ctypes
from dataclasses import dataclass, field

GUARD_BYTES = 256
GUARD = b"\xee" * GUARD_BYTES


@dataclass
class Block:
    """Memory with a guard behind it; address and size in bytes."""

    address: int
    nbytes: int
    keep: object
    is_pinned: bool = False
    copies: int = 0  # that were put off
    is_mapped: bool = False  # pinned, and kernels may write to it
    ordinal: int = 0  # of the device whose context was current

    def guard_is_whole(self):
        """Whether nobody wrote past its end."""
        return ctypes.string_at(self.address + self.nbytes, GUARD_BYTES) == GUARD


@dataclass
class Stream:
    """Work that was put off; each piece is a function without arguments."""

    handle: int
    context: int
    work: list = field(default_factory=list)
    done: int = 0  # pieces finished so far
    added: int = 0


@dataclass
class Event:
    """The end of a stream at the time it was recorded, or never recorded."""

    stream: Stream | None = None
    position: int = 0


@dataclass
class Execution:
    """An instantiated graph: work by node in its order, and its last launch."""

    nodes: dict
    last: Event = field(default_factory=Event)


@dataclass(frozen=True)
class LaunchRow:
    """A kernel that ran: values are its parameters as whole numbers."""

    symbol: str
    grid: tuple
    threads: int
    shared_bytes: int
    values: tuple
    stream: int

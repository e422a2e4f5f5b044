"""Sessions in the order of a stream: what a call on a device copies, keeps and borrows."""

from __future__ import annotations

import sys

from ..drivers.device_array import DeviceMemory
from ..drivers.streams import LEGACY, handle_of
from .session import Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..arrays.port import Port
    from .session import Called


class StreamSession(Session):
    """A session on a device as the kinds of arrays see it.

    stream: the CUstream handle of the call; has_own_stream: whether the caller named it; hold:
    copies that must live until the launch; loans: arrays of other libraries that must live until
    the work is done; memory: for outputs.
    """

    __slots__ = (
        "_chosen",
        "_copies_in",
        "_copies_out",
        "_finish",
        "_is_plain",
        "_lent_bytes",
        "_older_loans",
        "_ordinal",
        "_own_stream",
        "has_own_stream",
        "hold",
        "loans",
        "memory",
    )

    def __init__(self, program: Called, stream: int | None, memory: DeviceMemory) -> None:
        """stream: the CUstream handle of every call that names no other."""
        super().__init__(program)
        self.memory = memory
        self._ordinal = memory.ordinal
        self._own_stream = stream
        self._chosen: int | None = None
        self.has_own_stream = False
        self._finish: Callable[[Any], Any] | None = None
        self.hold: list[Any] = []
        self.loans: list[Any] = []
        self._older_loans: list[Any] = []
        self._lent_bytes = 0
        self._copies_in: list[tuple[int, int]] = []  # (index, host address)
        self._copies_out: list[tuple[int, int]] = []
        self._is_plain = True  # none of the lists above holds anything

    # What the kinds of arrays ask for.

    @property
    def stream(self) -> int:
        """The CUstream handle of this call."""
        if self._chosen is None:
            self._chosen = LEGACY
        return self._chosen

    def torch_stream(self) -> Any:
        """A context in which torch works on the stream of this call."""
        cuda = sys.modules["torch"].cuda
        return cuda.stream(self._torch_stream() if self.has_own_stream else None)

    def follow(self, stream: int) -> None:
        """The call waits for what `stream` holds now."""
        self.memory.order(self.stream, stream)

    def lend(self, array: Any, nbytes: int) -> None:
        """Keep another library's array until the work that reads or writes it is done."""
        self._is_plain = False
        self.loans.append(array)
        self._lent_bytes += nbytes

    def keep(self, copy: Any) -> None:
        """Keep a copy until the launch: its memory is freed in the order of the stream."""
        self._is_plain = False
        self.hold.append(copy)

    def finish_with(self, finish: Callable[[Any], Any] | None) -> None:
        """Have each output go through `finish` after the launch."""
        if finish is not None:
            self._is_plain = False
            self._finish = finish

    def stage_in(self, port: Port, host_address: int) -> int:
        """Copy host memory to the session's own; its device address."""
        self._is_plain = False
        if port.nbytes:
            self._native.copy_in(port.index, host_address)
            self._copies_in.append((port.index, host_address))
        return self._staged(port)

    def stage_out(self, port: Port, host_address: int) -> int:
        """Have the session's own memory copied to the host after the run; its device address."""
        self._is_plain = False
        if port.nbytes:
            self._copies_out.append((port.index, host_address))
        return self._staged(port)

    def _staged(self, port: Port) -> int:
        address: int = self._native.stage(port.index)
        if self._last and self._last[port.index] != address:
            self._last = []  # the driver's addresses are others now, also if this call fails
        return address

    def _torch_stream(self) -> Any:
        device = f"cuda:{self._ordinal}"
        return sys.modules["torch"].cuda.ExternalStream(self.stream, device=device)

    # From call to call.

    def _choose(self, stream: Any) -> int | None:
        """The stream that the call or the session names."""
        self._chosen = self._own_stream if stream is None else handle_of(stream, self._ordinal)
        self.has_own_stream = True
        self._is_plain = False
        return self._chosen

    def _forget(self) -> None:
        """Let go of what the last call kept."""
        self.hold.clear()
        self._copies_in.clear()
        self._copies_out.clear()
        self._finish = None
        self.has_own_stream = False
        self._is_plain = True

    def _launch_stream(self) -> int:
        """The stream of this call: where only host arrays take part, the session's own."""
        if self._chosen is None:
            has_copies = self._copies_in or self._copies_out
            self._chosen = self._native.stream if has_copies else LEGACY
        return self._chosen

    def _give_back_older(self) -> None:
        """Let go of the older half of the loans, once the calls that used it have ended."""
        self._native.reach_mark()
        self._native.mark(self.stream)
        self._older_loans, self.loans = self.loans, []
        self._lent_bytes = 0

    def _free(self) -> None:
        """Free the arena once its work is done."""
        try:
            super()._free()
        finally:
            self.hold.clear()
            self.loans.clear()
            self._older_loans.clear()
            self.memory = DeviceMemory(self._ordinal)  # the old one goes with the last output

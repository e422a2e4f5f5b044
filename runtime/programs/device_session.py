"""Sessions of programs on a device: asynchronous, in the order of a stream.

A call writes the device addresses of inputs and outputs, launches the program's graph on the
stream and returns. Host arrays among the inputs are copied in on the way; where outputs are host
arrays, the call waits for them.
"""

from __future__ import annotations

from ..argument_errors import SessionBusy
from ..arrays.dlpack import Borrowed
from ..drivers.streams import LEGACY, current
from ..errors import InputNotContiguous, ProgramClosed
from .arguments import places
from .device_exchange import (
    DEVICE_KINDS,
    STAGED_BUFFER,
    STAGED_TORCH,
    TORCH_ON_DEVICE,
    device_kind_of,
)
from .session import Bound, refuse_overlap
from .stream_session import StreamSession

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from .device_exchange import DeviceKind


# Loans are kept in two halves. When the newer one is beyond a limit, the calls of the older one
# have ended or are waited for, and it is given back; the newer one becomes the older one.
LENT_BYTES_LIMIT = 64 << 20
LOANS_LIMIT = 128


class DeviceSession(StreamSession):
    """One caller's arena and graph; for one host thread at a time. Called like the program."""

    __slots__ = ()

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Run once; see `Program`. stream: a stream object or handle to run on.

        Raises `SessionBusy` where another thread is in a call of it.
        """
        if not self._turn.acquire(False):
            raise SessionBusy()
        try:
            if self._program._loaded is None or self._loaded is None:
                raise ProgramClosed()
            if not self._is_plain:
                self._forget()
            if stream is None and self._own_stream is None:
                self._chosen = chosen = current(self._ordinal)
            else:
                chosen = self._choose(stream)
            given = self._in_order(arrays, named)
            values = self._fill(given, out, self.hold)
            self._run(self._launch_stream() if chosen is None else chosen)
            if not self._is_plain:
                values = self._complete(given, values)
            return self._program._give(values) if out is None else out
        finally:
            self._turn.release()

    def bind(
        self, arrays: tuple[Any, ...], named: dict[str, Any], out: Any, stream: Any = None
    ) -> Bound:
        """This session with fixed memory; `Program.bind` gives it to nobody else."""
        if stream is None and self._own_stream is None:
            self._chosen = current(self._ordinal)
        else:
            self._choose(stream)
        given = self._in_order(arrays, named)
        values = self._fill(given, out, self.hold)
        if not all(isinstance(each, Borrowed) for each in self.hold):  # a copy would go stale
            raise InputNotContiguous()
        if self._finish is not None:
            values = tuple(map(self._finish, values))
        if self.has_own_stream:
            self._record(given, values)
        outputs = self._program._give(values) if out is None else out
        return Bound(self, self._replay(), outputs, (given, tuple(self.hold), values))

    def _complete(self, arrays: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
        """What a call has to do after its launch; returns its outputs in order."""
        if self._copies_out:
            for index, host_address in self._copies_out:
                self._native.copy_out(index, host_address)
            self._native.synchronize()
        if self._finish is not None:
            values = tuple(map(self._finish, values))
        if self.has_own_stream:
            self._record(arrays, values)
        if self._lent_bytes > LENT_BYTES_LIMIT or len(self.loans) > LOANS_LIMIT:
            self._give_back_older()
        self.hold.clear()
        return values

    def _replay(self) -> Callable[[], None]:
        """What a bound call runs."""
        run, ordinal, native = self._run, self._ordinal, self._native
        fixed = self._chosen if self.has_own_stream else None
        copies_in, copies_out = tuple(self._copies_in), tuple(self._copies_out)

        def replay() -> None:
            run((current(ordinal) or LEGACY) if fixed is None else fixed)

        if not copies_in and not copies_out:
            return replay

        def replay_copied() -> None:
            for index, host_address in copies_in:
                native.copy_in(index, host_address)
            replay()
            for index, host_address in copies_out:
                native.copy_out(index, host_address)
            native.synchronize()

        return replay_copied

    def _in_order(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> Sequence[Any]:
        if named or len(arrays) != self._arity:
            return self._arranged(arrays, named)
        return arrays

    def _fill(self, arrays: Sequence[Any], out: Any, hold: list[Any]) -> Sequence[Any]:
        """Write the addresses of all arrays, inputs in order; returns the outputs in order."""
        ports = self._inputs
        addresses: list[int] = []
        for value in arrays:
            port = ports[len(addresses)]
            kind = DEVICE_KINDS.get(type(value)) or device_kind_of(port, value)
            addresses.append(kind.address(port, value, self))
        if out is None:
            answer: DeviceKind = STAGED_BUFFER
            if arrays:
                answer = DEVICE_KINDS[type(arrays[0])].answer(arrays[0])
            values = self._make_on_device(answer, addresses)
        else:
            values = self._place(out, addresses)
        if addresses != self._last:  # a caller that keeps its arrays pays for this once
            if out is not None:  # fresh outputs meet nothing
                refuse_overlap(ports, self._outputs, addresses)
            self._addresses[:] = addresses
            self._last = addresses
        return values

    def _make_on_device(self, kind: DeviceKind, addresses: list[int]) -> Sequence[Any]:
        values = []
        for port in self._outputs:
            value, address = kind.make(port, self)
            values.append(value)
            addresses.append(address)
        self.finish_with(kind.finish)
        return values

    def _place(self, out: Any, addresses: list[int]) -> Sequence[Any]:
        ports = self._outputs
        values = places(self._program._structure.outputs, self._program.outputs, out)
        for index, value in enumerate(values):
            port = ports[index]
            kind = DEVICE_KINDS.get(type(value)) or device_kind_of(port, value)
            addresses.append(kind.place(port, value, self))
        return values

    def _record(self, arrays: Sequence[Any], values: Sequence[Any]) -> None:
        """Tell torch's allocator that this call's stream uses its tensors."""
        for value in (*arrays, *self.hold, *values):
            kind = DEVICE_KINDS.get(type(value))
            if kind is TORCH_ON_DEVICE and kind.answer(value) is not STAGED_TORCH:
                value.record_stream(self._torch_stream())

"""Sessions on a device: asynchronous, in the order of a stream.

A call writes the device addresses of inputs and outputs, launches the program's graph on the
stream and returns. Host arrays among the inputs are copied in on the way; where outputs are host
arrays, the call waits for them.
"""

from __future__ import annotations

import sys

from ..arrays.buffers import copy_strided
from ..arrays.complexes import is_copy
from ..arrays.dlpack import Borrowed
from ..arrays.port import ports
from ..arrays.strided import copier
from ..bundle.manifest import find_entry
from ..bundle.signature import NO_SIZES
from ..drivers.cuda.device_array import DeviceMemory, device_name
from ..drivers.cuda.exchange import (
    DEVICE_KINDS,
    STAGED_BUFFER,
    STAGED_TORCH,
    TORCH_ON_DEVICE,
    device_kind_of,
)
from ..drivers.cuda.streams import LEGACY, current, handle_of
from ..errors import InputNotContiguous
from .arguments import places
from .session import Bound, Session, refuse_overlap, write_late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ..arrays.port import Port
    from ..bundle.manifest import TensorSpec
    from ..drivers.cuda.exchange import DeviceKind
    from .entry import LoadedEntry
    from .session import Called, Late, Ports

# Borrowed arrays are held in two halves. When the newer one is beyond a limit, the calls of the
# older one have ended or are waited for, and it is released; the newer one becomes the older one.
BORROWED_BYTES_LIMIT = 64 << 20
BORROWED_LIMIT = 128


class DeviceSession(Session):
    """One caller's arena and graphs; for one host thread at a time. Called like the program.

    Calls follow each other on the device, also from shape to shape and from stream to stream. A
    bound call runs on `stream`, or on the stream that is current then, on what its arrays hold;
    host arrays are copied at each call. Arrays of libraries other than torch must be ready on that
    stream.

    To the kinds of arrays it is the call: stream: its CUstream handle; has_own_stream: whether the
    caller named it; hold: copies that must live until the launch; borrowed: arrays of other
    libraries that must live until the work is done; memory: for outputs.
    """

    __slots__ = ("_borrowed_bytes", "_chosen", "_copies_in", "_copies_out", "_finish",
                 "_is_plain", "_older_borrowed", "_ordinal", "_own_stream", "borrowed",
                 "has_own_stream", "hold", "memory")  # fmt: skip

    @staticmethod
    def _on(executable: Any, stream: Any) -> tuple[int, DeviceMemory, int | None]:
        """Where sessions of the code run: the device's number, memory for outputs, and the handle
        of the stream that all of them take; raises `StreamUnreadable` and `StreamForeign`."""
        ordinal: int = executable.device
        handle = None if stream is None else handle_of(stream, ordinal)
        return ordinal, DeviceMemory(ordinal), handle

    @staticmethod
    def _ports(
        executable: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> Ports:
        """The ports of inputs and of outputs."""
        return ports(inputs, outputs, copier(copy_strided), executable.device)

    @classmethod
    def _of(cls, program: Any, sizes: dict[str, Any]) -> DeviceSession:
        """A session of a program; `sizes` may have `stream`, for all of its calls."""
        stream = sizes.pop("stream", None)
        handle = program._stream if stream is None else handle_of(stream, program.ordinal)
        return cls(program, handle, program.memory, sizes)

    def __init__(
        self,
        program: Called,
        stream: int | None,
        memory: DeviceMemory,
        sizes: Mapping[str, int] = NO_SIZES,
    ) -> None:
        """stream: the CUstream handle of every call that names no other."""
        super().__init__(program, sizes)
        self.memory = memory
        self._ordinal = memory.ordinal
        self._own_stream = stream
        self._chosen: int | None = None
        self.has_own_stream = False
        self._finish: Callable[[Any], Any] | None = None
        self.hold: list[Any] = []
        self.borrowed: list[Any] = []
        self._older_borrowed: list[Any] = []
        self._borrowed_bytes = 0
        self._copies_in: list[tuple[int, int]] = []  # (index, host address)
        self._copies_out: list[tuple[int, int]] = []
        self._is_plain = True  # none of the lists above holds anything

    def _call(
        self, entry: LoadedEntry | None, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]
    ) -> Any:
        """One call of an entry; `named` may have `stream`, a stream object or handle to run on."""
        stream = named.pop("stream", None)
        if self._turn.locked():
            self._refuse_in_call()
        with self._turn:
            if self._program._loaded is None or self._loaded is None:
                raise self._closed()
            if entry is not self._entry:
                self._select(entry or find_entry(self._program._entries, None))
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
            return self._entry.give(values) if out is None else out

    def _run_here(self) -> None:
        stream = self._own_stream
        if stream is None:
            stream = current(self._ordinal) or LEGACY
        self._run(stream)

    def _another(self) -> DeviceSession:
        return DeviceSession(self._program, self._own_stream, self.memory, self.sizes)

    def _bound(self, arrays: tuple[Any, ...], out: Any, named: dict[str, Any]) -> Bound:
        """A bound call of the entry in use; `named` may have `stream`."""
        stream = named.pop("stream", None)
        if not self._is_plain:
            self._forget()
        if stream is None and self._own_stream is None:
            self._chosen = current(self._ordinal)
        else:
            self._choose(stream)
        given = self._in_order(arrays, named)
        values = self._fill(given, out, self.hold)
        is_stale = any(not isinstance(each, Borrowed) for each in self.hold)  # a copy would be
        if is_stale or any(map(is_copy, given)):
            raise InputNotContiguous()
        if self._finish is not None:
            values = tuple(map(self._finish, values))
        if self.has_own_stream:
            self._record(given, values)
        outputs = self._entry.give(values) if out is None else out
        copies = tuple(self._copies_in), tuple(self._copies_out)
        fixed = self._chosen if self.has_own_stream else None
        late, self._late = self._late, []
        keep = given, tuple(self.hold), values, late
        staged = tuple(index for each in copies for index, _ in each)
        return Bound(self, lambda: self._replay_on(fixed, *copies, late), outputs, keep, staged)

    def _complete(self, arrays: Sequence[Any], values: Sequence[Any]) -> Sequence[Any]:
        """What a call has to do after its launch; returns its outputs in order."""
        if self._copies_out:
            for index, host_address in self._copies_out:
                self._on_driver.copy_out(index, host_address)
            self._on_driver.synchronize()
            write_late(self._late)
        if self._finish is not None:
            values = tuple(map(self._finish, values))
        if self.has_own_stream:
            self._record(arrays, values)
        if self._borrowed_bytes > BORROWED_BYTES_LIMIT or len(self.borrowed) > BORROWED_LIMIT:
            self._give_back_older()
        self.hold.clear()
        return values

    def _replay_on(
        self,
        fixed: int | None,
        copies_in: tuple[tuple[int, int], ...],
        copies_out: tuple[tuple[int, int], ...],
        late: list[Late],
    ) -> Callable[[], None]:
        """What a bound call runs, of the instance in use. fixed: its stream, else the current one;
        copies: (index, host address) of arrays on the host; late: what is written after them."""
        run, ordinal, on_driver = self._run, self._ordinal, self._on_driver

        def replay() -> None:
            run((current(ordinal) or LEGACY) if fixed is None else fixed)

        if not copies_in and not copies_out:
            return replay

        def replay_copied() -> None:
            for index, host_address in copies_in:
                on_driver.copy_in(index, host_address)
            replay()
            for index, host_address in copies_out:
                on_driver.copy_out(index, host_address)
            on_driver.synchronize()
            write_late(late)

        return replay_copied

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
            values = self._take_outputs(out, addresses)
        if addresses != self._last:  # a caller that keeps its arrays pays for this once
            if out is not None:  # fresh outputs meet nothing
                refuse_overlap(ports, self._outputs, addresses)
            self._addresses[:] = addresses
            self._last = addresses
        return values

    def _make_on_device(self, kind: DeviceKind, addresses: list[int]) -> Sequence[Any]:
        values = []
        for port in self._outputs:
            try:
                value, address = kind.make(port, self)
            except MemoryError as error:
                raise port.no_memory() from error
            values.append(value)
            addresses.append(address)
        self.finish_with(kind.finish)
        return values

    def _take_outputs(self, out: Any, addresses: list[int]) -> Sequence[Any]:
        ports = self._outputs
        values = places(self._entry.structure.outputs, self._entry.outputs, out, True)
        for index, value in enumerate(values):
            port = ports[index]
            kind = DEVICE_KINDS.get(type(value)) or device_kind_of(port, value)
            addresses.append(kind.output(port, value, self))
        return values

    def synchronize(self) -> None:
        """Wait for the work of the last call; raises what went wrong in it."""
        waits = self._on_driver if self._shared is None else self._shared
        if waits is not None:  # a closed one waited when it was closed
            waits.synchronize()

    def _shape_of(self, index: int, value: Any) -> tuple[int, ...]:
        if getattr(value, "shape", None) is None:  # torch takes long to describe its interface
            interface = getattr(value, "__cuda_array_interface__", None)
            if interface is not None:
                return tuple(interface["shape"])
        return super()._shape_of(index, value)

    def _record(self, arrays: Sequence[Any], values: Sequence[Any]) -> None:
        """Tell torch's allocator that this call's stream uses its tensors."""
        for value in (*arrays, *self.hold, *values):
            kind = DEVICE_KINDS.get(type(value))
            if kind is TORCH_ON_DEVICE and kind.answer(value) is not STAGED_TORCH:
                value.record_stream(self._torch_stream())

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

    def hold_borrowed(self, array: Any, nbytes: int) -> None:
        """Keep another library's array until the work that reads or writes it is done."""
        self._is_plain = False
        self.borrowed.append(array)
        self._borrowed_bytes += nbytes

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
            self._on_driver.copy_in(port.index, host_address)
            self._copies_in.append((port.index, host_address))
        return self._staged(port)

    def stage_out(self, port: Port, host_address: int) -> int:
        """Have the session's own memory copied to the host after the run; its device address."""
        self._is_plain = False
        if port.nbytes:
            self._copies_out.append((port.index, host_address))
        return self._staged(port)

    def _staged(self, port: Port) -> int:
        address: int = self._on_driver.stage(port.index)
        if self._last and self._last[port.index] != address:
            self._last = []  # the driver's addresses are others now, also if this call fails
        return address

    def _torch_stream(self) -> Any:
        device = device_name(self._ordinal)
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
        self._late = []
        self._finish = None
        self.has_own_stream = False
        self._is_plain = True

    def _launch_stream(self) -> int:
        """The stream of this call: where only host arrays take part, the session's own."""
        if self._chosen is None:
            has_copies = self._copies_in or self._copies_out
            self._chosen = self._on_driver.stream if has_copies else LEGACY
        return self._chosen

    def _give_back_older(self) -> None:
        """Let go of the older half of the borrowed arrays, once its calls have ended."""
        self._on_driver.reach_mark()
        self._on_driver.mark(self.stream)
        self._older_borrowed, self.borrowed = self.borrowed, []
        self._borrowed_bytes = 0

    def _free(self) -> None:
        """Free the arena once its work is done."""
        try:
            super()._free()
        finally:
            self.hold.clear()
            self.borrowed.clear()
            self._older_borrowed.clear()
            self.memory = DeviceMemory(self._ordinal)  # the old one goes with the last output

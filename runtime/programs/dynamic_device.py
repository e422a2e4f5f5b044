"""Programs on a device whose shapes depend on the call.

A session opens with the memory that its hungriest shapes need, so that no call of a new shape finds
the device full; `AOTC_DYNAMIC_ARENA=grow` takes what each shape needs when it comes. For shapes
that it has not met it makes the plan of fixed shapes and a CUDA graph over it, and keeps both.
"""

from __future__ import annotations

from ..argument_errors import SessionBusy
from ..drivers.streams import handle_of
from ..settings import read
from .device_program import DeviceProgram
from .device_session import DeviceSession
from .dynamic_program import DynamicProgram, DynamicSession, Shaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Bound, Session


class DynamicDeviceProgram(DynamicProgram, DeviceProgram):
    """A bundle ready to run on a device on inputs of any shape within its ranges.

    See `DynamicProgram` and `DeviceProgram`.
    """

    def session(self, stream: Any = None) -> DynamicDeviceSession:
        """A session of one's own, with an arena of its own; `stream` is for all of its calls."""
        chosen = self._stream if stream is None else handle_of(stream, self.ordinal)
        return DynamicDeviceSession(self, chosen)


class DynamicDeviceSession(DynamicSession):
    """One caller's arena for all shapes; for one host thread at a time. Called like the program.

    Calls follow each other on the device, also from shape to shape and from stream to stream.
    """

    __slots__ = ("_own_stream",)

    def __init__(self, program: DynamicDeviceProgram, stream: int | None) -> None:
        """stream: the CUstream handle of every call that names no other.

        Raises `DeviceMemoryFull`.
        """
        self._own_stream = stream
        super().__init__(program)

    def __call__(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Any:
        """Run once; see `Program`. stream: a stream object or handle to run on.

        Raises `SessionBusy` where another thread is in a call of it.
        """
        if not self._turn.acquire(False):
            raise SessionBusy()
        try:
            session, arrays = self._for(arrays, named)
            return session(*arrays, out=out, stream=stream)
        finally:
            self._turn.release()

    def bind(
        self, arrays: tuple[Any, ...], named: dict[str, Any], out: Any, stream: Any = None
    ) -> Bound:
        """This session at the arrays' shapes; `Program.bind` gives it to nobody else."""
        session, arrays = self._for(arrays, named)
        assert isinstance(session, DeviceSession)
        bound = session.bind(arrays, {}, out, stream)
        bound._keep = (bound._keep, self)
        return bound

    @property
    def _native(self) -> Any:
        """What waits for the last run."""
        return self._shared

    def _first_shared(self) -> Any:
        executable = self._loaded.executable
        is_growing = read("AOTC_DYNAMIC_ARENA").value == "grow" or not executable.plan.has_ends
        if is_growing or executable.has_separate_buffers:
            return self._no_shared()
        return executable.shared(executable.arena_bytes, executable.scratch_bytes)

    def _no_shared(self) -> Any:
        return self._loaded.executable.shared(0, 0)

    def _larger(self, shaped: Shaped, old: Any) -> Any:
        found = shaped._executable
        return self._loaded.executable.shared(
            max(found.arena_bytes, old.arena_bytes), max(found.scratch_bytes, old.scratch_bytes)
        )

    def _is_enough(self, shaped: Shaped) -> bool:
        found, shared = shaped._executable, self._shared
        if found.has_separate_buffers:  # a memory checker's mode: each shape has its own
            return True
        fits = found.arena_bytes <= shared.arena_bytes
        return fits and bool(found.scratch_bytes <= shared.scratch_bytes)

    def _session(self, shaped: Shaped) -> Session:
        return DeviceSession(shaped, self._own_stream, self._program.memory)

    def _shape_of(self, index: int, value: Any) -> tuple[int, ...]:
        if getattr(value, "shape", None) is None:  # torch takes long to describe its interface
            interface = getattr(value, "__cuda_array_interface__", None)
            if interface is not None:
                return tuple(interface["shape"])
        return super()._shape_of(index, value)

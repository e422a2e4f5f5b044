"""Programs on a device: what `load` returns for a target of CUDA."""

from __future__ import annotations

from ..arrays.buffers import copy_strided
from ..arrays.port import ports
from ..arrays.strided import copier
from ..drivers.cuda.device_array import DeviceMemory
from ..drivers.cuda.streams import handle_of
from .device_session import DeviceSession
from .pools import Turns
from .program import Loaded, Program
from .session import Bound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..arrays.port import Port
    from ..bundle.manifest import Manifest, Target, TensorSpec
    from ..bundle.plan import Plan


class DeviceProgram(Program):
    """A bundle ready to run on a CUDA device; calls are asynchronous, in the order of a stream.

    ordinal: the number of the device. A call runs on `stream=` where one is given (to the call, to
    `session` or to `load`), else on torch's current stream where torch runs CUDA in this process,
    else on the legacy default stream. Inputs may lie on the device or in host memory, which is
    copied; outputs are new arrays of the kind of the first input, and where that one is a host
    array, the call waits for its outputs. Nothing overwrites them later.

    Threads that call the program take turns at its one session, so that no call allocates an arena;
    `session()` gives a thread one of its own. An input of the name `out` or `stream` is given by
    position.
    """

    _stateless = Turns

    def __init__(
        self,
        manifest: Manifest,
        target: Target,
        digest: str,
        plan: Plan,
        loaded: Loaded,
        stream: Any = None,
    ) -> None:
        """Made by `load` only."""
        self.ordinal: int = loaded.executable.device
        self.memory = DeviceMemory(self.ordinal)
        self._stream = None if stream is None else handle_of(stream, self.ordinal)
        super().__init__(manifest, target, digest, plan, loaded)
        self.device = f"{target.device}:{self.ordinal}"

    def _ports(
        self, loaded: Loaded, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        return ports(inputs, outputs, copier(copy_strided), self.ordinal)

    def session(self, stream: Any = None) -> DeviceSession:
        """A session of one's own, with an arena of its own; `stream` is for all of its calls."""
        chosen = self._stream if stream is None else handle_of(stream, self.ordinal)
        self._open()
        return DeviceSession(self, chosen, self.memory)

    def bind(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> Bound:
        """Fix the memory of inputs and outputs: the result is called without arguments.

        Each call runs on `stream`, or on the stream that is current then, on what the arrays given
        here hold; host arrays are copied at each call. Arrays of libraries other than torch must be
        ready on that stream.
        """
        return self.session(stream).bind(arrays, named, out)

    def close(self) -> None:
        """End the program and free its memory; see `Program.close`. Outputs stay."""
        try:
            super().close()
        finally:
            self.memory = DeviceMemory(self.ordinal)  # the old one goes with the last output

    def synchronize(self) -> None:
        """Wait for the work of the program's own session, with states that of the calling thread;
        raises what went wrong in it."""
        for session in self._sessions.idle():
            session.synchronize()  # type: ignore[attr-defined]  # they are of a device

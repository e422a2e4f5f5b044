"""The order of runs of several graphs over one memory."""

from __future__ import annotations

from .streams import LEGACY, LEGACY_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .device import Device
    from .graph import Execution
    from .handles import Event

LASTING = (LEGACY, LEGACY_NAME)  # two names of the stream that nobody can destroy


class RunOrder:
    """Has a run of one graph wait for the last run of another over the same memory.

    A graph waits for its own last launch by itself, and on one stream all follow each other; else
    it waits by an event, which costs more than the call's own work: the legacy stream, which nobody
    can destroy, gets one only when a call on another stream asks.
    """

    __slots__ = ("_device", "_done", "_last", "_stream")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._done: Event | None = None
        self._last: Execution | None = None
        self._stream = LEGACY  # of the last run

    def before_run(self, graph: Execution, stream: int) -> None:
        """What is added to the stream from now on waits for the last run of another graph."""
        if self._last is None or self._last is graph:
            return
        if self._stream in LASTING:
            if stream in LASTING:
                return
            self._mark()
        assert self._done is not None  # it was noted then or just now
        with self._device.current():
            self._device.call("cuStreamWaitEvent", stream, self._done.handle, 0)

    def after_run(self, graph: Execution, stream: int) -> None:
        """Note the end of a run; the stream may be destroyed before anybody waits for it."""
        self._last, self._stream = graph, stream
        if stream not in LASTING:
            self._mark()

    def forget(self) -> None:
        """No run is waited for: all have ended."""
        self._last = None

    def _mark(self) -> None:
        if self._done is None:
            self._done = self._device.event(is_timed=False)
        self._done.record(self._stream)

    def close(self) -> None:
        """Give its event back, once all runs have ended."""
        if self._done is not None:
            self._done.close()
        self._done = self._last = None

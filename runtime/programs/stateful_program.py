"""Programs that keep something from call to call: each thread that calls one has its own state.

A program of other bundles lends its sessions to whoever calls. Here a session is what a sequence of
calls shares, so that a thread meets its own one again; `Program.session` makes others.
"""

from __future__ import annotations

import _thread
import _weakref

from ..argument_errors import StateBusy
from .device_program import DeviceProgram
from .program import Program
from .session import close_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .session import Session
    from .state import States


class _Slot:
    """A thread's session, None while a call of that thread runs; it goes with the thread."""

    __slots__ = ("__weakref__", "session")

    def __init__(self) -> None:
        self.session: Session | None = None

    def take(self) -> Session | None:
        """Take the session out, so that nobody else closes it meanwhile."""
        session, self.session = self.session, None
        return session


class _PerThread(Program):
    """What both kinds of programs have in common."""

    def __init__(self, *arguments: Any) -> None:
        """Made by `load` only."""
        self._local = _thread._local()
        self._slots: list[_weakref.ReferenceType[_Slot]] = []
        super().__init__(*arguments)
        self._slot().session = self._free.pop()

    def _slot(self) -> _Slot:
        """The calling thread's."""
        found: _Slot | None = getattr(self._local, "slot", None)
        if found is None:
            found = self._local.slot = _Slot()
            self._slots[:] = [each for each in self._slots if each() is not None]
            self._slots.append(_weakref.ref(found))
            found.session = self.session()
        return found

    def _default(self) -> Session:
        self._open()
        session = self._slot().session
        if session is None:
            raise StateBusy()
        return session

    @property
    def state(self) -> States:
        """What the calling thread's calls of the program keep; see `Session.state`."""
        return self._default().state

    def reset(self) -> None:
        """Give the calling thread's calls the initial state again."""
        self._default().reset()

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """Run once on the calling thread's own session; see `Program`."""
        slot = self._slot()
        session = slot.take()
        if session is None:
            self._open()
            raise StateBusy()
        try:
            return session(*arrays, out=out, **named)
        finally:
            slot.session = session
            if self._loaded is None:
                self._close_free()

    def run_at(self, addresses: list[int]) -> None:
        """Run once on memory at these addresses; see `Program.run_at`."""
        self._default().run_at(addresses)

    def _close_free(self) -> None:
        slots = [slot for reference in self._slots if (slot := reference()) is not None]
        found = [session for slot in slots if (session := slot.take()) is not None]
        try:
            super()._close_free()
        finally:
            close_each(found)


class StatefulProgram(_PerThread):
    """A program in host memory whose sessions keep something from call to call.

    A call of the program itself continues where the last one of the same thread ended; a session of
    one's own starts with the bundle's values. `state` and `reset` are those of the thread.
    """


class StatefulDeviceProgram(_PerThread, DeviceProgram):
    """The same on a device: each thread has a session of its own there."""

    def synchronize(self) -> None:
        """Wait for the work of the calling thread's session; raises what went wrong in it."""
        self._default()._native.synchronize()

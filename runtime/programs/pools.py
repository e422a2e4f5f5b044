"""Who runs a program's calls: policies of the sessions that it keeps for its callers.

    Pool        any free session serves a call, and threads never share one
    Turns       one session serves all calls, which take turns
    PerThread   each thread meets its own session again, since it keeps something

`take` gives the session of a call, `give` has it back; `idle` are those in which no call runs.
"""

from __future__ import annotations

import _thread
import _weakref

from ..errors import StateBusy
from .session import close_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session


class Pool:
    """Sessions that calls borrow; another one is made where none is free."""

    def __init__(self, make: Callable[[], Session]) -> None:
        """The first session is made now, so that a machine with too little memory says so."""
        self._make = make
        self._free: list[Session] = [make()]

    def take(self) -> Session:
        """A session that nobody else uses."""
        try:
            return self._free.pop()  # one atomic step, so that threads never share a session
        except IndexError:
            return self._make()

    def give(self, session: Session) -> None:
        """Have a session back."""
        self._free.append(session)

    def idle(self) -> list[Session]:
        """The sessions in which no call runs."""
        return list(self._free)

    def close(self) -> None:
        """Close what is idle; a call that runs is followed by another `close`."""
        # By name and not by dropping references: a caught error's traceback may hold some.
        close_each(self._free)


class Turns(Pool):
    """One session for all threads, so that no call allocates memory of its own."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._turn = _thread.RLock()  # a finalizer may call the program inside a call
        super().__init__(make)

    def take(self) -> Session:
        self._turn.acquire()
        try:
            return super().take()
        except BaseException:
            self._turn.release()
            raise

    def give(self, session: Session) -> None:
        super().give(session)
        self._turn.release()

    def idle(self) -> list[Session]:
        with self._turn:
            return super().idle()


class Slot:
    """A thread's session, None while a call of that thread runs; it goes with the thread."""

    __slots__ = ("__weakref__", "session")

    def __init__(self) -> None:
        self.session: Session | None = None

    def take(self) -> Session | None:
        """Take the session out, so that nobody else closes it meanwhile."""
        session, self.session = self.session, None
        return session


class PerThread(Pool):
    """A session for each thread that calls. What one keeps, its own thread finds again."""

    def __init__(self, make: Callable[[], Session]) -> None:
        self._local = _thread._local()
        self._slots: list[_weakref.ReferenceType[Slot]] = []
        self._is_closed = False
        super().__init__(make)
        self.slot()

    def slot(self) -> Slot:
        """The calling thread's."""
        found: Slot | None = getattr(self._local, "slot", None)
        if found is None:
            found = self._local.slot = Slot()
            self._slots[:] = [each for each in self._slots if each() is not None]
            self._slots.append(_weakref.ref(found))
            found.session = self._free.pop() if self._free else self._make()
        return found

    def take(self) -> Session:
        """The calling thread's; raises `StateBusy` inside of a call."""
        return self._there(self.slot().take())

    def give(self, session: Session) -> None:
        self.slot().session = session

    def idle(self) -> list[Session]:
        return [self._there(self.slot().session)]

    def _there(self, session: Session | None) -> Session:
        if session is None:
            if self._is_closed:
                self._make()  # which says so
            raise StateBusy()
        return session

    def close(self) -> None:
        self._is_closed = True
        slots = [slot for reference in self._slots if (slot := reference()) is not None]
        found = [session for slot in slots if (session := slot.take()) is not None]
        try:
            super().close()
        finally:
            close_each(found)

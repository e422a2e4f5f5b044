"""Signals that ask a command to end: each becomes one exception, one line and one exit code.

The exception unwinds the command, so that every block closes what it opened: processes end, locks
and temporary folders go, and no file stays half-written. Later signals do not interrupt that, until
it has taken two seconds; the next one then ends the process at once.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

PATIENCE_S = 2.0
AGAIN_S = 0.01
# Signal → what the error says: ctrl-c; `kill`, `timeout`, Docker and systemd; a closed terminal.
WORDS = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "the terminal was closed",
}


class Signalled(KeyboardInterrupt):
    """The process was asked to end by the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Handler:
    def __init__(self) -> None:
        self._asked_s: float | None = None  # when the first signal came, by the monotonic clock
        self.lost_number = 0  # of a signal that is to be raised again

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s, self.lost_number = now_s, 0
            raise Signalled(number)
        if now_s - self._asked_s > PATIENCE_S:
            os.write(2, f"error: {WORDS[signal.Signals(number)]}\n".encode())
            os._exit(128 + number)

    def lost(self, details: Any) -> None:
        """`sys.unraisablehook`: an exception where Python cannot raise one, as in a destructor.

        A signal's is raised again soon; whatever else comes while the command unwinds is about
        objects that are half made.
        """
        if isinstance(details.exc_value, Signalled):
            self._asked_s = None
            number = self.lost_number = details.exc_value.number
            again = threading.Timer(AGAIN_S, _thread.interrupt_main, (number,))
            again.daemon = True
            again.start()
        elif self._asked_s is None:
            sys.__unraisablehook__(details)


_handler = _Handler()


def catch() -> None:
    """Have the signals raise `Signalled` in the main thread, but for those that are
    ignored already, as under `nohup` and for programs that a shell has in the background."""
    for number in WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handler)
    sys.unraisablehook = _handler.lost


def end() -> None:
    """Take no more notice of signals: the command has ended. Raises `Signalled` for one that came
    where Python cannot raise it."""
    for number in WORDS:
        signal.signal(number, signal.SIG_IGN)
    if _handler.lost_number:
        raise Signalled(_handler.lost_number)


def ending(error: BaseException) -> tuple[str, int]:
    """The word and the exit code of an interruption; Python's own is ctrl-c."""
    number = error.number if isinstance(error, Signalled) else signal.SIGINT
    return WORDS[signal.Signals(number)], 128 + number

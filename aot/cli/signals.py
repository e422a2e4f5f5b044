"""Signals that ask a command to end: each becomes one exception, one line and one exit code.

The exception unwinds the command, so that every block closes what it opened: processes end, locks
and temporary folders go, and no file stays half-written. Later signals do not interrupt that, until
it has taken two seconds; the next one then ends the process at once. After eight seconds it ends in
any case: an exception inside of Python's own locks may leave threads that wait without end.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from aotc.aot.folders import remove_own

PATIENCE_S = 2.0
LIMIT_S = 8.0  # Docker kills two seconds later
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
        self.number = 0  # of the first signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._asked_s is None:
            self._asked_s = now_s
            if not self.number:
                _thread.start_new_thread(self._bound, ())  # takes none of Python's locks
            self.number = number
            raise Signalled(number)
        if now_s - self._asked_s > PATIENCE_S:
            self._end_now()

    def _bound(self) -> None:
        time.sleep(LIMIT_S)
        remove_own()
        self._end_now()

    def _end_now(self) -> None:
        os.write(2, f"error: {WORDS[signal.Signals(self.number)]}\n".encode())
        os._exit(128 + self.number)

    def lost(self, details: Any) -> None:
        """`sys.unraisablehook`: an exception where Python cannot raise one, as in a destructor.

        A signal's is raised again soon; whatever else comes while the command unwinds is about
        objects that are half made.
        """
        if isinstance(details.exc_value, Signalled):
            self._asked_s = None
            _thread.start_new_thread(self._again, (details.exc_value.number,))
        elif self._asked_s is None:
            sys.__unraisablehook__(details)

    def _again(self, number: int) -> None:
        time.sleep(AGAIN_S)
        _thread.interrupt_main(signal.Signals(number))


_handler = _Handler()


def catch() -> None:
    """Have the signals raise `Signalled` in the main thread, but for those that are
    ignored already, as under `nohup` and for programs that a shell has in the background."""
    for number in WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handler)
    sys.unraisablehook = _handler.lost


def end(code: int) -> None:
    """Take no more notice of signals: the command has ended with this code. Raises `Signalled` for
    one that did not end it, as in a destructor."""
    for number in WORDS:
        signal.signal(number, signal.SIG_IGN)
    if _handler.number and code != 128 + _handler.number:
        raise Signalled(_handler.number)


def asked() -> Signalled | None:
    """The signal that came, if one did: what fails while the command unwinds is not its error."""
    return Signalled(_handler.number) if _handler.number else None


def ending(error: BaseException) -> tuple[str, int]:
    """The word and the exit code of an interruption; Python's own is ctrl-c."""
    number = error.number if isinstance(error, Signalled) else signal.SIGINT
    return WORDS[signal.Signals(number)], 128 + number

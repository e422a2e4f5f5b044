"""Progress of a build on stderr: a bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time

from aotc.aot.cli.printing import is_terminal, time_text
from aotc.aot.stages import Progress, Quiet, StageTime

BAR_TICK_S = 1.0
LINE_TICK_S = 15.0  # a log keeps every line
BAR_CELLS = 24
COLUMNS = 80  # where nobody says how many


class Lines:
    """One line when a stage ends, and one every 15 seconds while it runs longer."""

    tick_s = LINE_TICK_S

    def __init__(self) -> None:
        self._stage = ""
        self._what = ""
        self._started_s = 0.0
        self._over = threading.Event()

    def begin(self, stage: str) -> None:
        """Start the stage's clock and its ticking thread."""
        self._stage, self._what, self._started_s = stage, "", time.monotonic()
        self._over = threading.Event()
        threading.Thread(target=self._tick, args=(self._over,), daemon=True).start()

    def advance(self, done: int, total: int, what: str) -> None:
        """Note how far the stage is, for the next tick."""
        self._what = f" {done}/{total} {what}"

    def end(self, row: StageTime) -> None:
        """The stage's row."""
        self._over.set()
        target = f"{row.target}: " if row.target else ""
        self._say(f"{row.stage:<9}{time_text(row.seconds):>9}  {target}{row.detail}".rstrip())

    def stop(self) -> None:
        """End the ticking, whether or not the stage ended well."""
        self._over.set()

    def _tick(self, over: threading.Event) -> None:
        while not over.wait(self.tick_s):
            elapsed_s = time.monotonic() - self._started_s
            self._running(f"{self._stage:<9}{elapsed_s:7.0f} s …{self._what}")

    def _running(self, line: str) -> None:
        self._say(line)

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class Bar(Lines):
    """The running stage's line is rewritten in place, with a bar where items are counted."""

    tick_s = BAR_TICK_S

    def begin(self, stage: str) -> None:
        """Show the stage's name at once."""
        super().begin(stage)
        self._running(stage)

    def advance(self, done: int, total: int, what: str) -> None:
        """Redraw the bar."""
        filled = BAR_CELLS * done // max(total, 1)
        self._what = f" [{'#' * filled}{'.' * (BAR_CELLS - filled)}] {done}/{total} {what}"
        self._running(f"{self._stage:<9}{self._what}")

    def stop(self) -> None:
        """Leave no half line behind."""
        super().stop()
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _running(self, line: str) -> None:
        print(f"\r\033[K{line[: _columns() - 1]}", end="", file=sys.stderr, flush=True)

    def _say(self, line: str) -> None:
        print(f"\r\033[K{line}", file=sys.stderr, flush=True)


def _columns() -> int:
    """How wide the terminal is now: a longer line would wrap, and could not be rewritten."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or COLUMNS
    return COLUMNS


def progress_for(is_quiet: bool) -> Progress:
    """The form of progress that stderr takes."""
    if is_quiet:
        return Quiet()
    return Bar() if is_terminal() else Lines()

"""Compiler processes that builds of the suite leave to each other: each start of one loads Triton
and LLVM, half a second of work, and most builds of tests compile one or two small kernels.

What starts, ends and confines them is tested in `tests/tasks`, on pools of their own.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import aotc.aot.options
from aotc.aot.tasks.workers import Workers

LEFT_AT_MOST = 2  # of those that were started in what most builds start theirs in, and of others
_left: list[tuple[Hashable, object]] = []  # what a process was started in, and the process
_usual: list[Hashable] = []  # what the tests begin in: one that changes it ends none of these


class SharedWorkers(Workers):
    """A pool that begins with the idle processes of pools before it that ran in the same
    environment."""

    def __init__(self, *arguments, **keywords) -> None:
        super().__init__(*arguments, **keywords)
        self._started_in = _surroundings(self.is_confined)
        for row in [row for row in _left if row[0] == self._started_in][: self.count]:
            _left.remove(row)
            if row[1]._process.poll() is None:
                self.idle.append(row[1])
            else:
                row[1].end()

    def close(self) -> None:
        """Leave the idle processes to the next pool."""
        _left.extend((self._started_in, worker) for worker in self.idle)
        self.idle.clear()
        for is_usual in (True, False):
            rows = [row for row in _left if (row[0] in _usual) == is_usual]
            for row in rows[: max(0, len(rows) - LEFT_AT_MOST)]:
                _left.remove(row)
                row[1].end()


def _surroundings(is_confined: bool) -> Hashable:
    """All that a process takes from the one that starts it."""
    own = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    search = tuple(dict.fromkeys(sys.path))
    folders = (os.getcwd(), tempfile.gettempdir(), search)  # noqa: PTH109
    return (is_confined, folders, frozenset(own.items()))


@contextmanager
def shared_workers() -> Iterator[None]:
    """Inside, builds of this process share their compiler processes."""
    own = aotc.aot.options.Workers
    aotc.aot.options.Workers = SharedWorkers
    _usual[:] = [_surroundings(is_confined=False)]
    try:
        yield
    finally:
        aotc.aot.options.Workers = own
        while _left:
            _left.pop()[1].end()

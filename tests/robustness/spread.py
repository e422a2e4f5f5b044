"""Numbered pieces of work over forked processes, with bounds of time, and what they found."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GRACE_S = 20.0  # after the deadline, for the piece that each process has begun
WRONG_LIMIT = 20  # texts that one process sends; all are counted
NUMBER = struct.Struct("q")


@dataclass
class Found:
    """What became of pieces of work. counts: by name, summed. most: the greatest value of each
    name. wrong: what should not have been; also counted as "wrong"."""

    counts: Counter[str] = field(default_factory=Counter)
    most: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def say(self, what: str) -> None:
        """Something that should not have been."""
        self.counts["wrong"] += 1
        if len(self.wrong) < WRONG_LIMIT:
            self.wrong.append(what)

    def at_most(self, name: str, value: float) -> None:
        """Keep the greatest value of a name."""
        self.most[name] = max(value, self.most.get(name, value))

    def add(self, other: Found) -> None:
        """Add what another process found."""
        self.counts.update(other.counts)
        self.wrong += other.wrong
        for name, value in other.most.items():
            self.at_most(name, value)

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Found:
        """What `vars` gave, after it was JSON."""
        return cls(**{**fields, "counts": Counter(fields["counts"])})


Work = Callable[[Iterator[int], Found], None]


def spread(work: Work, count: int, jobs: int, seconds: float, grace_s: float = GRACE_S) -> Found:
    """Call `work` with the numbers below `count`, shared out over `jobs` forks of this process; 0:
    in this process, where a measure of coverage sees it.

    No number is begun after `seconds`. "done" counts the numbers that were given out. A process
    that a signal ends, or that has not ended `grace_s` later, is something wrong, with its last
    number.
    """
    found, deadline = Found(), time.monotonic() + seconds
    is_here = not jobs
    jobs = max(1, min(jobs, count))
    last = mmap.mmap(-1, NUMBER.size * jobs)
    if is_here:
        work(_numbers(0, count, 1, deadline, last)(found), found)
        return found
    children = {}
    for job in range(jobs):
        receiver, sender = os.pipe()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.close(receiver)
            _work(work, _numbers(job, count, jobs, deadline, last), sender)
        os.close(sender)
        children[receiver] = (child, job)
    for receiver, data in _answers(list(children), deadline + grace_s):
        child, job = children[receiver]
        if data is None:
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        os.close(receiver)
        number = NUMBER.unpack_from(last, NUMBER.size * job)[0]
        if data is None:
            found.say(f"no end of number {number}")
        elif os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            found.say(f"ended by {name} at number {number}")
        else:
            found.add(Found.of(json.loads(data)))
    return found


def _numbers(
    job: int, count: int, jobs: int, deadline: float, last: mmap.mmap
) -> Callable[[Found], Iterator[int]]:
    def numbers(found: Found) -> Iterator[int]:
        for number in range(job, count, jobs):
            if time.monotonic() > deadline:
                return
            NUMBER.pack_into(last, NUMBER.size * job, number)
            found.counts["done"] += 1
            yield number

    return numbers


def _work(work: Work, numbers: Callable[[Found], Iterator[int]], sender: int) -> None:
    """In the child: work, write what was found as JSON, end."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    found = Found()
    try:
        work(numbers(found), found)
    except BaseException:
        found.say(traceback.format_exc()[-2000:])
    with os.fdopen(sender, "wb") as pipe:
        pipe.write(json.dumps(vars(found)).encode())
    os._exit(0)


def _answers(receivers: list[int], deadline: float) -> Iterator[tuple[int, bytes | None]]:
    """Each pipe with what came out of it, as they end; None where it is open at the deadline."""
    parts: dict[int, bytes] = dict.fromkeys(receivers, b"")
    while parts:
        ready = select.select(list(parts), [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            yield from ((receiver, None) for receiver in parts)
            return
        for receiver in ready:
            data = os.read(receiver, 1 << 16)
            parts[receiver] += data
            if not data:
                yield receiver, parts.pop(receiver)


def kill_group(leader: int) -> None:
    """Kill a process that leads a group, and all of the group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def threads() -> int:
    """The threads of this process."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())

"""Groups of cores for contenders that are measured side by side."""

from __future__ import annotations

import os
from pathlib import Path

Cores = tuple[int, ...]  # numbers of processors, as the system counts them
SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def groups(size: int, at_most: int | None = None, usable: Cores | None = None) -> list[Cores]:
    """Disjoint groups of `size` of the usable processors (None: those of this process).

    At least one group: the processors that there are, where they are fewer.
    """
    found = tuple(sorted(os.sched_getaffinity(0))) if usable is None else usable
    whole = [found[place : place + size] for place in range(0, len(found) - size + 1, size)]
    return (whole or [found])[:at_most]


def physical() -> Cores:
    """One processor of each physical core that this process may use.

    Two threads of one core share its vector units, so that they would measure each other.
    """
    usable = sorted(os.sched_getaffinity(0))
    first_of = {number: min(_siblings(number) & set(usable)) for number in usable}
    return tuple(sorted(set(first_of.values())))


def _siblings(number: int) -> set[int]:
    """The processors that share a core with this one, itself among them."""
    try:
        text = Path(SIBLINGS.format(number)).read_text(encoding="ascii")
    except OSError:  # a system that does not say
        return {number}
    return {number, *listed(text)}


def listed(text: str) -> set[int]:
    """The numbers of a list as the kernel writes it: `0-3,8`."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found

"""What the back end `aotc` did in this process."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    """Counts since the process began; the one mutable record of the back ends."""

    graphs: int = 0  # that torch gave the back end: forward, backward and inference
    programs_made: int = 0  # compiled from a graph in this process
    programs_cached: int = 0  # taken from the artifact cache
    kernels_compiled: int = 0
    kernels_cached: int = 0  # of the programs made, taken from the artifact cache
    regions_left: int = 0  # that aotc could not compile and another compiler took
    traces_skipped: int = 0  # graphs that came from torch's AOTAutograd cache, already traced


_COUNTERS = Counters()


def counting() -> Counters:
    """The counters, to add to."""
    return _COUNTERS


def counters() -> dict[str, int]:
    """What was counted so far, by name."""
    return asdict(_COUNTERS)

"""Programs of the artifact cache, and counts of what the back end `aotc` did in this process.

An entry of the bucket `programs` is a bundle in one flat folder, so that `runtime.load` reads it
where it is. Its key is a digest of the graph's text and constants, the target, the options and the
toolchain.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from weakref import WeakValueDictionary

from aotc.aot.dynamo.devices import device_at, refuse_capture
from aotc.aot.dynamo.options import Options
from aotc.aot.version import ROOT, sources_digest
from aotc.cache import FolderLayer, Key, Store
from aotc.runtime import Program, load, settings


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


STAGES = ("capture", "dynamo", "ir", "lower", "plan", "rewrites", "schedule", "targets", "tune")
SOURCES = (
    *(ROOT / "aot" / stage for stage in STAGES),
    ROOT / "kernels/templates",
    ROOT / "kernels/library",  # what its ops mean
)


def store() -> Store:
    """The artifact cache for the settings of now."""
    return _store(str(settings.cache_dir().value), settings.read("AOTC_CACHE_LOWER").value)


@functools.cache
def _store(folder: str, layers: tuple[str, ...]) -> Store:
    return Store(folder, [FolderLayer(Path(layer)) for layer in layers])


@functools.cache
def toolchain_digest() -> str:
    """SHA-256 of all that a program depends on beside its graph: our sources, torch, Triton."""
    own = sources_digest(SOURCES)
    return hashlib.sha256(f"{own} {version('torch')} {version('triton')}".encode()).hexdigest()


def cached_program(key: Key, options: Options) -> Program | None:
    """The program of a key where the cache has it; the store has digested what is loaded."""
    program = _OPEN.get((key.digest, options.ordinal))
    if program is not None:
        counting().programs_cached += 1
        return program
    kept = store()
    folder = kept.folder_of(key) if kept.get(key) is not None else None
    if folder is None:
        return None
    program = opened(folder, options, key)
    counting().programs_cached += 1
    return program


# Equal regions of graphs on one CUDA device are one program, whose session they use in turns, so
# that layers do not hold an arena each. Runs on several streams wait for each other by themselves.
_OPEN: WeakValueDictionary[tuple[str, int | None], Program] = WeakValueDictionary()


def opened(folder: str | Path, options: Options, key: Key) -> Program:
    """The program of a folder, on the device of the graph's tensors. Raises `CaptureRefused`."""
    if options.ordinal is not None:
        refuse_capture()
    device = None if options.ordinal is None else device_at(options.ordinal)
    program = load(
        folder,
        device=None if device is None else str(device),
        threads=options.threads,
        verify="code",
    )
    if options.ordinal is not None:
        _OPEN[key.digest, options.ordinal] = program
    return program

"""What compiles graphs in this process: worker processes and the artifact cache, made once."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
from pathlib import Path

import torch

from aotc.aot.compile import Machinery
from aotc.aot.targets.workers import Workers
from aotc.aot.tune.compiling import Counts, triton_version
from aotc.cache import Store
from aotc.runtime import settings

AOT_FOLDER = Path(__file__).parent.parent


def machinery() -> Machinery:
    """Workers, cache and counts for the settings of now; the workers wait for the next graph."""
    folder = str(settings.cache_dir().value)
    return _machinery(folder, settings.read("AOTC_CACHE_LOWER").value, _jobs())


@functools.cache
def _machinery(folder: str, lower: str | None, jobs: int | None) -> Machinery:
    workers = Workers(jobs)
    atexit.register(workers.close)
    os.register_at_fork(after_in_child=_machinery.cache_clear)  # a child has no workers
    return Machinery(workers, Store(folder, lower), Counts())


def _jobs() -> int | None:
    return settings.read("AOTC_JOBS").value or None


@functools.cache
def toolchain_digest() -> str:
    """SHA-256 of all that a program depends on beside its graph: our sources, torch, Triton."""
    digest = hashlib.sha256()
    for path in sorted(AOT_FOLDER.rglob("*.py")):
        if path.relative_to(AOT_FOLDER).parts[0] != "cli":
            digest.update(path.relative_to(AOT_FOLDER).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    digest.update(f"{torch.__version__} {triton_version()}".encode())
    return digest.hexdigest()

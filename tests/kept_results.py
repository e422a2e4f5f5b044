"""What Triton's interpreter gave for a job of kernels, kept for later runs of the tests.

The interpreter is Triton's and numpy's: the same sources on the same numbers give the same results,
which the tests compare with the reference each time. It takes a tenth of a second a kernel and
more. So a job that was run before, whose sources, launches and buffers are the same to the byte, is
answered from its file. Jobs with errors are run again, and native programs always run.

`FOLDER` is set by `conftest.py`, beside what `kept_kernels.py` keeps and under the same switch;
None keeps nothing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy

FOLDER: Path | None = None
MOST_BYTES = 64 << 20  # of the results of a job that is kept
UNUSED_DAYS = 14  # after so many a file is deleted
_VERSIONS = tuple(importlib.metadata.version(name) for name in ("triton", "numpy"))


def key_of(job: str, arrays: Mapping[str, numpy.ndarray], programs: Iterable[Path]) -> str:
    """The digest of all that the results depend on; programs: what reads the job."""
    digest = hashlib.sha256(repr((job, _VERSIONS)).encode())
    for path in programs:
        digest.update(path.read_bytes())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(numpy.ascontiguousarray(array).data)
    return digest.hexdigest()


def found(key: str, results: Path) -> bool:
    """Whether the results were kept; they are in the file then."""
    if FOLDER is None:
        return False
    with suppress(FileNotFoundError):
        shutil.copyfile(FOLDER / key, results)
        os.utime(FOLDER / key)
        return True
    return False


def keep(key: str, results: Path) -> None:
    """Keep the results of a job without errors, where they are not too large."""
    if FOLDER is None or results.stat().st_size > MOST_BYTES:
        return
    own = FOLDER / f"{key}.{os.getpid()}"
    shutil.copyfile(results, own)
    own.replace(FOLDER / key)


def delete_unused(folder: Path) -> None:
    """Files that no run has read for a while."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another test process was first
            if path.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
                path.unlink()

"""What machine code depends on beside its kernel: Triton's version and the sources of a family."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

from aotc import runtime

TARGETS_FOLDER = Path(__file__).parent
RUNTIME_FOLDER = Path(runtime.__file__).parent


@functools.cache
def triton_version() -> str:
    """Version of the installed Triton, which brings LLVM, the linker and ptxas."""
    return importlib.metadata.version("triton")


@functools.cache
def compiler_digest(device: str) -> str:
    """SHA-256 over the sources that a family's code generation depends on, those of the ABI that
    an executor is generated from among them: a changed code generator misses the cache."""
    digest = hashlib.sha256()
    own = TARGETS_FOLDER / device
    paths = [*TARGETS_FOLDER.glob("*.py"), *own.rglob("*.py")]
    paths.remove(own / "measure.py")  # runs what was generated
    sources = {path.relative_to(TARGETS_FOLDER): path for path in paths}
    abis = (RUNTIME_FOLDER / "drivers" / device).glob("*_abi.py")
    sources |= {path.relative_to(RUNTIME_FOLDER): path for path in abis}
    for name, path in sorted(sources.items()):
        digest.update(name.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()

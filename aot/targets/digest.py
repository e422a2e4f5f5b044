"""What machine code depends on beside its kernel: Triton's version and the sources of a family."""

from __future__ import annotations

import functools
import importlib.metadata

from aotc.aot.version import ROOT, sources_digest


@functools.cache
def triton_version() -> str:
    """Version of the installed Triton, which brings LLVM, the linker and ptxas."""
    return importlib.metadata.version("triton")


@functools.cache
def compiler_digest(device: str) -> str:
    """SHA-256 over the sources that a family's code generation depends on, those of the ABI that
    an executor is generated from among them: a changed code generator misses the cache."""
    targets, abis = ROOT / "aot/targets", (ROOT / "runtime/drivers" / device).glob("*_abi.py")
    paths = {*targets.glob("*.py"), *(targets / device).rglob("*.py"), *abis}
    return sources_digest(paths - {targets / device / "measure.py"})  # it runs what was generated

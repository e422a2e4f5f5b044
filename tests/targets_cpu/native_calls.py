"""Functions that tests of the workers run in worker processes."""

from __future__ import annotations

import sys


def compile_text(text: str) -> bytes:
    """The object of an LLVM IR text."""
    from aotc.aot.targets.toolchain import compile_object

    return compile_object(text, "k", "x86-64-v3").data


def modules_after_compile(text: str) -> list[str]:
    """Names of the modules that a worker holds once it has compiled."""
    compile_text(text)
    return sorted(sys.modules)

"""What the page says of its run: date, machine, versions, seeds."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

SOURCES = ("aot", "cache", "kernels", "runtime", "tests/fuzz")


def head(root: Path, options: Mapping[str, object]) -> dict[str, str]:
    """What tells a run from others, so that a journal goes on with its own."""
    return {
        **{name: str(value) for name, value in options.items()},
        "sources": _digest(root),
        "versions": ", ".join(
            [f"Python {platform.python_version()}", *(map(_version, ("torch", "triton")))]
        ),
    }


def tail(seconds: float, jobs: int) -> dict[str, str]:
    """What a run that goes on may change."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} processors, {jobs} processes",
        "seconds of the last run": f"{seconds:.0f}",
    }


def _version(name: str) -> str:
    return f"{name} {importlib.metadata.version(name)}"


def _digest(root: Path) -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

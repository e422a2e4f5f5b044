"""What the figures were measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
from pathlib import Path


def facts() -> dict[str, str]:
    """Date, processor, cores, system and the versions that matter."""
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("aotc", "torch", "triton", "numpy")
    )
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} (virtual machine)"
        if _is_virtual()
        else str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "versions": versions,
    }


def _processor() -> str:
    for line in _cpu_lines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _is_virtual() -> bool:
    return any("hypervisor" in line for line in _cpu_lines())


def _cpu_lines() -> list[str]:
    return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()

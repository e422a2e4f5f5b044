"""What the figures were measured on."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path

_DIRECTORIES = re.compile(r"(?<![\w/:.])/(?:[\w.+@~-]+/)+")


def without_directories(text: str) -> str:
    """A text without what belongs to this machine alone: files are named without directories."""
    return _DIRECTORIES.sub("", text)


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


def commit(root: Path) -> str:
    """The commit of the sources under `root`, and whether they differ from it.

    An export of `git archive` has it in a file that git fills in.
    """
    head = _git(root, "rev-parse", "--short", "HEAD") if (root / ".git").exists() else ""
    if head:
        return head + (" with changes" if _git(root, "diff", "--stat", "HEAD") else "")
    archive = root / ".git_archival.txt"
    said = archive.read_text(encoding="ascii").strip() if archive.exists() else ""
    return said if said and not said.startswith("$") else "unknown"


def _git(root: Path, *arguments: str) -> str:
    command = ("git", *arguments)
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _processor() -> str:
    for line in _cpu_lines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _is_virtual() -> bool:
    return any("hypervisor" in line for line in _cpu_lines())


def _cpu_lines() -> list[str]:
    return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()

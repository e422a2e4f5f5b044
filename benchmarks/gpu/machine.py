"""The device and the versions that a run was measured with."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess

PACKAGES = ("torch", "triton", "transformers")


def facts() -> dict[str, str]:
    """What a page of figures says about the machine, today."""
    return {
        "date": datetime.date.today().isoformat(),
        "device": query("name"),
        "driver": query("driver_version"),
        "processor cores": str(len(os.sched_getaffinity(0))),
        "versions": ", ".join(version(name) for name in PACKAGES),
        "python": platform.python_version(),
    }


def query(field: str) -> str:
    """A field of the first device as `nvidia-smi` knows it."""
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip().splitlines()[0]


def version(name: str) -> str:
    """A package and its version."""
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{name} not installed"

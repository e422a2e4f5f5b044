"""Prints what a run of the GPU's tests stands on: date, commit, device, driver, versions."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import sys
import time
from pathlib import Path

from aotc.runtime.drivers import cuda, libcuda

PACKAGES = ("torch", "triton", "numpy", "cuda-bindings")


def main() -> int:
    reason = cuda.why_absent()
    if reason:
        print(f"error: no device to test on: {reason}", file=sys.stderr)
        return 7
    version = libcuda.library().number("cuDriverGetVersion")
    print("date     ", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    print("commit   ", _commit())
    for ordinal, name, architecture, nbytes in cuda.describe():
        print(f"device {ordinal} ", f"{name}, {architecture}, {nbytes >> 20} MiB")
    print("driver   ", _driver(), f"(CUDA {libcuda.version_text(version)})")
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    print("versions ", ", ".join(versions), flush=True)
    return 0


def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "an export without history"


def _driver() -> str:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return "of unknown version"
    numbers = [word for word in words if word[0].isdigit() and "." in word]
    return numbers[0] if numbers else "of unknown version"


if __name__ == "__main__":
    sys.exit(main())

"""Prints what a run of the GPU's tests stands on: date, sources, device, driver, versions.

The sources are named by their own digest, so that an export without history can say it too;
`--sources` prints that line alone, to compare a checkout with a report.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import sys
import time
from pathlib import Path

from aotc.runtime.drivers.cuda import driver as cuda
from aotc.runtime.drivers.cuda import libcuda

ROOT = Path(__file__).parents[1]
TESTED = ("aot", "cache", "kernels", "runtime", "tests/gpu")
PACKAGES = ("torch", "triton", "numpy", "cuda-bindings")


def main() -> int:
    if sys.argv[1:] == ["--sources"]:
        print(_sources())
        return 0
    reason = cuda.why_absent()
    if reason:
        print(f"error: no device to test on: {reason}", file=sys.stderr)
        return 7
    version = libcuda.library().number("cuDriverGetVersion")
    print("date     ", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()))
    print("sources  ", _sources())
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


def _sources() -> str:
    """Names and bytes of all Python files that the tests run, as one digest."""
    digest = hashlib.sha256()
    for folder in TESTED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            data = path.read_bytes()
            digest.update(f"{path.relative_to(ROOT).as_posix()} {len(data)}\n".encode() + data)
    return f"sha256 {digest.hexdigest()[:16]} of {', '.join(TESTED)}"


def _driver() -> str:
    try:
        words = Path("/proc/driver/nvidia/version").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return "of unknown version"
    numbers = [word for word in words if word[0].isdigit() and "." in word]
    return numbers[0] if numbers else "of unknown version"


if __name__ == "__main__":
    sys.exit(main())

"""What this machine is: its processor, its instruction sets, the CPUs this process may use."""

from __future__ import annotations

import re
from pathlib import Path

from aotc.runtime.drivers.cpu import driver
from aotc.runtime.drivers.cpu.pool import default_threads


def cpu_name() -> str:
    """The processor's name as the system gives it, `unknown` where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def isa_rows() -> tuple[str, ...]:
    """The rows of the CPU target's instruction sets that this machine has, the best last."""
    features = driver.features()
    return tuple(name for name, needed in driver.ISA_FEATURES.items() if needed <= features)


def usable_cpus() -> int:
    """CPUs that affinity and cgroup limits leave to this process."""
    return default_threads()


def device_name() -> str:
    """One word for this kind of machine, as tuning records have it: `amd-epyc-9b14-x2`."""
    word = re.sub(r"[^a-z0-9]+", "-", cpu_name().lower()).strip("-")
    return f"{word}-x{usable_cpus()}"

"""Names of this machine's processor and devices."""

from __future__ import annotations

import re
from pathlib import Path

from aotc.aot.tasks.task import device_word
from aotc.runtime import drivers
from aotc.runtime.drivers.cpu.pool import default_threads


def cpu_name() -> str:
    """The processor's name as the system gives it, `unknown` where it does not."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else "unknown"


def device_name() -> str:
    """One word for this kind of machine, as tuning records have it: `amd-epyc-9b14-x2`."""
    return f"{device_word(cpu_name())}-x{default_threads()}"


def devices_here(family: str) -> tuple[list[str], list[str]]:
    """What this machine has for a family of devices, in its driver's words, and what tuning records
    call its devices."""
    driver = drivers.load(family)
    names = [device_word(name) for _, name, _, _ in driver.describe()]
    return sorted(driver.features()), names or [device_name()]

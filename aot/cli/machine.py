"""What this machine is: its instruction sets, the CPUs this process may use."""

from __future__ import annotations

from aotc.runtime.drivers.cpu import driver
from aotc.runtime.drivers.cpu.pool import default_threads


def isa_rows() -> tuple[str, ...]:
    """The rows of the CPU target's instruction sets that this machine has, the best last."""
    features = driver.features()
    return tuple(name for name, needed in driver.ISA_FEATURES.items() if needed <= features)


def usable_cpus() -> int:
    """CPUs that affinity and cgroup limits leave to this process."""
    return default_threads()

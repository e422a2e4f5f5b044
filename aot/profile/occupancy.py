"""How many threads of a kernel a multiprocessor of a CUDA device holds at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

REGISTERS_AT_A_TIME = 256  # that a warp is given, in all compute capabilities since 3.0


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What one holds: threads, programs, registers, and bytes of shared memory, of which each
    program takes `reserved_bytes` beside its own."""

    threads: int
    programs: int
    registers: int
    shared_bytes: int
    reserved_bytes: int
    warp_threads: int = 32

    @classmethod
    def of(cls, device: Any) -> Self:
        """The multiprocessor of a device."""
        return cls(
            *map(
                device.attribute,
                (
                    "multiprocessor_threads",
                    "multiprocessor_programs",
                    "multiprocessor_registers",
                    "multiprocessor_shared_bytes",
                    "reserved_shared_bytes",
                    "warp_threads",
                ),
            )
        )

    def occupancy(self, threads: int, registers: int, shared_bytes: int) -> float:
        """The share of its threads that are those of programs which fit at once.

        threads: of a program; registers: of a thread. NVIDIA, "CUDA C++ Programming Guide",
        compute capabilities: registers are dealt out to whole warps.
        """
        warps = -(-max(threads, 1) // self.warp_threads)
        of_warp = -(-registers * self.warp_threads // REGISTERS_AT_A_TIME) * REGISTERS_AT_A_TIME
        fits = min(
            self.programs,
            self.threads // (warps * self.warp_threads),
            self.registers // max(warps * of_warp, 1),
            self.shared_bytes // max(shared_bytes + self.reserved_bytes, 1),
        )
        return fits * warps * self.warp_threads / self.threads

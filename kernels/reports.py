"""What a launched kernel reports: lines that it prints, assertions that failed, accesses beyond a
tensor.

The layout of the buffer is that of `aotc.aot.targets.cpu.reports`.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aotc.aot.errors import KernelAsserted, OutOfBounds
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.reports import HEADER_BYTES, REPORT_BYTES, SPAN_BYTES
from aotc.kernels.arguments import Packer, span
from aotc.runtime.drivers.memory import Memory

MOST_REPORTS = 1 << 17
"""Of one launch; more are counted and left out."""
_HEADER = struct.Struct("<3q")
_SPAN = struct.Struct("<2Q")
_REPORT = struct.Struct("<4i2q")


class Report(NamedTuple):
    """One row of the buffer."""

    site: int
    x: int
    y: int
    z: int
    place: int
    value: int

    @property
    def program(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


class Reports:
    """The buffer of a kernel, and what becomes of it after each launch."""

    def __init__(self, kernel: str, sites: Sequence[Mapping[str, Any]], packer: Packer) -> None:
        self.kernel = kernel
        self.sites = sites
        self.packer = packer
        self.checks_memory = any(site["kind"] == "access" for site in sites)
        self.spans: list[tuple[int, int]] = []
        self.first = HEADER_BYTES + SPAN_BYTES * len(packer.slots)
        self.memory = Memory(self.first + REPORT_BYTES * MOST_REPORTS)
        block = (ctypes.c_char * self.memory.nbytes).from_address(self.memory.address)
        self.view = memoryview(block).cast("B")

    def begin(self, arguments: tuple[Any, ...]) -> bytes:
        """Empties the buffer; gives its address as the last argument of a launch."""
        _HEADER.pack_into(self.view, 0, 0, MOST_REPORTS, self.first)
        if self.checks_memory:
            self.spans = [span(x) for x in self.packer.tensors(arguments)]
            for place, found in enumerate(self.spans):
                _SPAN.pack_into(self.view, HEADER_BYTES + SPAN_BYTES * place, *found)
        return self.memory.address.to_bytes(8, "little")

    def end(self) -> None:
        """Prints what the kernel printed; raises KernelAsserted for a failed assertion and
        OutOfBounds for an access beyond its tensor, the first of each."""
        count, *_ = _HEADER.unpack_from(self.view, 0)
        if not count:
            return
        failed: dict[str, list[Report]] = {"assert": [], "access": []}
        lines: list[str] = []
        for report in self._reports(min(count, MOST_REPORTS)):
            kind = self.sites[report.site]["kind"]
            if kind == "print":
                lines.append(self._line(report))
            else:
                failed[kind].append(report)
        if count > MOST_REPORTS:
            lines.append(f"{count - MOST_REPORTS} more reports of `{self.kernel}` are left out\n")
        sys.stdout.write("".join(lines))
        sys.stdout.flush()
        if failed["access"]:
            raise self._access(failed["access"])
        if failed["assert"]:
            raise self._assertion(failed["assert"])

    def _reports(self, count: int) -> Iterator[Report]:
        end = self.first + REPORT_BYTES * count
        return (Report(*x) for x in _REPORT.iter_unpack(self.view[self.first : end]))

    def _access(self, found: Sequence[Report]) -> OutOfBounds:
        first = min(found, key=lambda x: (x.z, x.y, x.x, x.site))
        site, slot = self.sites[first.site], first.place
        address = first.value & (1 << 64) - 1
        if slot < 0:
            where = f"address {address:#x}, in no tensor of the call"
        else:
            start, nbytes = self.spans[slot]
            name = self.packer.slots[slot].name
            where = f"byte {address - start} of `{name}`, which has {nbytes}"
        return OutOfBounds(
            kernel=self.kernel,
            access=site["access"],
            nbytes=site["nbytes"],
            where=where,
            line=site["line"] or "an unknown line",
            program=first.program,
            count=len(found),
        )

    def _assertion(self, failed: Sequence[Report]) -> KernelAsserted:
        first = min(failed, key=lambda x: (x.z, x.y, x.x, x.site))
        site = self.sites[first.site]
        return KernelAsserted(
            text=site["message"],
            kernel=self.kernel,
            line=site["line"] or "an unknown line",
            program=first.program,
            element=_place(first.place - 1, site["shape"]),
            count=len({report.program for report in failed}),
        )

    def _line(self, report: Report) -> str:
        """As a GPU prints it: `pid (0, 0, 0) idx ( 7) x: 7`."""
        site = self.sites[report.site]
        prefix, begin = site["prefix"], f"pid {report.program}"
        if not site["operands"]:
            return f"{begin}{prefix}\n"
        shape = site["shape"]
        widths = [len(str(size - 1)) for size in shape]
        at = _place(report.place, shape)
        places = ", ".join(f"{x:{width}}" for x, width in zip(at, widths, strict=True))
        which = f"(operand {site['operand']}) " if site["operands"] > 1 else ""
        return f"{begin} idx ({places}){prefix}{which}{_number(report.value, site)}\n"


def _place(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of the element at a place of a tensor, row by row."""
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat //= size
    return tuple(reversed(found))


def _number(value: int, site: Mapping[str, Any]) -> str:
    kind = site["type"]
    if kind == "ptr":
        return f"0x{value & (1 << 64) - 1:x}"
    if kind[0] in "fb":
        (number,) = struct.unpack("<d", struct.pack("<q", value))
        return f"{number:f}" if math.isfinite(number) else str(number)
    bits = 8 * ITEMSIZE_BYTES[kind]
    if site["is_hex"]:
        return f"0x{value & (1 << bits) - 1:0{bits // 4}x}"
    return str(value if site["is_signed"] or value >= 0 else value + (1 << 64))

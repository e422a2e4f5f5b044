"""What a launched kernel reports: lines that it prints, assertions that failed, accesses beyond a
tensor, races between programs.

The layout of the buffer is that of `aotc.aot.targets.cpu.reports`.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from aotc.aot.errors import DataRace, KernelAsserted, OutOfBounds
from aotc.aot.targets.cpu.lanes import ITEMSIZE_BYTES
from aotc.aot.targets.cpu.reports import (
    HEADER_BYTES,
    HISTORY_BYTES,
    REPORT_BYTES,
    SITE_BITS,
    SPAN_BYTES,
    X_BITS,
    Y_BITS,
)
from aotc.kernels.arguments import Packer, span
from aotc.runtime.drivers.memory import Memory

MOST_REPORTS = 1 << 17
"""Of one launch; more are counted and left out."""
MOST_FOLLOWED_BYTES = 1 << 28
"""Of a tensor whose accesses are compared: their history takes 24 times as much."""
_HEADER = struct.Struct("<3q")
_SPAN = struct.Struct("<3Q")
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
        self.checks_races = any(site["kind"] == "race" for site in sites)
        self.spans: list[tuple[int, int]] = []
        self.histories: list[mmap.mmap] = []
        self.first = HEADER_BYTES + SPAN_BYTES * len(packer.slots)
        self.memory = Memory(self.first + REPORT_BYTES * MOST_REPORTS)
        block = (ctypes.c_char * self.memory.nbytes).from_address(self.memory.address)
        self.view = memoryview(block).cast("B")

    def begin(self, arguments: tuple[Any, ...]) -> bytes:
        """Empties the buffer; gives its address as the last argument of a launch."""
        _HEADER.pack_into(self.view, 0, 0, MOST_REPORTS, self.first)
        if self.checks_memory:
            self.spans = [span(x) for x in self.packer.tensors(arguments)]
            kept = self._history() if self.checks_races else [0] * len(self.spans)
            for place, found in enumerate(self.spans):
                row = (*found, kept[place])
                _SPAN.pack_into(self.view, HEADER_BYTES + SPAN_BYTES * place, *row)
        return self.memory.address.to_bytes(8, "little")

    def _history(self) -> list[int]:
        """Where the history of each argument's tensor begins, or 0; tensors that share memory
        share it."""
        found = [0] * len(self.spans)
        known = [x for x in range(len(found)) if 0 < self.spans[x][1] < MOST_FOLLOWED_BYTES]
        groups: list[list[int]] = []
        end = 0
        for place in sorted(known, key=lambda x: self.spans[x]):
            start, nbytes = self.spans[place]
            if not groups or start >= end:
                groups.append([])
            groups[-1].append(place)
            end = max(end, start + nbytes) if len(groups[-1]) > 1 else start + nbytes
        self.histories = []
        for group in groups:
            start = self.spans[group[0]][0]
            nbytes = max(sum(self.spans[place]) for place in group) - start
            self.histories.append(mmap.mmap(-1, nbytes * HISTORY_BYTES))
            block = ctypes.c_char.from_buffer(self.histories[-1])
            for place in group:
                skip = (self.spans[place][0] - start) * HISTORY_BYTES
                found[place] = ctypes.addressof(block) + skip
        return found

    def end(self) -> None:
        """Prints what the kernel printed; raises KernelAsserted for a failed assertion, OutOfBounds
        for an access beyond its tensor and DataRace for two of one place, the first of each."""
        self.histories = []
        count, *_ = _HEADER.unpack_from(self.view, 0)
        if not count:
            return
        failed: dict[str, list[Report]] = {"assert": [], "access": [], "race": []}
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
        if failed["race"]:
            raise self._race(failed["race"])
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

    def _race(self, found: Sequence[Report]) -> DataRace:
        first = min(found, key=lambda x: (x.z, x.y, x.x, x.site))
        site, address = self.sites[first.site], first.place & (1 << 64) - 1
        start, name = next(
            (start, row.name)
            for (start, nbytes), row in zip(self.spans, self.packer.slots, strict=True)
            if start <= address < start + nbytes
        )
        other = first.value & (1 << 64) - 1
        parts = []
        for bits in (2, SITE_BITS, X_BITS, Y_BITS):
            parts.append(other & (1 << bits) - 1)
            other >>= bits
        _, number, x, y = parts
        return DataRace(
            kernel=self.kernel,
            program=first.program,
            access=site["access"],
            nbytes=site["nbytes"],
            where=f"byte {address - start} of `{name}`",
            line=site["line"] or "an unknown line",
            other=(x, y, other),
            other_access=self.sites[number]["access"],
            other_line=self.sites[number]["line"] or "an unknown line",
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

"""What a profile holds: launches with their times, limits of the device, and both together."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.profile.occupancy import Multiprocessor
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.native_plan import NativeLaunch
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import LaunchPlan
from aotc.runtime.bundle.plan_parts import Image
from aotc.runtime.bundle.torch_calls import TorchCall

PROVENANCE = "provenance.json"
FACTS = ("registers", "spill_bytes")
CONTROL = "control"  # the name of control steps, which take no time


@dataclass(frozen=True, slots=True)
class Limits:
    """What the device reaches, measured: bytes moved and operations of products a second."""

    bytes_per_s: float
    operations_per_s: float
    products: str = "bf16 products"

    def floor_us(self, nbytes: int, operations: int, product_rate: float = 1.0) -> float:
        """Lower bound in microseconds for work of this size here. `product_rate`: the rate that its
        products can reach, if other than the measured ones."""
        operations_per_s = self.operations_per_s * product_rate
        return max(nbytes / self.bytes_per_s, operations / operations_per_s) * 1e6


SLOW_SHARE_OF_CALL, SLOW_SHARE_OF_LIMIT = 0.03, 0.25
"""A kernel is slow that takes more of a call's launches than the first and reaches less of its
limit than the second."""


@dataclass(frozen=True, slots=True)
class SlowKernel:
    """A kernel far from the device's limit: the time of all its launches in a call, and the time
    that they would take at the limit, both in microseconds."""

    name: str
    symbol: str
    launches: int
    time_us: float
    limit_us: float
    share_of_call: float

    @property
    def lost_us(self) -> float:
        """How much shorter a call would be with this kernel at the limit."""
        return self.time_us - self.limit_us


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """A step of a call: a launch, an op that torch runs, or a control step. Fields are None where
    the bundle's facts do not have them."""

    index: int
    name: str
    symbol: str
    grid: tuple[int, int, int]
    time_us: float  # the median
    nbytes: int | None = None  # moved between memory and the kernel
    operations: int | None = None
    product_rate: float = 1.0  # of its products, beside those that limits are measured of
    threads: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spill_bytes: int | None = None
    occupancy: float | None = None  # see `Multiprocessor`


@dataclass(frozen=True, slots=True)
class Profile:
    """All launches of a call on one device. `call_us`: of a whole call, as it is served.
    `host_us`: how long a call keeps the caller where a device runs the launches, else None."""

    target: str
    device: str
    launches: tuple[LaunchRow, ...]
    call_us: float
    limits: Limits | None = None
    host_us: float | None = None
    entry: str = ""  # the entry point that was called

    @property
    def launches_us(self) -> float:
        """The sum of all launches."""
        return sum(row.time_us for row in self.launches)

    def share_of_limit(self, rows: Sequence[LaunchRow]) -> float | None:
        """The lower bound of some launches over their time; None if their bytes are not known."""
        if self.limits is None or not rows:
            return None
        floor_us = 0.0
        for row in rows:
            if row.nbytes is None or row.operations is None:
                return None
            floor_us += self.limits.floor_us(row.nbytes, row.operations, row.product_rate)
        return floor_us / max(sum(row.time_us for row in rows), 1e-9)

    def by_kernel(self) -> dict[str, list[LaunchRow]]:
        """The launches of each kernel by its symbol, those that take longest together first."""
        found: dict[str, list[LaunchRow]] = {}
        for row in self.launches:
            if row.name.startswith(f"{CONTROL} "):
                continue
            found.setdefault(row.symbol, []).append(row)
        order = sorted(found, key=lambda name: -sum(row.time_us for row in found[name]))
        return {name: found[name] for name in order}

    def slow_kernels(self) -> list[SlowKernel]:
        """The slow kernels, by the time that a call would gain; none where limits are not known."""
        found = []
        for symbol, rows in self.by_kernel().items():
            share = self.share_of_limit(rows)
            time_us = sum(row.time_us for row in rows)
            share_of_call = time_us / max(self.launches_us, 1e-9)
            if share is None or share >= SLOW_SHARE_OF_LIMIT or share_of_call <= SLOW_SHARE_OF_CALL:
                continue
            name, limit_us = rows[0].name, share * time_us
            found.append(SlowKernel(name, symbol, len(rows), time_us, limit_us, share_of_call))
        return sorted(found, key=lambda row: -row.lost_us)

    def record(self) -> dict[str, Any]:
        """The profile as plain data, for `--json`."""
        launches = [
            {**asdict(row), "share_of_limit": self.share_of_limit([row])} for row in self.launches
        ]
        limits = asdict(self.limits) if self.limits is not None else None
        return {
            "target": self.target,
            "device": self.device,
            "entry": self.entry,
            "call_us": self.call_us,
            "host_us": self.host_us,
            "launches_us": self.launches_us,
            "limits": limits,
            "share_of_limit": self.share_of_limit(self.launches),
            "slow_kernels": [asdict(row) for row in self.slow_kernels()],
            "launches": launches,
        }


def work_of(group: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Bytes and operations of a launch; unknown where the number of its runs depends on data."""
    if group.get("are_most"):
        return None, None
    return group.get("bytes"), group.get("arithmetic")


def rows_of(
    plan: LaunchPlan,
    times_us: Sequence[float],
    facts: Mapping[str, Any],
    multiprocessor: Multiprocessor | None = None,
) -> tuple[LaunchRow, ...]:
    """The steps of a plan with their times and what the build knew of them; multiprocessor: of the
    GPU that they ran on."""
    known, kernels = facts.get("groups", []), facts.get("kernels", {})
    rates = facts.get("product_rates", {})  # by the names of kernels
    count = sum(step.kind not in ("torch", "control") for step in plan.steps)
    groups = iter(known if len(known) == count else [{}] * count)
    rows = []
    for index, (launch, time_us) in enumerate(zip(plan.steps, times_us, strict=True)):
        if isinstance(launch, TorchCall):
            nbytes = sum(tensor.nbytes for tensor in launch.tensors())
            name = f"torch {launch.op}"
            rows.append(LaunchRow(index, name, launch.op, (1, 1, 1), time_us, nbytes))
            continue
        if isinstance(launch, ControlStep):
            rows.append(
                LaunchRow(index, f"{CONTROL} {launch.text}", launch.word, (1, 1, 1), time_us)
            )
            continue
        if isinstance(launch, NativeLaunch):
            name, group = f"{launch.backend}.{launch.function}", next(groups)
            grid = (launch.tiles, 1, 1)
            rows.append(LaunchRow(index, name, launch.function, grid, time_us, *work_of(group)))
            continue
        kernel, group = plan.kernels[launch.kernel], next(groups)
        code = kernels.get(kernel.symbol, {})
        image = kernel.image
        rows.append(
            LaunchRow(
                index,
                kernel.name,
                kernel.symbol,
                launch.grid,
                time_us,
                *work_of(group),
                _rate(group.get("product_rate", rates.get(kernel.name))),
                image.threads if image is not None else None,
                code.get("registers") if image is not None else None,
                image.shared_bytes if image is not None else None,
                code.get("spill_bytes") if image is not None else None,
                _occupancy(multiprocessor, image, code.get("registers")),
            )
        )
    return tuple(rows)


def _occupancy(
    multiprocessor: Multiprocessor | None, image: Image | None, registers: int | None
) -> float | None:
    if multiprocessor is None or image is None or registers is None:
        return None
    return multiprocessor.occupancy(image.threads, registers, image.shared_bytes)


def _rate(value: object) -> float:
    """A rate in the facts of a bundle; older bundles have none."""
    return value if isinstance(value, float) and 0.0 < value <= 1.0 else 1.0


def product_rates(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the build wrote of how fast products can be, by the names of kernels."""
    rows = facts.get("groups")
    named = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {str(row.get("name")): row.get("product_rate") for row in named}


def facts_of(bundle: Bundle, target: str) -> Mapping[str, Any]:
    """What the build wrote about a target; empty where its facts were deleted."""
    data = bundle.read_extra(PROVENANCE)
    parsed = json.loads(data) if data else {}
    facts = parsed.get("targets", {}).get(target, {}) if isinstance(parsed, dict) else {}
    return facts if isinstance(facts, dict) else {}

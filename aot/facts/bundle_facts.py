"""The facts of a bundle: every file checked against its digest, then those read that say something.

Nothing of a bundle is run, and none of its code is loaded, so that bundles of machines that are not
here can be looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aotc.aot.facts.extra import read_entry, read_json
from aotc.aot.facts.graph_file import GraphFile, read_graphs
from aotc.aot.facts.layouts import layouts, stored_tensors
from aotc.runtime.bundle.manifest import FileEntry, Manifest
from aotc.runtime.bundle.opened import Bundle, read_bundle
from aotc.runtime.bundle.plan import LaunchPlan, Plan
from aotc.runtime.bundle.weights import Tensor
from aotc.runtime.errors import BundleFileMissing, BundleMalformed, GoldenMissing
from aotc.runtime.extras import Golden, golden_of
from aotc.runtime.verify import require_integrity

PROVENANCE = "provenance.json"


# What a target's facts say of the arithmetic of f32, and of which operations.
PRECISIONS = (("dot_precision", "products"), ("convolution_precision", "convolutions"))


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """What a bundle's files say. What was deleted from it, or was never written, is empty.

    plans: by target. tensors: of the weights file. golden: by entry. sources: the grammar's data
    by target, `texts` the kernels' sources by file.
    """

    path: str
    digest: str
    manifest: Manifest
    plans: Mapping[str, Plan]
    provenance: Mapping[str, Any]
    graphs: GraphFile | None
    tensors: Mapping[str, Tensor]
    layouts: tuple[dict[str, Any], ...]
    golden: Mapping[str, Golden]
    sources: Mapping[str, Mapping[str, Any]]
    texts: Mapping[str, str]
    files: tuple[FileEntry, ...]

    def build_facts(self, target: str) -> Mapping[str, Any]:
        """What the build noted of a target: groups, kernels, tuning."""
        return as_map(as_map(self.provenance.get("targets")).get(target))

    def tuned(self, target: str) -> Iterator[Tuned]:
        """The lines of the tuning record that the build noted of a target."""
        for line in as_rows(self.build_facts(target).get("tuning")):
            cells = str(line).split()
            if len(cells) == 7:
                yield Tuned(cells[0], *cells[3:])

    def kernel_facts(self, target: str, symbol: str) -> Mapping[str, Any]:
        """What the build noted of a kernel: its choice, registers, spills."""
        return as_map(as_map(self.build_facts(target).get("kernels")).get(symbol))


@dataclass(frozen=True, slots=True)
class Tuned:
    """A line of a tuning record: the digest of a kernel's row in the sources, the choice and the
    runner-up with their microseconds, all as they stand there."""

    digest: str
    choice: str
    time_us: str
    runner_up: str
    runner_up_time_us: str


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """What an entry of a target runs for a range of sizes, at the smallest of these.

    number: of the variant in the plan; ranges: (name, lowest, highest) of each dynamic size.
    """

    target: str
    entry: str
    number: int
    ranges: tuple[tuple[str, int, int], ...]
    plan: LaunchPlan

    @property
    def label(self) -> str:
        """The target and, where there are several, the range: `cpu, batch 1..7`."""
        return ", ".join(
            [self.target, *(f"{name} {low}..{high}" for name, low, high in self.ranges)]
        )


def read_facts(path: str | os.PathLike[str], digest: str | None = None) -> BundleFacts:
    """The facts of the bundle at `path`, every byte of which has its digest.

    digest: the bundle digest that it must have, as `load` takes it. Raises `BundleError`s,
    `IncompatibleError`s and `EnvironmentFault`.
    """
    return read_bundle(path, _facts, digest)


def variants(facts: BundleFacts) -> Iterator[VariantPlan]:
    """All variants of all targets, in the order of the plans."""
    for target, plan in facts.plans.items():
        for number, (row, (lows, entry)) in enumerate(zip(plan.variants, plan.lows, strict=True)):
            own = facts.manifest.entries[entry]
            pairs = zip(own.dims, row.ranges, strict=False)
            ranges = tuple((dim.name, low, high) for dim, (low, high) in pairs)
            yield VariantPlan(target, own.name, number, ranges, plan.at(lows, entry))


def as_map(value: Any) -> Mapping[str, Any]:
    """A map of an extra's file; empty where something else stands."""
    return value if isinstance(value, dict) else {}


def as_rows(value: Any) -> list[Any]:
    """A list of an extra's file; empty where something else stands."""
    return value if isinstance(value, list) else []


def _facts(opened: Bundle) -> BundleFacts:
    require_integrity(opened)
    manifest = opened.manifest
    plans = {}
    for row in manifest.targets:
        plan = Plan.from_msgpack(opened.read(row.plan), opened.where(row.plan))
        if plan.entries != len(manifest.entries):
            found, expected = f"of {plan.entries} entries", f"those of {len(manifest.entries)}"
            where = opened.where(row.plan)
            raise BundleMalformed(path=where, field="variants", found=found, expected=expected)
        plans[row.name] = plan
    names = [f"sources/{row.name}.json" for row in manifest.targets]
    sources = {
        row.name: as_map(read_json(opened, name))
        for row, name in zip(manifest.targets, names, strict=True)
    }
    golden = {}
    with suppress(GoldenMissing):
        golden = {entry.name: golden_of(opened, entry.name) for entry in manifest.entries}
    return BundleFacts(
        path=opened.path,
        digest=opened.digest,
        manifest=manifest,
        plans=plans,
        provenance=as_map(read_json(opened, PROVENANCE)),
        graphs=read_graphs(opened),
        tensors=stored_tensors(opened),
        layouts=tuple(layouts(opened, plans)),
        golden=golden,
        sources=sources,
        texts=_texts(opened),
        files=tuple(_files(opened)),
    )


def _texts(opened: Bundle) -> dict[str, str]:
    """Triton source by its file's name."""
    found = {}
    for entry in _extras(opened):
        if entry.name.startswith("sources/") and entry.name.endswith(".py"):
            data = read_entry(opened, entry)
            if data is not None:
                found[entry.name.removeprefix("sources/")] = data.decode("utf-8", "replace")
    return found


def _files(opened: Bundle) -> Iterator[FileEntry]:
    """Every file that has a digest of its own."""
    yield from opened.manifest.files
    if opened.manifest.extras is not None:
        yield opened.manifest.extras
    yield from _extras(opened)


def _extras(opened: Bundle) -> tuple[FileEntry, ...]:
    try:
        return opened.extras().files
    except BundleFileMissing:
        return ()

"""Which targets of two bundles are compared with each other: by name, else by device family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from aotc.aot.facts.bundle_facts import BundleFacts, as_map

V = TypeVar("V")


def with_paired_targets(one: BundleFacts, other: BundleFacts) -> tuple[BundleFacts, BundleFacts]:
    """Both, with a common name for each target that only one has, and for the first of the same
    device family that only the other one has: `cpu-x86-64-v3 → cpu-x86-64-v4`."""
    left: dict[str, str] = {}
    right: dict[str, str] = {}
    known = ({row.name for row in facts.manifest.targets} for facts in (one, other))
    both = set.intersection(*known)
    rest = [row for row in other.manifest.targets if row.name not in both]
    for row in one.manifest.targets:
        alike = [each for each in rest if each.device == row.device and each.name not in right]
        if row.name not in both and alike:
            left[row.name] = right[alike[0].name] = f"{row.name} → {alike[0].name}"
    return _renamed(one, left), _renamed(other, right)


def _renamed(facts: BundleFacts, names: Mapping[str, str]) -> BundleFacts:
    """The facts with other names of some targets."""
    if not names:
        return facts

    def keyed(rows: Mapping[str, V]) -> dict[str, V]:
        return {names.get(name, name): value for name, value in rows.items()}

    targets = tuple(
        row.replace(name=names.get(row.name, row.name)) for row in facts.manifest.targets
    )
    graphs = facts.graphs
    if graphs is not None:
        changed = (row.replace(name=names.get(row.name, row.name)) for row in graphs.targets)
        graphs = graphs.replace(targets=tuple(changed))
    notes = {**facts.provenance, "targets": keyed(as_map(facts.provenance.get("targets")))}
    return replace(
        facts,
        manifest=facts.manifest.replace(targets=targets),
        plans=keyed(facts.plans),
        provenance=notes,
        graphs=graphs,
        sources=keyed(facts.sources),
    )

"""`diff`: two bundles' facts → what differs, by section."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.diff.graphs import NodeChange, changes
from aotc.aot.diff.sections import SECTIONS, Value, graphs_of
from aotc.aot.diff.targets import with_paired_targets
from aotc.aot.facts.bundle_facts import BundleFacts
from aotc.aot.facts.graph_file import GraphFile, Variant
from aotc.runtime.errors import BundleLimit

GRAPH = "graph"
NAMES = (*SECTIONS, GRAPH)
# Section → the files that hold nothing that another section would not show.
HELD_BY = {
    "settings": ("provenance.json",),
    "times": ("provenance.json", "graph.json"),
    "kernels": ("provenance.json", "sources/", "targets/", "debug/"),
    "fusion": ("provenance.json", "graph.json", "debug/"),
    "ops": ("graph.json", "debug/"),
    GRAPH: ("graph.json", "debug/"),
    "numbers": ("golden.safetensors",),
}
LETTERS_LIMIT = 1 << 26  # of all names and values of a section
OF_TARGETS = ("ops", "fusion", "kernels", "sizes", "times")
LISTS = ("bundle digest", "extras.msgpack")  # which change with any file


@dataclass(frozen=True, slots=True)
class Change:
    """One name of a section: what each bundle says of it; None where it says nothing."""

    name: str
    one: Value
    other: Value

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        if self.one is None:
            return "added"
        return "removed" if self.other is None else "changed"


@dataclass(frozen=True, slots=True)
class GraphChange:
    """The graph of a target's entry and range: nodes that differ."""

    label: str
    nodes: tuple[NodeChange, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs between two bundles; sections that are the same are left out."""

    one: str  # paths
    other: str
    sections: Mapping[str, tuple[Change, ...]]
    graphs: tuple[GraphChange, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the bundles are the same in all sections that were compared."""
        return not self.sections and not self.graphs

    def record(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        return {
            "one": self.one,
            "other": self.other,
            "same": self.is_empty,
            "sections": {
                name: [{"kind": row.kind, **asdict(row)} for row in rows]
                for name, rows in self.sections.items()
            },
            "graphs": [asdict(each) for each in self.graphs],
        }


def diff(one: BundleFacts, other: BundleFacts, ignored: Collection[str] = ()) -> Difference:
    """What differs between two bundles, without the sections to be ignored."""
    sections = {}
    paired = with_paired_targets(one, other)
    for name, section in SECTIONS.items():
        if name not in ignored:
            both = paired if name in OF_TARGETS else (one, other)
            rows = tuple(_changes(*(_names(each, section(each)) for each in both)))
            if name == "files" and ignored:
                held = (*LISTS, *(file for each in ignored for file in HELD_BY.get(each, ())))
                rows = tuple(row for row in rows if not row.name.startswith(held))
            if rows:
                sections[name] = rows
    graphs = () if GRAPH in ignored else tuple(_graphs(*paired))
    return Difference(one.path, other.path, sections, graphs)


def _names(facts: BundleFacts, rows: Iterable[tuple[str, Value]]) -> dict[str, Value]:
    """Names with what the bundle says of each; raises `BundleLimit`: a small file can say a long
    text many times."""
    found: dict[str, Value] = {}
    letters = 0
    for name, value in rows:
        letters += len(name) + len(str(value))
        if letters > LETTERS_LIMIT:
            what, limit = "what it says of a section", f"{LETTERS_LIMIT} letters"
            raise BundleLimit(path=facts.path, what=what, found="more", limit=limit)
        found[name] = value
    return found


def _changes(one: Mapping[str, Value], other: Mapping[str, Value]) -> Iterator[Change]:
    for name in dict.fromkeys((*one, *other)):
        if one.get(name) != other.get(name):
            yield Change(name, one.get(name), other.get(name))


def _graphs(one: BundleFacts, other: BundleFacts) -> Iterator[GraphChange]:
    """The graphs that both have, under the same target, entry and range."""
    ours, theirs = _labelled(one), _labelled(other)
    for label, graph in ours.items():
        if label in theirs:
            nodes = tuple(changes(graph, theirs[label]))
            if nodes:
                yield GraphChange(label, nodes)


def _labelled(facts: BundleFacts) -> dict[str, tuple[GraphFile, Variant]]:
    return {label: (file, variant) for label, file, variant in graphs_of(facts)}

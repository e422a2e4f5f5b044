"""`graph.json`, an extra of a bundle: the graphs that its kernels were made from.

    texts    the distinct texts of ops, attributes, types and lines of the model
    node     [op, attributes, type, line of the model, operands]    four numbers of texts
    group    what one launch computes, in the order of the launches

A bundle has it for people and for `aotc report` and `aotc diff`; `load` never reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from aotc.aot.facts.extra import read_json
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import VARIANTS_LIMIT
from aotc.runtime.bundle.plan_parts import ENTRIES_LIMIT
from aotc.runtime.bundle.schema import Fields, Integer, List, Row, Text, read, refuse
from aotc.runtime.record import Record, field

NAME = "graph.json"
VERSION = 1
NODES_LIMIT = 1 << 18
TEXT_LENGTH = 1024
TYPE_CHECKING = False
if TYPE_CHECKING:
    from aotc.runtime.bundle.schema import Broken

PLACE = Integer(0, NODES_LIMIT - 1)
PLACES = List(PLACE, NODES_LIMIT)
COUNT = Integer(0, (1 << 53) - 1)

Node = tuple[int, int, int, int, tuple[int, ...]]


class Group(Record):
    """What one launch computes: its nodes, the nodes that it reads from memory and those that it
    stores there; bytes moved, operations, and nanoseconds by the cost model's figures."""

    kind: str = field(Text(32))
    label: str = field(Text(256))
    nodes: tuple[int, ...] = field(PLACES)
    reads: tuple[int, ...] = field(PLACES)
    stores: tuple[int, ...] = field(PLACES)
    bytes: int = field(COUNT)
    operations: int = field(COUNT)
    estimate_ns: int = field(COUNT)


class Variant(Record):
    """The graph of an entry for a range of each dynamic size: (name, lowest, highest)."""

    entry: int = field(Integer(0, ENTRIES_LIMIT - 1))
    ranges: tuple[tuple[str, int, int], ...] = field(List(Row(Text(), COUNT, COUNT), 64))
    nodes: tuple[Node, ...] = field(List(Row(COUNT, COUNT, COUNT, COUNT, PLACES), NODES_LIMIT))
    outputs: tuple[tuple[str, int], ...] = field(List(Row(Text(256), PLACE), 1 << 16))
    groups: tuple[Group, ...] = field(List(Group, 1 << 16))

    def broken(self) -> Broken:
        """Every number that names no node."""
        count = len(self.nodes)
        for at, node in enumerate(self.nodes):
            if any(operand >= at for operand in node[4]):
                yield f"nodes[{at}]", "an operand that comes later", "one that comes before"
        for at, group in enumerate(self.groups):
            named = (*group.nodes, *group.reads, *group.stores)
            if any(each >= count for each in named):
                yield f"groups[{at}]", "a node that is not there", f"one of {count}"
        if any(place >= count for _, place in self.outputs):
            yield "outputs", "a node that is not there", f"one of {count}"


class TargetGraphs(Record):
    """The graphs of a target, one a variant of its plan; femtoseconds that its kind of machine
    takes for a byte and for an operation, by the cost model."""

    name: str = field(Text())
    byte_fs: int = field(COUNT)
    operation_fs: int = field(COUNT)
    variants: tuple[Variant, ...] = field(List(Variant, VARIANTS_LIMIT))


class GraphFile(Record):
    """The whole file."""

    version: int = field(Integer(VERSION, VERSION))
    texts: tuple[str, ...] = field(List(Text(TEXT_LENGTH, least=0), NODES_LIMIT))
    targets: tuple[TargetGraphs, ...] = field(List(TargetGraphs, 64))

    def broken(self) -> Broken:
        """Every number that names no text."""
        count = len(self.texts)
        for target in self.targets:
            for variant in target.variants:
                if any(number >= count for node in variant.nodes for number in node[:4]):
                    yield "nodes", "a text that is not there", f"one of {count}"

    def target(self, name: str) -> TargetGraphs | None:
        """The graphs of a target; None where it has none."""
        return next((each for each in self.targets if each.name == name), None)

    def lines(self, variant: Variant) -> Iterator[Line]:
        """The nodes of a variant with their texts."""
        for number, (op, attributes, kind, source, operands) in enumerate(variant.nodes):
            texts = self.texts
            yield Line(number, texts[op], texts[attributes], texts[kind], texts[source], operands)


class Line(Record):
    """A node as people read it: `%3 = matmul(%1, %2) : f32[4, 8]`, `model.py:31 in forward`."""

    number: int
    op: str
    attributes: str
    type: str
    source: str
    operands: tuple[int, ...]

    @property
    def call(self) -> str:
        """`matmul(%1, %2)`."""
        items = [f"%{operand}" for operand in self.operands]
        return f"{self.op}({', '.join([*items, *filter(None, [self.attributes])])})"


GRAPH_FILE = Fields(GraphFile)


def print_graphs(graphs: GraphFile) -> bytes:
    """The file's bytes."""
    return json.dumps(GRAPH_FILE.write(graphs), sort_keys=True, separators=(",", ":")).encode()


def read_graphs(bundle: Bundle) -> GraphFile | None:
    """The graphs of an open bundle; None where they were deleted, or it was built without.

    Raises `BundleError`s, for what breaks the grammar `BundleMalformed`.
    """
    tree = read_json(bundle, NAME)
    if tree is None:
        return None
    where = bundle.where(NAME)
    graphs: GraphFile = read(GRAPH_FILE, tree, where)
    refuse(_broken(graphs), where)
    return graphs


def _broken(graphs: GraphFile) -> Broken:
    yield from graphs.broken()
    for target in graphs.targets:
        for variant in target.variants:
            yield from variant.broken()

"""Graphs inside graphs: nodes of `control`, made and changed as wholes.

A body reads its inputs only. So what it needs of its graph's, weights and tables too, are operands
of the node, and bodies of one node have the same inputs in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.ir.graph import Body, Constant, Graph, Node, State, make, walk
from aotc.aot.ir.size import Extent, typical
from aotc.aot.ir.text import body_of


@dataclass(frozen=True, slots=True)
class Part:
    """What becomes a body: what it returns, then what its states hold after it, then its checks;
    over the inputs of its node, and over constants of the graph around it."""

    returned: tuple[Node, ...]
    changed: tuple[Node, ...] = ()
    checks: tuple[Node, ...] = ()

    @property
    def outputs(self) -> tuple[Node, ...]:
        """All of them, in the order of a graph's outputs."""
        return (*self.returned, *self.changed, *self.checks)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a node of `control`: the input of its bodies, and what it is outside."""

    inside: Node
    outside: Node


def operand(name: str, outside: Node) -> Operand:
    """An operand by a name that no other of the node's has."""
    attrs = {"name": name, "dtype": outside.dtype, "shape": outside.shape}
    return Operand(make("input", (), attrs), outside)


def control(
    form: str,
    parts: Sequence[Part],
    given: Sequence[Operand],
    carried: Sequence[Operand] = (),
    condition: Node | None = None,
    count: Extent = 0,
    tag: str = "",
) -> tuple[Node, ...]:
    """The results of a node of `control`, one for each that its parts return or change.

    What none of the parts reads of `given` is left out, and constants that they read are operands
    more. Carried values begin in memory of their own, copies which `tag` keeps apart from others.
    """
    read = {node for part in parts for node in walk(part.outputs)}
    constants = [node for node in dict.fromkeys(read_in_order(parts)) if node.op == "constant"]
    lifted = [operand(f"constant_{at}", node) for at, node in enumerate(constants)]
    kept = [*(each for each in given if each.inside in read), *lifted]
    inside = {each.outside: each.inside for each in lifted}
    ends = [*kept, *carried]
    inputs = tuple(each.inside for each in ends)
    bodies = tuple(_body(part, inputs, carried, inside) for part in parts)
    last = parts[-1]
    results = (*last.returned, *last.changed)
    copies = [
        make("copy", (each.outside,), {"tag": f"{tag}.{number}"})
        for number, each in enumerate(carried)
    ]
    operands = (*([] if condition is None else [condition]), *(e.outside for e in kept), *copies)
    first = len(operands) - len(copies)
    attrs = {
        "form": form,
        "bodies": bodies,
        "count": count,
        "results": tuple((node.dtype, node.shape) for node in results),
        "updates": tuple((number, first + number) for number in range(len(copies))),
    }
    return tuple(
        make("control", operands, {**attrs, "result": number}) for number in range(len(results))
    )


def read_in_order(parts: Sequence[Part]) -> Iterator[Node]:
    """All nodes of the parts, in an order that is fixed."""
    for part in parts:
        yield from walk(part.outputs)


def _body(
    part: Part,
    inputs: tuple[Node, ...],
    carried: Sequence[Operand],
    inside: Mapping[Node, Node],
) -> Body:
    changes = carried if part.changed else ()
    names = (
        *(f"output_{number}" for number in range(len(part.returned))),
        *(f"state_{number}" for number in range(len(part.changed))),
        *(f"check_{number}" for number in range(len(part.checks))),
    )
    states = tuple(State(each.inside.attr("name"), None) for each in changes)
    input_names = tuple(node.attr("name") for node in inputs)
    whole = Graph(inputs, part.outputs, input_names, names, {}, states)
    return body_of(whole.replaced(inside))


def apart(changed: Node, carried: Sequence[Operand], tag: str) -> Node:
    """A new value of something carried, in memory of its own where it is memory of what is carried
    before: that is overwritten while others still read it."""
    base = changed
    while base.kind == "view":
        base = base.inputs[0]
    is_old = any(base is each.inside for each in carried)
    return make("copy", (changed,), {"tag": tag}) if is_old else changed


def with_bodies(
    graph: Graph, change: Callable[[Graph], Graph], sees_constants: bool = False
) -> Graph:
    """The graph with each body as `change` gives it; constants that this makes are the graph's.

    sees_constants: what a body is given of the graph's constants is a constant in it meanwhile.
    """
    pool = dict(graph.constants)
    known: dict[tuple[Any, ...], list[Graph]] = {}

    def changed(node: Node, new: Node) -> Node:
        if node.op != "control":
            return new
        key = node.attr("bodies"), new.inputs  # the results of a node share them
        if key not in known:
            graphs = [body.graph for body in node.attr("bodies")]
            if sees_constants:
                graphs = [_with_constants(each, new, pool) for each in graphs]
            known[key] = [change(each) for each in graphs]
            for each in known[key]:
                for name, constant in each.constants.items():
                    pool.setdefault(name, constant)  # names of new ones are digests
        return with_graphs(new, known[key])

    if not any(node.op == "control" for node in graph.nodes()):
        return graph
    return graph.rebuilt(changed, pool)


def with_counted_bodies(
    graph: Graph, change: Callable[[Graph], tuple[Graph, int]]
) -> tuple[Graph, int]:
    """The graph with each body as `change` gives it, and the sum of what that counts."""
    counts = []

    def changed(body: Graph) -> Graph:
        found, count = change(body)
        counts.append(count)
        return found

    found = with_bodies(graph, changed)
    return found, sum(counts)


def given_of(node: Node) -> tuple[Node, ...]:
    """The operands that bodies are given and nothing changes, in the order of their inputs."""
    first = 1 if node.attr("form") == "branch" else 0
    return node.inputs[first : len(node.inputs) - len(node.attr("updates"))]


def _with_constants(graph: Graph, node: Node, pool: Mapping[str, Constant]) -> Graph:
    """A body of a node with constants, and what is made of them, where the node gives it such."""
    constants = {
        inside: outside
        for inside, outside in zip(graph.inputs, given_of(node), strict=False)
        if _is_constant(outside)
    }
    ends = graph.inputs, graph.outputs, graph.input_names, graph.output_names
    return Graph(*ends, pool, graph.states).replaced(constants)


def _is_constant(node: Node) -> bool:
    """Whether a node is a constant, a view of one, or made of smaller ones by arithmetic, as a
    quantised weight is: a body then reads these."""
    nodes = list(walk((node,)))
    known = ("constant", "scalar", "iota", "view", "pointwise")
    if any(each.kind not in known or each.op == "copy" for each in nodes):
        return False
    constants = [each for each in nodes if each.op == "constant"]
    moves_only = all(each.kind in ("constant", "view") for each in nodes)
    nbytes = sum(typical(each.type.nbytes) for each in constants)
    return bool(constants) and (moves_only or nbytes < typical(node.type.nbytes))


def with_graphs(node: Node, graphs: Sequence[Graph], more: Sequence[Operand] = ()) -> Node:
    """A node of `control` with other graphs for its bodies, whose constants become operands; what
    none of them reads is none any more. more: further operands that they read."""
    nodes = dict.fromkeys(each for graph in graphs for each in walk(graph.outputs))
    names = {name for graph in graphs for name in graph.input_names}
    names.update(each.inside.attr("name") for each in more)
    made = []
    for constant in (each for each in nodes if each.op == "constant"):
        name = f"constant_{len(names)}"
        while name in names:
            name += "_"
        names.add(name)
        made.append(operand(name, constant))
    given, first = given_of(node), 1 if node.attr("form") == "branch" else 0
    rows = [Operand(*pair) for pair in zip(graphs[0].inputs, given, strict=False)]
    kept = [*(row for row in rows if row.inside in nodes), *more, *made]
    inside = {row.outside: row.inside for row in made}
    bodies = []
    for graph in graphs:
        inputs = (*(row.inside for row in kept), *graph.inputs[len(given) :])
        input_names = tuple(each.attr("name") for each in inputs)
        whole = Graph(inputs, graph.outputs, input_names, graph.output_names, {}, graph.states)
        bodies.append(body_of(whole.replaced(inside)))
    carried = node.inputs[first + len(given) :]
    operands = (*node.inputs[:first], *(row.outside for row in kept), *carried)
    moved = len(operands) - len(node.inputs)
    attrs = {
        **dict(node.attrs),
        "bodies": tuple(bodies),
        "updates": tuple((at, place + moved) for at, place in node.attr("updates")),
    }
    return make("control", operands, attrs, node.source)


def on_operands(node: Node, values: Mapping[Node, Node]) -> Node:
    """A node of a body, its inputs being `values`."""
    new = dict(values)
    for each in walk((node,), new):
        new[each] = each.on(tuple(new[operand] for operand in each.inputs))
    return new[node]


def without_data_checks(graph: Graph) -> Graph:
    """The same function, whatever data it is given, and so are its bodies."""
    return with_bodies(graph.without_data_checks(), without_data_checks)


def nodes_within(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of all bodies in it."""
    seen: set[Body] = set()
    for node in graph.nodes():
        yield node
        for body in node.attr("bodies") if node.op == "control" else ():
            if body not in seen:
                seen.add(body)
                yield from nodes_within(body.graph)

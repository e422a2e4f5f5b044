"""Mutable state: updated in place where possible, otherwise by copies at the end of a call.

The memory of a state holds its old value until its new one is written. A call (a kernel that works
on memory) that updates a copy of the old value updates the state itself if nothing else reads that
copy; so a row of a cache is written without copying the others. The same holds for the next call
that updates a copy of its result. A state that is only read stays as it is. A new value whose old
one is not read is stored directly in the state's memory. Every other new value has memory of its
own, and is copied over the state by launches that come last, when no old value is read any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.viewed import dense, on_memory
from aotc.aot.schedule.calls import base_of, readers_of
from aotc.aot.schedule.group import Group


def with_states(graph: Graph) -> Graph:
    """The graph whose last outputs may be stored where its last inputs lie."""
    if not graph.states:
        return graph
    before = graph.inputs[len(graph.given) :]
    after = list(graph.new_states)
    readers = readers_of(graph)
    own: set[Node] = set()  # copies that are left out
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        copies = _only_copies(old, new, graph, readers)
        if copies:
            own.update(copies)
        elif new.type.numel and old not in readers:
            after[number] = make("copy", (new,), {"tag": f"state {number}"})
        elif new.type.numel and new is not old:
            is_repeated = state_copy(new) in after
            after[number] = state_copy(
                make("copy", (new,), {"tag": str(number)}) if is_repeated else new
            )
    whole = graph.with_outputs((*graph.returned, *after, *graph.checks))
    return whole.rebuilt(lambda node, made: _viewed(made) if node in own else made)


def _viewed(copied: Node) -> Node:
    """What is copied, in place of the copy."""
    return make("reshape", copied.inputs, {"shape": copied.shape})


def state_copy(data: Node) -> Node:
    """A copy of `data` by a launch of its own."""
    return on_memory([make("copy", (data,), {"tag": "kept"})], [dense(data)])[0]


def _only_copies(
    old: Node, new: Node, graph: Graph, readers: Mapping[Node, Collection[Node | None]]
) -> list[Node]:
    """The copies that calls update, one after the other, from `old` to `new`, where nobody else
    reads any of them; none where it is not so."""
    made, found = base_of(new), list[Node]()
    if sum(base_of(each) is made for each in graph.outputs) != 1:
        return []
    while made.kind == "call":
        place = dict(made.attr("updates")).get(made.attr("result"))
        copied = None if place is None else base_of(made.inputs[place])
        if copied is None or copied.op != "copy" or {*readers[copied]} != {made.result(0)}:
            return []
        before = base_of(copied.inputs[0])
        if {*readers[before]} != {copied}:
            return []
        found.append(copied)
        if before is old:
            return found
        made = before
    return []


def states_last(groups: tuple[Group, ...], graph: Graph) -> tuple[Group, ...]:
    """The groups in order, but those that copy into states after all others."""
    copies = {node for node in graph.new_states if _is_state_copy(node)}
    late = [group for group in groups if any(root.node in copies for root in group.roots)]
    is_late = set(map(id, late))
    return (*(group for group in groups if id(group) not in is_late), *late)


def _is_state_copy(node: Node) -> bool:
    return node.kind == "call" and not node.attr("updates")

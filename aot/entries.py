"""Entry points of one bundle: each is captured by itself, then their names, states and dims are
unified.

They share parameters, states and sizes by name. What has one name is one thing: a state has one
type and one initial value in all entries, a dim one range. Constants of one name and other values,
and dims of one name and another range, get the entry's name in front of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from aotc.aot.errors import EntryStatesDiffer
from aotc.aot.ir.graph import Constant, Graph, Node, State, make
from aotc.aot.ir.narrow import narrowed
from aotc.aot.ir.size import Dim, Size, size_of, substitute
from aotc.aot.ir.storage import Array
from aotc.aot.ir.text import print_graph
from aotc.aot.plan.buffer_assignment import slots_of
from aotc.runtime.bundle.plan import StateSlot

TYPE_CHECKING = False
if TYPE_CHECKING:  # it imports torch, which `aotc tune` does without
    from aotc.aot.capture.capture import Captured
    from aotc.aot.capture.other_sizes import Probe
    from aotc.aot.capture.random_inputs import Trial
    from aotc.aot.capture.rounding_sensitivity import Undecided


@dataclass(frozen=True, slots=True)
class JoinedStates:
    """The states of all entries, each once: names and slots of the plan."""

    names: tuple[str, ...]
    slots: tuple[StateSlot, ...]


def joined_dims(rows: Sequence[Sequence[Dim]]) -> tuple[Dim, ...]:
    """The dims of all entries by name, each once, with the first entry's typical size."""
    found: dict[str, Dim] = {}
    for dims in rows:
        for dim in dims:
            found.setdefault(dim.name, dim)
    return tuple(found[name] for name in sorted(found))


def joined_states(graphs: Sequence[Graph]) -> JoinedStates:
    """The states of all entries, in the order in which they come first."""
    found: dict[str, StateSlot] = {}
    for graph in graphs:
        for state, slot in zip(graph.states, slots_of(graph), strict=True):
            found.setdefault(state.name, slot)
    return JoinedStates(tuple(found), tuple(found.values()))


def agreed(captured: Sequence[Captured]) -> tuple[Captured, ...]:
    """The captures of a bundle's entries, with one meaning for each name.

    Raises `EntryStatesDiffer`.
    """
    if len(captured) == 1:
        return tuple(captured)
    return _with_own_constants(_with_all_states(_with_own_dims(captured)))


# -- dims ------------------------------------------------------------------------------------------


def _with_own_dims(captured: Sequence[Captured]) -> list[Captured]:
    """Dims of another range than an earlier entry's have the entry's name in theirs."""
    known: dict[str, Dim] = {}
    found = []
    for each in captured:
        new: dict[Dim, Dim] = {}
        for dim in each.dims:
            first = known.setdefault(dim.name, dim)
            if (first.low, first.high) != (dim.low, dim.high):
                name = f"{each.entry}_{dim.name}"
                new[dim] = known[name] = Dim(name, dim.low, dim.high, dim.typical)
        found.append(_renamed_dims(each, new) if new else each)
    return found


def _renamed_dims(captured: Captured, new: dict[Dim, Dim]) -> Captured:
    values = {dim: size_of(made) for dim, made in new.items()}
    dims = sorted((new.get(dim, dim) for dim in captured.dims), key=lambda dim: dim.name)
    guards = []
    for guard in captured.guards:
        size = substitute(guard.size, values)
        assert isinstance(size, Size)  # a dim is put in a dim's place
        guards.append(replace(guard, size=size))
    graph = narrowed(captured.graph, new)
    return replace(captured, graph=graph, dims=tuple(dims), guards=tuple(guards))


# -- states ----------------------------------------------------------------------------------------


def _with_all_states(captured: Sequence[Captured]) -> list[Captured]:
    """A buffer that one entry changes is a state in all that read it."""
    known: dict[str, tuple[str, State, Node]] = {}
    for each in captured:
        nodes = each.graph.inputs[len(each.graph.given) :]
        for state, node in zip(each.graph.states, nodes, strict=True):
            entry, first, first_node = known.setdefault(state.name, (each.entry, state, node))
            if first_node.dtype != node.dtype or str(first_node.shape) != str(node.shape):
                found = f"{node.type} in `{each.entry}`"
                expected = f"{first_node.type}, as in `{entry}`"
                raise EntryStatesDiffer(name=state.name, found=found, expected=expected)
            if not _is_same(first.initial, state.initial):
                found = f"other initial values in `{each.entry}`"
                raise EntryStatesDiffer(
                    name=state.name, found=found, expected=f"those of `{entry}`"
                )
    return [
        _reading_states(
            each, [(state, node) for _, state, node in known.values() if _constant_of(each, state)]
        )
        for each in captured
    ]


def _constant_of(captured: Captured, state: State) -> Constant | None:
    """The constant that a buffer is in an entry which does not change it."""
    for constant in captured.graph.constants.values():
        if state.name == constant.name or state.name in constant.names:
            return constant
    return None


def _is_same(first: Constant | None, second: Constant | None) -> bool:
    """Whether both have the same values; None has zeros."""
    if first is None or second is None:
        return first is second or not _bytes(first or second).any()
    if first.type != second.type:
        return False
    if first is second or _is_same_expression(first, second):  # computes no large weight for this
        return True
    one, other = _bytes(first), _bytes(second)
    return one.ctypes.data == other.ctypes.data or numpy.array_equal(one, other)


def _is_same_expression(first: Constant, second: Constant) -> bool:
    """Whether both are computed in the same way of the same constants."""
    if first.expression is None or second.expression is None:
        return False
    one, other = (
        print_graph(Graph((), (expression,), (), ("value",), {}))
        for expression in (first.expression, second.expression)
    )
    leaves = zip(first.leaves, second.leaves, strict=True)
    return one == other and all(_is_same(*pair) for pair in leaves)


def _bytes(constant: Constant | None) -> numpy.ndarray:
    assert constant is not None
    return numpy.ascontiguousarray(constant.array).reshape(-1).view(numpy.uint8)


def _reading_states(captured: Captured, states: Sequence[tuple[State, Node]]) -> Captured:
    """The capture, in which these constants are states that its calls leave as they are."""
    if not states:
        return captured
    graph = captured.graph
    arrays = []
    new: dict[str, Node] = {}
    for state, node in states:
        constant = _constant_of(captured, state)
        assert constant is not None
        if constant.type.dtype != node.dtype or constant.type.shape != node.shape:
            found = f"{constant.type} in `{captured.entry}`"
            raise EntryStatesDiffer(name=state.name, found=found, expected=str(node.type))
        new[constant.name] = make("input", (), dict(node.attrs))
        arrays.append(numpy.asarray(constant.array).copy())

    def known(node: Node, made: Node) -> Node:
        return new[node.attr("name")] if _is_constant(node, new) else made

    count = len(graph.returned) + len(graph.states)
    whole = graph.rebuilt(known)
    names = tuple(state.name for state, _ in states)
    changed = replace(
        whole,
        inputs=(*whole.inputs, *new.values()),
        outputs=(*whole.outputs[:count], *new.values(), *whole.outputs[count:]),
        input_names=(*whole.input_names, *names),
        output_names=(*whole.output_names[:count], *names, *whole.output_names[count:]),
        constants={name: each for name, each in whole.constants.items() if name not in new},
        states=(*whole.states, *(state for state, _ in states)),
    )
    return _with_more_results(replace(captured, graph=changed), count, arrays)


def _with_more_results(captured: Captured, count: int, arrays: Sequence[Array]) -> Captured:
    """The capture, whose calls leave these arrays as they are, behind the first `count` results."""
    zeros = (0.0,) * len(arrays)
    none = tuple(numpy.zeros(array.shape, bool) for array in arrays)

    def undecided(asked: Undecided) -> Undecided:
        """What roundings decide, of outputs to which the unchanged states were added."""
        return lambda found, limits, has_tf32=False: (
            *asked(found[:count], limits[:count], has_tf32),
            *none,
        )

    def trial(each: Trial) -> Trial:
        return replace(
            each,
            outputs=(*each.outputs, *arrays),
            spreads=lambda: (*each.spreads(), *zeros),
            undecided=undecided(each.undecided),
        )

    def probe(each: Probe) -> Probe:
        return replace(
            each,
            outputs=(*each.outputs, *arrays),
            roundings=(*each.roundings, *zeros),
            undecided=undecided(each.undecided),
        )

    return replace(
        captured,
        golden_outputs=(*captured.golden_outputs, *arrays),
        golden_roundings=(*captured.golden_roundings, *zeros),
        tf32_roundings=lambda: (*captured.tf32_roundings(), *zeros),
        trials=tuple(map(trial, captured.trials)),
        probes=tuple(map(probe, captured.probes)),
        undecided=None if captured.undecided is None else undecided(captured.undecided),
    )


def _is_constant(node: Node, names: dict[str, Node]) -> bool:
    return node.op == "constant" and node.attr("name") in names


# -- constants -------------------------------------------------------------------------------------


def _with_own_constants(captured: Sequence[Captured]) -> tuple[Captured, ...]:
    """Constants of one name and other values have the entry's name in theirs."""
    known: dict[str, Constant] = {}
    found = []
    for each in captured:
        new: dict[str, str] = {}
        for name, constant in each.graph.constants.items():
            if not _is_same(known.setdefault(name, constant), constant):
                new[name] = f"{each.entry}.{name}"
                known[new[name]] = constant
        found.append(replace(each, graph=_renamed(each.graph, new)) if new else each)
    return tuple(found)


def _renamed(graph: Graph, new: dict[str, str]) -> Graph:
    def named(node: Node, made: Node) -> Node:
        if node.op != "constant" or node.attr("name") not in new:
            return made
        attrs = {**dict(node.attrs), "name": new[node.attr("name")]}
        return make("constant", (), attrs, node.source)

    constants = {
        new.get(name, name): replace(each, name=new.get(name, name))
        for name, each in graph.constants.items()
    }
    return replace(graph.rebuilt(named), constants=constants)

"""Runs the model itself at sizes other than the example's, where they are dynamic.

torch.export and every stage after it see only the example. Wrong assumptions about its sizes (a
special case for 0 or 1, a range that serves the wrong sizes) are found by comparing the model's own
numbers at the ends of the ranges with the bundle's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.exporting import unchanged
from aotc.aot.capture.golden import golden_tensors, has_halves, roundings
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.imports.rng import GOLDEN_SEED, seed_input
from aotc.aot.capture.lifted import NONE_LIFTED, Lifted
from aotc.aot.capture.rounding_sensitivity import Undecided, undecided_of
from aotc.aot.capture.spec import Spec
from aotc.aot.ir.control import nodes_within
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.size import Dim, Extent, Guard, Size, fixed, substitute
from aotc.aot.ir.size_table import SizeTable
from aotc.aot.ir.storage import Array
from aotc.runtime.bundle.extent import evaluate, reader
from aotc.runtime.errors import SizeInvalid

ELEMENTS_LIMIT = 1 << 24  # of all tensors of the graph together, beside what the example takes
EXAMPLES_LIMIT = 4  # times the example's own elements
TRIES = 64  # sizes from an end of the ranges inwards, for guards that ask for multiples
HALVINGS = 31
UNASKED = (0.0,)  # what roundings do, where only the numbers are compared
NOISE = 0.01  # by which copies of an element of the example differ, as a share of it

Sizes = dict[Dim, int]


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Inputs at other sizes, the model's outputs followed by its states, and the effect of rounding
    errors on these."""

    sizes: tuple[tuple[str, int], ...]  # by the dims' names
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    roundings: tuple[float, ...]
    undecided: Undecided

    def __str__(self) -> str:
        return ", ".join(f"{name} = {size}" for name, size in self.sizes)


@dataclass(frozen=True, slots=True)
class Models:
    """A model in torch, and a function that gives its outputs and then its states without changing
    them. states: the buffers that both take as an argument."""

    model: Callable[..., Any]
    functional: Callable[..., Any]
    states: Lifted = NONE_LIFTED


def probes(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor],
    graph: Graph,
    dims: Sequence[Dim],
    guards: Sequence[Guard],
) -> tuple[Probe, ...]:
    """The model at the smallest and at the largest sizes that the guards and memory allow.

    `state_tensors` are the states, which hold at the end what they hold now. Sizes at which the
    model raises are left out.
    """
    if not dims:
        return ()
    fits = _fitting(graph, dims, guards)
    example = {dim: dim.typical for dim in dims}
    ends = (next(filter(fits, tries), None) for tries in (_small(dims), _large(dims)))
    chosen: list[Sizes] = []
    for sizes in ends:
        if sizes is not None and sizes != example and sizes not in chosen:
            chosen.append(sizes)
    found = (_probe(spec, models, state_tensors, graph, sizes) for sizes in chosen)
    return tuple(probe for probe in found if probe is not None)


def differing_at_one(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor],
    graph: Graph,
    dims: Sequence[Dim],
    guards: Sequence[Guard],
) -> frozenset[str]:
    """Names of dims that may not be 1, since the program does not give the model's numbers there.

    torch.export takes sizes of 2 at least for granted: where the code asks whether a size is more
    than 1, the program has the answer of larger ones. `models.functional` is the program. Where
    the model itself raises there is nothing to compare.
    """
    ones = [dim for dim in dims if dim.low == 1 < dim.high]
    fits = _fitting(graph, dims, guards)

    def differs(chosen: Sequence[Dim]) -> bool:
        sizes = {dim: 1 if dim in chosen else dim.typical for dim in dims}
        if not fits(sizes):
            return False
        eager = Models(models.model, models.model, models.states)
        probe = _probe(spec, eager, state_tensors, graph, sizes, UNASKED)
        return probe is not None and not _gives(spec, models, state_tensors, graph, sizes, probe)

    alone = frozenset(dim.name for dim in ones if differs([dim]))
    if alone or len(ones) < 2 or not differs(ones):
        return alone
    return frozenset(dim.name for dim in ones)


def probe_again(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor],
    graph: Graph,
    sizes: Sizes,
    known: tuple[float, ...],
) -> Probe | None:
    """The model at sizes at which it was run before, with what roundings did to it `known`; None
    where it raises now."""
    return _probe(spec, models, state_tensors, graph, sizes, known)


def beyond(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor] | None,
    graph: Graph,
    dims: Sequence[Dim],
    guards: Sequence[Guard],
    asked: Sequence[Guard],
) -> tuple[tuple[Guard, ...], tuple[Probe, ...]]:
    """Of guards by which torch chose how to look at memory, those that numbers depend on; and the
    model itself at sizes where the others do not hold.

    state_tensors: those that the model changes, None where nobody knows them all: then each counts.
    """
    needed: list[Guard] = []
    found: list[Probe] = []
    for guard in {each.size: each for each in reversed(asked)}.values():
        rest = [each for each in asked if each.size != guard.size]
        fits = _fitting(graph, dims, [*guards, *rest])
        also = _fitting(graph, dims, [*guards, *rest, guard])
        tries = (sizes for sizes in _equal(guard, dims) if fits(sizes) and not also(sizes))
        sizes = next(tries, None)
        probe = None
        if state_tensors is not None and sizes is not None:
            probe = _probe(spec, models, state_tensors, graph, sizes)
        if probe is None or not _gives(
            spec, models, state_tensors or (), graph, sizes or {}, probe
        ):
            needed.append(guard)
        else:
            found.append(probe)
    return tuple(needed), tuple(found)


def _equal(guard: Guard, dims: Sequence[Dim]) -> Iterator[Sizes]:
    """Sizes that have one value for all dims of a guard, the example's elsewhere."""
    own = guard.size.dims()
    values = dict.fromkeys([dim.typical for dim in own] + [dim.low + 1 for dim in own] + [8, 16])
    for value in values:
        yield {
            dim: min(max(value, dim.low), dim.high) if dim in own else dim.typical for dim in dims
        }


def _gives(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor],
    graph: Graph,
    sizes: Sizes,
    probe: Probe,
) -> bool:
    """Whether the compiled program will give the model's numbers at a probe's sizes, as far as
    torch can tell before it is compiled."""
    functional = Models(models.functional, models.functional, models.states)
    try:
        found = _probe(spec, functional, state_tensors, graph, sizes, UNASKED)
    except Exception:  # whatever it raises at sizes that it was not exported for
        return False
    pairs = zip(found.outputs, probe.outputs, strict=False) if found is not None else ()
    return found is not None and all(
        one.shape == other.shape and bool(numpy.isclose(one, other, 0.02, 1e-3, True).all())
        for one, other in pairs
    )


def _small(dims: Sequence[Dim]) -> Iterator[Sizes]:
    for more in range(TRIES):
        yield {dim: min(dim.high, dim.low + more) for dim in dims}


def _large(dims: Sequence[Dim]) -> Iterator[Sizes]:
    for halving in range(HALVINGS):
        for less in range(TRIES // 8):
            yield {
                dim: max(dim.low, dim.typical + ((dim.high - dim.typical) >> halving) - less)
                for dim in dims
            }


def _fitting(graph: Graph, dims: Sequence[Dim], guards: Sequence[Guard]) -> Callable[[Sizes], bool]:
    """Whether sizes meet the guards and take no more memory than is worth it."""
    table = SizeTable(dims)
    conditions = [table.condition(guard) for guard in guards]
    numels = [table.numbered(node.type.numel) for node in nodes_within(graph)]

    def total(values: Sequence[int]) -> int:
        return sum(map(reader(values), numels))

    example = evaluate(table.rows, [dim.typical for dim in dims])
    limit = max(ELEMENTS_LIMIT, EXAMPLES_LIMIT * total(example))

    def fits(sizes: Sizes) -> bool:
        try:
            values = evaluate(table.rows, [sizes[dim] for dim in dims])
        except SizeInvalid:
            return False
        return all(each.holds(values) for each in conditions) and total(values) <= limit

    return fits


def _at(extent: Extent, sizes: Sizes) -> int:
    return fixed(substitute(extent, sizes)) if isinstance(extent, Size) else extent


def _probe(
    spec: Spec,
    models: Models,
    state_tensors: Sequence[torch.Tensor],
    graph: Graph,
    sizes: Sizes,
    known: tuple[float, ...] | None = None,
) -> Probe | None:
    leaves, layout = spec.leaves()
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    given = [node for node in graph.given if node is not seed_input()]
    for place, node in zip(places, given, strict=True):
        leaves[place] = _resized(leaves[place], [_at(extent, sizes) for extent in node.shape])
    inputs = tuple(to_array(leaves[place]).copy() for place in places)
    if len(given) < len(graph.given):
        inputs = (*inputs, numpy.array(GOLDEN_SEED))

    states, state_tensors = _states_at(models.states, state_tensors, graph, sizes)

    def call(model: Callable[..., Any]) -> Any:
        arguments, named = pytree.tree_unflatten(leaves, layout)
        return models.states.bound(model, states)(*arguments, **named)

    try:
        with unchanged(list(state_tensors)) as buffers:
            outputs = golden_tensors(lambda: call(models.model))
            outputs = (*outputs, *(buffer.clone() for buffer in buffers))
    except Exception:  # whatever the model raises: it has no numbers there to compare with
        return None
    try:
        is_narrow = has_halves(graph)
        spreads = known or roundings(lambda: call(models.functional), outputs, is_narrow, True)
    except Exception:  # an operation that does not take what was widened
        spreads = (0.0,) * len(outputs)
    named_sizes = tuple((dim.name, size) for dim, size in sizes.items())
    expected = tuple(map(to_array, outputs))
    undecided = undecided_of(lambda: call(models.functional), expected)
    return Probe(named_sizes, inputs, expected, spreads, undecided)


def _states_at(
    lifted: Lifted, state_tensors: Sequence[torch.Tensor], graph: Graph, sizes: Sizes
) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]]:
    """The buffers that are arguments, at these sizes, and all states with these among them."""
    nodes = {
        state.name: node
        for state, node in zip(graph.states, graph.inputs[len(graph.given) :], strict=True)
    }
    shapes = [
        [_at(extent, sizes) for extent in nodes[name].shape] if name in nodes else tensor.shape
        for name, tensor in zip(lifted.names, lifted.tensors, strict=True)
    ]
    made = lifted.at(shapes)
    own = dict(zip(lifted.names, made, strict=True))
    pairs = zip(graph.states, state_tensors, strict=True)
    return made, [own.get(state.name, tensor) for state, tensor in pairs]


def _resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The tensor's elements repeated to another shape: floats slightly changed, integers unchanged,
    since they may be indices. From an empty tensor any size may be made. The shape of a complex
    tensor is that of its parts."""
    if tensor.is_complex():
        parts = torch.view_as_real(tensor.resolve_conj())
        return torch.view_as_complex(_resized(parts, shape).contiguous())
    if not tensor.numel() or 0 in shape:
        return tensor.new_zeros(shape)
    for axis, extent in enumerate(shape):
        places = torch.arange(extent) % tensor.shape[axis]
        tensor = tensor.index_select(axis, places)
    if not tensor.is_floating_point():
        return tensor
    waves = torch.arange(tensor.numel(), dtype=torch.float32).sin().reshape(tensor.shape)
    return tensor * (1 + NOISE * waves).to(tensor.dtype)

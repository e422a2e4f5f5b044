"""One ATen graph, forward or backward, to a recipe: what of it is ours, what is left to torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch.fx import GraphModule, Node

from aotc.aot.capture.aten_graph import (
    Imported,
    Refusal,
    Walked,
    at_sizes,
    import_aten,
    number_ranges,
    read_dims,
    sizes_in,
)
from aotc.aot.capture.aten_signature import CHOSEN, Fixed, Result, Sized, Viewed
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo import flow_nodes, region_blocks
from aotc.aot.dynamo.calling import Boxed, Call, Interface
from aotc.aot.dynamo.checking import checked
from aotc.aot.dynamo.compiling import key_of, program_of
from aotc.aot.dynamo.devices import place_of, placed
from aotc.aot.dynamo.eager_graph import boxed
from aotc.aot.dynamo.fallback import by_library, choose_own, leave, log, refuse
from aotc.aot.dynamo.inner_graphs import graphs_of, has_effect_inside
from aotc.aot.dynamo.joint_graph import NO_ENDS, Ends
from aotc.aot.dynamo.layouts import channels_last, report, take_layouts
from aotc.aot.dynamo.library_products import choose
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.programs import counting
from aotc.aot.dynamo.recipe import (
    Compiled,
    Controlled,
    LeftToTorch,
    RandomStep,
    Recipe,
    Step,
)
from aotc.aot.dynamo.region_blocks import (
    NO_REGION_ENDS,
    Laid,
    RegionEnds,
    laid,
    region_ends,
    whole_ends,
)
from aotc.aot.dynamo.regions import Region, regions
from aotc.aot.dynamo.rng_functionalization import fix_states, split
from aotc.aot.errors import (
    DimUnreadable,
    FrozenMiss,
    InternalError,
    SizeUnsupported,
    TuningRecordMiss,
    UserError,
)
from aotc.aot.ir.graph import Graph, own_sources
from aotc.aot.ir.size import Size, UndecidedSize, is_static
from aotc.aot.plan import SizeTable
from aotc.runtime import AotcError

Code = Compiled | LeftToTorch | Controlled | None
Orders = Mapping[Node, tuple[int, ...]]  # results, and the dims by falling stride
NO_ORDERS: Orders = MappingProxyType({})
EFFECT = "an op inside of control flow has an effect, such as a check of its data"
NUMBERS_COMPILED = 8  # outside of a program's range, then torch's ops run


@own_sources()
def compile_graph(
    module: GraphModule, examples: Sequence[Any], options: Options, ends: Ends = NO_ENDS
) -> tuple[Recipe, Boxed]:
    """The recipe and the callable of one ATen graph: a forward, a backward or an inference graph.

    `ends` says which results a forward graph keeps for its backward graph, and where they lie.
    A graph that does not hold for all sizes of a call is compiled for each that it meets. Raises
    `GraphRefused` where something cannot be compiled and the option `fallback` is `error`.
    """
    counting().graphs += 1
    options = placed(module, examples, options)
    examples = fix_states(module, examples)
    sizes = sizes_in(examples)
    take_layouts(module, examples)
    choose_own(module)
    _choose_flow(module, sizes, options)
    if options.ordinal is not None and not channels_last(module, *ends.saved):
        choose(module, options)
    parts = split(module, examples, sizes)
    if parts is None:
        return _compiled_graph(module, examples, sizes, options, ends)
    given = [*examples, *parts.values]
    recipe, call = _compiled_graph(parts.rest, given, sizes, options, ends)
    return recipe.after(parts.drawn, len(examples), len(given)), _after(parts.drawn, call)


def _choose_flow(module: GraphModule, sizes: Sizes, options: Options) -> None:
    """Note the calls of control flow whose graphs are compiled by themselves: those that are no
    part of one program, as most are."""
    calls = {node for node in module.graph.nodes if graphs_of(node)}
    if calls:
        try:
            calls &= _walked(module, sizes, options).left
        except AotcError as error:
            log.debug("aotc: control flow is compiled graph by graph: %s", error.message)
    flow_nodes.choose(calls)


def _after(drawn: RandomStep, call: Boxed) -> Boxed:
    """A call whose last arguments are drawn."""
    draw = drawn.opened()

    def both(arguments: list[Any]) -> Any:
        given = arguments + draw(list(arguments))
        arguments.clear()
        return call(given)

    return both


def _compiled_graph(
    module: GraphModule,
    examples: Sequence[Any],
    sizes: Sizes,
    options: Options,
    ends: Ends,
) -> tuple[Recipe, Boxed]:
    """The recipe and the callable of a graph that draws nothing, or what must be left to torch."""
    try:
        return _compiled_for_all(module, examples, sizes, options, ends)
    except SizeUnsupported as undecided:
        if is_static(sizes.symbols.values()):
            raise
        per_size = PerSize(module, examples, sizes, options, undecided.message)
        return _whole(module, None), per_size


def _compiled_for_all(
    module: GraphModule,
    examples: Sequence[Any],
    sizes: Sizes,
    options: Options,
    ends: Ends,
) -> tuple[Recipe, Boxed]:
    """The same for all sizes; raises `SizeUnsupported` where a stage needs those of one call."""
    ranges = number_ranges(examples, sizes)
    if any(low > high for low, high in ranges.values()):  # no size: the walk takes each for one
        return _whole(module, None), InRange(module, examples, sizes, options, ranges)
    try:
        walked = _walked(module, sizes, options)
    except InternalError as error:
        if options.fallback == "error":
            raise
        call, kept = leave(module, examples, options.fallback, [error.message])
        return _whole(module, None if kept is None else LeftToTorch(kept)), call
    if walked.refusals and sizes.symbols:
        fixed = at_sizes(sizes, examples, [_hint(value) for value in examples])
        if len(_walked(module, fixed, options).refusals) < len(walked.refusals):
            per_size = PerSize(module, examples, sizes, options, walked.refusals[0].reason)
            return _whole(module, None), per_size
    orders = {} if walked.left else channels_last(module, *ends.saved)
    recipe, call = compile_at(module, examples, sizes, options, walked, orders, ends)
    if not ranges:
        return recipe, call
    return _whole(module, None), InRange(module, examples, sizes, options, ranges, call)


def _walked(
    module: GraphModule, sizes: Sizes, options: Options, orders: Orders = NO_ORDERS
) -> Walked:
    """The walk over a graph; a bug in a row is ours to report and no reason to stop the user."""
    try:
        how = orders, options.round_intermediates, place_of(options)
        return import_aten(module.graph, module, sizes, *how)
    except AotcError:
        raise
    except UndecidedSize as undecided:
        raise SizeUnsupported(kernel="capture", detail=str(undecided), source="") from None
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"
        raise InternalError(stage="capture", detail=detail) from error


def compile_at(
    module: GraphModule,
    examples: Sequence[Any],
    sizes: Sizes,
    options: Options,
    walked: Walked,
    orders: Orders = NO_ORDERS,
    ends: Ends = NO_ENDS,
) -> tuple[Recipe, Boxed]:
    """The recipe and the callable of a graph that was walked with these sizes.

    `orders` has results that are to lie otherwise than torch traced them, which torch is informed
    of; `ends` as `compile_graph` has them.
    """
    reasons = [row.reason for row in walked.refusals]
    has_effect = has_effect_inside(module)
    reasons += [EFFECT] if has_effect else []
    if reasons and options.fallback == "error":
        raise refuse(reasons)
    if has_effect:  # Inductor makes code of it that does not run
        call, _ = leave(module, examples, "eager", reasons)
        return _whole(module, None), call
    if not walked.left and not reasons:
        code, call = _own(module, examples, sizes, options, orders, whole_ends(module, ends))
        if isinstance(code, Compiled):
            report(module, orders)
        return checked(module, _whole(module, code), call, options)
    parts, refusals = _parts(module, sizes, options, walked)
    pairs = []
    for part, own in zip(parts, region_ends(module, parts, ends), strict=True):
        named = [row.reason for row in refusals if row.node in part.nodes]
        pairs.append(_compiled(part, sizes, options, named or reasons, own))
    placeholders = tuple(module.graph.find_nodes(op="placeholder"))
    recipe = _recipe(module, placeholders, parts, [code for code, _ in pairs])
    return checked(module, recipe, recipe.bound([call for _, call in pairs]), options)


def _parts(
    module: GraphModule, sizes: Sizes, options: Options, walked: Walked
) -> tuple[list[Region], list[Refusal]]:
    """The regions of a graph, and what is refused in it.

    A region may know less than the whole graph, as of an index that this proves to lie within its
    tensor: what is refused for it is left too then, and the graph cut anew. On the CPU nothing is.
    """
    left, refusals = walked.left, list(walked.refusals)
    while True:
        parts = regions(module, left)
        if options.ordinal is None:
            return parts, refusals
        more: set[Node] = set()
        for part in parts:
            if not part.is_left:
                found = _walked(part.module, sizes, options)
                own = {node.name: node for node in part.nodes}
                more |= {own[node.name] for node in found.left}
                refusals += [
                    Refusal(own[row.node.name], row.reason)
                    for row in found.refusals
                    if row.node.name in own
                ]
        if not more:
            return parts, refusals
        left |= more


class PerSize:
    """A graph compiled anew for each set of sizes that it meets, by the table's rules."""

    def __init__(
        self,
        module: GraphModule,
        examples: Sequence[Any],
        sizes: Sizes,
        options: Options,
        reason: str,
    ) -> None:
        self._known: dict[tuple[Any, ...], Boxed] = {}
        self._arguments = (module, examples, sizes, options)
        log.info("aotc: a graph is compiled for each size that it meets: %s", reason)

    @property
    def count(self) -> int:
        """Sizes that were met."""
        return len(self._known)

    def __call__(self, arguments: list[Any]) -> Any:
        """Run once; `arguments` is empty afterwards."""
        module, examples, sizes, options = self._arguments
        fixed = at_sizes(sizes, examples, arguments)
        key = tuple(fixed.symbols.values())
        call = self._known.get(key)
        if call is None:
            walked = _walked(module, fixed, options)
            _, call = compile_at(module, examples, fixed, options, walked)
            self._known[key] = call
        return call(arguments)


class InRange:
    """A program for numbers in its range, if that has any; others get a graph each, and many of
    them torch's ops.

    Sizes lie in the range of 1 to what 31 bits address by their nature; a Python number that is an
    argument of a call may be any. What lies outside is taken as a constant.
    """

    def __init__(
        self,
        module: GraphModule,
        examples: Sequence[Any],
        sizes: Sizes,
        options: Options,
        ranges: Mapping[int, tuple[int, int]],
        inside: Boxed | None = None,
    ) -> None:
        fallback = "error" if options.fallback == "error" else "eager"  # which takes any number
        self._outside: PerSize | None = None
        self._arguments = (module, examples, sizes, replace(options, fallback=fallback))
        self._ranges = ranges
        self._inside = inside

    def __call__(self, arguments: list[Any]) -> Any:
        """Run once; `arguments` is empty afterwards."""
        rows = self._ranges.items()
        if self._inside and all(low <= arguments[place] <= high for place, (low, high) in rows):
            return self._inside(arguments)
        if self._outside is None:
            self._outside = PerSize(*self._arguments, "a number lies outside of its range")
        if self._outside.count >= NUMBERS_COMPILED:
            return boxed(self._arguments[0])(arguments)
        return self._outside(arguments)


def _hint(value: Any) -> Any:
    """An example with numbers in place of sizes: what `at_sizes` reads."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if isinstance(value, torch.Tensor):
        return _Shape(tuple(_hint(extent) for extent in value.shape))
    return value


@dataclass(frozen=True, slots=True)
class _Shape:
    shape: tuple[int, ...]


def _compiled(
    part: Region, sizes: Sizes, options: Options, reasons: Sequence[str], ends: RegionEnds
) -> tuple[Code, Boxed]:
    examples = [node.meta.get("val") for node in part.arguments]
    if not part.is_left:
        return _own(part.module, examples, sizes, options, NO_ORDERS, ends)
    if part.flow is not None:
        return _controlled(part, part.flow, options)
    if all(CHOSEN in node.meta for node in part.nodes):
        call, kept = by_library(part.module)
        return None if kept is None else LeftToTorch(kept), call
    call, kept = leave(part.module, examples, options.fallback, reasons)
    return None if kept is None else LeftToTorch(kept), call


def _controlled(part: Region, flow: Node, options: Options) -> tuple[Code, Boxed]:
    """An op of control flow, each of its graphs compiled by itself."""
    graphs = list(map(flow_nodes.prepared, graphs_of(flow)))
    made = [compile_graph(each, flow_nodes.examples_of(each), options) for each in graphs]
    step = flow_nodes.control_flow(flow, graphs, part.arguments, part.results)
    call = step.bound([call for _, call in made])
    recipes = tuple(recipe for recipe, _ in made)
    is_kept = all(each.is_kept for each in recipes)
    return Controlled(step, recipes) if is_kept else None, call


def _own(
    module: GraphModule,
    examples: Sequence[Any],
    sizes: Sizes,
    options: Options,
    orders: Orders = NO_ORDERS,
    ends: RegionEnds = NO_REGION_ENDS,
) -> tuple[Code, Boxed]:
    """A graph through our stages; what these refuse goes where the option `fallback` says."""
    try:
        walked = _walked(module, sizes, options, orders)
        imported = walked.imported
        if imported is None:
            raise refuse([row.reason for row in walked.refusals])
        shown = _shown(sizes, examples)
        _check_shown(imported.graph, shown)
        interface = _interface(imported, examples, shown)
        if not interface.has_program:
            return Compiled(None, interface, options), Call(interface, None, options.ordinal)
        graph = imported.graph
        graph = graph.without_data_checks() if options.unchecked_indices else graph
        has_blocks = not shown.symbols and (
            options.ordinal is not None or region_blocks.ON_PROCESSORS
        )
        blocks = laid(ends, graph, *interface.ends) if has_blocks else Laid()
        key = key_of(graph, shown, options, blocks.blocks)
        program = program_of(key, graph, shown, options, blocks.blocks)
        interface = replace(
            interface, blocks=blocks.at_calls(program.outputs[len(interface.made) :])
        )
        blocks.register(ends.joint)
    except (UserError, FrozenMiss, TuningRecordMiss):
        raise  # a rewrite of the user's that is wrong, a setting, AOTC_FROZEN
    except AotcError as error:
        if isinstance(error, SizeUnsupported) and not is_static(sizes.symbols.values()):
            raise
        if options.fallback == "error":
            raise
        call, kept = leave(module, examples, options.fallback, [error.message])
        return None if kept is None else LeftToTorch(kept), call
    return Compiled(key, interface, options), Call(interface, program, options.ordinal)


def _interface(imported: Imported, examples: Sequence[Any], sizes: Sizes) -> Interface:
    """The ends of an imported graph, their sizes as values of a table; raises `DimUnreadable`."""
    table = SizeTable(sizes.dims)

    def numbered(row: Result) -> Any:
        if isinstance(row, Sized):
            return Fixed(row.size) if isinstance(row.size, int) else table.numbered(row.size)
        return row.at(table.numbered) if isinstance(row, Viewed) else row

    results = tuple(map(numbered, imported.results))
    made = tuple(
        row
        if row.strides is None
        else replace(row, strides=tuple(map(table.numbered, row.strides)))
        for row in imported.made
    )
    return Interface(imported.taken, made, results, read_dims(examples, sizes), tuple(table.rows))


def _shown(sizes: Sizes, examples: Sequence[Any]) -> Sizes:
    """The sizes that the arguments of a region show."""
    here = sizes_in(examples).symbols
    return Sizes({name: size for name, size in sizes.symbols.items() if name in here}, (), ())


def _check_shown(graph: Graph, sizes: Sizes) -> None:
    """Raise `DimUnreadable` for a dim that arguments have only as part of an expression."""
    known = set(sizes.dims)
    for node in graph.inputs:
        for extent in node.shape:
            for dim in extent.dims() if isinstance(extent, Size) else ():
                if dim not in known:
                    raise DimUnreadable(name=dim.name)


def _whole(module: GraphModule, code: Code) -> Recipe:
    """The recipe of a graph that is one step."""
    first = len(module.graph.find_nodes(op="placeholder"))
    given = tuple(range(first, first + len(_results(module))))
    step = Step(code, tuple(range(first)), given, tuple(range(first)))
    return Recipe((step,), first + len(given), tuple((True, slot) for slot in given))


def _recipe(
    module: GraphModule,
    placeholders: Sequence[Node],
    parts: Sequence[Region],
    codes: Sequence[Code],
) -> Recipe:
    slots = {node: slot for slot, node in enumerate(placeholders)}
    for part in parts:
        for node in part.results:
            slots[node] = len(slots)
    outputs = tuple(
        (True, slots[value]) if isinstance(value, Node) else (False, value)
        for value in _results(module)
    )
    kept = {slot for is_slot, slot in outputs if is_slot}
    last = {slots[node]: place for place, part in enumerate(parts) for node in part.arguments}
    steps = tuple(
        Step(
            code,
            tuple(slots[node] for node in part.arguments),
            tuple(slots[node] for node in part.results),
            tuple(slot for slot, use in last.items() if use == place and slot not in kept),
        )
        for place, (part, code) in enumerate(zip(parts, codes, strict=True))
    )
    return Recipe(steps, len(slots), outputs)


def _results(module: GraphModule) -> Sequence[Any]:
    """What a graph gives: nodes and numbers."""
    (node,) = module.graph.find_nodes(op="output")
    return node.args[0]  # type: ignore[no-any-return]

"""One ATen graph, forward or backward, to a recipe: what of it is ours, what is left to torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule, Node

from aotc.aot.capture.aten_graph import import_aten
from aotc.aot.capture.sizes import Sizes
from aotc.aot.dynamo.calling import Boxed, Call
from aotc.aot.dynamo.compiling import key_of, program_of
from aotc.aot.dynamo.counting import counting
from aotc.aot.dynamo.fallback import leave, refuse
from aotc.aot.dynamo.numbering import interface_of
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.recipe import Left, Own, Recipe, Step
from aotc.aot.dynamo.regions import Region, regions
from aotc.runtime import AotcError

Code = Own | Left | None


def compile_graph(
    module: GraphModule, examples: Sequence[Any], options: Options
) -> tuple[Recipe, Boxed]:
    """The recipe and the callable of one ATen graph: a forward, a backward or an inference graph.

    Raises `GraphRefused` where something cannot be compiled and the option `fallback` is `error`.
    """
    counting().graphs += 1
    placeholders = tuple(module.graph.find_nodes(op="placeholder"))
    walked = import_aten(module.graph, module, Sizes({}, (), ()))
    reasons = [row.reason for row in walked.refusals]
    if reasons and options.fallback == "error":
        raise refuse(module, reasons)
    if not reasons:
        code, call = _own(module, examples, options)
        return _whole(module, code), call
    parts = regions(module, walked.left)
    named = [[row.reason for row in walked.refusals if row.node in part.nodes] for part in parts]
    pairs = [
        _compiled(part, options, reason or reasons)
        for part, reason in zip(parts, named, strict=True)
    ]
    recipe = _recipe(module, placeholders, parts, [code for code, _ in pairs])
    return recipe, recipe.bound([call for _, call in pairs])


def _compiled(part: Region, options: Options, reasons: Sequence[str]) -> tuple[Code, Boxed]:
    examples = [node.meta.get("val") for node in part.arguments]
    if not part.is_left:
        return _own(part.module, examples, options)
    call, kept = leave(part.module, examples, options.fallback, reasons)
    return None if kept is None else Left(kept), call


def _own(module: GraphModule, examples: Sequence[Any], options: Options) -> tuple[Code, Boxed]:
    """A graph through our stages; what these refuse goes where the option `fallback` says."""
    sizes = Sizes({}, (), ())
    imported = import_aten(module.graph, module, sizes).imported
    try:
        interface = interface_of(imported, examples, sizes)
        if not interface.has_program:
            return Own(None, interface, options), Call(interface, None)
        key = key_of(imported.graph, sizes, options)
        program = program_of(key, imported.graph, sizes, options)
    except AotcError as error:
        if options.fallback == "error":
            raise
        call, kept = leave(module, examples, options.fallback, [error.message])
        return None if kept is None else Left(kept), call
    return Own(key, interface, options), Call(interface, program)


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

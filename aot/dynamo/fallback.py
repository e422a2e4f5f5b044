"""Graphs that aotc cannot compile: compiled by Inductor, or run by torch op by op."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import free_symbols

from aotc.aot.capture.aten_signature import CHOSEN
from aotc.aot.capture.custom_ops import CALLED_ON
from aotc.aot.dynamo.eager_graph import Boxed, EagerGraph, boxed, eager_graph, is_of_kernels
from aotc.aot.dynamo.errors import GraphRefused
from aotc.aot.dynamo.programs import counting
from aotc.aot.dynamo.random_ops import draws

log = logging.getLogger("aotc")
SHOWN = 3  # reasons in a line of the log
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def refuse(reasons: Sequence[str]) -> GraphRefused:
    """The error for a graph when the option `fallback` is `error`."""
    text = "\n".join(f"  {reason}" for reason in reasons)
    return GraphRefused(reasons=text)


def leave(
    module: GraphModule, examples: Sequence[Any], fallback: str, reasons: Sequence[str]
) -> tuple[Boxed, EagerGraph | bytes | None]:
    """Compiles a graph by another compiler: its callable, and what is cached of it, which is
    nothing if torch cannot store what it compiled. Logs one line."""
    # Imported here, since a warm start leaves nothing and imports no graphs.
    from aotc.aot.capture.imports.call import EAGER_RAISES, NO_KERNEL, OF_STORAGE

    counting().regions_left += 1
    of_eager = NO_KERNEL, EAGER_RAISES, OF_STORAGE
    if any(each in reason for reason in reasons for each in of_eager):
        fallback = "eager"  # Inductor computes what raises, and takes one place for all
    if fallback == "inductor" and is_of_kernels(module):
        fallback = "eager"  # Inductor calls the very same kernels
    if fallback == "inductor" and _draws(module):
        fallback = "eager"  # Inductor's generator gives other numbers
    if fallback == "inductor" and _asserts_of_other_sizes(module):
        fallback = "eager"  # Inductor's code names sizes that the graph is not given
    known = list(dict.fromkeys(reasons))
    more = f"; and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    count = _calls(module)
    what = "1 op goes" if count == 1 else f"{count} ops go"
    log.warning("aotc: %s to %s: %s%s", what, fallback, "; ".join(known[:SHOWN]), more)
    call, kept = _op_by_op(module) if fallback == "eager" else _by_inductor(module, examples)
    return call, None if _has_effects(module) else kept


def by_library(module: GraphModule) -> tuple[Boxed, EagerGraph | bytes | None]:
    """The callable of a region that consists only of products for cuBLAS and of ops of the kernel
    library."""
    count = _calls(module)
    log.info("aotc: %d ops are calls of torch's library for products and of aotc.kernels", count)
    return _op_by_op(module)


def _op_by_op(module: GraphModule) -> tuple[Boxed, EagerGraph]:
    kept = eager_graph(module)
    return kept.opened(), kept


def choose_own(module: GraphModule) -> None:
    """Note calls of kernel-library ops that are called as they are instead of decomposed, with the
    parts of their results."""
    for node in module.graph.nodes:
        if CALLED_ON.get(node.target):
            for each in (node, *(user for user in node.users if user.target is operator.getitem)):
                each.meta[CHOSEN] = True


def _draws(module: GraphModule) -> bool:
    """Whether a graph uses torch's random generator."""
    return any(map(draws, module.graph.nodes))


def _asserts_of_other_sizes(module: GraphModule) -> bool:
    """Whether torch asserts something of a number that the graph makes and of a size that none of
    its arguments has: Inductor writes the assertion where the number is made."""
    nodes = module.graph.nodes
    made = [each.meta.get("val") for each in nodes if each.meta.get("unbacked_bindings")]
    numbers = [each for each in made if isinstance(each, SYMBOLIC)]
    asserts = [
        row
        for number in numbers
        for symbol in free_symbols(number)
        for row in number.node.shape_env.deferred_runtime_asserts.get(symbol, ())
    ]
    given = [each.meta.get("val") for each in nodes if each.op == "placeholder"]
    sized = [each for each in (*given, *made) if isinstance(each, (torch.Tensor, *SYMBOLIC))]
    known = {symbol for each in sized for symbol in free_symbols(each)}
    return any(not each.expr.free_symbols <= known for each in asserts)


def leave_tangents(module: GraphModule, fallback: str) -> Callable[..., Any]:
    """A graph inside forward-mode differentiation, run op by op: compiled graphs, by aotc or
    Inductor, would silently give results without tangents."""
    reason = "it is called inside of `forward_ad.dual_level`, and compiled graphs have no tangents"
    if fallback == "error":
        raise refuse([reason])
    counting().regions_left += 1
    log.warning("aotc: a graph goes to eager: %s", reason)
    return module.forward  # type: ignore[no-any-return]


def _has_effects(module: GraphModule) -> bool:
    """Whether the graph has torch's effect tokens, which its cache does not pass on."""
    return any(node.target is with_effects for node in module.graph.nodes)


def _calls(module: GraphModule) -> int:
    return sum(node.op == "call_function" for node in module.graph.nodes)


def _by_inductor(
    module: GraphModule, examples: Sequence[Any]
) -> tuple[Boxed, EagerGraph | bytes | None]:
    from torch._inductor import standalone_compile

    def compiled(is_stored: bool) -> Any:
        with torch.no_grad():
            return standalone_compile(
                module, list(examples), dynamic_shapes="from_tracing_context", aot=is_stored
            )

    try:
        stored = compiled(is_stored=True)
        return boxed(stored), stored.serialize()
    except Exception as error:  # torch has no one type for code that it cannot store
        log.info("aotc: Inductor's code of a region is not stored: %s", error)
    try:
        return boxed(compiled(is_stored=False)), None
    except Exception as error:  # whatever Inductor lacks, torch's own ops run
        log.warning("aotc: Inductor refuses a region, which runs op by op: %s", error)
        return boxed(module), None


def load_inductor(data: bytes) -> Boxed:
    """The callable of what Inductor compiled in another process."""
    from torch._inductor.standalone_compile import AOTCompiledArtifact

    return boxed(AOTCompiledArtifact.deserialize(data))

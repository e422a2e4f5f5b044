"""What becomes of graphs that aotc cannot compile: torch compiles or runs them."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._higher_order_ops.effects import with_effects
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_symbols

from aotc.aot.capture.aten_signature import CHOSEN
from aotc.aot.dynamo.errors import GraphRefused
from aotc.aot.dynamo.programs import counting
from aotc.aot.dynamo.random_ops import called, draws

log = logging.getLogger("aotc")
SHOWN = 3  # reasons in a line of the log
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
Boxed = Callable[[list[Any]], Any]


def refuse(reasons: Sequence[str]) -> GraphRefused:
    """The error for a graph where the option `fallback` is `error`."""
    text = "\n".join(f"  {reason}" for reason in reasons)
    return GraphRefused(reasons=text)


def leave(
    module: GraphModule, examples: Sequence[Any], fallback: str, reasons: Sequence[str]
) -> tuple[Boxed, GraphModule | bytes | None]:
    """A graph's callable by another compiler, and what is kept of it; said in a line of the log.

    Nothing is kept where torch cannot store what it compiled.
    """
    # Imported here, since a warm start leaves nothing and imports no graphs.
    from aotc.aot.capture.imports.call import NO_KERNEL, OF_STORAGE

    counting().regions_left += 1
    if any(each in reason for reason in reasons for each in (NO_KERNEL, OF_STORAGE)):
        fallback = "eager"  # Inductor computes what has no kernel, and takes one place for all
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
    call, kept = _eager(module) if fallback == "eager" else _by_inductor(module, examples)
    return call, None if _has_effects(module) else kept


def by_library(module: GraphModule) -> tuple[Boxed, GraphModule | bytes | None]:
    """The callable of a region of nothing but products that torch's library computes faster."""
    log.info("aotc: %d ops are calls of torch's library for products", _calls(module))
    return _eager(module)


def _draws(module: GraphModule) -> bool:
    """Whether a graph asks torch's generator."""
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


def is_of_kernels(module: GraphModule) -> bool:
    """Whether a graph is calls of torch's kernels for attention and products, and their parts."""
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    return all(CHOSEN in node.meta or _is_of_attention(node) for node in calls)


def is_attention(node: Node) -> bool:
    """Whether a node calls one of torch's kernels for attention, which read rows of any stride."""
    return "_scaled_dot_product_" in str(called(node)[0])


def _is_of_attention(node: Node) -> bool:
    return node.target is operator.getitem or is_attention(node)


def leave_tangents(module: GraphModule, fallback: str) -> Callable[..., Any]:
    """A graph met inside of a level of forward-mode differentiation, op by op: what is compiled,
    by us or by Inductor, gives results without tangents and does not say so.
    """
    reason = "it is called inside of `forward_ad.dual_level`, and compiled graphs have no tangents"
    if fallback == "error":
        raise refuse([reason])
    counting().regions_left += 1
    log.warning("aotc: a graph goes to eager: %s", reason)
    return module.forward  # type: ignore[no-any-return]


# In a graph's `meta`: strides of its arguments, None for any; which arguments attention alone
# reads; strides of its results, where attention gives some of them.
STRIDES, ATTENDED, RESULT_STRIDES = "aotc_strides", "aotc_attended", "aotc_result_strides"


def _eager(module: GraphModule) -> tuple[Boxed, GraphModule | bytes | None]:
    placeholders = module.graph.find_nodes(op="placeholder")
    module.meta[STRIDES] = tuple(map(_traced_strides, placeholders))
    attended = [all(map(_is_of_attention, node.users)) for node in placeholders]
    if any(attended) and is_of_kernels(module):
        (output,) = module.graph.find_nodes(op="output")
        module.meta[ATTENDED] = tuple(attended)
        module.meta[RESULT_STRIDES] = tuple(map(_strides, output.args[0]))
    return op_by_op(module), module


def op_by_op(module: GraphModule) -> Boxed:
    """A graph as torch runs it, on arguments in the strides that torch traced: what ops give lies
    as these do, and graphs behind them were compiled for that. Attention takes whatever has its
    last dim dense, and mostly gives what was traced all the same; there the results are laid."""
    strides, results = module.meta.get(STRIDES), module.meta.get(RESULT_STRIDES)
    attended = module.meta.get(ATTENDED)
    run = module.forward  # a module that is called looks for hooks, and these have none
    if not strides or not any(strides):
        return boxed(run)

    def call(arguments: list[Any]) -> Any:
        given = [laid(*pair) for pair in zip(arguments, strides, strict=True)]
        arguments.clear()
        return run(*given)

    def attend(arguments: list[Any]) -> Any:
        given = [
            value if is_free and _is_dense_at_its_end(value) else laid(value, row)
            for value, row, is_free in zip(arguments, strides, attended, strict=True)
        ]
        arguments.clear()
        return [laid(*pair) for pair in zip(run(*given), results, strict=True)]

    return attend if results else call


def _is_dense_at_its_end(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 1 and value.stride(-1) == 1


def _traced_strides(node: Node) -> tuple[int, ...] | None:
    """Strides of an argument that is only read, where they are known; a copy loses what is
    written."""
    return None if any(map(changes, node.users)) else _strides(node)


def _strides(node: Any) -> tuple[int, ...] | None:
    """Strides of a node's tensor, where they are known."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    is_known = all(isinstance(each, int) for each in (*value.shape, *value.stride()))
    return tuple(value.stride()) if is_known else None


def changes(node: Node) -> bool:
    """Whether a call changes an argument."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def laid(value: Any, strides: tuple[int, ...] | None) -> Any:
    """The tensor, or a copy where a dim of more than one element has another stride."""
    if strides is None or not isinstance(value, torch.Tensor) or value.stride() == strides:
        return value
    pairs = zip(value.shape, value.stride(), strides, strict=True)
    if all(extent == 1 or found == wanted for extent, found, wanted in pairs):
        return value
    kind = {"dtype": value.dtype, "device": value.device}
    return torch.empty_strided(value.shape, strides, **kind).copy_(value)


def _has_effects(module: GraphModule) -> bool:
    """Whether the graph has torch's tokens of effects, which its cache forgets to pass."""
    return any(node.target is with_effects for node in module.graph.nodes)


def _calls(module: GraphModule) -> int:
    return sum(node.op == "call_function" for node in module.graph.nodes)


def boxed(module: Callable[..., Any]) -> Boxed:
    """A graph as torch runs it op after op, or compiled by it, that takes a list and empties it."""

    def call(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        return module(*given)

    return call


def _by_inductor(
    module: GraphModule, examples: Sequence[Any]
) -> tuple[Boxed, GraphModule | bytes | None]:
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

"""What becomes of graphs that aotc cannot compile: torch compiles or runs them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from aotc.aot.capture.aten_graph import Refusal
from aotc.aot.dynamo.counting import counting
from aotc.aot.dynamo.errors import GraphRefused

log = logging.getLogger("aotc")
SHOWN = 3  # reasons in a line of the log


def leave(
    module: torch.fx.GraphModule, examples: Sequence[Any], fallback: str, reasons: Sequence[str]
) -> Callable[[list[Any]], Any]:
    """A boxed callable of the graph by another compiler, said in one line of the log.

    Raises `GraphRefused` where the option `fallback` is `error`.
    """
    total = sum(node.op == "call_function" for node in module.graph.nodes)
    if fallback == "error":
        text = "\n".join(f"  {reason}" for reason in reasons)
        raise GraphRefused(count=len(reasons), total=total, reasons=text)
    counting().regions_left += 1
    more = f"; and {len(reasons) - SHOWN} more" if len(reasons) > SHOWN else ""
    shown = "; ".join(reasons[:SHOWN])
    log.warning("aotc: a graph of %d ops goes to %s: %s%s", total, fallback, shown, more)
    return _COMPILERS[fallback](module, examples)


def _inductor(module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
    from torch._inductor import standalone_compile

    with torch.no_grad():
        compiled = standalone_compile(module, list(examples), dynamic_shapes="from_example_inputs")

    def call(arguments: list[Any]) -> Any:
        given = tuple(arguments)
        arguments.clear()
        with torch.no_grad():
            return compiled(*given)

    return call


def _eager(module: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[[list[Any]], Any]:
    def call(arguments: list[Any]) -> Any:
        return torch.fx.Interpreter(module).boxed_run(arguments)

    return call


_COMPILERS = {"inductor": _inductor, "eager": _eager}
__all__ = ["Refusal", "leave"]

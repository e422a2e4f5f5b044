"""`backend="aotc_debug"`: each captured graph as a table on stderr, then run as it is.

graph 1: 14 ops, 3 fusable groups, 1.2 MiB moved, 8.4 M operations
  op             name     target               shape         dtype
  placeholder    l_x_     L_x_                 [2, 16]       float32
  …
  group 1        row 2×16: layer_norm [sum, mul, …]
  ended by       a graph break: Unsupported: … (model.py:31 in forward)
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from aotc.aot.dynamo.errors import OptionUnknown
from aotc.aot.dynamo.fx_import import Reading, read_graph, value_of
from aotc.aot.dynamo.user_rewrites import apply_registered
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule.group import Schedule
from aotc.aot.schedule.schedule import schedule
from aotc.aot.targets.cpu.target import CPU
from aotc.aot.targets.cuda.machines import GPUS
from aotc.aot.traits import TargetTraits
from aotc.runtime.errors import AotcError

COLUMNS = ("op", "name", "target", "shape", "dtype")
_NUMBERS = itertools.count(1)


def described(
    module: torch.fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Print what is to be known of a graph on stderr; the graph itself is what runs.

    Raises `OptionUnknown` for any option: it takes none.
    """
    for name in options:
        raise OptionUnknown(name=name, backend="aotc_debug", known="none")
    print("\n".join(description(module, next(_NUMBERS))), file=sys.stderr)
    return module.forward


def description(module: torch.fx.GraphModule, number: int) -> Iterator[str]:
    """The lines about one graph of Dynamo's or AOTAutograd's."""
    nodes = [node for node in module.graph.nodes if node.op != "output"]
    rows = [_row(node) for node in nodes]
    found = read_graph(module)
    groups, refusal = _groups(found, _traits(nodes))
    calls = sum(node.op.startswith("call_") for node in nodes)
    yield f"graph {number}: {_counted(calls, 'op')}, {_summary(groups, refusal)}"
    yield from _table([COLUMNS, *rows])
    if groups is not None:
        for place, group in enumerate(groups.groups, 1):
            yield f"  group {place}: {group}"
    for line in found.refusals:
        yield f"  no import: {line}"
    yield from _end(module)


def _row(node: torch.fx.Node) -> tuple[str, ...]:
    value = value_of(node)
    tensors = value if isinstance(value, list | tuple) else (value,)
    shapes = [str(list(each.shape)) for each in tensors if isinstance(each, torch.Tensor)]
    kinds = [_dtype(each) for each in tensors if each is not None]
    return node.op, node.name, _target(node), ", ".join(shapes), ", ".join(dict.fromkeys(kinds))


def _dtype(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return type(value).__name__


def _target(node: torch.fx.Node) -> str:
    if callable(node.target) and not isinstance(node.target, torch._ops.OpOverload):
        return getattr(node.target, "__name__", str(node.target))
    return str(node.target)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield ("  " + "  ".join(cells)).rstrip()


def _traits(nodes: Sequence[torch.fx.Node]) -> TargetTraits:
    """The figures of the device that the graph's tensors lie on."""
    for node in nodes:
        value = value_of(node)
        if isinstance(value, torch.Tensor) and value.is_cuda:
            major, minor = torch.cuda.get_device_capability(value.device)
            known = [row for row in GPUS if row <= major * 10 + minor]
            return GPUS[max(known, default=min(GPUS))]
    return CPU


def _groups(found: Reading, traits: TargetTraits) -> tuple[Schedule | None, str]:
    """The kernels that our schedule would make, or why there are none."""
    if not found.values:
        return None, "no op has an import"
    try:
        graph, _ = rewrite(found.graph, replace(traits, packs_weights=False), own=apply_registered)
        return schedule(graph, traits), ""
    except (AotcError, ValueError) as error:
        return None, str(error).partition("\n")[0]


def _summary(groups: Schedule | None, refusal: str) -> str:
    if groups is None:
        return f"no fusable groups: {refusal}"
    moved = sum(group.bytes for group in groups.groups)
    operations = sum(group.operations for group in groups.groups)
    return (
        f"{_counted(len(groups.groups), 'fusable group')}, {moved / 2**20:.3g} MiB moved, "
        f"{operations / 1e6:.3g} M operations"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _end(module: torch.fx.GraphModule) -> Iterator[str]:
    """Why Dynamo ended the graph where it did."""
    reason = getattr(module, "compile_subgraph_reason", None)
    if reason is None:
        return
    place = _source_of(reason.user_stack)
    lines = [line.strip() for line in str(reason.reason).splitlines() if line.strip()]
    if not reason.graph_break:
        yield f"  ended by: {lines[0] if lines else 'the return'}{place}"
        return
    yield f"  ended by a graph break{place}:"
    for line in lines:
        yield f"    {line}"


def _source_of(stack: Sequence[Any]) -> str:
    if not stack:
        return ""
    frame = stack[-1]
    return f" at {Path(frame.filename).name}:{frame.lineno} in {frame.name}"

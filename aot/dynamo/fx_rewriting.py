"""Writes the results of rewrites back into an FX graph; nodes that they did not change stay as they
are.

A node whose value the graph already has is replaced by the earlier node. A node whose value has a
shorter call is replaced by it in place, and nodes that only it needed are removed.

Linear layers of one input are merged into one product if their weights are known when the graph is
compiled. With `options={"freezing": True}` Inductor treats weights as constants, so that it
concatenates them once; otherwise they would be copied at each call, which costs more than it saves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

from aotc.aot.dynamo.fx_import import Reading, value_of
from aotc.aot.dynamo.fx_lowering import FxCall
from aotc.aot.dynamo.fx_writer import Writer, key_of
from aotc.aot.ir.graph import Node


def write_back(
    module: torch.fx.GraphModule,
    found: Reading,
    images: Mapping[Node, Node],
    wanted: Mapping[Node, FxCall | str],
    merges: bool = False,
) -> Counter[str]:
    """Rewrite `module` in place; `images` says what each value of `found` has become.

    `wanted` are values that the user's rewrites made: each with its call, or the rewrite's name.
    They are written whether that is shorter or not. With `merges`, linears of one input become one:
    for weights that are known when the graph is compiled. The answer counts what was done by label.
    The module is left linted and recompiled.
    """
    writer = Writer(module, found, images, wanted)
    own = [node for node in writer.order if node in found.values or node in found.rows]
    for node in own:
        writer.share(node)
    for node in reversed(own):
        writer.sweep(node)
    for node in reversed(own):
        writer.shorten(node)
        writer.sweep(node)
    if merges:
        merge_linears(writer)
    module.graph.lint()
    module.recompile()
    return writer.done


# -- linears of one input --------------------------------------------------------------------------


aten = torch.ops.aten
LINEARS = frozenset({torch.nn.functional.linear, torch._C._nn.linear, aten.linear.default})
MERGED = "linears merged"


def merge_linears(writer: Writer) -> None:
    """Replace each row of linears of one input by slices of one; counted in `writer.done`."""
    for row in _rows(writer):
        made = _merged(writer, row)
        pieces = list(zip(row, made[-len(row) :], strict=True))
        if all(writer.fits(new, old) for old, new in pieces):
            writer.done[MERGED] += 1
            for old, new in pieces:
                writer.put(new, old)
        for each in reversed([*row, *made]):  # what nothing reads: the old ones, or the new
            if not each.users:
                writer.module.graph.erase_node(each)


def _rows(writer: Writer) -> Iterator[list[torch.fx.Node]]:
    """Linears that may be one: same input, region and kind of weights, a bias all or none."""
    found: dict[Any, list[torch.fx.Node]] = {}
    for node in writer.module.graph.nodes:
        parts = _parts(node) if node in writer.found.values else None
        if parts is not None:
            data, weight, bias = parts
            kind = (data, writer.found.regions[node], value_of(weight).dtype, bias is None)
            found.setdefault(kind, []).append(node)
    return (row for row in found.values() if len(row) > 1)


def _parts(node: torch.fx.Node) -> tuple[torch.fx.Node, ...] | None:
    """Data, weight and bias of a linear whose parameters are the graph's own arguments."""
    if node.target not in LINEARS or len(node.args) + len(node.kwargs) not in (2, 3):
        return None
    names = ("input", "weight", "bias")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    parts = tuple(given.get(name) for name in names)
    known = (each for each in parts[1:] if each is not None)
    is_known = all(each.op in ("placeholder", "get_attr") for each in known)
    return parts if is_known and value_of(parts[1]).dim() == 2 else None  # type: ignore[return-value]


def _merged(writer: Writer, row: Sequence[torch.fx.Node]) -> list[torch.fx.Node]:
    """The product over all weights, and as the last nodes the slice of each linear."""
    parts = [_parts(node) for node in row]
    data, weights, biases = (list(column) for column in zip(*parts, strict=True))  # type: ignore[arg-type]
    made: list[torch.fx.Node] = []

    def write(target: Any, *args: Any) -> torch.fx.Node:
        node = writer.module.graph.call_function(target, args)
        node.meta = {name: row[0].meta[name] for name in ("stack_trace",) if name in row[0].meta}
        node.meta[key_of(row[0])] = target(*torch.fx.map_arg(args, value_of))
        made.append(node)
        return node

    with writer.module.graph.inserting_before(row[0]), torch.no_grad():
        weight = write(aten.cat.default, weights)
        bias = None if biases[0] is None else write(aten.cat.default, biases)
        product = write(aten.linear.default, data[0], weight, bias)
        ends = [0, *accumulate(int(value_of(each).shape[0]) for each in weights)]
        for start, stop in pairwise(ends):
            write(aten.slice.Tensor, product, -1, start, stop)
    return made

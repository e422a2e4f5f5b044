"""Writes what the rewrites found back into an FX graph; whatever they did not touch stays as it is.

A node whose value the graph has already is replaced by the earlier one. A node whose value has a
shorter call gets it, right before itself, and what only it needed goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch

from aotc.aot.dynamo.fx_import import Reading
from aotc.aot.dynamo.fx_lowering import FxCall
from aotc.aot.dynamo.fx_writer import Writer
from aotc.aot.dynamo.merging import merge_linears
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

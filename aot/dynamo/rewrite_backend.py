"""`backend="aotc_rewrite"`: Dynamo's graph with our rewrites, compiled by Inductor.

The rewrites see the graph before gradients are taken, so that the backward pass is that of what
they leave: SiLU's own formula, not the product rule of `x * sigmoid(x)`.
"""

from __future__ import annotations

import copy
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch._inductor import list_mode_options
from torch._inductor.compile_fx import compile_fx

from aotc.aot.dynamo.errors import OptionUnknown
from aotc.aot.dynamo.fx_import import read_graph
from aotc.aot.dynamo.fx_lowering import FxCall
from aotc.aot.dynamo.fx_rewriting import write_back
from aotc.aot.dynamo.options import checked_mode
from aotc.aot.dynamo.user_rewrites import apply_registered
from aotc.aot.errors import UserError
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.ir.rules import Rule, apply_rules
from aotc.aot.rewrites import activations, algebra, attention, norms, views
from aotc.aot.rewrites.apply_user_rewrites import UserRewriteLog
from aotc.runtime import settings

LOG = logging.getLogger("aotc")
BACKEND_OPTIONS = frozenset({"print"})
_CLEANING = (*algebra.RULES, *views.RULES)
# Those of the tables that help Inductor: nothing that packs weights or decides about layouts.
TABLES: tuple[tuple[Rule, ...], ...] = (
    _CLEANING,
    (*activations.RULES, *_CLEANING),
    (*norms.RULES, *_CLEANING),
    (*attention.RULES, *_CLEANING),
)
UNWRITTEN = (
    "torch has no calls for what it makes, or gradients or memory that is seen outside would differ"
)
# Equal values, but not equal gradients: torch shares a tie between both operands of a maximum.
OTHER_GRADIENTS = frozenset({"maximum-zero"})


def rewritten(
    module: torch.fx.GraphModule, inputs: Sequence[Any], options: Mapping[str, Any], mode: Any
) -> Callable[..., Any]:
    """Rewrite a graph of Dynamo's and compile it by Inductor.

    `print` among the options says on stderr what was done; the others, and `mode`, are Inductor's.
    Raises `OptionUnknown` for a name that neither knows.
    """
    patches = _inductor_options(options, mode)
    before = _copied(module.graph)
    try:
        line = summary(rewrite_module(module, _knows_weights(patches)))
    except UserError:  # what a rewrite of the user's does is the user's to know
        raise
    except Exception as error:  # a bug of ours costs the rewrites, not the run
        module.graph = before
        line = f"a graph is left as it is: {type(error).__name__}: {error}"
        LOG.warning("aotc_rewrite: %s", line)
    LOG.info("aotc_rewrite: %s", line)
    if options.get("print"):
        print(f"aotc_rewrite: {line}", file=sys.stderr)
    return compile_fx(module, inputs, config_patches=patches)


def _knows_weights(patches: Mapping[str, Any]) -> bool:
    """Whether Inductor takes weights for constants: as it is set, and without gradients."""
    is_freezing = patches.get("freezing", inductor_config.freezing)
    return bool(is_freezing) and not torch.is_grad_enabled()


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    """The graph again, with what Dynamo notes on its nodes."""
    copied = copy.deepcopy(graph)
    for old, new in zip(graph.nodes, copied.nodes, strict=True):
        for name, value in vars(old).items():
            if name.startswith("_dynamo"):
                setattr(new, name, value)
    return copied


def _inductor_options(options: Mapping[str, Any], mode: Any) -> dict[str, Any]:
    """What Inductor is given: the settings of the mode, and those that are named."""
    patches: dict[str, Any] = dict(list_mode_options(checked_mode(mode)))
    for name, value in options.items():
        key = name.replace("-", "_")
        if name in BACKEND_OPTIONS:
            continue
        if key not in inductor_config.get_config_copy():
            known = f"{', '.join(sorted(BACKEND_OPTIONS))}, or an option of Inductor's"
            raise OptionUnknown(name=name, backend="aotc_rewrite", known=known)
        patches[key] = value
    return patches


def rewrite_module(module: torch.fx.GraphModule, knows_weights: bool = False) -> Counter[str]:
    """Rewrite a graph of Dynamo's or AOTAutograd's in place; what was done, by its label.

    `knows_weights` says that the graph's parameters are constants to who compiles it.
    """
    found = read_graph(module)
    images, own = _images(found.graph, tuple(found.values.values()))
    done = write_back(module, found, images, _wanted(own), knows_weights)
    for name in own.counts:
        if not done[name]:
            LOG.warning(
                "aotc_rewrite: rewrite `%s` matches and is not applied: %s", name, UNWRITTEN
            )
    return done


def summary(done: Mapping[str, int]) -> str:
    """What was done in a line: `SiLU ×24, LayerNorm ×12`."""
    return ", ".join(f"{label} ×{count}" for label, count in sorted(done.items())) or "nothing"


def _images(graph: Graph, values: Sequence[Node]) -> tuple[dict[Node, Node], UserRewriteLog]:
    """What each of `values` is after the rewrites, and what the user's own ones among them did."""
    images = {value: value for value in values}
    own = UserRewriteLog()
    skip = OTHER_GRADIENTS.union(settings.read("AOTC_SKIP").value)
    for table in TABLES:
        graph, log = apply_registered(graph, tuple(images.values()))
        images = {value: log.images[image] for value, image in images.items()}
        own.add(log)
        followed = (*images.values(), *own.results, *own.made)
        graph, applied = apply_rules(graph, table, skip, followed, must_end=False)
        images = {value: applied.images[image] for value, image in images.items()}
        own.results = {applied.images[node]: name for node, name in own.results.items()}
        own.made = {applied.images[node]: row for node, row in own.made.items()}
    return images, own


def _wanted(own: UserRewriteLog) -> dict[Node, FxCall | str]:
    """The calls of what the user's rewrites made, or their names."""
    wanted: dict[Node, FxCall | str] = dict(own.results)
    for node, (rewrite, operands) in own.made.items():
        wanted[node] = FxCall(rewrite.name, rewrite.function, operands)
    return wanted

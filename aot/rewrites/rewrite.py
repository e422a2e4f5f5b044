"""The stage `rewrite`: imported graph → graph that the schedule reads, by tables in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import REWRITTEN_KINDS, check
from aotc.aot.ir.rules import Context, Rule, apply_rules
from aotc.aot.rewrites import (
    activations,
    algebra,
    attention,
    attention_gradients,
    attention_kernels,
    attention_masks,
    channels,
    columns,
    fold,
    layout,
    norms,
    orientation,
    pairs,
    rotary,
    views,
    weights,
)
from aotc.aot.rewrites.own_applying import OwnLog

DEVICES = ("cpu", "cuda")
ApplyOwn = Callable[[Graph], tuple[Graph, OwnLog]]
OWN = "own"  # the step of the user's rewrites: first of all, and again behind `OWN_AGAIN`
OWN_AGAIN = "norms"
STORING_DEVICE = "cuda"  # whose weights all targets of a bundle share, where it is among them


@dataclass(frozen=True, slots=True)
class Stage:
    """One step: a table of rules run to its fixed point, or a function of the whole graph.

    A step that only one family of targets wants names it; the steps before the first such one are
    run once for all targets of a bundle. One that decides how weights are stored says so: families
    that share a bundle share its weights, and all take those of CUDA.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    function: Callable[[Graph], tuple[Graph, int]] | None = None
    devices: tuple[str, ...] = DEVICES
    is_storage: bool = False
    own: ApplyOwn | None = None  # the user's rewrites

    def serves(self, device: str, devices: frozenset[str]) -> bool:
        """Whether it is run for `device` in a bundle for all of `devices`."""
        if self.is_storage and len(devices) > 1:
            return STORING_DEVICE in self.devices
        return device in self.devices


class EndlessRulesWarning(UserWarning):
    """Rules of a step did not come to an end, and were left out of it from there on."""


@dataclass(frozen=True, slots=True)
class StageLog:
    """What one step did."""

    name: str
    nodes_before: int
    nodes_after: int
    counts: Mapping[str, int]  # rule → how often it fired


@dataclass(slots=True)
class RewriteLog:
    """What all steps did, in order."""

    stages: list[StageLog] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How often each rule fired, over all steps."""
        total: dict[str, int] = {}
        for stage in self.stages:
            for name, count in stage.counts.items():
                total[name] = total.get(name, 0) + count
        return dict(sorted(total.items()))


_CLEANING = (*algebra.RULES, *views.RULES)
_SERVED = attention.rules(attention_kernels.serves)

STAGES: tuple[Stage, ...] = (
    Stage("algebra", _CLEANING),
    Stage("attention-gradients", function=attention_gradients.join_gradients),
    Stage("fold", function=fold.fold_all_but_transposes),
    Stage("activations", (*activations.RULES, *_CLEANING)),
    Stage("norms", (*norms.RULES, *_CLEANING)),
    Stage("channels", channels.RULES, devices=("cuda",), is_storage=True),
    Stage("layout", (*layout.RULES, *norms.RULES, *_CLEANING)),
    Stage("fold-layout", function=fold.fold_all_but_transposes),
    Stage("pair", function=pairs.pair_matmuls, devices=("cuda",), is_storage=True),
    Stage("join", function=weights.join_matmuls),
    Stage("rotary", function=rotary.join_rotaries, devices=("cuda",)),
    Stage("attention", (*attention.RULES, *_CLEANING), devices=("cuda",)),
    Stage("attention", (*_SERVED, *_CLEANING), devices=("cpu",)),
    Stage("attention-masks", function=attention_masks.known_masks),
    Stage("attention", function=attention_kernels.call_kernels, devices=("cpu",)),
    Stage("pack", (*weights.PACKING, *views.RULES), devices=("cpu",), is_storage=True),
    Stage("fold-weights", function=fold.fold, devices=("cpu",), is_storage=True),
    Stage("orient", function=orientation.orient_weights, devices=("cuda",), is_storage=True),
    Stage(
        "fold-weights",
        function=fold.fold_all_but_transposes,
        devices=("cuda",),
        is_storage=True,
    ),
    Stage("columns", columns.RULES, devices=("cpu",)),
    Stage("tidy", (*layout.RULES, *_CLEANING)),
)


_OF_ROUNDINGS = (*algebra.RULES, *activations.RULES, *norms.RULES, *attention.RULES)
# What changes roundings of 16-bit values: rules that say so, and attention, whose weights are not
# rounded. Rules of layout that are not exact add up in another order, in f32.
INEXACT = frozenset(
    {
        "attention",
        "attention-gradients",
        *(rule.name for rule in _OF_ROUNDINGS if not rule.is_exact),
    }
)

# Every table by its file's name, for tests that walk all rules.
TABLES: Mapping[str, tuple[Rule, ...]] = {
    "algebra": algebra.RULES,
    "activations": activations.RULES,
    "norms": norms.RULES,
    "channels": channels.RULES,
    "views": views.RULES,
    "layout": layout.RULES,
    "attention": attention.RULES,
    "weights": weights.PACKING,
    "columns": columns.RULES,
}


def rewrite(
    graph: Graph, pack: bool = True, skip: frozenset[str] = frozenset(), device: str = "cpu"
) -> tuple[Graph, RewriteLog]:
    """`graph` with the same meaning, cheaper to run on `device`, and the log of what was done.

    `pack` packs constant matmul operands for the CPU. `skip` names steps and rules to leave out,
    for bisecting (AOTC_SKIP). Raises `InternalError` when a step leaves an illegal graph.
    """
    return rewrite_each(graph, (device,), pack, skip)[device]


def rewrite_each(
    graph: Graph,
    devices: Sequence[str],
    pack: bool = True,
    skip: frozenset[str] = frozenset(),
    own: ApplyOwn | None = None,
) -> dict[str, tuple[Graph, RewriteLog]]:
    """As `rewrite`, for several device families: what they have in common is done once, and weights
    are stored the same way for all. `own` applies the user's rewrites, and may raise their errors.
    """
    left_out = skip if pack else skip | {"pack"}
    stages = [stage for stage in _with_own(own) if stage.name not in left_out]
    wanted = frozenset(devices)
    shared = list(
        takewhile(lambda stage: all(stage.serves(each, wanted) for each in wanted), stages)
    )
    graph, common = _run_all(shared, graph, left_out)
    convolutions_stay = {"layout", *(rule.name for rule in layout.RULES)} & left_out
    found: dict[str, tuple[Graph, RewriteLog]] = {}
    for device in devices:
        rest = [stage for stage in stages[len(shared) :] if stage.serves(device, wanted)]
        result, rows = _run_all(rest, graph, left_out)
        check(result, "rewrite", frozenset() if convolutions_stay else REWRITTEN_KINDS)
        found[device] = result, RewriteLog([*common, *rows])
    return found


def _with_own(own: ApplyOwn | None) -> list[Stage]:
    """All steps; the user's rewrites see the graph as captured, and with our ops in it."""
    if own is None:
        return list(STAGES)
    step = Stage(OWN, own=own)
    behind = [[stage, step] if stage.name == OWN_AGAIN else [stage] for stage in STAGES]
    return [step, *(stage for stages in behind for stage in stages)]


def _run_all(
    stages: Sequence[Stage], graph: Graph, skip: frozenset[str]
) -> tuple[Graph, list[StageLog]]:
    rows, context = [], Context()
    count = len(graph.nodes())
    for stage in stages:
        before, left = graph, count
        graph, counts = _run(stage, graph, skip, context)
        if not _is_same(graph, before):
            check(graph, f"rewrite/{stage.name}")
            count = len(graph.nodes())
        rows.append(StageLog(stage.name, left, count, counts))
    return graph, rows


def _is_same(graph: Graph, other: Graph) -> bool:
    """Whether two graphs are one function by its parts: nodes are interned."""
    ends = (graph.inputs, graph.outputs, graph.states), (other.inputs, other.outputs, other.states)
    return ends[0] == ends[1] and graph.constants == other.constants


def _run(
    stage: Stage, graph: Graph, skip: frozenset[str], context: Context
) -> tuple[Graph, dict[str, int]]:
    if stage.own is not None:
        graph, own = stage.own(graph)
        return graph, own.counts
    if stage.function is not None:
        graph, count = stage.function(graph)
        return graph, {stage.name: count} if count else {}
    graph, applied = apply_rules(graph, stage.rules, skip, must_end=False, context=context)
    if applied.stopped:
        names = ", ".join(f"`{name}`" for name in applied.stopped)
        text = (
            f"rewrites of the step `{stage.name}` do not come to an end and were stopped: {names}; "
            "the program is right, and may be slower than it could be"
        )
        warnings.warn(text, EndlessRulesWarning, stacklevel=2)
    return graph, dict(sorted(applied.counts.items()))

"""The stage `rewrite`: imported graph → graph that the schedule reads, by tables in order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import attrgetter

from aotc.aot.ir.control import with_bodies
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import REWRITTEN_KINDS, check
from aotc.aot.ir.rules import Context, Rule, apply_rules
from aotc.aot.rewrites import (
    activations,
    algebra,
    attention,
    attention_ends,
    attention_masks,
    attention_sinks,
    branches,
    channels,
    counted,
    fold,
    fourier,
    gates,
    groups,
    integer_products,
    layout,
    lookups,
    matrix_vector,
    memory,
    norms,
    order,
    reductions,
    rotary,
    rows,
    runs,
    scan,
    scatter,
    tables,
    tf32,
    views,
    weight_gradients,
    weights,
)
from aotc.aot.rewrites.apply_user_rewrites import UserRewriteLog
from aotc.aot.traits import TargetTraits

Wants = Callable[[TargetTraits], bool]
ApplyUserRewrites = Callable[[Graph], tuple[Graph, UserRewriteLog]]
PLAIN = TargetTraits()
USER = "user"  # the step of the user's rewrites: first of all, and again behind `USER_AGAIN`
USER_AGAIN = "norms"
TABLES_ONCE = "tables"  # the step that sees all entries of a model, behind all others
MEMORY = "memory"  # the step without which some ops have no kernel: nothing leaves it out


def _all(traits: TargetTraits) -> bool:
    return True


def _cpus(traits: TargetTraits) -> bool:
    return not traits.is_gpu


_gpus: Wants = attrgetter("is_gpu")
_words: Wants = attrgetter("multiplies_bf16")
_packers: Wants = attrgetter("packs_weights")


def _rounders(traits: TargetTraits) -> bool:
    return traits.convolution_precision == "tf32"


@dataclass(frozen=True, slots=True)
class Stage:
    """One step: a table of rules run to its fixed point, or a function of the whole graph.

    A step that only some targets want says which; the steps before the first such one are run once
    for all targets of a bundle. One that decides how weights are stored says so: families that
    share a bundle share its weights, and all take those of one that does not pack them.
    """

    name: str
    rules: tuple[Rule, ...] = ()
    function: Callable[[Graph], tuple[Graph, int]] | None = None
    wants: Wants = _all
    is_storage: bool = False
    own: ApplyUserRewrites | None = None  # the user's rewrites

    def serves(self, traits: TargetTraits, storing: TargetTraits) -> bool:
        """Whether it is run for a target in a bundle that stores weights as `storing` wants it."""
        return self.wants(storing if self.is_storage else traits)


class EndlessRulesWarning(UserWarning):
    """Rules of a step did not come to an end, and were left out of it from there on."""


@dataclass(frozen=True, slots=True)
class StageLog:
    """What one step did."""

    name: str
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
_SERVED = (*attention.rules(memory.serves), *attention_sinks.rules(memory.serves))
_OF_GPUS = (*attention.RULES, *attention_sinks.RULES)

STAGES: tuple[Stage, ...] = (
    Stage("branches", function=branches.choose_both),
    Stage("rows-of-scans", function=rows.multiply_rows_before),
    Stage(MEMORY, function=fourier.expand_unserved, wants=_gpus),
    Stage(MEMORY, function=fourier.expand_on_cpu, wants=_cpus),
    Stage("tf32", function=tf32.round_data, wants=_rounders),
    Stage(MEMORY, function=weight_gradients.products_of_windows, wants=_gpus),
    Stage(MEMORY, function=weight_gradients.products_on_grid, wants=_cpus),
    Stage(MEMORY, function=weights.widen_products, wants=_gpus),
    Stage(MEMORY, function=lookups.look_up_on_gpu, wants=_gpus),
    Stage(MEMORY, function=lookups.look_up_on_cpu, wants=_cpus),
    Stage(MEMORY, function=scatter.reduce_few_places, wants=_gpus),
    Stage(MEMORY, function=memory.place_ops),
    Stage("algebra", _CLEANING),
    Stage("counts", function=counted.write_counts),
    Stage("attention-gradients", function=memory.join_gradients),
    Stage("fold", function=fold.fold_all_but_transposes),
    Stage("activations", (*activations.RULES, *_CLEANING)),
    Stage("norms", (*norms.RULES, *_CLEANING)),
    Stage("runs", function=runs.join_runs, wants=_cpus),
    Stage(MEMORY, function=scan.expand_scans, wants=_gpus),
    Stage(MEMORY, function=scan.expand_short_scans, wants=_cpus),
    Stage("channels", channels.RULES, wants=_gpus, is_storage=True),
    Stage("channels", channels.WORD_RULES, wants=_words, is_storage=True),
    Stage("groups", groups.RULES, wants=_cpus),
    Stage("layout", (*layout.RULES, *norms.RULES, *_CLEANING)),
    Stage("fold-layout", function=fold.fold_all_but_transposes),
    Stage("pair", function=weights.pair_matmuls, wants=_gpus, is_storage=True),
    Stage("gates", function=gates.interleave_gates, wants=_gpus, is_storage=True),
    Stage("join", function=weights.join_matmuls),
    Stage("integer-products", function=integer_products.multiply_codes, wants=_cpus),
    Stage("rotary", function=rotary.join_rotaries, wants=_gpus),
    Stage("attention", (*_OF_GPUS, *_CLEANING), wants=_gpus),
    Stage("attention", (*_SERVED, *_CLEANING), wants=_cpus),
    Stage(MEMORY, function=order.order_where_ranks_are_of_long_rows, wants=_gpus),
    Stage(MEMORY, function=order.order_where_ranks_are, wants=_cpus),
    Stage(MEMORY, function=order.rank_rows, wants=_gpus),
    Stage(MEMORY, function=order.rank_short_rows, wants=_cpus),
    Stage("attention-masks", function=attention_masks.known_masks),
    Stage("attention-ends", function=attention_ends.bounded_masks),
    Stage(MEMORY, function=memory.place_blocks, wants=_gpus),
    Stage(MEMORY, function=memory.place_all, wants=_cpus),
    Stage("rows-in-place", function=memory.rows_in_place),
    Stage("row-pairs", function=memory.pair_rows),
    Stage("scattered-copies", function=memory.scattered_into_copies, wants=_cpus),
    Stage("wide-places", function=memory.wide_places_in_place, wants=_cpus),
    Stage("pack", (*weights.PACKING, *views.RULES), wants=_packers, is_storage=True),
    Stage("fold-weights", function=fold.fold, wants=_cpus, is_storage=True),
    Stage("orient", function=weights.orient_weights, wants=_gpus, is_storage=True),
    Stage("tf32", function=tf32.multiply_rounded, wants=_rounders),
    Stage("fold-weights", function=fold.fold_all_but_transposes, wants=_gpus, is_storage=True),
    Stage("matrix-vector", matrix_vector.RULES, wants=_cpus),
    Stage("matrix-vector", matrix_vector.GPU_RULES, wants=_gpus),
    Stage("reductions", function=reductions.part_reductions, wants=_cpus),
    Stage("tidy", (*layout.RULES, *_CLEANING)),
)


_ATTENTION = (*attention.RULES, *attention_sinks.RULES)
_OF_ROUNDINGS = (*algebra.RULES, *activations.RULES, *norms.RULES, *_ATTENTION)
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
    "channels": (*channels.RULES, *channels.WORD_RULES),
    "views": views.RULES,
    "layout": layout.RULES,
    "groups": groups.RULES,
    "attention": _ATTENTION,
    "weights": weights.PACKING,
    "matrix_vector": (*matrix_vector.RULES, *matrix_vector.LARGE, *matrix_vector.FEW),
}


def rewrite(
    graph: Graph,
    traits: TargetTraits = PLAIN,
    skip: frozenset[str] = frozenset(),
    own: ApplyUserRewrites | None = None,
) -> tuple[Graph, RewriteLog]:
    """`graph` with the same meaning, cheaper to run on a target, and the log of what was done.

    `skip` names steps and rules to leave out, for bisecting (AOTC_SKIP). Raises `InternalError`
    when a step leaves an illegal graph.
    """
    return rewrite_each(graph, {"": traits}, skip, own)[""]


def rewrite_each(
    graph: Graph,
    families: Mapping[str, TargetTraits],
    skip: frozenset[str] = frozenset(),
    own: ApplyUserRewrites | None = None,
) -> dict[str, tuple[Graph, RewriteLog]]:
    """As `rewrite`, for several device families by name: what they have in common is done once, and
    weights are stored the same way for all. `own` applies the user's rewrites, and may raise their
    errors.
    """
    skip -= {MEMORY}
    stages = [stage for stage in _with_user_rewrites(own) if stage.name not in skip]
    wanted = families.values()
    storing = min(wanted, key=_packers)  # one that does not pack, where there is any
    shared = list(
        takewhile(lambda stage: all(stage.serves(each, storing) for each in wanted), stages)
    )
    graph, common = _run_all(shared, graph, skip)
    convolutions_stay = {"layout", *(rule.name for rule in layout.RULES)} & skip
    found: dict[str, tuple[Graph, RewriteLog]] = {}
    for family, traits in families.items():
        rest = [stage for stage in stages[len(shared) :] if stage.serves(traits, storing)]
        result, rows = _run_all(rest, graph, skip)
        own_stages = [stage for stage in stages if stage.serves(traits, storing)]
        result, inside = _with_bodies(result, own_stages, skip)
        rows += inside
        check(result, "rewrite", frozenset() if convolutions_stay else REWRITTEN_KINDS)
        found[family] = result, RewriteLog([*common, *rows])
    return found


def _with_bodies(
    graph: Graph, stages: Sequence[Stage], skip: frozenset[str]
) -> tuple[Graph, list[StageLog]]:
    """The graph with its bodies rewritten, all steps one after the other, and what was done."""
    logs: list[StageLog] = []

    def rewritten(body: Graph) -> Graph:
        found, rows = _run_all(stages, body, skip)
        found, inside = _with_bodies(found, stages, skip)
        logs.extend((*rows, *inside))
        return found

    return with_bodies(graph, rewritten, sees_constants=True), logs


def rewrite_entries(
    graphs: Sequence[Graph],
    families: Mapping[str, TargetTraits],
    skip: frozenset[str] = frozenset(),
    own: ApplyUserRewrites | None = None,
) -> list[dict[str, tuple[Graph, RewriteLog]]]:
    """As `rewrite_each`, for all entries of a model, which store what they share once."""
    rows = [rewrite_each(graph, families, skip, own) for graph in graphs]
    for family in () if TABLES_ONCE in skip else families:
        found, count = tables.share_tables([row[family][0] for row in rows])
        for row, graph in zip(rows, found, strict=True) if count else ():
            check(graph, f"rewrite/{TABLES_ONCE}")
            log = row[family][1]
            log.stages.append(StageLog(TABLES_ONCE, {TABLES_ONCE: count}))
            row[family] = graph, log
    return rows


def _with_user_rewrites(own: ApplyUserRewrites | None) -> list[Stage]:
    """All steps; the user's rewrites see the graph as captured, and with our ops in it."""
    if own is None:
        return list(STAGES)
    step = Stage(USER, own=own)
    behind = [[stage, step] if stage.name == USER_AGAIN else [stage] for stage in STAGES]
    return [step, *(stage for stages in behind for stage in stages)]


def _run_all(
    stages: Sequence[Stage], graph: Graph, skip: frozenset[str]
) -> tuple[Graph, list[StageLog]]:
    rows, context = [], Context()
    for stage in stages:
        before = graph
        graph, counts = _run(stage, graph, skip, context)
        if not _is_same(graph, before):
            check(graph, f"rewrite/{stage.name}")
        rows.append(StageLog(stage.name, counts))
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

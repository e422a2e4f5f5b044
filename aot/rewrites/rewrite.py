"""The stage `rewrite`: imported graph → graph that the schedule reads, by tables in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aotc.aot.ir.graph import Graph
from aotc.aot.ir.legal import REWRITTEN_KINDS, check
from aotc.aot.ir.rules import Rule, apply_rules
from aotc.aot.rewrites import activations, algebra, fold, layout, norms, views, weights


@dataclass(frozen=True, slots=True)
class Stage:
    """One step: a table of rules run to its fixed point, or a function of the whole graph."""

    name: str
    rules: tuple[Rule, ...] = ()
    function: Callable[[Graph], tuple[Graph, int]] | None = None


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

STAGES: tuple[Stage, ...] = (
    Stage("algebra", _CLEANING),
    Stage("fold", function=fold.fold),
    Stage("activations", (*activations.RULES, *_CLEANING)),
    Stage("norms", (*norms.RULES, *_CLEANING)),
    Stage("layout", (*layout.RULES, *norms.RULES, *_CLEANING)),
    Stage("fold-layout", function=fold.fold),
    Stage("join", function=weights.join_matmuls),
    Stage("pack", (*weights.PACKING, *views.RULES)),
    Stage("fold-weights", function=fold.fold),
    Stage("tidy", (*layout.RULES, *_CLEANING)),
)


# Every table by its file's name, for tests that walk all rules.
TABLES: Mapping[str, tuple[Rule, ...]] = {
    "algebra": algebra.RULES,
    "activations": activations.RULES,
    "norms": norms.RULES,
    "views": views.RULES,
    "layout": layout.RULES,
    "weights": weights.PACKING,
}


def rewrite(
    graph: Graph, pack: bool = True, skip: frozenset[str] = frozenset()
) -> tuple[Graph, RewriteLog]:
    """`graph` with the same meaning, cheaper to run, and the log of what was done.

    `pack` packs constant matmul operands. `skip` names steps and rules to leave out, for bisecting
    (AOTC_SKIP). Raises `InternalError` when a step leaves an illegal graph.
    """
    left_out = skip if pack else skip | {"pack"}
    log = RewriteLog()
    for stage in STAGES:
        if stage.name in left_out:
            continue
        before = len(graph.nodes())
        graph, counts = _run(stage, graph, left_out)
        check(graph, f"rewrite/{stage.name}")
        log.stages.append(StageLog(stage.name, before, len(graph.nodes()), counts))
    convolutions_stay = {"layout", *(rule.name for rule in layout.RULES)} & left_out
    check(graph, "rewrite", frozenset() if convolutions_stay else REWRITTEN_KINDS)
    return graph, log


def _run(stage: Stage, graph: Graph, skip: frozenset[str]) -> tuple[Graph, dict[str, int]]:
    if stage.function is not None:
        graph, count = stage.function(graph)
        return graph, {stage.name: count} if count else {}
    graph, applied = apply_rules(graph, stage.rules, skip)
    return graph, dict(sorted(applied.counts.items()))

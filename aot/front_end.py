"""The front end: from a SPEC to the captured model and the rewritten graph of each target."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aotc.aot.capture.capture import Captured
from aotc.aot.capture.quantise import quantise_module
from aotc.aot.capture.spec import load_spec
from aotc.aot.capture.tracing import traced
from aotc.aot.capture_cache import cached_capture
from aotc.aot.host_kernels import host_kernels, kernels_of
from aotc.aot.ir.graph import Graph
from aotc.aot.ir.text import print_graph
from aotc.aot.options import BuildOptions
from aotc.aot.rewrites.apply_user_rewrites import apply_user_rewrites
from aotc.aot.rewrites.quantise import quantise_weights
from aotc.aot.rewrites.rewrite import INEXACT, rewrite_each
from aotc.aot.stages import Clock
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Executor
from aotc.aot.traits import TargetTraits
from aotc.aot.tune.compiling import warm_up
from aotc.cache import Store


@dataclass(frozen=True, slots=True)
class RewrittenModel:
    """A model and, for each target, its figures as the model wants them and its graph."""

    captured: Captured
    graphs: tuple[tuple[Target, Graph], ...]


def capture_and_rewrite(
    spec: str,
    targets: Sequence[Target],
    options: BuildOptions,
    executor: Executor,
    store: Store,
    clock: Clock,
) -> RewrittenModel:
    """The stages capture and rewrite, while the workers load the compilers that they will need."""
    families = {target.device: target.traits for target in targets}
    to_warm = () if options.frozen else families  # a frozen build compiles nothing, or very little
    warming = threading.Thread(target=_warm_up, args=(to_warm, executor, store))
    warming.start()
    try:
        captured = _capture(spec, options, store, clock)
        graphs = _rewrite(captured.graph, families, options, clock)
    finally:
        warming.join()
    precise = [_with_precision(target, captured.dot_precision) for target in targets]
    return RewrittenModel(captured, tuple((target, graphs[target.device]) for target in precise))


def _warm_up(devices: Iterable[str], executor: Executor, store: Store) -> None:
    for device in devices:
        warm_up(device, executor, store)


def _capture(spec: str, options: BuildOptions, store: Store, clock: Clock) -> Captured:
    with clock.stage("capture"):
        loaded = load_spec(spec)
        quantised = quantise_module(loaded, options.quantize) if options.quantize else None
        with host_kernels(loaded):  # export and the golden numbers launch them
            leaves = options.fallback == "torch"
            captured, was_known = cached_capture(loaded, store, leaves, options.round_intermediates)
        if quantised is not None:
            graph = quantise_weights(captured.graph, quantised.originals, quantised.kind)
            captured = replace(captured, graph=graph, quantized=quantised.facts())
        clock.dump("capture", print_graph(captured.graph, with_sources=True))
        origin = ", from the cache" if was_known else ""
        mode = ", by strict export" if captured.is_strict else ""
        clock.detail = f"{len(captured.graph.nodes())} nodes{mode}{origin}"
    return captured


def _rewrite(
    graph: Graph, families: Mapping[str, TargetTraits], options: BuildOptions, clock: Clock
) -> dict[str, Graph]:
    """The graph of each device family."""
    with clock.stage("rewrite"):
        graph = graph.without_checks() if options.unchecked_indices else graph
        rewrites = [each for each in options.rewrites if each.name not in options.skip]
        own = partial(apply_user_rewrites, rewrites=rewrites, trace=traced)
        skip = options.skip | INEXACT if options.round_intermediates else options.skip
        with kernels_of(options.rewrites):
            rewritten = rewrite_each(graph, families, skip=skip, own=own)
        for device, (result, log) in rewritten.items():
            rules = "".join(f"# {name} ×{count}\n" for name, count in log.counts().items())
            clock.target = device
            clock.dump("rewrite", rules + print_graph(result))
        clock.target = ""
        result, log = next(iter(rewritten.values()))
        counts = log.counts()
        yours = "".join(f", {each.name} ×{counts.get(each.name, 0)}" for each in rewrites)
        clock.detail = f"{len(result.nodes())} nodes, {sum(counts.values())} rules applied{yours}"
    return {device: result for device, (result, _) in rewritten.items()}


def _with_precision(target: Target, precision: str) -> Target:
    """A GPU's dots of f32 have the precision that torch would use; a CPU has only one."""
    if not target.traits.is_gpu:
        return target
    return replace(target, traits=replace(target.traits, dot_precision=precision))

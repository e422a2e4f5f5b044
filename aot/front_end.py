"""The front end: from a SPEC to the captured model and the rewritten graph of each target."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aotc.aot.capture.capture import Captured
from aotc.aot.capture.exporting import initialise
from aotc.aot.capture.quantise import quantise_module
from aotc.aot.capture.spec import Spec, load_specs
from aotc.aot.capture.tracing import traced
from aotc.aot.capture_cache import cached_captures
from aotc.aot.entries import agreed
from aotc.aot.errors import NothingToSplit, SplitUnsupported
from aotc.aot.host_kernels import host_kernels, kernels_of
from aotc.aot.ir.control import without_data_checks
from aotc.aot.ir.graph import Graph, own_sources
from aotc.aot.ir.memory_order import NO_ORDERS, with_orders
from aotc.aot.ir.text import print_graph
from aotc.aot.options import BuildOptions
from aotc.aot.rewrites.apply_user_rewrites import apply_user_rewrites
from aotc.aot.rewrites.fixed_masks import with_fixed_masks
from aotc.aot.rewrites.quantise import quantise_weights
from aotc.aot.rewrites.rewrite import INEXACT, rewrite_entries
from aotc.aot.sharding.split import LEAST_BYTES, split
from aotc.aot.stages import Clock
from aotc.aot.targets.digest import triton_version
from aotc.aot.targets.families import find_target
from aotc.aot.targets.target import Target
from aotc.aot.tasks.task import Executor
from aotc.aot.traits import TargetTraits
from aotc.aot.tune.compiling import warm_up
from aotc.cache import Store


@dataclass(frozen=True, slots=True)
class RewrittenModel:
    """The entries of a model and, for each target, its figures as the model wants them and their
    graphs."""

    captured: tuple[Captured, ...]
    graphs: tuple[tuple[Target, tuple[Graph, ...]], ...]


def wanted_targets(names: Sequence[str], options: BuildOptions) -> list[Target]:
    """The targets, each once; raises SplitUnsupported for what does not go with a program on
    several GPUs."""
    found = list(dict.fromkeys(map(find_target, names)))
    if options.ranks > 1:
        rows = [f"target `{each.name}`" for each in found if not each.traits.is_gpu]
        rows += ["`--fallback torch`"] if options.fallback is not None else []
        rows += ["`--adapters`"] if options.adapters else []
        if rows:
            raise SplitUnsupported(what=rows[0])
    return found


@own_sources()
def capture_and_rewrite(
    spec: str | Sequence[Spec],
    targets: Sequence[Target],
    options: BuildOptions,
    executor: Executor,
    store: Store,
    clock: Clock,
) -> RewrittenModel:
    """The stages capture and rewrite, while the workers load the compilers that they will need."""
    devices = {target.device: None for target in targets}
    to_warm = () if options.frozen else devices  # a frozen build compiles nothing, or very little
    # Known before: packages are found by a walk over `sys.meta_path`, which misses some while
    # imports of the model change it.
    triton_version()
    warming = threading.Thread(target=_warm_up, args=(to_warm, executor, store))
    warming.start()
    try:
        captured = _capture(spec, options, store, clock)
        precisions = captured[0].dot_precision, _convolution_precision(captured)
        precise = [target.with_precision(*precisions) for target in targets]
        families = {target.device: target.traits for target in precise}
        captured, graphs = _rewrite(captured, families, options, clock)
    finally:
        warming.join()
    return RewrittenModel(captured, tuple((target, graphs[target.device]) for target in precise))


def _convolution_precision(captured: Sequence[Captured]) -> str:
    """That of the entries which have convolutions of f32."""
    asked = {each.convolution_precision for each in captured}
    return "tf32" if "tf32" in asked else "ieee"


def _warm_up(devices: Iterable[str], executor: Executor, store: Store) -> None:
    with contextlib.suppress(Exception):  # who needs the workers meets it again, and says so
        for device in devices:
            warm_up(device, executor, store)


def _capture(
    spec: str | Sequence[Spec], options: BuildOptions, store: Store, clock: Clock
) -> tuple[Captured, ...]:
    """Each entry by itself, and then all of them with one meaning for each name."""
    with clock.stage("capture"):
        found, known = [], 0
        specs = load_specs(spec) if isinstance(spec, str) else spec
        for loaded in specs:
            initialise(loaded)
        quantised = quantise_module(specs, options.quantize) if options.quantize else None
        leaves = options.fallback == "torch"
        # Files say nothing of a live model: they may have been edited since they were imported.
        captures = cached_captures(
            specs, store if isinstance(spec, str) else None, leaves, options.round_intermediates
        )
        for loaded in specs:
            with host_kernels(loaded):  # export and the golden numbers launch them
                captured, was_known = next(captures)
            if quantised is not None:
                given = quantised.originals, quantised.kind, quantised.transposed
                graph = quantise_weights(captured.graph, *given)
                captured = replace(captured, graph=graph, quantized=quantised.facts())
            found.append(captured)
            known += was_known
        agreeing = _with_fixed_masks(agreed(found))
        texts = [print_graph(each.graph, with_sources=True) for each in agreeing]
        clock.dump("capture", _by_entry([each.entry for each in agreeing], texts))
        origin = ", from the cache" if known == len(found) else ""
        if 0 < known < len(found):
            origin = f", {known} of them from the cache"
        mode = ", by strict export" if any(each.is_strict for each in found) else ""
        entries = "" if len(found) == 1 else f" in {len(found)} entries"
        nodes = sum(len(each.graph.nodes()) for each in agreeing)
        clock.detail = f"{nodes} nodes{entries}{mode}{origin}"
    return agreeing


def _with_fixed_masks(captured: Sequence[Captured]) -> tuple[Captured, ...]:
    """The captures, in which the masks that the model holds in buffers are no weights."""
    graphs, masks = with_fixed_masks([each.graph for each in captured])
    if not masks:
        return tuple(captured)
    digests = {
        name: hashlib.sha256(each.array.tobytes()).hexdigest() for name, each in masks.items()
    }
    held = [
        tuple((name, digests.get(name, digest)) for name, digest in each.held) for each in captured
    ]
    return tuple(
        replace(each, graph=graph, held=names)
        for each, graph, names in zip(captured, graphs, held, strict=True)
    )


def _by_entry(names: Sequence[str], texts: Sequence[str]) -> str:
    """Texts of several entries, each under its name."""
    if len(texts) == 1:
        return texts[0]
    return "\n".join(f"# {name}\n{text}" for name, text in zip(names, texts, strict=True))


def _rewrite(
    captured: tuple[Captured, ...],
    families: Mapping[str, TargetTraits],
    options: BuildOptions,
    clock: Clock,
) -> tuple[tuple[Captured, ...], dict[str, tuple[Graph, ...]]]:
    """The graphs of each device family, one an entry, and the captures: of a program that is split
    over several GPUs with the graphs of each GPU."""
    with clock.stage("rewrite"):
        if options.ranks > 1:  # which give and take what is contiguous
            captured = tuple(replace(each, orders=NO_ORDERS) for each in captured)
        graphs = [with_orders(each.graph, each.orders) for each in captured]
        if options.ranks > 1:
            bodies = [node for graph in graphs for node in graph.nodes() if node.op == "control"]
            if bodies:
                at = f" at {bodies[0].source}" if bodies[0].source else ""
                raise SplitUnsupported(what=f"control flow{at}")
            graphs = split(graphs, options.ranks)
            if not any(node.op == "exchange" for graph in graphs for node in graph.nodes()):
                raise NothingToSplit(ranks=options.ranks, least=LEAST_BYTES >> 10)
            pairs = zip(captured, graphs, strict=True)
            captured = tuple(replace(each, graph=graph) for each, graph in pairs)
        rewrites = [each for each in options.rewrites if each.name not in options.skip]
        own = partial(apply_user_rewrites, rewrites=rewrites, trace=traced)
        skip = options.skip | INEXACT if options.round_intermediates else options.skip
        if options.unchecked_indices:
            graphs = list(map(without_data_checks, graphs))
        with kernels_of(options.rewrites):
            rows = rewrite_entries(graphs, families, skip=skip, own=own)
        for device in families:
            found = [row[device] for row in rows]
            texts = [
                "".join(f"# {name} ×{count}\n" for name, count in log.counts().items())
                + print_graph(result)
                for result, log in found
            ]
            clock.target = device
            clock.dump("rewrite", "\n".join(texts))
        clock.target = ""
        first = [next(iter(row.values())) for row in rows]
        counts = sum((Counter(log.counts()) for _, log in first), Counter[str]())
        yours = "".join(f", {each.name} ×{counts.get(each.name, 0)}" for each in rewrites)
        nodes = sum(len(result.nodes()) for result, _ in first)
        clock.detail = f"{nodes} nodes, {sum(counts.values())} rules applied{yours}"
    return captured, {device: tuple(row[device][0] for row in rows) for device in families}

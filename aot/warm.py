"""`warm`: fill the artifact cache with what later builds and tunings will compile, and no more.

For image builds: no device is needed, and nothing is run or written but cache entries.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from aotc.aot.compile import Compiled, Resources, compile_for, jobs_of
from aotc.aot.front_end import capture_and_rewrite, wanted_targets
from aotc.aot.options import BuildOptions
from aotc.aot.refit import adapter_programs, weights_program
from aotc.aot.stages import Clock, Progress, Quiet
from aotc.aot.targets.families import FAMILIES
from aotc.aot.tune.compiling import Counts, compile_each, task_of
from aotc.cache import Store
from aotc.cache.collect import share


@dataclass(frozen=True, slots=True)
class Warmed:
    """What one model came to on one target."""

    spec: str
    target: str
    kernels: int  # distinct ones
    candidates: int  # whose machine code is in the cache, or is known not to exist


@dataclass(frozen=True, slots=True)
class WarmReport:
    """What was done to fill the cache."""

    cache: str
    rows: tuple[Warmed, ...]
    compiled: int
    cache_hits: int
    failed: int
    seconds: float

    def record(self) -> dict[str, Any]:
        """The report as plain data, for `--json`."""
        return asdict(self)


def warm(
    specs: Sequence[str],
    targets: Sequence[str],
    options: BuildOptions,
    progress: Progress | None = None,
    is_shared: bool = False,
) -> WarmReport:
    """Compile every kernel of every model for every target into the cache.

    That is the cost model's choice of each kernel, or the choice of `options.record`; with another
    `options.tune` than `off` also every candidate that such a tuning would measure. Raises the
    families of `aot/errors.py`; candidates that do not compile are counted only. `is_shared` lets
    other users read the cache.
    """
    started_s = time.time()
    wanted = wanted_targets(targets, options)
    store, counts = Store(options.cache_folder, options.cache_layers), Counts()
    rows = []
    with options.executor() as executor:
        resources = Resources(executor, store, counts)
        for spec in specs:
            clock = Clock(progress or Quiet())
            clock.has_targets = len(wanted) > 1
            model = capture_and_rewrite(spec, wanted, options, executor, store, clock)
            picks = replace(options, tune="off", frozen=False)
            made = []
            for target, graphs in model.graphs:
                clock.target = target.name
                compiled = compile_for(target, graphs, picks, resources, clock)
                made.append(compiled)
                candidates = _compile_candidates(compiled, options, resources, clock)
                kernels = len(compiled.tuning.kernels)
                rows.append(Warmed(spec, target.name, kernels, max(kernels, candidates)))
            weights, _tensors = weights_program(made, picks, resources, clock)
            if options.adapters:
                adapter_programs(made, weights, picks, resources, clock)
    store.send()
    if is_shared:
        share(store)
    return WarmReport(
        cache=str(options.cache_folder),
        rows=tuple(rows),
        compiled=counts.compiled,
        cache_hits=counts.cache_hits,
        failed=counts.failed,
        seconds=time.time() - started_s,
    )


def _compile_candidates(
    compiled: Compiled, options: BuildOptions, resources: Resources, clock: Clock
) -> int:
    """Compile what tuning in the mode asked for would measure; how many that is."""
    if options.tune == "off":
        return 0
    count = FAMILIES[compiled.target.device].candidates[options.tune]
    tasks = [
        task_of(job, candidate, compiled.target)
        for job in jobs_of(compiled.sources.variants)
        for candidate in job.spec.candidates[:count]
    ]
    with clock.stage("tune"):
        compile_each(tasks, replace(resources, report=clock.progress.advance))
        clock.detail = f"{len(tasks)} candidates"
    return len(tasks)

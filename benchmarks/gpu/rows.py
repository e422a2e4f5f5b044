"""Times row kernels on a GPU as shares of copy bandwidth, beside torch and torch.compile.

`python -m benchmarks.gpu.rows [OP …] [--dtype bf16,f32] [--columns 1024,…] [--wide] [--compile]
[--seconds S] [--best N] [--mib M] [--record FILE]` builds each op over rows of M MiB (512) through
schedule and lower, compiles all candidates in parallel, checks the first rows of each against torch
in f64, and times them in turns. Tensors are larger than the second-level cache, so that every
launch reads from memory. `--wide` tries configs beyond the candidates, to learn better tables;
`--record` appends every time to a file, one row a config.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path

import torch

from aotc.aot.ir.graph import Constant, Graph, walk
from aotc.aot.lower import lower
from aotc.aot.lower.spec import Candidate, KernelSpec, Scratch
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.launching import Compiled, Kernel, compile_source
from benchmarks.gpu.row_ops import OPS, ROW_OPS

CAPABILITY = 90
COLUMNS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 1048576)
CHECKED_ELEMENTS = 1 << 22
TOLERANCES = {"bf16": 1e-2, "f32": 2e-5}
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
ROUNDS, LAUNCHES = 5, 4


@dataclass(frozen=True, slots=True)
class Case:
    """One op over one shape, with its kernel."""

    op: str
    dtype: str
    rows: int
    columns: int
    spec: KernelSpec
    reads: tuple[str, ...]  # names of the inputs in the order of the kernel's parameters
    stores: int

    @property
    def bytes(self) -> int:
        """Traffic of one launch: each full-size tensor once."""
        row = OPS[self.op]
        item = 2 if self.dtype == "bf16" else 4
        return (row.reads + row.writes) * self.rows * self.columns * item


def case_of(name: str, dtype: str, rows: int, columns: int) -> Case:
    """Schedule and lower an op; it must be one kernel."""
    outputs = OPS[name].graph(rows, columns, dtype)
    inputs = tuple(node for node in walk(tuple(outputs)) if node.op == "input")
    names = tuple(str(node.attr("name")) for node in inputs)
    results = tuple(f"output_{at}" for at in range(len(outputs)))
    constants: dict[str, Constant] = {}
    graph, _ = rewrite(Graph(inputs, tuple(outputs), names, results, constants), GPUS[CAPABILITY])
    plan = schedule(graph, GPUS[CAPABILITY])
    (group,) = plan.groups
    (spec,) = lower(plan, GPUS[CAPABILITY])
    order = [root.node for root in group.roots]
    assert [plan.stored.index(node) for node in order] == sorted(range(len(order)))
    reads = tuple(str(node.attr("name")) for node in group.reads)
    return Case(name, dtype, rows, columns, spec, reads, len(order))


def candidates(case: Case, is_wide: bool) -> Iterator[Candidate]:
    """The spec's own candidates, then configs around them."""
    yield from case.spec.candidates
    if not is_wide:
        return
    known = set(case.spec.candidates)
    for form in case.spec.forms:
        first = next(row for row in case.spec.candidates if row.form == form.name)
        if "YBLOCK" in dict(first.config) or form.name == "parts":
            continue
        for config, grid in _configs(case, form.name, dict(first.config)):
            scratch = tuple(
                Scratch(row.name, row.type, (grid[0] + case.rows + 2) * 8, row.is_zeroed)
                for row in first.scratch
            )
            found = Candidate(tuple(config.items()), grid, form.name, scratch)
            if all(found.config != row.config for row in known):
                yield found


def _configs(
    case: Case, form: str, first: dict[str, int]
) -> Iterator[tuple[dict[str, int], tuple[int, int, int]]]:
    padded = 1 << (case.columns - 1).bit_length()
    most = 64 if case.dtype == "bf16" else 32
    for warps in (1, 2, 4, 8, 16, 32):
        if warps < 4 and case.columns > 16384 and case.spec.candidates[0].form:
            continue
        if form == "":
            for rows in (1, 2, 4, 8):
                share = rows * padded / (32 * warps)
                is_fit = 4 <= share <= (most if rows == 1 or not OPS[case.op].writes else 32)
                if is_fit and rows * padded <= 32768:
                    config = first | {"XBLOCK": rows, "num_warps": warps}
                    yield config, (ceil(case.rows / rows), 1, 1)
            continue
        for block in (1024, 2048, 4096, 8192, 16384, 32768):
            share = block / (32 * warps)
            if block > padded or not first["VECTOR"] <= share <= (most if form == "shared" else 32):
                continue
            config = first | {"RBLOCK": block, "num_warps": warps}
            yield from _loops(case, config) if "STAGES" in first else _pieces(case, config)


def _pieces(
    case: Case, config: dict[str, int]
) -> Iterator[tuple[dict[str, int], tuple[int, int, int]]]:
    """Programs that hold a piece of a row each."""
    parts = ceil(case.columns / config["RBLOCK"])
    if 2 <= parts <= 16:
        found = config | {"PARTS": parts, "QBLOCK": 1 << (parts - 1).bit_length()}
        yield found, (case.rows * parts, 1, 1)


def _loops(
    case: Case, config: dict[str, int]
) -> Iterator[tuple[dict[str, int], tuple[int, int, int]]]:
    """Programs that read rows, or every so many chunks of them, in a pipeline."""
    chunks = ceil(case.columns / config["RBLOCK"])
    item = 2 if case.dtype == "bf16" else 4
    for stages in (1, 3):
        if stages * config["RBLOCK"] * item > 98304:
            continue
        found = config | {"STAGES": stages}
        if "PARTS" not in config:
            yield found, (case.rows, 1, 1)
            continue
        for parts in (2, 4, 8, 16):
            if config["num_warps"] >= 8 and 2 <= chunks // parts <= 16:
                yield found | {"PARTS": parts, "QBLOCK": parts}, (case.rows * parts, 1, 1)


def submit(pool: ProcessPoolExecutor, case: Case, candidate: Candidate) -> Future[Compiled]:
    """Compile a candidate in a worker."""
    form = case.spec.form(candidate)
    params = [(row.name, row.type) for row in case.spec.params_of(candidate)]
    options = dict(candidate.options)
    constexprs = list(candidate.constexprs)
    return pool.submit(
        compile_source, form.source, form.function, params, constexprs, options, CAPABILITY
    )


@dataclass(slots=True)
class Runner:
    """Tensors on the device, shared by all cases, and the measured copy."""

    copy_bytes_per_us: float = 0.0

    def tensors(self, case: Case) -> dict[str, torch.Tensor]:
        """Random inputs of a case."""
        dtype = DTYPES[case.dtype]
        shape = (case.rows, case.columns)
        make_random = {
            "x": lambda: torch.randn(shape, device="cuda", dtype=dtype),
            "y": lambda: torch.randn(shape, device="cuda", dtype=dtype),
            "scale": lambda: torch.rand((1, case.columns), device="cuda", dtype=dtype),
            "shift": lambda: torch.rand((1, case.columns), device="cuda", dtype=dtype),
            "labels": lambda: torch.randint(0, case.columns, (case.rows, 1), device="cuda"),
        }
        names = ("x", "y", "scale", "shift", "labels")
        return {name: make_random[name]() for name in names if name in case.reads}

    def outputs(self, case: Case) -> list[torch.Tensor]:
        """Results of a case, not a number anywhere."""
        dtype = torch.float32 if case.op == "cross_entropy" else DTYPES[case.dtype]
        shape = OPS[case.op].result(case.rows, case.columns)
        return [
            torch.full(shape, float("nan"), device="cuda", dtype=dtype) for _ in range(case.stores)
        ]

    def measure_copy(self, nbytes: int) -> None:
        """Bytes per µs of torch's own copy of a tensor."""
        source = torch.randn(nbytes // 2, device="cuda", dtype=torch.bfloat16)
        target = torch.empty_like(source)
        times = timed({"copy": lambda: target.copy_(source)})
        self.copy_bytes_per_us = 2 * nbytes / times["copy"]


def timed(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median µs of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            run()
            begin.record()
            for _ in range(LAUNCHES):
                run()
            end.record()
            torch.cuda.synchronize()
            times[name].append(begin.elapsed_time(end) * 1000 / LAUNCHES)
    return {name: statistics.median(row) for name, row in times.items()}


def error_of(case: Case, found: list[torch.Tensor], inputs: dict[str, torch.Tensor]) -> float:
    """Largest error of the first and last rows, relative to the largest number."""
    row = OPS[case.op]
    count = max(1, min(case.rows, CHECKED_ELEMENTS // case.columns) // 2)
    ends = (slice(0, count), slice(case.rows - count, case.rows))
    worst = 0.0
    for rows in ends if row.is_by_rows else (slice(None),):
        parts = [
            (part[rows] if part.shape[0] == case.rows else part)
            for part in (inputs[name] for name in _order(inputs))
        ]
        wide = [part.double() if part.is_floating_point() else part for part in parts]
        wanted = row.torch(*wide)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for mine, good in zip(found, wanted, strict=True):
            apart = (mine[rows].double() - good).abs().max() / good.abs().max()
            worst = max(worst, float(apart)) if apart == apart else float("nan")
    return worst


def _order(inputs: dict[str, torch.Tensor]) -> list[str]:
    return [name for name in ("x", "y", "scale", "shift", "labels") if name in inputs]


def measure(
    case: Case,
    builds: dict[Candidate, Future[Compiled]],
    arguments: argparse.Namespace,
    runner: Runner,
) -> None:
    """Check and time all candidates of a case and print the best."""
    inputs, outputs = runner.tensors(case), runner.outputs(case)
    runs: dict[str, Callable[[], object]] = {}
    facts: dict[str, str] = {}
    bad: list[str] = []
    for number, (candidate, future) in enumerate(builds.items()):
        name = f"{number}: {candidate.form or 'held'} " + " ".join(
            f"{key[:2] if key != 'num_warps' else 'w'}{value}" for key, value in candidate.config
        )
        try:
            kernel = Kernel(future.result())
            scratch = [
                torch.zeros(row.nbytes // 4 + 1, device="cuda", dtype=torch.int32)
                for row in candidate.scratch
            ]
            tensors = [*(inputs[read] for read in case.reads), *outputs, *scratch]
            for output in outputs:
                output.fill_(float("nan"))
            kernel.launch(candidate.grid, tensors)
            torch.cuda.synchronize()
            error = error_of(case, outputs, inputs)
        except Exception as fault:
            bad.append(f"{name}: {fault!r}"[:160])
            continue
        if not error < TOLERANCES[case.dtype]:
            bad.append(f"{name}: error {error:.2g}")
            continue
        runs[name] = partial(kernel.launch, candidate.grid, tensors)
        resources = kernel.resources
        spilled = f" SPILLS {resources['spilled']}" if resources["spilled"] else ""
        facts[name] = f"r{resources['registers']}{spilled}"
    ordered = [inputs[name] for name in _order(inputs)]
    runs["torch"] = lambda: OPS[case.op].torch(*ordered)
    if arguments.compile:
        torch._dynamo.reset()
        compiled = torch.compile(OPS[case.op].torch, dynamic=False)
        runs["torch.compile"] = lambda: compiled(*ordered)
        runs["torch.compile"]()
    times = timed(runs)
    report(case, times, facts, bad, arguments.best, runner)
    if arguments.record:
        with arguments.record.open("a", encoding="utf-8") as file:
            for number, candidate in enumerate(builds):
                found = [time for name, time in times.items() if name.startswith(f"{number}: ")]
                if found:
                    config = " ".join(f"{name}={value}" for name, value in candidate.config)
                    shape = f"{case.op},{case.dtype},{case.rows},{case.columns}"
                    form = candidate.form or "held"
                    file.write(f"{shape},{form},{config},{found[0]:.1f}\n")


def report(
    case: Case,
    times: dict[str, float],
    facts: dict[str, str],
    bad: list[str],
    best: int,
    runner: Runner,
) -> None:
    """Shares of copy bandwidth: the pick, the best of each form, torch."""
    shares = {name: case.bytes / row / runner.copy_bytes_per_us for name, row in times.items()}
    ranked = sorted(facts, key=lambda name: times[name])
    pick = next((name for name in facts if name.startswith("0:")), "")
    head = f"{case.op} {case.dtype} {case.rows}x{case.columns}"
    others = ", ".join(f"{name} {shares[name]:.2f}" for name in times if name not in facts)
    print(
        f"== {head}: pick {shares.get(pick, 0):.3f} best {shares[ranked[0]]:.3f}, {others}"
        if ranked
        else f"== {head}: nothing ran",
        flush=True,
    )
    forms: dict[str, int] = {}
    for name in ranked:
        form = name.split()[1]
        forms[form] = forms.get(form, 0) + 1
        if forms[form] <= best:
            print(f"     {shares[name]:.3f} {times[name]:8.1f} µs {name} {facts[name]}", flush=True)
    for text in bad[:4]:
        print(f"     bad {text}", flush=True)


def main() -> int:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("ops", nargs="*", default=list(ROW_OPS))
    parser.add_argument("--dtype", default="bf16,f32")
    parser.add_argument("--columns", default=",".join(map(str, COLUMNS)))
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--best", type=int, default=3)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    begin = time.monotonic()
    cases = []
    for dtype in arguments.dtype.split(","):
        for columns in map(int, arguments.columns.split(",")):
            rows = max(1, (arguments.mib << 20) // (2 if dtype == "bf16" else 4) // columns)
            cases += [case_of(op, dtype, rows, columns) for op in arguments.ops]
    pool = ProcessPoolExecutor()
    builds = [
        {row: submit(pool, case, row) for row in candidates(case, arguments.wide)} for case in cases
    ]
    runner = Runner()
    runner.measure_copy(arguments.mib << 20)
    count = sum(map(len, builds))
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {count} candidates, copy "
        f"{runner.copy_bytes_per_us / 1e6:.2f} TB/s",
        flush=True,
    )
    for case, build_row in zip(cases, builds, strict=True):
        if time.monotonic() - begin > arguments.seconds:
            print("out of time", flush=True)
            break
        measure(case, build_row, arguments, runner)
    pool.shutdown(wait=False, cancel_futures=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

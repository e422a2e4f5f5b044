"""Times every form and config of matmul kernels on a GPU against cuBLAS.

`python -m benchmarks.gpu.matmul few|middle|large|forward|inputs|weights|networks
[--dtype bf16|f32] [--seconds S] [--out FILE.csv] [--best N] [--limit N]` sweeps sets of shapes;
forward, inputs and weights are those of training steps: forward, the gradients of inputs and those
of weights. torch multiplies f32 without TF32, as is its default. It compiles all legal configs
(or the model's first N) in parallel, checks each against the reference, times them in CUDA graphs
of many launches (operands out of the cache for few rows), and writes a row a config. The best are
timed again in turns with cuBLAS, bare and with bias and GELU. A table ends it, with the floor of
each shape.
"""

from __future__ import annotations

import argparse
import csv
import math
import statistics
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.launching import Compiled, Kernel, compile_source, graph_of_launches

Shape = tuple[int, int, int]
CAPABILITY = 90
COLD_BYTES = 256 << 20  # of weights in rotation, several times the second-level cache
# The limits of one H200 as `aotc profile` measures them (2026-11-21), for the lower bounds.
PRODUCT_OPERATIONS_PER_US = 959e6
COPY_BYTES_PER_US = 3.97e6
# By element type: torch's, and the worst error of a result, relative to its largest number.
DTYPES = {"bf16": (torch.bfloat16, 0.02), "f32": (torch.float32, 2e-6)}
SHAPES: dict[str, tuple[Shape, ...]] = {
    "middle": (
        (1024, 768, 3072),
        (512, 2048, 8192),
        (1024, 768, 768),
        (512, 2048, 2048),
        (1024, 3072, 768),
        (512, 8192, 2048),
        (1024, 2304, 768),
    ),
    "large": (
        (4096, 4096, 4096),
        (8192, 8192, 512),
        (2048, 2048, 2048),
        (8192, 8192, 8192),
    ),
    "few": tuple(
        (rows, columns, depth)
        for columns, depth in ((8192, 2048), (2048, 8192), (14336, 4096), (128256, 2048))
        for rows in (1, 8, 16)
    ),
    "forward": (
        (8192, 2304, 768), (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072),
        (4096, 8192, 2048), (8192, 50304, 768),
    ),
    "inputs": (
        (8192, 768, 2304), (8192, 768, 768), (8192, 768, 3072), (8192, 3072, 768),
        (4096, 2048, 8192), (8192, 768, 50304),
    ),
    "weights": (
        (2304, 768, 8192), (768, 768, 8192), (3072, 768, 8192), (768, 3072, 8192),
        (8192, 2048, 4096), (50304, 768, 8192),
    ),
    "networks": (
        (4096, 256, 2816), (20000, 128, 128), (1576, 1536, 384), (25088, 64, 576),
        (1024, 1000, 2048), (64, 1024, 1024), (32, 4096, 1024), (16, 1024, 4096),
    ),
}  # fmt: skip
# How the operands of M×N×K lie in memory: "n" as [M, K] and [K, N], "t" as [K, M] and [N, K].
LAYOUTS = {"inputs": "nn", "weights": "tn"}
FORWARD = "nt"


@dataclass(frozen=True, slots=True)
class Case:
    """A problem on the device: operands, in rotation if they must be cold, and the reference."""

    shape: Shape
    left: torch.Tensor
    weights: list[torch.Tensor]
    bias: torch.Tensor
    results: list[torch.Tensor]
    reference: torch.Tensor
    layout: str = FORWARD
    dtype: str = "bf16"

    @property
    def first(self) -> torch.Tensor:
        """The left operand as [M, K]."""
        return self.left.T if self.layout[0] == "t" else self.left

    def second(self, at: int) -> torch.Tensor:
        """A right operand as [K, N]."""
        weight = self.weights[at % len(self.weights)]
        return weight.T if self.layout[1] == "t" else weight

    @property
    def is_cold(self) -> bool:
        """Whether weights rotate."""
        return len(self.weights) > 1


@dataclass(frozen=True, slots=True)
class Summary:
    """µs of one shape: cuBLAS, the best config and the cost model's choice, then with GELU."""

    shape: Shape
    library_us: float
    best_us: float
    pick_share: float  # of the best, by the first timing
    fused_library_us: float
    fused_us: float
    dtype: str = "bf16"

    @property
    def floor_us(self) -> float:
        """What operations or bytes take at the least: few rows come from memory."""
        rows, columns, depth = self.shape
        operations = 2 * rows * columns * depth
        itemsize_bytes = DTYPES[self.dtype][0].itemsize
        nbytes = itemsize_bytes * (rows * depth + columns * depth + rows * columns)
        # Tensor cores take half as many numbers of TF32, and three products are one of f32.
        rate = PRODUCT_OPERATIONS_PER_US / (1 if self.dtype == "bf16" else 6)
        return max(operations / rate, nbytes / COPY_BYTES_PER_US)

    def __str__(self) -> str:
        shape = "×".join(map(str, self.shape))
        bare = f"{self.library_us:.2f} | {self.best_us:.2f} | {self.library_us / self.best_us:.3f}"
        ratio = self.fused_library_us / self.fused_us
        fused = f"{self.fused_library_us:.2f} | {self.fused_us:.2f} | {ratio:.3f}"
        shares = f"{self.floor_us / self.best_us:.2f} | {self.pick_share:.3f}"
        return f"| {shape} | {self.floor_us:.2f} | {bare} | {shares} | {fused} |"


HEAD = (
    "| M×N×K | floor µs | cuBLAS | aotc | ratio | of the floor | pick of the best "
    "| cuBLAS, GELU | aotc, GELU | ratio |\n|---|---|---|---|---|---|---|---|---|---|"
)


def graph(
    shape: Shape, has_epilogue: bool, layout: str = FORWARD, dtype: str = "bf16"
) -> Graph:  # fmt: skip
    """x[M, K] · w[K, N], perhaps with GELU(· + bias)."""
    rows, columns, depth = shape
    x, x_input = _operand("x", (rows, depth), layout[0], dtype)
    w, w_input = _operand("w", (depth, columns), layout[1], dtype)
    inputs, names = [x_input, w_input], ["x", "w"]
    result: Node = make("matmul", (x, w), {})
    if has_epilogue:
        bias = make("input", (), {"name": "bias", "dtype": dtype, "shape": (1, columns)})
        result = build.unary("gelu", result + bias)
        inputs, names = [*inputs, bias], [*names, "bias"]
    constants: dict[str, Constant] = {}
    return Graph(tuple(inputs), (result,), tuple(names), ("output",), constants)


def _operand(name: str, shape: tuple[int, int], layout: str, dtype: str) -> tuple[Node, Node]:
    """A matrix as it is multiplied, and as it lies in memory."""
    stored = shape if layout == "n" else shape[::-1]
    given = make("input", (), {"name": name, "dtype": dtype, "shape": stored})
    return (given if layout == "n" else build.permute(given, (1, 0))), given


def spec_of(
    shape: Shape,
    has_epilogue: bool = False,
    limit: int | None = None,
    layout: str = FORWARD,
    dtype: str = "bf16",
) -> KernelSpec:
    """The kernel with its legal candidates, or so many of them, the cost model's choice first."""
    plan = schedule(graph(shape, has_epilogue, layout, dtype), GPUS[CAPABILITY])
    return lower_matmul_gpu(plan.groups[0], GPUS[CAPABILITY], limit)


def case_of(shape: Shape, layout: str = FORWARD, dtype: str = "bf16") -> Case:
    """Random operands on the device."""
    rows, columns, depth = shape
    generator = torch.Generator("cuda").manual_seed(1)

    def normal(*sizes: int) -> torch.Tensor:
        made = torch.randn(sizes, generator=generator, device="cuda", dtype=torch.float32)
        return made.to(DTYPES[dtype][0])

    weight = normal(*((columns, depth) if layout[1] == "t" else (depth, columns)))
    nbytes = weight.nbytes
    copies = -(-COLD_BYTES // nbytes) if rows <= 16 else 1
    weights = [weight, *(weight.clone() for _ in range(copies - 1))]
    left = normal(*((depth, rows) if layout[0] == "t" else (rows, depth)))
    results = [torch.empty((rows, columns), device="cuda", dtype=weight.dtype)]
    case = Case(shape, left, weights, normal(1, columns), results, results[0], layout, dtype)
    wider = torch.float32 if dtype == "bf16" else torch.float64
    return replace(case, reference=case.first.to(wider) @ case.second(0).to(wider))


def launches(shape: Shape, copies: int) -> int:
    """Launches of one graph: some 400 µs of work, and each copy of the weights as often."""
    rows, columns, depth = shape
    expected_us = max(6.0, 2 * rows * columns * depth / 600e6, columns * depth * 2 / 3.5e6)
    count = max(2, min(24, int(400 / expected_us)))
    return -(-count // copies) * copies


def microseconds(replay: torch.cuda.CUDAGraph, count: int, rounds: int) -> float:
    """Median time of one launch over rounds of replays."""
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / count)
    return statistics.median(times)


class Runner:
    """One kernel of a case, its scratch and its graph of launches."""

    def __init__(
        self, case: Case, spec: KernelSpec, chosen: Candidate, compiled: Compiled, epilogue: bool
    ) -> None:
        self.candidate, self.case = chosen, case
        self.kernel = Kernel(compiled)
        self.scratch = [
            torch.zeros(row.nbytes, dtype=torch.uint8, device="cuda") for row in chosen.scratch
        ]
        self.count = launches(case.shape, len(case.weights))
        extra = [case.bias] if epilogue else []
        self.arguments = [
            [case.left, weight, *extra, case.results[0], *self.scratch] for weight in case.weights
        ]

    def check(self, expected: torch.Tensor) -> float:
        """Largest error of one launch, relative to the largest number."""
        self.case.results[0].fill_(float("nan"))
        self.kernel.launch(self.candidate.grid, self.arguments[0], self.candidate.maps)
        torch.cuda.synchronize()
        difference = (self.case.results[0].to(expected.dtype) - expected).abs().max()
        return float(difference / expected.abs().max())

    def capture(self) -> torch.cuda.CUDAGraph:
        """The graph of its launches, once run."""
        calls = [self.arguments[at % len(self.arguments)] for at in range(self.count)]
        grid, maps = self.candidate.grid, self.candidate.maps
        return graph_of_launches(lambda: [self.kernel.launch(grid, call, maps) for call in calls])


def library_graph(case: Case, epilogue: bool) -> tuple[torch.cuda.CUDAGraph, int]:
    """cuBLAS through torch on the same operands, and the launches in its graph."""
    count = launches(case.shape, len(case.weights))
    functional = torch.nn.functional
    bias = case.bias[0]

    def run() -> None:
        for at in range(count):
            if epilogue:
                functional.gelu(torch.addmm(bias, case.first, case.second(at)))
            else:
                torch.mm(case.first, case.second(at), out=case.results[0])

    run()
    return graph_of_launches(run), count


def interleaved(graphs: list[tuple[torch.cuda.CUDAGraph, int]], rounds: int) -> list[float]:
    """Median microseconds of a launch of each graph, timed in turns."""
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(rounds):
        for place, (replay, count) in enumerate(graphs):
            times[place].append(microseconds(replay, count, 1))
    return [statistics.median(found) for found in times]


def sweep(
    shape: Shape,
    layout: str,
    dtype: str,
    jobs: tuple[KernelSpec, list[Future[Compiled]]],
    rows: list[dict[str, object]],
    best_count: int,
    pool: ProcessPoolExecutor,
) -> Summary:
    """Time all candidates of a shape; then the best ones in turns with cuBLAS."""
    spec, pending = jobs
    case = case_of(shape, layout, dtype)
    library, count = library_graph(case, epilogue=False)
    library_us = microseconds(library, count, 5)
    timed: list[tuple[float, Candidate, Runner, torch.cuda.CUDAGraph]] = []
    for rank, (chosen, future) in enumerate(zip(spec.candidates, pending, strict=True)):
        row = row_of(shape, layout, dtype, rank, chosen)
        try:
            runner = Runner(case, spec, chosen, future.result(), False)
            row |= runner.kernel.resources
            error = runner.check(case.reference)
            row["error"] = f"{error:.1e}"
            captured = runner.capture()
            us = round(microseconds(captured, runner.count, 2), 3)
            row["us"] = us
            if error < DTYPES[dtype][1]:
                timed.append((us, chosen, runner, captured))
        except Exception as problem:
            row["error"] = f"{type(problem).__name__} {str(problem)[-120:]}".replace("\n", " ")
        row["cublas_us"] = round(library_us, 3)
        rows.append(row)
    timed.sort(key=lambda item: item[0])
    best = timed[:best_count]
    again = interleaved([(library, count), *((item[3], item[2].count) for item in best)], 9)
    print(f"{'×'.join(map(str, shape))}: {len(timed)}/{len(pending)} ran; cuBLAS {again[0]:.2f} µs")
    for us, item in sorted(zip(again[1:], best, strict=True), key=lambda pair: pair[0]):
        print(f"   {us:8.2f} µs  {again[0] / us:5.3f}  #{spec.candidates.index(item[1])} {item[1]}")
    pick_us = next((us for us, chosen, *_ in timed if chosen is spec.candidates[0]), math.inf)
    share = best[0][0] / pick_us
    print(f"   pick {pick_us:.2f} µs, {share:.3f} of the best: {spec.candidates[0]}")
    theirs, ours = fused(case, [item[1] for item in best], pool)
    return Summary(shape, again[0], min(again[1:]), share, theirs, ours, dtype)


def fused(case: Case, chosen: list[Candidate], pool: ProcessPoolExecutor) -> tuple[float, float]:
    """The best again with bias and GELU, against addmm and a kernel of its own for GELU.

    Microseconds of theirs and of the best of ours.
    """
    spec = spec_of(case.shape, has_epilogue=True, layout=case.layout, dtype=case.dtype)
    expected = torch.nn.functional.gelu(case.reference + case.bias.to(case.reference.dtype))
    jobs = [compile_job(pool, spec, candidate) for candidate in chosen]
    graphs = [library_graph(case, epilogue=True)]
    runners = []  # their scratch must stay while the graphs do
    for candidate, job in zip(chosen, jobs, strict=True):
        runner = Runner(case, spec, candidate, job.result(), True)
        error = runner.check(expected)
        if error > DTYPES[case.dtype][1]:
            print(f"   WRONG with an epilogue ({error:.1e}): {candidate}")
        graphs.append((runner.capture(), runner.count))
        runners.append(runner)
    found = interleaved(graphs, 7)
    theirs, ours = found[0], min(found[1:])
    print(f"   GELU(· + bias): cuBLAS {theirs:.2f} µs, ours {ours:.2f}: {theirs / ours:.3f}")
    return theirs, ours


def row_of(
    shape: Shape, layout: str, dtype: str, rank: int, chosen: Candidate
) -> dict[str, object]:
    """The CSV row of a candidate, not yet timed."""
    names = ("BM", "BN", "BK", "GROUP", "SPLIT", "FLATTEN", "STAGES", "num_warps", "num_stages")
    config = dict(chosen.config)
    sizes = dict(zip(("M", "N", "K"), shape, strict=True))
    row = {**sizes, "dtype": dtype, "layout": layout, "rank": rank, "form": chosen.form}
    return row | {name: config.get(name, "") for name in names} | {"us": ""}


def compile_job(pool: ProcessPoolExecutor, spec: KernelSpec, chosen: Candidate) -> Future[Compiled]:
    """Compile one candidate in the pool."""
    form = spec.form(chosen)
    params = tuple((param.name, param.type) for param in spec.params_of(chosen))
    return pool.submit(
        compile_source,
        form.source,
        form.function,
        params,
        chosen.constexprs,
        chosen.options,
        CAPABILITY,
    )


def main() -> None:
    """Sweep one set of shapes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", choices=SHAPES, nargs="+")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--seconds", type=float, default=80.0, help="stop after this long")
    parser.add_argument("--out", default="", help="CSV file")
    parser.add_argument("--best", type=int, default=6, help="configs timed again in turns")
    parser.add_argument("--limit", type=int, default=0, help="configs of a shape; 0: all")
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    start = time.monotonic()
    rows: list[dict[str, object]] = []
    summaries: list[Summary] = []
    shapes = [
        (shape, LAYOUTS.get(name, FORWARD)) for name in options.sets for shape in SHAPES[name]
    ]
    with ProcessPoolExecutor(options.workers) as pool:
        jobs = {}
        for shape, layout in shapes:
            limit = options.limit or None
            spec = spec_of(shape, limit=limit, layout=layout, dtype=options.dtype)
            jobs[shape, layout] = spec, [compile_job(pool, spec, row) for row in spec.candidates]
        for shape, layout in shapes:
            if time.monotonic() - start > options.seconds:
                print(f"out of time before {shape}")
                break
            try:
                job = jobs[shape, layout]
                found = sweep(shape, layout, options.dtype, job, rows, options.best, pool)
                summaries.append(found)
            except Exception as problem:
                print(f"{shape}: {problem!r}")
            print(f"   at {time.monotonic() - start:.0f} s")
            torch.cuda.empty_cache()
            write(rows, options.out)
        pool.shutdown(cancel_futures=True)
    print("\n".join([HEAD, *map(str, summaries)]))


def write(rows: list[dict[str, object]], path: str) -> None:
    """All rows so far as CSV."""
    if not path or not rows:
        return
    names = list(dict.fromkeys(name for row in rows for name in row))
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())

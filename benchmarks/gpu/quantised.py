"""Products of few rows with quantised weights: single ones, and layers of the Llama-1B shape.

python -m benchmarks.gpu.quantised [--parts products,layers] [--batches 1,4,16] [--candidates 12]
    [--shapes 8192x2048] [--normed] [--tune off] [--out FILE.csv]

Products: the first candidates of each kernel in CUDA graphs of many launches, weights out of the
cache, then the best of each kind in turns with torch's bf16. Layers: bundles built by `aotc build`,
timed in turns with eager torch. Numbers are checked against f64 before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import csv
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aotc import runtime
from aotc.aot.ir import build
from aotc.aot.ir.float8 import E4M3, widened
from aotc.aot.ir.graph import Constant, Graph, Node, make
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.launching import Compiled, Kernel, compile_source, graph_of_launches

KINDS = ("bf16", "int8", "int4", "fp8")
GROUPS = {"int8": 64, "int4": 128, "fp8": 64}  # elements of a scale in the products
WIDTH, INNER, KEYS = 2048, 8192, 512  # Llama-3.2-1B
SHAPES = ((2048, 2048), (8192, 2048), (2048, 8192), (512, 2048), (14336, 4096))  # columns, depth
CAPABILITY = 90
EPSILON = 1e-5
COLD_BYTES = 160 << 20  # of weights in rotation, several times the second-level cache
WORST_ERROR = 0.01  # relative to the largest number: bf16 rounds by 0.4 %
SPEC = """
import torch
from benchmarks.gpu.quantised import model_of
model = model_of({layers})
example_inputs = (torch.randn({batch}, 2048, dtype=torch.bfloat16),)
"""


# -- single products -------------------------------------------------------------------------------


@dataclass(slots=True)
class Product:
    """One shape, batch and kind: its kernel, what it reads, and the exact result."""

    columns: int
    depth: int
    batch: int
    kind: str
    is_normed: bool
    spec: KernelSpec
    pending: list[tuple[Candidate, Future[Compiled]]]
    copies: list[list[torch.Tensor]] = field(default_factory=list)
    result: torch.Tensor | None = None
    best_us: float = 0.0
    error: float = 0.0
    chosen: str = ""
    first_us: float = 0.0
    graph: Any = None
    count: int = 0
    keep: list[Any] = field(default_factory=list)


def graph_of(columns: int, depth: int, batch: int, kind: str, is_normed: bool = False) -> Graph:
    """x[batch, depth] · w[columns, depth]ᵀ in bf16, the weights as they are stored; where it is
    normed, of x / sqrt(mean of its row's squares + EPSILON)."""
    x = make("input", (), {"name": "x", "dtype": "bf16", "shape": (batch, depth)})
    constants: dict[str, Constant] = {}

    def given(name: str, dtype: str, *shape: int) -> Node:
        node = make("constant", (), {"name": name, "dtype": dtype, "shape": shape})
        constants[name] = Constant(name, node.type, _no_values)
        return node

    if kind == "bf16":
        right = given("w", "bf16", columns, depth)
    else:
        group = GROUPS[kind]
        shape = (columns, depth // group, group)
        if kind == "int4":
            q = given("q", "u8", columns, depth // 2)
            shifts = build.cast(build.counter(3, 2, 2) * 4, "u8")
            pairs = build.reshape(q, (columns, depth // 2, 1))
            halves = build.pointwise("bitwise_and", make("shift_right", (pairs, shifts)), 15)
            numbers = build.cast(build.reshape(halves, shape), "f32") - 8.0
        elif kind == "int8":
            numbers = build.cast(build.reshape(given("q", "i8", columns, depth), shape), "f32")
        else:
            numbers = widened(build.reshape(given("q", "u8", columns, depth), shape), E4M3)
        scaled = numbers * given("scale", "f32", columns, depth // group, 1)
        right = build.cast(build.reshape(scaled, (columns, depth)), "bf16")
    left = x
    if is_normed:
        norm = build.root_mean_square_norm(build.cast(x, "f32"), [1], EPSILON)
        left = build.cast(norm, "bf16")
    result = make("matmul", (left, build.permute(right, (1, 0))), {})
    return Graph((x,), (result,), ("x",), ("output",), constants)


def _no_values() -> Any:
    """Kernels are compiled for weights of any values."""
    raise AssertionError


def operands(product: Product) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Random operands in the order of the graph, and the exact result in f64."""
    columns, depth, kind = product.columns, product.depth, product.kind
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.randn((product.batch, depth), generator=generator, device="cuda").bfloat16()
    exact = x.double()
    if product.is_normed:
        exact = exact * torch.rsqrt(exact.square().mean(1, keepdim=True) + EPSILON)
    if kind == "bf16":
        w = torch.randn((columns, depth), generator=generator, device="cuda").bfloat16()
        return [x, w], exact @ w.double().T
    groups = depth // GROUPS[kind]
    scale = torch.rand((columns, groups, 1), generator=generator, device="cuda") * 0.02 + 0.01
    nbytes = columns * depth // (2 if kind == "int4" else 1)
    q = torch.randint(0, 256, (nbytes,), generator=generator, device="cuda", dtype=torch.uint8)
    if kind == "int4":
        numbers = torch.stack([q & 15, q >> 4], -1).double() - 8
    elif kind == "int8":
        q = q.view(torch.int8)
        numbers = q.double()
    else:
        q = torch.where((q & 127) == 127, torch.ones_like(q), q)
        numbers = q.view(torch.float8_e4m3fn).double()
    weight = (numbers.reshape(columns, groups, -1) * scale.double()).reshape(columns, depth)
    return [x, q, scale], exact @ weight.T


def planned(given: argparse.Namespace, pool: ProcessPoolExecutor) -> list[Product]:
    """All products, their first candidates on the way through the compiler."""
    found = []
    for batch in given.batches:
        for columns, depth in given.shapes:
            for kind in KINDS:
                graph = graph_of(columns, depth, batch, kind, given.normed)
                (group,) = schedule(graph, GPUS[CAPABILITY]).groups
                spec = lower_matmul_gpu(group, GPUS[CAPABILITY])
                first = spec.candidates[: given.candidates]
                pending = [(each, _compiling(pool, spec, each)) for each in first]
                found.append(Product(columns, depth, batch, kind, given.normed, spec, pending))
    return found


def _compiling(pool: ProcessPoolExecutor, spec: KernelSpec, chosen: Candidate) -> Future[Compiled]:
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


def measure(product: Product, rows: list[dict[str, object]]) -> None:
    """Check and time the candidates of a product; the best one's graph stays with it."""
    given, exact = operands(product)
    x, stored = given[0], given[1:]
    nbytes = sum(each.nbytes for each in stored)
    copies = max(1, -(-COLD_BYTES // nbytes))
    product.copies = [stored, *([each.clone() for each in stored] for _ in range(copies - 1))]
    product.result = torch.empty_like(exact, dtype=torch.bfloat16)
    product.count = -(-max(2, min(24, int(4e8 / nbytes / 2))) // copies) * copies
    best = float("inf")
    for number, (chosen, future) in enumerate(product.pending):
        row: dict[str, object] = {
            "columns": product.columns, "depth": product.depth, "batch": product.batch,
            "kind": product.kind, "normed": int(product.is_normed), "rank": number,
            "style": re.sub("_[mnk]+$", "", chosen.form),
            "config": " ".join(f"{name}={value}" for name, value in chosen.config),
        }  # fmt: skip
        rows.append(row)
        try:
            kernel = Kernel(future.result())
            scratch = [
                torch.zeros(each.nbytes, dtype=torch.uint8, device="cuda")
                for each in chosen.scratch
            ]
            calls = [[x, *each, product.result, *scratch] for each in product.copies]
            product.result.fill_(float("nan"))
            kernel.launch(chosen.grid, calls[0], chosen.maps)
            torch.cuda.synchronize()
            error = float((product.result.double() - exact).abs().max() / exact.abs().max())
            row |= {"error": f"{error:.1e}", **kernel.resources}
            if not error < WORST_ERROR:
                print(f"WRONG {error:.1e}: {row}")
                continue
            captured = graph_of_launches(_launches(kernel, chosen, calls, product.count))
            us = _median_us(captured, product.count, 3)
        except Exception as problem:
            row["error"] = f"{type(problem).__name__} {str(problem)[-120:]}".replace("\n", " ")
            continue
        row["us"] = round(us, 2)
        product.first_us = product.first_us or us
        if us < best:
            best, product.error, product.chosen = us, error, str(chosen)
            product.graph, product.keep = captured, [kernel, scratch, calls]


def _launches(
    kernel: Kernel, chosen: Candidate, calls: list[list[torch.Tensor]], count: int
) -> Callable[[], object]:
    def run() -> None:
        for number in range(count):
            kernel.launch(chosen.grid, calls[number % len(calls)], chosen.maps)

    return run


def _median_us(captured: Any, count: int, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        captured.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / count)
    return statistics.median(times)


def products(given: argparse.Namespace, ends_s: float) -> None:
    """A line a shape and batch: µs of each kind, and how much faster than our bf16."""
    rows: list[dict[str, object]] = []
    workers = max(1, (os.cpu_count() or 2) - 1)
    with ProcessPoolExecutor(workers) as pool:
        found = planned(given, pool)
        print("| N×K, batch | torch | " + " | ".join(KINDS) + " | of the floor | first choice |")
        for at in range(0, len(found), len(KINDS)):
            if time.monotonic() > ends_s:
                print(f"stopped: {(len(found) - at) // len(KINDS)} rows left out")
                for product in found[at:]:
                    for _, future in product.pending:
                        future.cancel()
                break
            _line(found[at : at + len(KINDS)], rows)
            torch.cuda.empty_cache()
    if given.out:
        names = list(dict.fromkeys(name for row in rows for name in row))
        with Path(given.out).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(rows)


def _line(members: list[Product], rows: list[dict[str, object]]) -> None:
    for product in members:
        measure(product, rows)
    plain = members[0]
    x, weights = torch.randn(plain.batch, plain.depth).bfloat16().cuda(), plain.copies
    assert plain.result is not None

    def library() -> None:
        for number in range(plain.count):
            torch.mm(x, weights[number % len(weights)][0].T, out=plain.result)

    library()
    graphs = [(graph_of_launches(library), plain.count)]
    graphs += [(each.graph, each.count) for each in members]
    times: list[list[float]] = [[] for _ in graphs]
    for _ in range(7):
        for place, (captured, count) in enumerate(graphs):
            if captured is not None:
                times[place].append(_median_us(captured, count, 1))
    medians = [statistics.median(each) if each else float("nan") for each in times]
    texts = [f"{medians[0]:.2f}"]
    texts += [f"{us:.2f} ({medians[1] / us:.2f}×)" for us in medians[1:]]
    nbytes = [sum(part.nbytes for part in each.copies[0]) for each in members]
    floors = [size / 4.8e6 / us for size, us in zip(nbytes, medians[1:], strict=True)]
    texts.append(" ".join(f"{100 * each:.0f}%" for each in floors))
    firsts = [us / (each.first_us or 1) for each, us in zip(members, medians[1:], strict=True)]
    texts.append(" ".join(f"{each:.2f}" for each in firsts))
    print(f"| {plain.columns}×{plain.depth}, {plain.batch} | {' | '.join(texts)} |", flush=True)
    for each in members:
        print(f"    {each.kind}: error {each.error:.1e}, {each.chosen}")
        each.copies, each.graph, each.keep, each.result = [], None, [], None


# -- layers ----------------------------------------------------------------------------------------


class Layer(nn.Module):
    """The products of one decoder layer; attention, which has no weights, is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, KEYS, bias=False)
        self.value = nn.Linear(WIDTH, KEYS, bias=False)
        self.output = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, WIDTH] → the same."""
        y = self.norm(x)
        mixed = self.query(y) + torch.cat([self.key(y), self.value(y)] * 2, -1)
        x = x + self.output(mixed)
        y = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def model_of(layers: int) -> nn.Module:
    """Random weights of the shape, the same each time."""
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(layers))).to(torch.bfloat16).eval()


def building(given: argparse.Namespace, folder: Path) -> dict[tuple[str, int], Any]:
    """A bundle of each kind and batch, each built by a process of its own."""
    found = {}
    for batch in given.batches:
        spec = folder / f"decode{batch}.py"
        spec.write_text(SPEC.format(layers=given.layers, batch=batch))
        for kind in KINDS:
            own = [] if kind == "bf16" else ["--quantize", kind]
            out = folder / f"{kind}-{batch}"
            command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(out)]
            command += ["--target", "cuda", "--quiet", "--tune", given.tune, *own]
            log = (folder / f"{kind}-{batch}.log").open("w")
            shares = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "2")
            environment = {**os.environ, **shares}  # all of them build at once
            started = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=environment
            )
            found[kind, batch] = started, out
    return found


def layers(given: argparse.Namespace, builds: dict[tuple[str, int], Any]) -> None:
    """A line a batch: µs of each kind, and the error against the model in f64."""
    model = model_of(given.layers)
    exact_model, eager = copy.deepcopy(model).cuda().double(), copy.deepcopy(model).cuda()
    print("| layers, batch | torch | " + " | ".join(KINDS) + " | errors |")
    for batch in given.batches:
        x = torch.randn(batch, WIDTH, dtype=torch.bfloat16, device="cuda")
        with torch.no_grad():
            exact = exact_model(x.double())
        calls: dict[str, Callable[..., Any]] = {"torch": eager}
        for kind in KINDS:
            started, out = builds[kind, batch]
            if started.wait() == 0:
                calls[kind] = runtime.load(out)
            else:
                print(out.with_suffix(".log").read_text() or f"{out}: {started.returncode}")
        times, errors = _timed(calls, x, exact, given.calls)
        texts = [f"{times['torch']:.1f}"]
        plain = times.get("bf16", float("nan"))
        texts += [
            f"{times[kind]:.1f} ({plain / times[kind]:.2f}×)" if kind in times else "-"
            for kind in KINDS
        ]
        texts.append(", ".join(f"{kind} {error:.1e}" for kind, error in errors.items()))
        print(f"| {given.layers}, {batch} | {' | '.join(texts)} |", flush=True)


def _timed(
    calls: dict[str, Callable[..., Any]], x: torch.Tensor, exact: torch.Tensor, count: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Median µs of each, in turns, and its error."""
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    with torch.no_grad():
        results = {kind: torch.as_tensor(call(x)).double() for kind, call in calls.items()}
        for turn in range(count + 20):
            for kind, function in calls.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                function(x)
                end.record()
                end.synchronize()
                if turn >= 20:
                    times[kind].append(start.elapsed_time(end) * 1e3)
    largest = exact.abs().max()
    errors = {kind: float((each - exact).abs().max() / largest) for kind, each in results.items()}
    return {kind: statistics.median(each) for kind, each in times.items()}, errors


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="products,layers")
    parser.add_argument("--batches", default="1,4,16", type=_numbers)
    parser.add_argument(
        "--shapes", default=SHAPES, type=_shapes, help="columns × depth of products"
    )
    parser.add_argument("--normed", action="store_true", help="products of one row, normed")
    parser.add_argument("--candidates", type=int, default=12, help="of each kernel, the first ones")
    parser.add_argument("--seconds", type=float, default=70.0, help="of the products, about")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--tune", default="off", help="of the builds")
    parser.add_argument("--out", default="", help="CSV file of the products' candidates")
    given = parser.parse_args()
    started_s = time.monotonic()
    print(torch.cuda.get_device_name(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # Builds first: they use the device too, and nothing else is timed meanwhile.
        if "layers" in given.parts:
            builds = building(given, Path(folder))
            layers(given, builds)
            print(f"{time.monotonic() - started_s:.0f} s")
    if "products" in given.parts:
        products(given, time.monotonic() + given.seconds)
    print(f"{time.monotonic() - started_s:.0f} s")


def _shapes(text: str) -> list[tuple[int, int]]:
    return [tuple(map(int, part.split("x"))) for part in text.split(",")]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()

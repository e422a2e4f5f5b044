"""Times every candidate of attention kernels on the device against torch's cuDNN and flash, windows
against its flex_attention.

`python -m benchmarks.gpu.attention [NAME …] [--summary]`; without names all shapes. Each line: the
candidate's number (0 is what a build without tuning takes), microseconds (median over interleaved
rounds), TFLOP/s or GB/s, speed relative to the best of torch's, and the relative error against f32.
The table at the end, all there is with `--summary`, has what a build takes untuned and tuned, and
the floor: operations or bytes at the rates that torch's own product and copy reach.
"""

from __future__ import annotations

import argparse
import datetime
import math
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from aotc.aot.ir.graph import Graph, make
from aotc.aot.lower import lower
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.launching import Compiled, Kernel, compile_source

CAPABILITY = 90
WIDTH = 66  # of a contender's name
COLD_BYTES = 128 * 2**20  # more than twice the L2 cache
COPY_BYTES = 512 << 20
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """One workload: batch, query and key heads, queries, keys, head size."""

    name: str
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    size: int
    is_causal: bool
    offset: int = 0  # keys after its own place that a causal query sees
    window: int = 0  # keys that a causal query sees at most; 0: all up to there
    seen: int = 0  # keys that are seen, as data says; 0: all

    @property
    def operations(self) -> float:
        """Multiplications and additions of both products, of scores that are seen."""
        return 4.0 * self.batch * self.heads * self._scores * self.size

    @property
    def _scores(self) -> float:
        if not self.is_causal:
            return self.queries * (self.seen or self.keys)
        lasts = [min(self.keys - 1, query + self.offset) for query in range(self.queries)]
        window = self.window or self.keys
        return sum(last + 1 - max(0, query + self.offset - window + 1)
                   for query, last in enumerate(lasts))  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes of q, k, v and the result."""
        rows = 2 * self.heads * self.queries + 2 * self.key_heads * (self.seen or self.keys)
        return 2 * self.batch * rows * self.size

    @property
    def ratio(self) -> int:
        """Query heads of one key head."""
        return self.heads // self.key_heads

    @property
    def title(self) -> str:
        """Name and sizes in a table."""
        heads = f"{self.heads}/{self.key_heads}" if self.ratio > 1 else str(self.heads)
        kind = "causal" if self.is_causal else "full"
        if self.window:
            kind = f"{self.window - 1 - self.offset} keys before, {self.offset} after"
        if self.seen:
            kind = f"{self.seen} keys are there"
        sizes = f"{self.batch}×{heads}×{self.queries}×{self.size}, {self.keys} keys"
        return f"{self.name}: {sizes}, {kind}"


SHAPES: tuple[Shape, ...] = (
    Shape("full128", 4, 32, 32, 4096, 4096, 128, False),
    Shape("causal128", 4, 32, 32, 4096, 4096, 128, True),
    Shape("full64", 4, 16, 16, 4096, 4096, 64, False),
    Shape("causal64", 4, 16, 16, 4096, 4096, 64, True),
    Shape("prefill128", 1, 32, 8, 2048, 2048, 128, True),
    Shape("short128", 8, 32, 8, 512, 512, 128, True),
    Shape("odd128", 2, 16, 4, 1111, 1500, 128, False),
    Shape("bert", 8, 12, 12, 128, 128, 64, False),
    Shape("vit", 8, 12, 12, 197, 197, 64, False),
    Shape("llama", 1, 32, 8, 512, 512, 64, True),
    Shape("window1024", 1, 32, 8, 8192, 8192, 128, True, 0, 1024),
    Shape("window4096", 1, 32, 8, 16384, 16384, 128, True, 0, 4096),
    Shape("local128", 4, 12, 12, 8192, 8192, 64, True, 64, 129),
    Shape("decode512", 1, 32, 8, 1, 512, 64, False),
    Shape("decode8k", 1, 32, 8, 1, 8192, 64, False),
    Shape("decode128", 8, 32, 8, 1, 8192, 128, False),
    Shape("cache4k", 8, 32, 8, 1, 4096, 64, False, seen=512),
    Shape("cache32k", 16, 32, 8, 1, 32768, 128, False, seen=2000),
    Shape("chunk512", 1, 32, 8, 512, 8192, 128, False, seen=1024),
    Shape("decode64k", 1, 32, 8, 1, 65536, 64, False),
)


HEADER = "| shape | floor µs | pick µs | tuned µs | cuDNN µs | flash µs | flex µs | pick | tuned |"


@dataclass(frozen=True, slots=True)
class Limits:
    """What the device reaches: products of large bf16 matrices and copies, as torch does them."""

    operations_per_us: float
    bytes_per_us: float

    def floor_us(self, shape: Shape) -> float:
        """The longer of computing at that rate and moving every byte once."""
        computing_us = shape.operations / self.operations_per_us
        return max(computing_us, shape.nbytes / self.bytes_per_us)

    def __str__(self) -> str:
        rate, width = self.operations_per_us / 1e6, self.bytes_per_us / 1e6
        return f"matmul {rate:.0f} TFLOP/s, copy {width:.2f} TB/s"


@dataclass(frozen=True, slots=True)
class Result:
    """Microseconds of one shape; the last two columns are speeds relative to the best peer."""

    shape: Shape
    pick_us: float
    tuned_us: float
    peers_us: dict[str, float]
    floor_us: float

    def __str__(self) -> str:
        best = min((time for time in self.peers_us.values() if time == time), default=math.nan)
        times = (self.floor_us, self.pick_us, self.tuned_us, *self.peers_us.values())
        cells = [f"{time:.2f}" for time in times]
        ratios = [f"{best / time:.2f}" for time in (self.pick_us, self.tuned_us)]
        return f"| {' | '.join([self.shape.title, *cells, *ratios])} |"


def spec_of(shape: Shape) -> KernelSpec:
    """The kernel with its candidates, the cost model's choice first."""
    q = (shape.batch, shape.heads, shape.queries, shape.size)
    k = (shape.batch, shape.key_heads, shape.keys, shape.size)
    inputs = tuple(
        make("input", (), {"name": name, "dtype": "bf16", "shape": dims})
        for name, dims in (("q", q), ("k", k), ("v", k))
    )
    seen = {"causal": shape.is_causal, "offset": shape.offset, "window": shape.window}
    if shape.seen:
        ends = make("input", (), {"name": "ends", "dtype": "i64", "shape": (shape.batch, 1, 1, 1)})
        inputs = (*inputs, ends)
    result = make(
        "attention",
        inputs,
        {"scale": shape.size**-0.5, "softcap": 0.0, "has_sinks": False, "is_safe": False, **seen},
    )
    names = tuple(str(each.attr("name")) for each in inputs)
    graph = Graph(inputs, (result,), names, ("output",), {})
    traits = replace(GPUS[CAPABILITY], has_tensor_maps=True)
    (spec,) = lower(schedule(graph, traits), traits)
    return spec


def compiled(pair: tuple[Shape, int]) -> Compiled | str:
    """A candidate compiled in a worker; the reason where it fails."""
    spec = spec_of(pair[0])
    candidate = spec.candidates[pair[1]]
    form = spec.form(candidate)
    params = [(param.name, param.type) for param in spec.params_of(candidate)]
    try:
        return compile_source(
            form.source, form.function, params, candidate.constexprs, candidate.options, CAPABILITY
        )
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"


class Runner:
    """One workload on the device: rotating operands, contenders, their graphs and times."""

    def __init__(self, shape: Shape) -> None:
        import torch

        self.torch, self.shape = torch, shape
        is_cold = shape.queries == 1
        self.copies = max(1, min(64, COLD_BYTES // shape.nbytes + 1)) if is_cold else 1
        self.calls = max(self.copies, min(20, int(2e12 / shape.operations) + 1))
        torch.manual_seed(1)

        def fresh(heads: int, rows: int) -> Any:
            dims = (self.copies, shape.batch, heads, rows, shape.size)
            return torch.randn(dims, device="cuda", dtype=torch.bfloat16)

        self.q = fresh(shape.heads, shape.queries)
        self.k, self.v = fresh(shape.key_heads, shape.keys), fresh(shape.key_heads, shape.keys)
        self.out = torch.empty_like(self.q)
        seen = torch.full((shape.batch, 1, 1, 1), shape.seen, device="cuda")
        self.ends = [seen] if shape.seen else []
        self.graphs: dict[str, Any] = {}
        self.times: dict[str, list[float]] = {}
        self.errors: dict[str, float] = {}

    def reference(self) -> Any:
        """The f32 result of the first and the last key head."""
        torch, shape = self.torch, self.shape
        torch.backends.cuda.matmul.allow_tf32 = False
        found = []
        for batch, head in ((0, 0), (shape.batch - 1, shape.key_heads - 1)):
            rows = slice(head * shape.ratio, (head + 1) * shape.ratio)
            q = self.q[0, batch, rows].float()
            k, v = self.k[0, batch, head].float(), self.v[0, batch, head].float()
            scores = q @ k.mT / math.sqrt(shape.size)
            if shape.is_causal:
                hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1 + shape.offset)
                scores = scores.masked_fill(hidden, -math.inf)
            if shape.seen:
                scores[..., shape.seen :] = -math.inf
            if shape.window:
                hidden = torch.ones_like(scores[0], dtype=torch.bool)
                scores = scores.masked_fill(hidden.tril(shape.offset - shape.window), -math.inf)
            found.append(scores.softmax(-1) @ v)
        return torch.stack(found)

    def error(self, result: Any, expected: Any) -> float:
        """Relative error of the heads of the reference; not a number counts as infinite."""
        shape = self.shape
        first, last = result[0, : shape.ratio], result[-1, -shape.ratio :]
        found = self.torch.stack((first, last)).float()
        value = float((found - expected).norm() / expected.norm())
        return value if math.isfinite(value) else math.inf

    def launcher(self, candidate: Candidate, kernel: Kernel) -> Any:
        """A function that runs a candidate on one copy of the operands."""
        torch = self.torch
        scratch = [
            torch.zeros(row.nbytes // 4, device="cuda", dtype=torch.int32)
            for row in candidate.scratch
        ]

        def launch(at: int) -> None:
            tensors = (self.q[at], self.k[at], self.v[at], *self.ends, self.out[at], *scratch)
            kernel.launch(candidate.grid, tensors, candidate.maps)

        return launch

    def peer(self, backend: Any) -> Any:
        """torch's attention by one of its backends."""
        from torch.nn.attention import sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as attend

        shape = self.shape

        def launch(at: int) -> None:
            with sdpa_kernel(backend):
                self.result = attend(
                    self.q[at], self.k[at], self.v[at], is_causal=shape.is_causal,
                    enable_gqa=shape.ratio > 1,
                )  # fmt: skip

        return launch

    def flex(self) -> Any:
        """torch's flex_attention, compiled, with the blocks that its mask leaves out."""
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        shape = self.shape

        def is_seen(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
            if shape.seen:
                return key < shape.seen
            seen = key <= query + shape.offset
            return seen & (key > query + shape.offset - shape.window) if shape.window else seen

        lengths = (shape.queries, shape.keys)
        is_masked = shape.is_causal or shape.seen
        blocks = create_block_mask(is_seen, None, None, *lengths) if is_masked else None
        torch.compiler.reset()  # else it counts the shapes, and stops compiling after some
        attend = torch.compile(flex_attention, dynamic=False)

        def launch(at: int) -> None:
            self.result = attend(
                self.q[at], self.k[at], self.v[at], block_mask=blocks, enable_gqa=shape.ratio > 1
            )

        return launch

    def add(self, name: str, launch: Any, expected: Any, is_peer: bool) -> None:
        """Check a contender's numbers and capture its graph."""
        torch = self.torch
        self.out.fill_(math.nan)
        launch(0)
        torch.cuda.synchronize()
        result = self.result if is_peer else self.out[0]
        self.errors[name] = self.error(result, expected)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            launch(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in range(self.calls):
                launch(call % self.copies)
        self.graphs[name], self.times[name] = graph, []

    def measure(self) -> None:
        """Interleaved rounds over all graphs."""
        torch = self.torch
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for number in range(ROUNDS + 1):
            for name, graph in self.graphs.items():
                start.record()
                graph.replay()
                stop.record()
                stop.synchronize()
                if number:
                    self.times[name].append(start.elapsed_time(stop) * 1e3 / self.calls)

    def report(self, peers: list[str], limits: Limits, shows_all: bool) -> Result:
        """The line of the summary; before it all contenders of the shape, fastest first."""
        shape = self.shape
        median = {name: statistics.median(times) for name, times in self.times.items()}
        best = min((median[name] for name in peers if name in median), default=math.nan)
        for name in sorted(median, key=lambda item: median[item]) if shows_all else ():
            time_us = median[name]
            rate = f"{shape.operations / time_us / 1e6:6.0f} TFLOP/s"
            if shape.queries == 1:
                rate = f"{shape.nbytes / time_us / 1e3:6.0f} GB/s"
            ratio, error = best / time_us, self.errors[name]
            print(f"  {name:{WIDTH}s} {time_us:9.2f} us {rate}  x{ratio:.3f}  error {error:.1e}")
        ours = [name for name in median if name not in peers]
        pick = next((median[name] for name in ours if name.startswith("0 ")), math.nan)
        tuned = min((median[name] for name in ours), default=math.nan)
        others = {name: median.get(name, math.nan) for name in peers}
        return Result(shape, pick, tuned, others, limits.floor_us(shape))


def measured_limits() -> Limits:
    """Rates of torch's own product of 8192³ and copy of half a gibibyte."""
    import torch

    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(COPY_BYTES, device="cuda", dtype=torch.int8)
    target, out = torch.empty_like(source), torch.empty_like(left)

    def median_us(function: Any) -> float:
        times = []
        for _ in range(ROUNDS):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            stop.record()
            stop.synchronize()
            times.append(start.elapsed_time(stop) * 1e3)
        return statistics.median(times)

    product_us = median_us(lambda: torch.matmul(left, right, out=out))
    copy_us = median_us(lambda: target.copy_(source))
    return Limits(2 * 8192**3 / product_us, 2 * COPY_BYTES / copy_us)


def run(shape: Shape, built: dict[int, Compiled | str], limits: Limits, shows_all: bool) -> Result:
    """Measure one shape."""
    import torch
    from torch.nn.attention import SDPBackend

    if shows_all:
        print(f"{shape.name}: {shape}", flush=True)
    runner = Runner(shape)
    expected = runner.reference()
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    contenders = [
        (name, runner.peer(backend), True)
        for name, backend in backends.items()
        if not (shape.window or shape.seen)  # torch's attention has these as tensors only
    ]
    contenders.append(("flex", runner.flex(), True))
    peers = [*backends, "flex"]
    for number, candidate in enumerate(spec_of(shape).candidates):
        name = f"{number} {candidate}"
        found = built[number]
        if isinstance(found, str):
            print(f"  {name:{WIDTH}s} not compiled: {found}")
            continue
        contenders.append((name, runner.launcher(candidate, Kernel(found)), False))
    for name, launch, is_peer in contenders:
        try:
            runner.add(name, launch, expected, is_peer)
        except Exception as error:
            print(f"  {name:{WIDTH}s} failed: {str(error)[:120]}", flush=True)
            torch.cuda.synchronize()
    runner.measure()
    result = runner.report(peers, limits, shows_all)
    sys.stdout.flush()
    return result


def main() -> None:
    """Compile everything in parallel, then measure shape by shape."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.attention")
    parser.add_argument("names", nargs="*", metavar="NAME", help="shapes to measure")
    parser.add_argument("--summary", action="store_true", help="print only the last table")
    arguments = parser.parse_args()
    shapes = [shape for shape in SHAPES if not arguments.names or shape.name in arguments.names]
    pairs = [(shape, at) for shape in shapes for at in range(len(spec_of(shape).candidates))]
    workers = min(14, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        built = dict(zip(pairs, pool.map(compiled, pairs), strict=True))
    import torch
    import triton

    limits = measured_limits()
    versions = f"torch {torch.__version__}, triton {triton.__version__}"
    print(f"{datetime.date.today()}, {torch.cuda.get_device_name()}, {versions}, {limits}")
    results = []
    for shape in shapes:
        candidates = {at: found for (of, at), found in built.items() if of == shape}
        results.append(run(shape, candidates, limits, not arguments.summary))
    print("", HEADER, "|---" * HEADER.count("|", 1) + "|", *results, sep="\n")


if __name__ == "__main__":
    main()

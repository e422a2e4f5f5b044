"""Sweeps the attention templates on the device against torch's cuDNN and flash kernels.

`python -m benchmarks.gpu.attention [NAME …]`; without names all shapes. Each line: form, config,
microseconds (median over interleaved rounds), TFLOP/s or GB/s, ratio to the best of torch's, and
the relative error against f32. Kernels are compiled in parallel before anything is measured.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

LOG2_E = 1.4426950408889634
COLD_BYTES = 128 * 2**20  # more than twice the L2 cache
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

    @property
    def operations(self) -> float:
        """Multiplications and additions of both products."""
        whole = 4.0 * self.batch * self.heads * self.queries * self.keys * self.size
        return whole / 2 if self.is_causal else whole

    @property
    def nbytes(self) -> int:
        """Bytes of q, k, v and the result."""
        rows = 2 * self.heads * self.queries + 2 * self.key_heads * self.keys
        return 2 * self.batch * rows * self.size

    @property
    def ratio(self) -> int:
        """Query heads of one key head."""
        return self.heads // self.key_heads


SHAPES: tuple[Shape, ...] = (
    Shape("full128", 4, 32, 32, 4096, 4096, 128, False),
    Shape("causal128", 4, 32, 32, 4096, 4096, 128, True),
    Shape("full64", 4, 16, 16, 4096, 4096, 64, False),
    Shape("causal64", 4, 16, 16, 4096, 4096, 64, True),
    Shape("bert", 8, 12, 12, 128, 128, 64, False),
    Shape("vit", 8, 12, 12, 197, 197, 64, False),
    Shape("llama", 1, 32, 8, 512, 512, 64, True),
    Shape("decode512", 1, 32, 8, 1, 512, 64, False),
    Shape("decode8k", 1, 32, 8, 1, 8192, 64, False),
    Shape("decode64k", 1, 32, 8, 1, 65536, 64, False),
)


@dataclass(frozen=True, slots=True)
class Config:
    """A form of the kernel and its compile-time values; warps and stages are launch options."""

    form: str
    rows: int
    keys: int
    warps: int
    stages: int
    group: int = 1
    splits: int = 1

    def __str__(self) -> str:
        tail = f" g{self.group}" if self.group > 1 else ""
        tail += f" s{self.splits}" if self.form == "split" else ""
        return f"{self.form} {self.rows}x{self.keys} w{self.warps} p{self.stages}{tail}"


LARGE = tuple(
    Config(form, *row)
    for form, rows in (
        ("overlapped", ((128, 128, 4, 2), (128, 64, 4, 3), (128, 64, 4, 2), (128, 128, 4, 3))),
        ("plain", ((128, 64, 8, 3), (64, 64, 4, 3), (64, 64, 4, 2))),
        ("descriptor", ((128, 64, 8, 4), (64, 64, 4, 3), (64, 64, 4, 2), (64, 32, 4, 4))),
    )
    for row in rows
) + (
    Config("overlapped", 128, 128, 4, 2, 8),
    Config("descriptor", 64, 64, 4, 3, 4),
    Config("descriptor", 64, 64, 4, 3, 16),
)
SMALL = tuple(
    Config(form, *row)
    for form in ("plain", "descriptor")
    for row in (
        (128, 128, 8, 1), (128, 64, 8, 2), (128, 64, 4, 2), (64, 128, 4, 1), (64, 64, 4, 2),
        (64, 64, 4, 3), (64, 32, 4, 3), (32, 64, 4, 2), (32, 64, 2, 2),
    )
)  # fmt: skip
DECODE = tuple(
    Config("split", 16, keys, warps, stages, 1, splits)
    for keys, warps, stages in (
        (32, 1, 4), (64, 1, 3), (64, 2, 3), (64, 4, 3), (128, 4, 2), (128, 4, 3), (64, 4, 5),
    )
    for splits in (1, 4, 8, 16, 32, 64)
)  # fmt: skip


def configs(shape: Shape) -> list[Config]:
    """The configs to try on a shape."""
    if shape.queries == 1:
        blocks = {config: math.ceil(shape.keys / config.keys) for config in DECODE}
        least = shape.keys * shape.key_heads * shape.batch // 65536
        return [c for c in DECODE if least <= c.splits <= blocks[c]]
    return list(LARGE if shape.queries > 2048 else SMALL)


def arguments(shape: Shape, config: Config) -> tuple[str, str, dict[str, str], dict[str, Any]]:
    """(module, function, signature, constexprs) of a config."""
    scale = LOG2_E / math.sqrt(shape.size)
    size = shape.size
    types = dict.fromkeys(("in0", "in1", "in2", "out0"), "*bf16")
    if config.form == "split":
        types |= {"partial": "*fp32", "sums": "*fp32", "arrived": "*i32"}
        values = {
            "ROWS": shape.ratio, "S": shape.keys, "D": size, "DV": size, "BD": size, "BV": size,
            "SCALE": scale, "PRECISION": "ieee", "SAFE": False, "BM": config.rows,
            "BN": config.keys, "SPLITS": config.splits, "BR": 1 << (shape.ratio - 1).bit_length(),
            "BS": min(32, 1 << (config.splits - 1).bit_length()),
        }  # fmt: skip
        return "split", "attention_split", types, values
    values = {
        "HEADS": shape.batch * shape.heads, "RATIO": shape.ratio, "T": shape.queries,
        "S": shape.keys, "D": size, "DV": size, "BD": size, "BV": size, "SCALE": scale,
        "CAUSAL": shape.is_causal, "OFFSET": 0, "PRECISION": "ieee", "SAFE": False,
        "BM": config.rows, "BN": config.keys, "GROUP": config.group,
    }  # fmt: skip
    if config.form == "overlapped":
        values |= {"STAGES": config.stages}
        for name in ("PRECISION", "BM"):
            del values[name]
    name = "attention" if config.form == "plain" else f"attention_{config.form}"
    return config.form, name, types, values


def compiled(shape: Shape, config: Config) -> Any:
    """The compiled kernel, from Triton's cache where it is there."""
    import importlib

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    module, function, types, values = arguments(shape, config)
    kernel = getattr(
        importlib.import_module(f"aotc.kernels.templates.attention.{module}"), function
    )
    signature = {**types, **dict.fromkeys(values, "constexpr")}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
    is_gluon = config.form == "overlapped"
    source = (GluonASTSource if is_gluon else ASTSource)(kernel, signature, values, aligned)
    options = {"num_warps": config.warps}
    if not is_gluon:
        options["num_stages"] = config.stages
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def try_compile(pair: tuple[Shape, Config]) -> str:
    """Compile in a worker; the reason where it fails."""
    try:
        compiled(*pair)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return ""


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
                hidden = torch.ones_like(scores[0], dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, -math.inf)
            found.append(scores.softmax(-1) @ v)
        return torch.stack(found)

    def error(self, result: Any, expected: Any) -> float:
        """Relative error of the heads of the reference; not a number counts as infinite."""
        shape = self.shape
        first, last = result[0, : shape.ratio], result[-1, -shape.ratio :]
        found = self.torch.stack((first, last)).float()
        value = float((found - expected).norm() / expected.norm())
        return value if math.isfinite(value) else math.inf

    def launcher(self, config: Config) -> Any:
        """A function that runs the config on one copy of the operands."""
        torch, shape = self.torch, self.shape
        kernel = compiled(shape, config)
        _, _, _, values = arguments(shape, config)
        extra: list[Any] = []
        heads = shape.batch * shape.heads
        grid = (heads * math.ceil(shape.queries / config.rows), 1, 1)
        if config.form == "split":
            heads = shape.batch * shape.key_heads
            rows = heads * config.splits * shape.ratio
            extra = [
                torch.empty(rows * shape.size, device="cuda"),
                torch.empty(rows * 2, device="cuda"),
                torch.zeros(heads, device="cuda", dtype=torch.int32),
            ]
            grid = (config.splits, heads, 1)

        def launch(at: int) -> None:
            tensors = (self.q[at], self.k[at], self.v[at], self.out[at])
            kernel[grid](*tensors, *extra, *values.values())

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

    def report(self, peers: list[str]) -> None:
        """The table of one shape, fastest first."""
        shape = self.shape
        median = {name: statistics.median(times) for name, times in self.times.items()}
        best = min((median[name] for name in peers if name in median), default=math.nan)
        for name in sorted(median, key=lambda item: median[item]):
            time_us = median[name]
            rate = f"{shape.operations / time_us / 1e6:6.0f} TFLOP/s"
            if shape.queries == 1:
                rate = f"{shape.nbytes / time_us / 1e3:6.0f} GB/s"
            ratio, error = best / time_us, self.errors[name]
            print(f"  {name:34s} {time_us:9.2f} us {rate}  x{ratio:.3f}  error {error:.1e}")


def run(shape: Shape, failed: dict[tuple[Shape, Config], str]) -> None:
    """Measure one shape and print its table."""
    import torch
    from torch.nn.attention import SDPBackend

    print(f"{shape.name}: {shape}", flush=True)
    runner = Runner(shape)
    expected = runner.reference()
    peers = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    contenders = [(name, runner.peer(backend), True) for name, backend in peers.items()]
    for config in configs(shape):
        if failed.get((shape, config)):
            print(f"  {config!s:34s} not compiled: {failed[shape, config]}")
            continue
        contenders.append((str(config), runner.launcher(config), False))
    for name, launch, is_peer in contenders:
        try:
            runner.add(name, launch, expected, is_peer)
        except Exception as error:
            print(f"  {name:34s} failed: {type(error).__name__}: {str(error)[:120]}", flush=True)
            torch.cuda.synchronize()
    runner.measure()
    runner.report(list(peers))
    sys.stdout.flush()


def main(names: list[str]) -> None:
    """Compile everything in parallel, then measure shape by shape."""
    shapes = [shape for shape in SHAPES if not names or shape.name in names]
    pairs = list(itertools.chain.from_iterable([(s, c) for c in configs(s)] for s in shapes))
    workers = min(14, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        reasons = list(pool.map(try_compile, pairs))
    failed = {pair: reason for pair, reason in zip(pairs, reasons, strict=True) if reason}
    print(f"{len(pairs) - len(failed)} kernels compiled, {len(failed)} not", flush=True)
    import torch
    import triton

    def allocate(nbytes: int, alignment: int, stream: int | None) -> Any:
        return torch.empty(nbytes, device="cuda", dtype=torch.int8)

    triton.set_allocator(allocate)
    print(f"torch {torch.__version__}, triton {triton.__version__}, {torch.cuda.get_device_name()}")
    for shape in shapes:
        run(shape, failed)


if __name__ == "__main__":
    main(sys.argv[1:])

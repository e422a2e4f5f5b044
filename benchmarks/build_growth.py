"""How builds grow with their graphs: processor seconds a node over four series of models.

    python -m benchmarks.build_growth -o docs/build-growth.md [--series NAME ...] [--most NODES]

A point is a model of a series, built whole for the CPU with an empty artifact cache and one worker.
Its seconds are those of the processor, of this process and of its workers, so that other work on
the machine shows little. The cheapest of three builds counts; of models that take more than 7 s,
one build. The seconds have four parts:

- torch.export, its decompositions and the modules that it makes of them;
- runs of the model by torch: the golden numbers, and random inputs;
- the compilers of kernels in the worker process, once for each distinct kernel;
- aotc's own stages.

The first point of a series is built once before it counts: imports, the start of the worker and
its compiler are paid there. What is left of a constant start is where the straight line begins that
lies nearest to all points of the series, by relative distance, and no less than nothing;
milliseconds a node are reckoned without it. A series grows with its graph where its most expensive
node costs at most 1.5 times its cheapest, in aotc's own stages and in the whole build.
"""

from __future__ import annotations

import argparse
import functools
import gc
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from aotc.aot.stages import Quiet, StageTime
from benchmarks import machine
from benchmarks.report import table

Model = Callable[[int], tuple[nn.Module, tuple[torch.Tensor, ...]]]
MOST_BUILDS, FEWEST_BUILDS, LONG_SECONDS = 3, 1, 7.0  # of a point; those over so many seconds
LIMIT = 1.5  # most expensive node of a series over its cheapest
WIDTH, HEIGHT, MARGIN = 640, 360, 56
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


class Stencil(nn.Module):
    """A heat equation on a torus, a step after the other."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, field: torch.Tensor) -> torch.Tensor:
        """f32[64, 64] after the steps."""
        for _ in range(self.steps):
            around = sum(torch.roll(field, shift, axis) for shift in (1, -1) for axis in (0, 1))
            field = field + 0.1 * (around - 4 * field)
        return field


class Plain(nn.Module):
    """A chain of products and pointwise operations with a skip over every fourth."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.nodes = nodes

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        """f32[32, 64], as many operations behind."""
        skip = data
        for number in range(self.nodes):
            if number % 4 == 3:
                data, skip = data + skip, data
            else:
                data = torch.sin(data) if number % 2 else data * 1.01
        return data


def _encoder(depth: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    return nn.TransformerEncoder(layer, depth, enable_nested_tensor=False), (
        torch.randn(2, 16, 64),
    )


def _recurrence(steps: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(64, 64, batch_first=True)

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.lstm(data)[0]
            return result

    return Last(), (torch.randn(4, steps, 64),)


@dataclass(frozen=True, slots=True)
class Series:
    """Models of one kind, from small to large."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    model: Model


SERIES: tuple[Series, ...] = (
    Series("stencil", "steps", (5, 10, 20, 40, 80), lambda n: (Stencil(n), (torch.randn(64, 64),))),
    Series("encoder", "layers", (2, 6, 12, 24, 48, 96), _encoder),
    Series("recurrence", "steps", (16, 32, 64, 128, 256), _recurrence),
    Series(
        "plain",
        "operations",
        (100, 300, 1000, 3000, 10000),
        lambda n: (Plain(n), (torch.randn(32, 64),)),
    ),
)


@dataclass(frozen=True, slots=True)
class Point:
    """One build: nodes of the captured graph, distinct kernels, processor seconds of its parts."""

    size: int
    nodes: int
    kernels: int
    whole: float
    export: float
    runs: float
    compilers: float
    stages: dict[str, float]  # of this process, torch's part of `capture` among them

    @property
    def own(self) -> float:
        """aotc's own stages."""
        return self.whole - self.export - self.runs - self.compilers

    @property
    def own_stages(self) -> dict[str, float]:
        """Seconds of the stages without torch's part."""
        capture = self.stages["capture"] - self.export - self.runs
        return {**self.stages, "capture": max(0.0, capture)}


class StageSeconds(Quiet):
    """Processor seconds of this process in each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, float] = {}
        self._begun = 0.0

    def begin(self, stage: str) -> None:
        """Note when the stage begins."""
        self._begun = time.process_time()

    def end(self, row: StageTime) -> None:
        """Add what it took."""
        spent = time.process_time() - self._begun
        self.stages[row.stage] = self.stages.get(row.stage, 0.0) + spent


@contextmanager
def torch_seconds() -> Iterator[dict[str, float]]:
    """Processor seconds that torch takes inside: of `export`, and of `runs` of modules."""
    spent = {"export": 0.0, "runs": 0.0}
    is_inside = False  # what torch calls within such a call is a part of it

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            nonlocal is_inside
            if is_inside:
                return function(*given, **named)
            is_inside, begun = True, time.process_time()
            try:
                return function(*given, **named)
            finally:
                spent[part] += time.process_time() - begun
                is_inside = False

        return call

    program = torch.export.ExportedProgram
    rows: tuple[tuple[Any, str, str], ...] = (
        (torch.export, "export", "export"),
        (program, "run_decompositions", "export"),
        (program, "module", "export"),
        (nn.Module, "__call__", "runs"),
    )
    with ExitStack() as stack:
        for owner, name, part in rows:
            function = timed(getattr(owner, name), part)
            stack.enter_context(patch.object(owner, name, function))
        yield spent


def _children_seconds() -> float:
    """Of the processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def measure(series: Series, size: int) -> Point:
    """Build one model with an empty cache; its workers end with the build."""
    from aotc.aot.pipeline import BuildOptions, build

    torch.manual_seed(0)
    model, inputs = series.model(size)
    clock = StageSeconds()
    gc.collect()
    with tempfile.TemporaryDirectory(prefix="aotc-growth-") as folder, torch_seconds() as torchs:
        spec = Path(folder) / "spec.py"
        _MODELS[folder] = model.eval(), inputs
        spec.write_text(
            "from benchmarks import build_growth\n"
            f"model, example_inputs = build_growth._MODELS[{folder!r}]\n"
        )
        options = BuildOptions(cache_folder=Path(folder) / "cache", jobs=1)
        process, children = time.process_time(), _children_seconds()
        report = build(str(spec), Path(folder) / "bundle", ("cpu",), options, clock)
        process, children = time.process_time() - process, _children_seconds() - children
        del _MODELS[folder]
    detail = next(row.detail for row in report.stages if row.stage == "capture")
    nodes, kernels = int(detail.split()[0]), report.targets[0].kernels
    parts = (process + children, torchs["export"], torchs["runs"], children)
    return Point(size, nodes, kernels, *parts, clock.stages)


def cheapest(series: Series, size: int) -> Point:
    """The build of several that took aotc's own stages least; large models are built less often."""
    points = [measure(series, size)]
    while len(points) < (MOST_BUILDS if points[0].whole < LONG_SECONDS else FEWEST_BUILDS):
        points.append(measure(series, size))
    return min(points, key=lambda point: point.own)


_MODELS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {}  # folder → what its spec has


def start_seconds(nodes: Sequence[int], seconds: Sequence[float]) -> float:
    """The constant part: where the line nearest to all points begins, by relative distance."""
    if len(nodes) < 2:
        return 0.0
    weights = [1 / each**2 for each in seconds]
    total = sum(weights)
    middle = sum(w * x for w, x in zip(weights, nodes, strict=True)) / total
    height = sum(w * y for w, y in zip(weights, seconds, strict=True)) / total
    rows = list(zip(weights, nodes, seconds, strict=True))
    slope = sum(w * (x - middle) * (y - height) for w, x, y in rows)
    slope /= sum(w * (x - middle) ** 2 for w, x, _ in rows)
    return min(max(0.0, height - slope * middle), 0.9 * min(seconds))


def node_milliseconds(nodes: Sequence[int], seconds: Sequence[float]) -> list[float]:
    """Milliseconds a node of each point, without the constant part."""
    start = start_seconds(nodes, seconds)
    return [1000 * (each - start) / count for count, each in zip(nodes, seconds, strict=True)]


def own_milliseconds(points: Sequence[Point]) -> list[float]:
    """The same of aotc's own stages."""
    return node_milliseconds([point.nodes for point in points], [point.own for point in points])


def picture(rows: dict[str, Sequence[Point]]) -> str:
    """An SVG: milliseconds a node of aotc's own stages over nodes, both logarithmic."""
    from math import log10

    figures = {name: own_milliseconds(points) for name, points in rows.items()}
    nodes = [log10(point.nodes) for points in rows.values() for point in points]
    times = [log10(value) for values in figures.values() for value in values]
    left, right = min(nodes), max(nodes) + 1e-9
    low, high = min(times) - 0.3, max(times) + 0.3
    across = (WIDTH - 2 * MARGIN) / (right - left)
    up = (HEIGHT - 2 * MARGIN) / (high - low)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="24">milliseconds a node in our own stages, over nodes</text>',
    ]
    for power in range(int(left), int(right) + 2):
        if left <= power <= right:
            x = MARGIN + (power - left) * across
            lines.append(f'<text x="{x:.0f}" y="{HEIGHT - 30}">{10**power}</text>')
    for value in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100):
        if low <= log10(value) <= high:
            y = HEIGHT - MARGIN - (log10(value) - low) * up
            lines.append(f'<text x="12" y="{y:.0f}">{value}</text>')
            lines.append(
                f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.0f}" y2="{y:.0f}" '
                'stroke="#ddd"/>'
            )
    for number, (name, points) in enumerate(rows.items()):
        places = [
            (
                MARGIN + (log10(point.nodes) - left) * across,
                HEIGHT - MARGIN - (log10(value) - low) * up,
            )
            for point, value in zip(points, figures[name], strict=True)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        x, y = places[-1]
        lines.append(f'<text x="{x - 60:.0f}" y="{y - 8:.0f}" fill="{colour}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def page(rows: dict[str, Sequence[Point]], facts: dict[str, str], image: str) -> str:
    """The page; written by `python -m benchmarks.build_growth`, never by hand."""
    explained = (__doc__ or "").partition("\n\n    python")[2].partition("\n\n")[2].strip()
    parts = [
        "# How builds grow with their graphs",
        "Written by `python -m benchmarks.build_growth -o docs/build-growth.md`.",
        explained,
        "- " + ", ".join(f"{name} {value}" for name, value in facts.items()),
        f"![milliseconds a node over nodes]({image})",
    ]
    units = {series.name: series.unit for series in SERIES}
    for name, points in rows.items():
        nodes = [point.nodes for point in points]
        whole = node_milliseconds(nodes, [point.whole for point in points])
        own = own_milliseconds(points)
        parts_of_it = ("whole s", "export s", "runs s", "compilers s", "own s")
        heads = [units[name], "nodes", "kernels", *parts_of_it, "own ms a node", "whole ms a node"]
        body = [
            [str(point.size), str(point.nodes), str(point.kernels), f"{point.whole:.2f}",
             f"{point.export:.2f}", f"{point.runs:.2f}", f"{point.compilers:.2f}",
             f"{point.own:.2f}", f"{mine:.2f}", f"{all_of_it:.2f}"]
            for point, mine, all_of_it in zip(points, own, whole, strict=True)
        ]  # fmt: skip
        shares = [(point.export + point.runs) / point.whole for point in points]
        parts += [
            f"## {name}",
            f"aotc's own stages: {_verdict(nodes, [point.own for point in points])} The whole "
            f"build: {_verdict(nodes, [point.whole for point in points])} Torch's part is "
            f"{100 * shares[0]:.0f} % of the first build and {100 * shares[-1]:.0f} % of the last.",
            table(heads, body),
            "Microseconds a node of aotc's own stages in this process:",
            _stages(units[name], points),
        ]
    return "\n\n".join([*parts, ""])


def _verdict(nodes: Sequence[int], seconds: Sequence[float]) -> str:
    """The constant start and the spread, as sentences."""
    each = node_milliseconds(nodes, seconds)
    spread = max(each) / min(each)
    word = "within" if spread <= LIMIT else "beyond"
    start = start_seconds(nodes, seconds)
    return (
        f"constant start {start:.2f} s; the most expensive node costs {spread:.2f}× the cheapest, "
        f"{word} {LIMIT}×."
    )


def _stages(unit: str, points: Sequence[Point]) -> str:
    stages = list(points[0].own_stages)
    body = [
        [str(point.size), *(f"{1e6 * point.own_stages[s] / point.nodes:.0f}" for s in stages)]
        for point in points
    ]
    return table([unit, *stages], body)


def main() -> None:
    """Build the series and write the page with its picture."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.build_growth")
    words.add_argument("-o", type=Path, default=Path("docs/build-growth.md"))
    words.add_argument("--series", nargs="*", default=[each.name for each in SERIES])
    words.add_argument("--most", type=int, default=10**9, help="largest size of a model")
    asked = words.parse_args()
    rows: dict[str, Sequence[Point]] = {}
    facts = machine.facts() | {"commit": machine.commit(Path(__file__).parents[1])}
    from benchmarks import build_growth  # the module that specs import, with the same models

    for series in build_growth.SERIES:
        if series.name not in asked.series:
            continue
        sizes = [size for size in series.sizes if size <= asked.most]
        build_growth.measure(series, sizes[0])
        points = []
        for size in sizes:
            points.append(build_growth.cheapest(series, size))
            print(series.name, points[-1], flush=True)
        rows[series.name] = points
        image = asked.o.with_suffix(".svg")
        image.write_text(picture(rows), encoding="utf-8")
        asked.o.write_text(page(rows, facts, image.name), encoding="utf-8")


if __name__ == "__main__":
    main()

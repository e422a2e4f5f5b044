"""How builds grow with their graphs: processor seconds a node over four series of models.

    python -m benchmarks.build_growth -o docs/build-growth.md [--series NAME ...] [--most NODES]

A point is a model of a series, built whole for the CPU with an empty artifact cache and one worker.
Its seconds are those of the processor, of this process and of its workers, so that other work on
the machine does not show. The first point of a series is built once before it counts: imports, the
start of the worker and its compiler are paid there. What is left of a constant start is where the
straight line through the series' first two points begins, no less than nothing; seconds a node are
reckoned without it. A series grows with its graph where its most expensive node costs at most 1.5
times its cheapest.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks import machine
from benchmarks.report import table

Model = Callable[[int], tuple[nn.Module, tuple[torch.Tensor, ...]]]
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
    """One build: nodes of the captured graph, processor seconds, wall seconds of the stages."""

    size: int
    nodes: int
    seconds: float
    stages: dict[str, float]


def _processor_seconds() -> float:
    """Of this process and of those of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(series: Series, size: int) -> Point:
    """Build one model with an empty cache; its workers end with the build."""
    from aotc.aot.build import BuildOptions, build

    torch.manual_seed(0)
    model, inputs = series.model(size)
    with tempfile.TemporaryDirectory(prefix="aotc-growth-") as folder:
        spec = Path(folder) / "spec.py"
        _MODELS[folder] = model.eval(), inputs
        spec.write_text(
            "from benchmarks import build_growth\n"
            f"model, example_inputs = build_growth._MODELS[{folder!r}]\n"
        )
        options = BuildOptions(cache_folder=Path(folder) / "cache", jobs=1)
        before = _processor_seconds()
        report = build(str(spec), Path(folder) / "bundle", ("cpu",), options)
        seconds = _processor_seconds() - before
        del _MODELS[folder]
    detail = next(row.detail for row in report.stages if row.stage == "capture")
    stages: dict[str, float] = {}
    for row in report.stages:
        stages[row.stage] = stages.get(row.stage, 0.0) + row.seconds
    return Point(size, int(detail.split()[0]), seconds, stages)


_MODELS: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {}  # folder → what its spec has


def start_seconds(points: Sequence[Point]) -> float:
    """The constant part: where the line through the first two points begins."""
    if len(points) < 2:
        return 0.0
    first, second = points[:2]
    slope = (second.seconds - first.seconds) / (second.nodes - first.nodes)
    return min(max(0.0, first.seconds - slope * first.nodes), 0.9 * first.seconds)


def node_milliseconds(points: Sequence[Point]) -> list[float]:
    """Milliseconds a node of each point, without the constant part."""
    start = start_seconds(points)
    return [1000 * (point.seconds - start) / point.nodes for point in points]


def picture(rows: dict[str, Sequence[Point]]) -> str:
    """An SVG: milliseconds a node over nodes, both logarithmic."""
    from math import log10

    figures = {name: node_milliseconds(points) for name, points in rows.items()}
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
        f'<text x="{MARGIN}" y="24">milliseconds of processor time a node, over nodes</text>',
    ]
    for power in range(int(left), int(right) + 2):
        if left <= power <= right:
            x = MARGIN + (power - left) * across
            lines.append(f'<text x="{x:.0f}" y="{HEIGHT - 30}">{10**power}</text>')
    for value in (0.3, 1, 3, 10, 30, 100):
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
        each = node_milliseconds(points)
        stages = list(dict.fromkeys(stage for point in points for stage in point.stages))
        heads = [units[name], "nodes", "processor s", "ms a node", *(f"{s} s" for s in stages)]
        body = [
            [str(point.size), str(point.nodes), f"{point.seconds:.2f}", f"{value:.2f}",
             *(f"{point.stages.get(stage, 0.0):.2f}" for stage in stages)]
            for point, value in zip(points, each, strict=True)
        ]  # fmt: skip
        spread = max(each) / min(each)
        verdict = "within" if spread <= LIMIT else "beyond"
        parts += [
            f"## {name}",
            f"Constant start {start_seconds(points):.2f} s; "
            f"the most expensive node costs {spread:.2f}× "
            f"the cheapest, {verdict} {LIMIT}×. Seconds of stages are those of the wall clock.",
            table(heads, body),
        ]
    return "\n\n".join([*parts, ""])


def main() -> None:
    """Build the series and write the page with its picture."""
    words = argparse.ArgumentParser(prog="python -m benchmarks.build_growth")
    words.add_argument("-o", type=Path, default=Path("docs/build-growth.md"))
    words.add_argument("--series", nargs="*", default=[each.name for each in SERIES])
    words.add_argument("--most", type=int, default=10**9, help="largest size of a model")
    asked = words.parse_args()
    rows: dict[str, Sequence[Point]] = {}
    from benchmarks import build_growth  # the module that specs import, with the same models

    for series in build_growth.SERIES:
        if series.name not in asked.series:
            continue
        sizes = [size for size in series.sizes if size <= asked.most]
        build_growth.measure(series, sizes[0])
        points = []
        for size in sizes:
            points.append(build_growth.measure(series, size))
            print(series.name, points[-1], flush=True)
        rows[series.name] = points
    image = asked.o.with_suffix(".svg")
    image.write_text(picture(rows), encoding="utf-8")
    asked.o.write_text(page(rows, machine.facts(), image.name), encoding="utf-8")


if __name__ == "__main__":
    main()

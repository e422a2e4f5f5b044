"""How well the roofline model ranks the kernels of few rows with quantised weights, on sweeps that
were measured.

`python -m benchmarks.gpu.codes_ranking [FILE.csv]` prints for each product how the model's pick
compares with the best that was measured. No GPU is needed. RECORD is of one H200 (2026-11-30, torch
2.11.0, triton 3.6.0): times of `python -m benchmarks.gpu.quantised --parts products --batches
2,4,8,16 --candidates 14 --out FILE.csv`, and at one row of `--candidates 32`, also `--normed`, with
other `--shapes`; without forms that these products no longer have.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from aotc.aot.lower.matmul.decoding import decoding_of
from aotc.aot.lower.matmul.gpu_candidates import choices
from aotc.aot.lower.matmul.gpu_source import problem_of
from aotc.aot.lower.matmul.operands import product_of
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.quantised import graph_of

RECORD = Path(__file__).parents[1] / "records" / "codes-h200.csv"
TRAITS = GPUS[90]

Key = tuple[int, int, int, str, bool]  # rows, columns, depth, kind of codes, whether normed


@dataclass(frozen=True, slots=True)
class Sweep:
    """One product: times in µs of its choices, in the order of the model, where they are known."""

    key: Key
    measured_us: tuple[float, ...]

    @property
    def share_of_best(self) -> float:
        """The best time over that of the first choice; 1 is best."""
        return min(self.measured_us) / self.measured_us[0]


def sweeps(path: Path) -> list[Sweep]:
    """All products of a file."""
    times: dict[Key, dict[tuple[str, str], float]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sizes = (int(row["batch"]), int(row["columns"]), int(row["depth"]))
            key = (*sizes, row["kind"], row["normed"] == "1")
            times.setdefault(key, {})[row["style"], row["config"]] = float(row["us"])
    return [Sweep(key, _ranked(key, known)) for key, known in times.items()]


def _ranked(key: Key, known: dict[tuple[str, str], float]) -> tuple[float, ...]:
    rows, columns, depth, kind, is_normed = key
    (group,) = schedule(graph_of(columns, depth, rows, kind, is_normed), TRAITS).groups
    product = product_of(group)
    decoding = decoding_of(product, TRAITS)
    found = []
    for choice in choices(problem_of(product, TRAITS, decoding), TRAITS, None):
        config = " ".join(f"{name}={value}" for name, value in choice.candidate().config)
        found.append(known.get((choice.style.name, config)))
    return tuple(us for us in found if us is not None)


def main() -> None:
    """Print the table."""
    found = sweeps(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD)
    for sweep in found:
        rows, columns, depth, kind, is_normed = sweep.key
        name = f"{kind} normed" if is_normed else kind
        print(f"{rows:3} rows {name:11} {columns:6} × {depth:5} {sweep.share_of_best:6.3f}")
    mean = exp(sum(log(sweep.share_of_best) for sweep in found) / len(found))
    print(f"geometric mean {mean:.3f}")


if __name__ == "__main__":
    main()

"""How well the roofline model ranks the configs of matmul kernels, on sweeps that were measured.

`python -m benchmarks.gpu.matmul_ranking [FILE.csv …] [--fit SECONDS]` prints for each shape how the
model's pick, and the best of its first twelve, compare with the best of all. With --fit it looks
for better constants of `roofline.Machine` by small random steps, and prints them. No GPU is needed:
the files are what `benchmarks.gpu.matmul` writes, one row a config.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path

from aotc.aot.lower.matmul.choice import Choice
from aotc.aot.lower.matmul.gpu_candidates import choices
from aotc.aot.lower.matmul.gpu_cost import Machine, machine_of, nanoseconds
from aotc.aot.lower.matmul.gpu_source import problem_of
from aotc.aot.lower.matmul.operands import product_of
from aotc.aot.schedule import schedule
from aotc.aot.targets.cuda.machines import GPUS
from benchmarks.gpu.matmul import graph

RECORDS = Path(__file__).parents[1] / "records"
RECORD, RECORD_OF_F32 = RECORDS / "matmul-h200.csv", RECORDS / "matmul-f32-h200.csv"
TRAITS = GPUS[90]
CONFIG = ("BM", "BN", "BK", "GROUP", "SPLIT", "FLATTEN", "STAGES", "num_warps", "num_stages")
FIRST = 12  # candidates that a quick tuning measures
FITTED = (
    "dot_operations",
    "narrow_share",
    "load_rate",
    "pointer_rate",
    "shared_rate",
    "cache_rate",
    "launch_ns",
    "near_ns",
    "far_ns",
    "pointer_ns",
    "step_ns",
    "wanted_bytes",
    "scalar_step_ns",
    "store_ns",
    "split_ns",
    "partial_rate",
    "flatten_ns",
)
# The same for f32, as three products of TF32; these alone are fitted to such sweeps.
FITTED_OF_F32 = (
    "split_operations",
    "split_warp_operations",
    "split_narrow_share",
    "split_step_ns",
)
SLOW = 2.5  # times the best: configs beyond it do not matter to a fit
SHARPNESS = 30.0  # of the soft pick: a config predicted 3 % slower counts a third

Shape = tuple[int, int, int]
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """One shape: its legal choices as the model ranks them, and what each took, if measured."""

    shape: Shape
    dtype: str
    ranked: tuple[Choice, ...]
    measured_us: tuple[float | None, ...]

    @property
    def best_us(self) -> float:
        """The least that was measured."""
        return min(us for us in self.measured_us if us is not None)

    def share_of_best(self, first: int) -> float:
        """The best time over the best of the first ones; 1 is best."""
        known = [us for us in self.measured_us if us is not None]
        return self.best_us / min(known[:first])

    def unmeasured(self, first: int) -> int:
        """How many of the first ones were never measured."""
        return sum(us is None for us in self.measured_us[:first])


def sweeps(paths: Sequence[Path]) -> list[Sweep]:
    """All shapes of the files."""
    return [
        Sweep(shape, dtype, ranked, tuple(times.get(_key(choice)) for choice in ranked))
        for (shape, dtype), times in _measured(paths).items()
        for ranked in [_ranked(shape, dtype)]
    ]


def _measured(paths: Sequence[Path]) -> dict[tuple[Shape, str], dict[Key, float]]:
    found: dict[tuple[Shape, str], dict[Key, float]] = {}
    for path in paths:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["us"]:
                    shape = int(row["M"]), int(row["N"]), int(row["K"])
                    key = (row["form"], *(row[name] for name in CONFIG))
                    problem = shape, row.get("dtype", "bf16")  # older files are of one type
                    found.setdefault(problem, {})[key] = float(row["us"])
    return found


def _key(choice: Choice) -> Key:
    config: Mapping[str, int] = dict(choice.candidate().config)
    return (choice.source_name, *(str(config.get(name, "")) for name in CONFIG))


def _ranked(shape: Shape, dtype: str) -> tuple[Choice, ...]:
    (group,) = schedule(graph(shape, has_epilogue=False, dtype=dtype), TRAITS).groups
    return choices(problem_of(product_of(group), TRAITS), TRAITS, None)


def loss(found: Sequence[Sweep], machine: Machine) -> float:
    """Mean over the shapes: how far the picks are from the best, also softly, and the times off."""
    total = 0.0
    for sweep in found:
        best = sweep.best_us
        pairs = [
            (nanoseconds(choice, machine) / 1000, us)
            for choice, us in zip(sweep.ranked, sweep.measured_us, strict=True)
            if us is not None and us < SLOW * best
        ]
        least, picked = min(pairs)
        weights = [exp(-SHARPNESS * (ours / least - 1)) for ours, _ in pairs]
        soft = sum(w * log(us / best) for w, (_, us) in zip(weights, pairs, strict=True))
        near = [(best / us) ** 4 for _, us in pairs]
        off = sum(w * abs(log(ours / us)) for w, (ours, us) in zip(near, pairs, strict=True))
        far = log(picked / best)
        total += far + 3 * max(0.0, far - 0.08) + 2 * soft / sum(weights) + 0.35 * off / sum(near)
    return total / len(found)


def fit(found: Sequence[Sweep], seconds: float) -> Machine:
    """Better constants than the present ones, by steps that get smaller."""
    machine, chance = machine_of(TRAITS), random.Random(0)
    least, step, end, tries = loss(found, machine), 0.3, time.monotonic() + seconds, 0
    fitted = FITTED_OF_F32 if {sweep.dtype for sweep in found} == {"f32"} else FITTED
    while time.monotonic() < end:
        names = chance.sample(fitted, chance.choice((1, 1, 2, 3)))
        changed = {
            name: max(getattr(machine, name), 1e-2) * exp(chance.gauss(0, step)) for name in names
        }
        trial = replace(machine, **changed)
        value, tries = loss(found, trial), tries + 1
        if value < least:
            machine, least = trial, value
        if tries % 150 == 0:
            step = max(0.05, step * 0.85)
    print(f"loss {least:.4f} after {tries} tries")
    return machine


def main() -> None:
    """Print the table, and better constants if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, default=[RECORD])
    parser.add_argument("--fit", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args()
    found = sweeps(options.files)
    print(f"{'M×N×K':>20}  best µs   pick  of {FIRST}  configs")
    for sweep in found:
        shape = "×".join(map(str, sweep.shape))
        shares = f"{sweep.share_of_best(1):6.3f} {sweep.share_of_best(FIRST):6.3f}"
        print(f"{shape:>20} {sweep.best_us:8.2f} {shares} {len(sweep.ranked):8}")
    mean = exp(sum(log(sweep.share_of_best(1)) for sweep in found) / len(found))
    print(f"{'geometric mean':>20} {mean:15.3f}")
    if options.fit:
        machine = fit(found, options.fit)
        for name in (*FITTED, *FITTED_OF_F32):
            print(f"    {name}: float = {getattr(machine, name):.4g}")


if __name__ == "__main__":
    sys.exit(main())

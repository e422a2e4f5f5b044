"""Single computations beside eager and torch.compile: orders, extremes, running sums, statistics.

    python -m benchmarks.computations [--rounds 7] [--page docs/computations.md]

Each contender in a process of its own, in turns, with as many threads as the machine has cores;
medians. `-` where a contender fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from aotc.aot.cli.contest import contest
from benchmarks import machine
from benchmarks.report import table

PEERS = ("eager", "compile")
SECONDS_A_TURN = 0.2

# What is computed, of which tensors.
CASES: dict[str, tuple[str, str]] = {
    "top 50 of 3 × 5,000, softmax": (
        "values, places = torch.topk(x, 50)\n    return values.softmax(-1), places",
        "torch.randn(3, 5000)",
    ),
    "top 50 of 1 × 150,000": ("return torch.topk(x, 50)", "torch.randn(1, 150_000)"),
    "top 8 of 64 × 1,024": ("return torch.topk(x, 8)", "torch.randn(64, 1024)"),
    "top 2 of 4,096 × 64": ("return torch.topk(x, 2)", "torch.randn(4096, 64)"),
    "sort of 3 × 5,000": ("return torch.sort(x)", "torch.randn(3, 5000)"),
    "sort of 64 × 512": ("return torch.sort(x)", "torch.randn(64, 512)"),
    "argsort of 1 × 100,000": ("return torch.argsort(x)", "torch.randn(1, 100_000)"),
    "stable sort of 16 × 4,096 i64": (
        "return torch.sort(x, dim=-1, stable=True)",
        "torch.randint(0, 1000, (16, 4096))",
    ),
    "median of 8 × 4,096": ("return torch.median(x, -1)", "torch.randn(8, 4096)"),
    "7th of 8 × 4,096": ("return torch.kthvalue(x, 7)", "torch.randn(8, 4096)"),
    "sampling by the top 0.9 of 3 × 5,000": (
        "values, places = torch.sort(x, descending=True)\n"
        "    shares = values.softmax(-1).cumsum(-1)\n"
        "    return torch.where(shares < 0.9, values, -1e9), places",
        "torch.randn(3, 5000)",
    ),
    "argmax of 3 × 50,000": ("return x.argmax(-1)", "torch.randn(3, 50_000)"),
    "running sum of 3 × 300,007": ("return x.cumsum(-1)", "torch.randn(3, 300_007)"),
    "running sum of 3,000 × 100 along 0": ("return x.cumsum(0)", "torch.randn(3000, 100)"),
    "running product of 3 × 300,007": ("return x.cumprod(-1)", "torch.randn(3, 300_007)"),
    "running log of sums of 3 × 300,007": ("return x.logcumsumexp(-1)", "torch.randn(3, 300_007)"),
    "running maximum of 3 × 300,007": ("return x.cummax(-1)", "torch.randn(3, 300_007)"),
    "mean, deviation, extremes of 3 × 300,007": (
        "return x.mean(-1), x.std(-1), x.amax(-1), x.amin(-1)",
        "torch.randn(3, 300_007)",
    ),
    "softmax of 3 × 300,007": ("return x.softmax(-1)", "torch.randn(3, 300_007)"),
}
SPEC = """
import torch

def model(x):
    {body}

example_inputs = ({inputs},)
"""


def measure(body: str, inputs: str, rounds: int) -> list[float | None]:
    """Microseconds a call of aotc and of each peer, the median; None for one that fails."""
    with tempfile.TemporaryDirectory(prefix="aotc-bench-") as name:
        spec, bundle = Path(name, "computation.py"), Path(name, "bundle")
        spec.write_text(SPEC.format(body=body, inputs=inputs))
        command = [sys.executable, "-m", "aotc.aot.cli", "build", str(spec), "-o", str(bundle)]
        subprocess.run(command, check=True, capture_output=True)
        found = contest(bundle, str(spec), ("aotc", *PEERS), rounds, SECONDS_A_TURN)
        return [each.median_us if each.times_us else None for each in found]


def main() -> None:
    """Measure every case and print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    rows = []
    for name, (body, inputs) in CASES.items():
        ours, *theirs = measure(body, inputs, given.rounds)
        assert ours is not None
        best = min(each for each in theirs if each is not None)
        times = ["-" if each is None else f"{each:,.0f}" for each in (ours, *theirs)]
        rows.append([name, *times, f"{best / ours:.2f}×"])
        print(" | ".join(rows[-1]), flush=True)
    heads = ("computation", "aotc, µs", "eager, µs", "torch.compile, µs", "best of these / aotc")
    facts = machine.facts()
    text = (
        "# Single computations on the CPU\n\n"
        "What is neither a product nor a chain of arithmetic, and where eager torch has kernels of "
        "its own; medians. Written by\n"
        "`python -m benchmarks.computations --page docs/computations.md`.\n\n"
        f"{facts['date']}, {facts['processor']}, {facts['cores']} cores, {facts['versions']}:\n\n"
        f"{table(heads, rows)}\n"
    )
    print(text) if given.page is None else given.page.write_text(text)


if __name__ == "__main__":
    main()

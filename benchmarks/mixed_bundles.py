"""What a bundle for the CPU and a GPU costs the CPU, whose weights are then not packed.

    python -m benchmarks.mixed_bundles [EXAMPLE…]

Each example is built twice, for the CPU alone and for the CPU and sm_90; both run on the CPU, one
process each, in turns. Writes docs/mixed-bundles.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from aotc.aot.cli.contest import Contender, take_turns
from benchmarks.machine import facts

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mixed-bundles.md"
EXAMPLES = ("mlp_block", "mlp_block_bf16", "transformer_encoder")
KINDS = {"alone": (), "mixed": ("--target", "cuda:sm_90")}  # targets beside the CPU
ROUNDS = 5
SECONDS_A_TURN = 0.4
TEMPLATE = """# What a mixed bundle costs the CPU

Milliseconds a call on the CPU (tenth percentile), of a bundle for the CPU alone, whose matmul
weights are packed for it, and of one for the CPU and sm_90, which stores them once, as they are.
Both in turns, by `python -m benchmarks.mixed_bundles`.

{where}, {versions}:

| model | CPU alone, ms | mixed, ms | ratio | weights alone, MB | weights mixed, MB |
| --- | ---: | ---: | ---: | ---: | ---: |
{lines}
"""


def main() -> None:
    """Measure, print a line an example, write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE", default=EXAMPLES)
    examples = parser.parse_args().examples
    lines = []
    with tempfile.TemporaryDirectory(prefix="aotc-mixed-") as folder:
        for example in examples:
            bundles = {kind: build(example, kind, Path(folder)) for kind in KINDS}
            lines.append(row(example, bundles))
            print(lines[-1], flush=True)
    PAGE.write_text(page(lines))


def build(example: str, kind: str, folder: Path) -> Path:
    """The bundle of an example for the targets of a kind."""
    out = folder / f"{example}-{kind}"
    command = [sys.executable, "-m", "aotc.aot.cli", "build", f"{ROOT}/examples/{example}.py"]
    command += ["-o", out, "--target", "cpu", *KINDS[kind], "--quiet"]
    subprocess.run(command, check=True, capture_output=True)
    return out


def row(example: str, bundles: dict[str, Path]) -> str:
    """A line of the table: times of both, their ratio, bytes of both bundles' weights."""
    contenders = [Contender("aotc", "", bundle) for bundle in bundles.values()]
    try:
        for each in contenders:
            assert "skipped" not in each.head, each.head
        take_turns(contenders, ROUNDS, SECONDS_A_TURN)
    finally:
        for each in contenders:
            each.close()
    alone_ms, mixed_ms = (fast_ms(each.times_us) for each in contenders)
    sizes = [(bundle / "weights.safetensors").stat().st_size / 1e6 for bundle in bundles.values()]
    return (
        f"| {example} | {alone_ms:.2f} | {mixed_ms:.2f} | {mixed_ms / alone_ms:.2f} "
        f"| {sizes[0]:.1f} | {sizes[1]:.1f} |"
    )


def fast_ms(times_us: list[float]) -> float:
    """The tenth percentile: what the call takes when nobody else has the cores."""
    return statistics.quantiles(times_us, n=10)[0] / 1e3


def page(lines: list[str]) -> str:
    """The whole page."""
    machine = facts()
    load = f"load average {os.getloadavg()[0]:.1f}"
    where = f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, {load}"
    return TEMPLATE.format(where=where, versions=machine["versions"], lines="\n".join(lines))


if __name__ == "__main__":
    main()

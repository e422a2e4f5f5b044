"""What checks of indices cost: models built with them and with `--unchecked-indices`.

    python -m benchmarks.checks [--target cpu|cuda] [--tune off|quick|full] [--full]
                                [--rounds N] [--seconds S] [MODEL…]

Models are those of the zoo (`benchmarks/zoo`) that look up embeddings, and a lookup alone, which is
the worst case. The two bundles of a model run in turns, each in a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from aotc.aot.cli.contest import Contender, take_turns
from aotc.aot.pipeline import BuildOptions, build
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import Plan
from benchmarks.machine import facts

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("bert", "distilbert", "roberta", "gpt2", "llama", "t5", "dlrm", "lookup")
_SPEC = """\
import sys

sys.path.insert(0, {root!r})
from benchmarks.zoo.table import ZOO


def build_model():
    return ZOO[{name!r}].model({is_full})


def example_inputs():
    return ZOO[{name!r}].example({is_full})
"""
_LOOKUP = """\
import torch

model = torch.nn.Embedding(30000, 768)
example_inputs = (torch.randint(0, 30000, (8, 128)),)
"""


def built(name: str, given: argparse.Namespace, folder: Path) -> tuple[Path, list[Path]]:
    """The SPEC of a model, its bundle with checks and the one without."""
    spec = folder / f"{name}.py"
    text = _SPEC.format(root=str(ROOT), name=name, is_full=given.full)
    spec.write_text(_LOOKUP if name == "lookup" else text)
    found = []
    for is_unchecked in (False, True):
        found.append(folder / f"{name}-{is_unchecked}")
        options = BuildOptions(folder / "cache", tune=given.tune, unchecked_indices=is_unchecked)
        build(str(spec), found[-1], [given.target], options)
    return spec, found


def checks_in(bundle: Path) -> int:
    """How many checks a call of a bundle of one target makes."""
    with Bundle(bundle) as opened:
        plan = Plan.from_msgpack(opened.read(opened.manifest.targets[0].plan))
    return len(plan.at(*plan.lows[0]).checks)


def row_text(name: str, given: argparse.Namespace, folder: Path) -> str:
    """One line of the table: medians of a call, and the fastest calls compared."""
    spec, bundles = built(name, given, folder)
    with ExitStack() as stack:
        rows = []
        for bundle in bundles:
            rows.append(Contender("aotc", str(spec), bundle, given.target.partition(":")[0]))
            stack.callback(rows[-1].close)
            if "skipped" in rows[-1].head:
                raise RuntimeError(rows[-1].head["skipped"])
        take_turns(rows, given.rounds, given.seconds)
        checked, plain = (sorted(row.times_us) for row in rows)
    medians = statistics.median(checked), statistics.median(plain)
    fastest = (
        statistics.median(checked[: max(1, len(checked) // 10)]),
        statistics.median(plain[: max(1, len(plain) // 10)]),
    )
    ratios = (f"{100 * (with_ / without - 1):+.1f} %" for with_, without in (medians, fastest))
    cells = [f"{each / 1e3:.4f}" for each in medians]
    return f"| {name} | {checks_in(bundles[0])} | {' | '.join(cells)} | {' | '.join(ratios)} |"


def main(words: Sequence[str]) -> None:
    """Measure the models and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.checks")
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--tune", default="off", choices=("off", "quick", "full"))
    parser.add_argument("--full", action="store_true", help="models at published sizes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    given = parser.parse_args(words)
    size = "published" if given.full else "small"
    print(
        f"`{given.target}`, {size} sizes, `--tune {given.tune}`: {', '.join(facts().values())}.\n"
    )
    print(
        "| model | checks | checked, ms | unchecked, ms | cost of medians | of the fastest tenth |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="aotc-checks-") as folder:
        for name in given.models:
            print(row_text(name, given, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

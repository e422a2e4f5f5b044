"""What rounding costs: bf16 models built with it, without it, and rounding after each operation.

    python -m benchmarks.rounding [--target cpu|cuda] [--tune off|quick|full] [--full]
                                  [--rounds N] [--seconds S] [--page] [MODEL…]

Models are those of the zoo (`benchmarks/zoo`), in bf16; the bundles of one model run in turns, each
in a process of its own. "Without" is what lowering wrote before conversions rounded. Times are
tenth percentiles, which busy neighbours disturb least. With `--page` the table of the target in
docs/precision.md is written anew.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aotc.aot.cli.contest import Contender, take_turns
from aotc.aot.errors import AotcError
from aotc.aot.ir.graph import Node
from aotc.aot.ir.rules import Context
from aotc.aot.lower import emit
from aotc.aot.lower.row import statistics as row_statistics
from aotc.aot.pipeline import BuildOptions, build
from aotc.aot.schedule import schedule
from benchmarks.machine import facts
from benchmarks.zoo.table import ZOO

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "precision.md"
REPRESENTATIVE = ("bert", "llama", "gpt2", "vit", "convnext", "resnet18", "t5", "dlrm")
KINDS = ("without", "rounded", "every")
_SPEC = """\
import sys

sys.path.insert(0, {root!r})
import torch
from torch.utils import _pytree as pytree
from benchmarks.zoo.table import ZOO


def narrow(leaf):
    is_float = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.bfloat16() if is_float else leaf


def build_model():
    return ZOO[{name!r}].model({is_full}).bfloat16()


def example_inputs():
    return pytree.tree_map(narrow, ZOO[{name!r}].example({is_full}))
"""


def _any_cast(node: Node) -> Node:
    """The node behind conversions between floats."""
    while node.op == "cast" and node.type.kind == "float" and node.inputs[0].type.kind == "float":
        node = node.inputs[0]
    return node


@contextmanager
def without_rounding() -> Iterator[None]:
    """Kernels in which 16-bit values keep f32's bits from load to store."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(emit, "rounded", lambda text, dtype: text))
        stack.enter_context(patch.object(emit.Emitter, "_rounded", lambda self, node, value: value))
        stack.enter_context(patch.object(schedule, "_rounded", lambda *each: frozenset()))
        stack.enter_context(patch.object(Context, "is_shared", lambda *each: False))
        stack.enter_context(patch.object(row_statistics, "uncast", _any_cast))
        yield


def built(name: str, given: argparse.Namespace, folder: Path) -> tuple[Path, dict[str, Path]]:
    """The SPEC of a model and its bundle of each kind."""
    spec, found = folder / f"{name}.py", {}
    spec.write_text(_SPEC.format(root=str(ROOT), name=name, is_full=given.full))
    for kind in KINDS:
        found[kind] = folder / f"{name}-{kind}"
        options = BuildOptions(
            cache_folder=folder / "cache",
            tune=given.tune,
            allow_mismatch=True,
            round_intermediates=kind == "every",
        )
        with ExitStack() as stack:
            if kind == "without":
                stack.enter_context(without_rounding())
            build(str(spec), found[kind], [given.target], options)
    return spec, found


def times_us(spec: Path, bundles: dict[str, Path], given: argparse.Namespace) -> dict[str, float]:
    """Time of a call of each bundle, the tenth percentile; they take turns."""
    with ExitStack() as stack:
        running = {}
        for kind, bundle in bundles.items():
            running[kind] = Contender("aotc", str(spec), bundle, given.target.partition(":")[0])
            stack.callback(running[kind].close)
            if "skipped" in running[kind].head:
                raise RuntimeError(running[kind].head["skipped"])
        take_turns(list(running.values()), given.rounds, given.seconds)
        return {kind: statistics.quantiles(row.times_us, n=10)[0] for kind, row in running.items()}


def row_text(name: str, times_us: dict[str, float]) -> str:
    """One line of the table."""
    cells = [f"{times_us[kind] / 1e3:.3f}" for kind in KINDS]
    ratios = [f"{100 * (times_us[kind] / times_us['without'] - 1):+.1f} %" for kind in KINDS[1:]]
    return f"| {name} | {' | '.join(cells)} | {' | '.join(ratios)} |"


def table(rows: dict[str, dict[str, float]], given: argparse.Namespace) -> str:
    """The table of one target."""
    size = "published" if given.full else "small"
    head = f"`{given.target}`, {size} sizes, `--tune {given.tune}`: {', '.join(facts().values())}."
    lines = [
        f"{head}\n",
        "| bf16 model | without, ms | rounded, ms | after each op, ms | cost | cost of each op |",
        "|---|---|---|---|---|---|",
        *(row_text(name, times_us) for name, times_us in rows.items()),
    ]
    means = {
        kind: math.prod(row[kind] / row["without"] for row in rows.values()) ** (1 / len(rows))
        for kind in KINDS[1:]
    }
    ratios = " | ".join(f"{100 * (mean - 1):+.1f} %" for mean in means.values())
    return "\n".join([*lines, f"| geometric mean | | | | {ratios} |"])


def write_page(target: str, text: str) -> None:
    """Put the table between the target's marks."""
    kind = target.partition(":")[0]
    begin, end = f"<!-- cost {kind} -->\n", f"<!-- end {kind} -->"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}{text}\n{end}", page), encoding="utf-8")


def main(words: Sequence[str]) -> None:
    """Measure the models and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.rounding")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of the zoo; or `all`")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--tune", default="off", choices=("off", "quick", "full"))
    parser.add_argument("--full", action="store_true", help="published sizes")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--page", action="store_true", help="write docs/precision.md")
    given: Any = parser.parse_args(words)
    names = list(ZOO) if given.models == ["all"] else given.models or list(REPRESENTATIVE)
    rows = {}
    with tempfile.TemporaryDirectory(prefix="aotc-rounding-") as folder:
        for name in names:
            try:
                rows[name] = times_us(*built(name, given, Path(folder)), given)
            except (AotcError, RuntimeError) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                continue
            print(row_text(name, rows[name]), flush=True)
    if not rows:
        sys.exit("no model was measured")
    text = table(rows, given)
    print(text)
    if given.page:
        write_page(given.target, text)


if __name__ == "__main__":
    main(sys.argv[1:])

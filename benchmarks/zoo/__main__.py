"""`python -m benchmarks.zoo`: builds, checks and times every model; writes `docs/zoo.md`."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.zoo import page
from benchmarks.zoo.measure import ROOT, Figures, measure
from benchmarks.zoo.table import ZOO

SECONDS_A_TURN = 0.3


@click.command()
@click.option("--small/--full", "is_small", default=True, help="Sizes of CI, or published ones.")
@click.option("--rounds", default=5, show_default=True, help="Turns of a contender; 0: no timing.")
@click.option("--only", multiple=True, type=click.Choice(list(ZOO)), help="These models only.")
@click.option("--record", type=click.Path(path_type=Path), help="Figures kept between runs.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The page.")
def main(
    is_small: bool, rounds: int, only: tuple[str, ...], record: Path | None, out: Path | None
) -> None:
    """Measure the zoo on this machine; models that are not named keep their recorded figures."""
    size = "small" if is_small else "full"
    record = record or ROOT / "benchmarks" / "records" / f"zoo-{size}.json"
    out = out or ROOT / "docs" / ("zoo.md" if is_small else "zoo-full.md")
    found = _read(record)
    facts = machine.facts()
    for name in only or ZOO:
        with tempfile.TemporaryDirectory(prefix="aotc-zoo-") as folder:
            figures = measure(ZOO[name], not is_small, Path(folder), rounds, SECONDS_A_TURN)
        found[name] = replace(figures, facts=facts)
        print(_line(figures), file=sys.stderr, flush=True)
        rows = [found[each] for each in ZOO if each in found]
        record.write_text(json.dumps([row.record() for row in rows], indent=1) + "\n")
        out.write_text(page.render(size, rows), encoding="utf-8")
    failed = [row.name for row in found.values() if row.refused or not row.is_correct]
    sys.exit(1 if failed else 0)


def _read(record: Path) -> dict[str, Figures]:
    if not record.exists():
        return {}
    return {row["name"]: Figures(**row) for row in json.loads(record.read_text())}


def _line(row: Figures) -> str:
    if row.refused:
        return f"{row.name}: refused: {row.refused}"
    speedup = row.speedup()
    times = ", ".join(f"{kind} {us / 1e3:.2f} ms" for kind, us in row.forward_us.items())
    text = f"{row.name}: {row.difference:.1e} from eager, {row.kernels} kernels, {times}"
    return text if speedup is None else f"{text}, {speedup:.2f}×"


if __name__ == "__main__":
    main()

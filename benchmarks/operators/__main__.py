"""`python -m benchmarks.operators`: drives torch's operator database and writes a page."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.operators import page
from benchmarks.operators.core_set import BESIDE, core_ops, records_of
from benchmarks.operators.drive import Outcome, drive, interpreted, native
from benchmarks.operators.judge import RELATIVE
from benchmarks.operators.samples import dtypes_of, samples_of

ROOT = Path(__file__).resolve().parent.parent.parent
BATCH = 150  # samples of one bundle


@click.command()
@click.option("--limit", default=3, show_default=True, help="Samples of one op and element type.")
@click.option("--dtypes", default=",".join((*page.PROMISED, "f64")), show_default=True)
@click.option("--only", multiple=True, metavar="OPINFO", help="Drive these records only.")
@click.option("--import-only", is_flag=True, help="Interpret the captured graph in numpy.")
@click.option("--cache-dir", type=click.Path(path_type=Path), default=ROOT / "build" / "operators")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs" / "coverage.md")
def main(
    limit: int, dtypes: str, only: tuple[str, ...], import_only: bool, cache_dir: Path, out: Path
) -> None:
    """Build, run and judge samples of every core ATen op; write the coverage table."""
    warnings.simplefilter("ignore")
    core = [record for op in core_ops() for record in records_of(op)]
    facts = machine.facts() | {"samples": f"the first {limit} of each op and element type"}
    outcomes: list[Outcome] = []
    with native(cache_dir) as compiled:
        run = interpreted if import_only else compiled
        for number, dtype in enumerate(dtypes.split(",")):
            # What stands beside the core set is driven in the first element type.
            records = dict.fromkeys(only or (*core, *(() if number else BESIDE)))
            samples = [
                sample
                for record in records
                if dtype in dtypes_of(record)
                for sample in samples_of(record, dtype, limit)
            ]
            for start in range(0, len(samples), BATCH):
                outcomes += drive(samples[start : start + BATCH], run)
                print(f"{dtype}: {start} of {len(samples)}", file=sys.stderr, flush=True)
            # After each element type, since all of them take an hour.
            out.write_text(page.render(outcomes, facts, RELATIVE), encoding="utf-8")
    for outcome in outcomes:
        if outcome.verdict not in ("right", "refused"):
            print(outcome)


if __name__ == "__main__":
    main()

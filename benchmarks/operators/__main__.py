"""`python -m benchmarks.operators`: drives torch's operator database and writes a page."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from benchmarks import machine
from benchmarks.operators import page
from benchmarks.operators.core_set import BESIDE, core_ops, records_of
from benchmarks.operators.drive import Outcome, Runner, drive, interpreted, native
from benchmarks.operators.journal import Journal
from benchmarks.operators.judge import RELATIVE
from benchmarks.operators.samples import dtypes_of, samples_of

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "operators"
RECORDS = 24  # of one piece of work, after which an ended run goes on


@click.command()
@click.option("--limit", default=3, show_default=True, help="Samples of one op and type; 0: all.")
@click.option("--dtypes", default=",".join((*page.PROMISED, "f64")), show_default=True)
@click.option("--only", multiple=True, metavar="OPINFO", help="Drive these records only.")
@click.option("--import-only", is_flag=True, help="Interpret the captured graph in numpy.")
@click.option("--target", default="cpu", show_default=True, help="cpu, or cuda: the one present.")
@click.option("--cache-dir", type=click.Path(path_type=Path), default=FOLDER)
@click.option(
    "--journal", type=click.Path(path_type=Path), default=FOLDER / "journal.jsonl",
    help="Where a run that was ended goes on, if commit and options are the same.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=click.Path(path_type=Path),
    help="The page; docs/coverage.md, with --only a file beside the cache.",
)  # fmt: skip
def main(
    limit: int,
    dtypes: str,
    only: tuple[str, ...],
    import_only: bool,
    target: str,
    cache_dir: Path,
    journal: Path,
    out: Path | None,
) -> None:
    """Build, run and judge samples of every core ATen op; write the coverage table."""
    warnings.simplefilter("ignore")
    runs = "the interpreter in numpy" if import_only else target
    bound = f"the first {limit}" if limit else "all"
    facts = machine.facts() | {
        "commit": commit(),
        "command": f"`python -m benchmarks.operators {' '.join(sys.argv[1:])}`",
        "target": runs,
        "samples": f"{bound} of each op and element type",
    }
    # A run may go on after midnight, and write its page elsewhere.
    head = {name: facts[name] for name in ("commit", "versions", "samples")}
    known = Journal(journal, head | {"only": " ".join(only), "runs": runs})
    out = out or (cache_dir / "only.md" if only else ROOT / "docs" / "coverage.md")
    outcomes: list[Outcome] = []
    with native(cache_dir, target) as compiled:
        run = interpreted if import_only else compiled
        for dtype, records in pieces(dtypes.split(","), only):
            piece = f"{dtype} {' '.join(records)}"
            outcomes += known.outcomes(piece, partial(driven, dtype, records, limit, run))
            print(f"{dtype}: {len(outcomes)} samples", file=sys.stderr, flush=True)
            out.write_text(page.render(outcomes, facts, RELATIVE), encoding="utf-8")
    for outcome in outcomes:
        if outcome.verdict not in ("right", "refused"):
            print(outcome)


def pieces(dtypes: Sequence[str], only: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Element types with some of the records that have them, in the order of the page."""
    core = [record for op in core_ops() for record in records_of(op)]
    for dtype in dtypes:
        # What stands beside the core set is driven in one element type.
        records = dict.fromkeys(only or (*core, *(BESIDE if dtype == "f32" else ())))
        own = [record for record in records if dtype in dtypes_of(record)]
        for start in range(0, len(own), RECORDS):
            yield dtype, own[start : start + RECORDS]


def driven(dtype: str, records: Sequence[str], limit: int, run: Runner) -> list[Outcome]:
    """Outcomes of the records' samples."""
    samples = [each for record in records for each in samples_of(record, dtype, limit or None)]
    return drive(samples, run)


def commit() -> str:
    """The commit of the sources, and whether they differ from it."""
    words = {"head": ("rev-parse", "--short", "HEAD"), "changes": ("diff", "--stat", "HEAD")}
    said = {
        name: subprocess.run(
            ("git", *command), cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        for name, command in words.items()
    }
    return (said["head"] or "unknown") + (" with changes" if said["changes"] else "")


if __name__ == "__main__":
    main()

"""`python -m benchmarks.operators`: drives torch's operator database and writes a page."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from benchmarks import machine
from benchmarks.operators import page
from benchmarks.operators.core_set import BESIDE, core_ops, records_of
from benchmarks.operators.drive import REFUSED, RIGHT
from benchmarks.operators.jobs import Piece, Setting, outcomes_of
from benchmarks.operators.journal import Journal
from benchmarks.operators.judge import RELATIVE
from benchmarks.operators.samples import dtypes_of

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "operators"
PAGES = {"cpu": "coverage.md", "cuda": "coverage-cuda.md"}
RECORDS = 24  # of one piece of work, after which an ended run goes on


@click.command()
@click.option("--limit", default=3, show_default=True, help="Samples of one op and type; 0: all.")
@click.option("--dtypes", default=",".join((*page.PROMISED, "f64")), show_default=True)
@click.option("--only", multiple=True, metavar="OPINFO", help="Drive these records only.")
@click.option("--import-only", is_flag=True, help="Interpret the captured graph in numpy.")
@click.option("--target", type=click.Choice(sorted(PAGES)), default="cpu", show_default=True)
@click.option("--jobs", default=1, show_default=True, help="Processes, which share the cores.")
@click.option("--cache-dir", type=click.Path(path_type=Path), default=FOLDER)
@click.option(
    "--journal", type=click.Path(path_type=Path), default=FOLDER / "journal.jsonl",
    help="Where a run that was ended goes on, if commit and options are the same.",
)  # fmt: skip
@click.option(
    "-o", "--out", type=click.Path(path_type=Path),
    help="The page; in docs/, with --only a file beside the cache.",
)  # fmt: skip
def main(
    limit: int,
    dtypes: str,
    only: tuple[str, ...],
    import_only: bool,
    target: str,
    jobs: int,
    cache_dir: Path,
    journal: Path,
    out: Path | None,
) -> None:
    """Build, run and judge samples of every core ATen op; write the coverage table.

    The page is written again after each piece of work, from all pieces that are done.
    """
    warnings.simplefilter("ignore")
    runs = "the interpreter in numpy" if import_only else target
    facts = _facts(runs, limit)
    # A run may go on after midnight, write its page elsewhere and have other jobs.
    head = {name: facts[name] for name in ("commit", "versions", "samples")}
    known = Journal(journal, head | {"only": " ".join(only), "runs": runs})
    cache_dir.mkdir(parents=True, exist_ok=True)
    out = out or (cache_dir / "only.md" if only else ROOT / "docs" / PAGES[target])
    all_pieces = pieces(dtypes.split(","), only, limit)
    waiting = [piece for piece in all_pieces if str(piece) not in known.found]
    setting = Setting("" if import_only else target, cache_dir)
    for piece, outcomes in outcomes_of(waiting, jobs, setting):
        known.add(str(piece), outcomes)
        found = [each for part in all_pieces for each in known.found.get(str(part), ())]
        print(f"{piece.dtype}: {len(found)} samples", file=sys.stderr, flush=True)
        out.write_text(page.render(found, facts, RELATIVE), encoding="utf-8")
    found = [each for part in all_pieces for each in known.found[str(part)]]
    out.write_text(page.render(found, facts, RELATIVE), encoding="utf-8")
    for outcome in found:
        if outcome.verdict not in (RIGHT, REFUSED):
            print(outcome)


def _facts(runs: str, limit: int) -> dict[str, str]:
    """What the page says of its run."""
    device = {"device": torch.cuda.get_device_name()} if runs == "cuda" else {}
    bound = f"the first {limit}" if limit else "all"
    return machine.facts() | {
        **device,
        "commit": machine.commit(ROOT),
        "command": f"`python -m benchmarks.operators {' '.join(sys.argv[1:])}`",
        "target": runs,
        "samples": f"{bound} of each op and element type",
    }


def pieces(dtypes: Sequence[str], only: Sequence[str], limit: int) -> list[Piece]:
    """Element types with some of the records that have them, in the order of the page."""
    core = [record for op in core_ops() for record in records_of(op)]
    found = []
    for dtype in dtypes:
        # What stands beside the core set is driven in one element type.
        records = dict.fromkeys(only or (*core, *(BESIDE if dtype == "f32" else ())))
        own = [record for record in records if dtype in dtypes_of(record)]
        for start in range(0, len(own), RECORDS):
            found.append(Piece(dtype, tuple(own[start : start + RECORDS]), limit))
    return found


if __name__ == "__main__":
    main()

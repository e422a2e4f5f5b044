"""`scripts/fuzz`: draw programs, run them through the compiler, judge them, write a page."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from fuzz import facts, page
from fuzz.drive import Setting, run
from fuzz.generate import Choice
from fuzz.journal import Journal
from fuzz.rows.table import FAMILIES
from fuzz.trial import BAD, Task

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "fuzz"
# torch.compile leaves complex numbers to Inductor; states are a bundle's.
FORWARD_ONLY = frozenset({"fourier", "states"})


@click.command()
@click.option("--seconds", type=float, help="Begin no program after this long.")
@click.option("--programs", type=int, help="How many programs; default 100 without --seconds.")
@click.option("--family", multiple=True, type=click.Choice([*FAMILIES]), help="These only.")
@click.option("--seed", type=int, help="Of the first program of each family; default: of the day.")
@click.option("--jobs", type=int, help="Processes; default: one a usable processor.")
@click.option("--dynamic", is_flag=True, help="All programs with sizes that vary.")
@click.option("--gradients", is_flag=True, help="All programs with gradients.")
@click.option("--target", default="cpu", type=click.Choice(["cpu", "cuda"]), show_default=True)
@click.option("--no-reduce", is_flag=True, help="Save failing programs as they are.")
@click.option("--journal", type=click.Path(path_type=Path), default=FOLDER / "journal.jsonl")
@click.option(
    "--found",
    type=click.Path(path_type=Path),
    default=FOLDER / "found",
    help="Folder for the programs that fail.",
)
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The page.")
def main(
    seconds: float | None,
    programs: int | None,
    family: tuple[str, ...],
    seed: int | None,
    jobs: int | None,
    dynamic: bool,
    gradients: bool,
    target: str,
    no_reduce: bool,
    journal: Path,
    found: Path,
    out: Path | None,
) -> None:
    """Draw random programs and hold the compiler's numbers against eager torch's."""
    first = int(datetime.now(UTC).strftime("%Y%m%d")) * 1000 if seed is None else seed
    count = programs or (100 if seconds is None else 10**9)
    options = {"families": ", ".join(family or FAMILIES), "first seed": first, "target": target}
    options |= {"all dynamic": True} if dynamic else {}
    options |= {"all with gradients": True} if gradients else {}
    head = facts.head(ROOT, options)
    known = Journal(journal, head)
    if gradients and target == "cuda":
        raise click.UsageError("gradients are torch.compile's, which is for the CPU's tensors here")
    drawn = _tasks(family or tuple(FAMILIES), first, dynamic, gradients, target)
    every = itertools.islice(drawn, count)
    waiting = (task for task in every if str(task) not in known.found)
    started = time.monotonic()
    counts: Counter[str] = Counter(o.verdict for rows in known.found.values() for o in rows)
    with tempfile.TemporaryDirectory(prefix="aotc-fuzz-") as folder:
        os.environ["TMPDIR"] = folder  # whatever a process leaves when it is ended
        setting = Setting(target, Path(folder) / "cache", found, not no_reduce)
        until = started + (seconds or 10.0**9)
        workers = jobs or len(os.sched_getaffinity(0))
        for finished in run(waiting, workers, setting, until):
            known.add(str(finished.task), finished.outcomes)
            counts.update(each.verdict for each in finished.outcomes)
            for each in finished.outcomes:
                if each.verdict in BAD:
                    print(f"{each.task}: {each.way}: {each.verdict}: {page.short(each.reason)}")
            if sum(counts.values()) % 50 == 0:
                print(_line(counts, started), file=sys.stderr, flush=True)
    outcomes = [each for rows in known.found.values() for each in rows]
    text = page.render(outcomes, head | facts.tail(time.monotonic() - started, workers))
    if out is not None:
        out.write_text(text, encoding="utf-8")
    print(_line(counts, started))
    sys.exit(1 if any(each.verdict in BAD for each in outcomes) else 0)


def _tasks(
    families: tuple[str, ...], first: int, dynamic: bool, gradients: bool, target: str
) -> Iterator[Task]:
    """Families in turn; of ten programs one has sizes that vary and on the CPU one gradients."""
    for number in itertools.count():
        for place, family in enumerate(families):
            turn = (number + place) % 10
            is_dynamic = dynamic or (turn == 3 and not gradients)
            has_gradients = gradients or (turn == 7 and not dynamic and target == "cpu")
            choice = Choice(is_dynamic, has_gradients and family not in FORWARD_ONLY)
            yield Task(family, first + number, choice)


def _line(counts: Counter[str], started: float) -> str:
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"{sum(counts.values())} runs in {time.monotonic() - started:.0f} s: {words}"


if __name__ == "__main__":
    main()

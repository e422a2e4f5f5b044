"""`scripts/fuzz`: draw programs, run them through the compiler, judge them, write a page."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from aotc.aot.folders import owned
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
@click.option("--dynamic", "kind", flag_value="dynamic", help="All with sizes that vary.")
@click.option("--gradients", "kind", flag_value="gradients", help="All with gradients.")
@click.option("--forward", "kind", flag_value="forward", help="All of fixed sizes, forward alone.")
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
    kind: str | None,
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
    options |= {"all of kind": kind} if kind else {}
    head = facts.head(ROOT, options)
    known = Journal(journal, head)
    if kind == "gradients" and target == "cuda":
        raise click.UsageError("gradients are torch.compile's, which is for the CPU's tensors here")
    drawn = _tasks(family or tuple(FAMILIES), first, kind or "", target)
    every = itertools.islice(drawn, count)
    waiting = (task for task in every if str(task) not in known.found)
    started = time.monotonic()
    counts = Counter(page.of_program(rows) for rows in known.found.values())
    with owned("fuzz") as folder:
        os.environ["TMPDIR"] = folder  # whatever a process leaves when it is ended
        setting = Setting(target, Path(folder) / "cache", found, not no_reduce)
        until = started + (seconds or 10.0**9)
        workers = jobs or len(os.sched_getaffinity(0))
        for finished in run(waiting, workers, setting, until):
            known.add(str(finished.task), finished.outcomes)
            counts[page.of_program(finished.outcomes)] += 1
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


def _tasks(families: tuple[str, ...], first: int, kind: str, target: str) -> Iterator[Task]:
    """Families in turn. Where no kind is asked for, one of seven programs has sizes that vary, and
    on the CPU one gradients; a family and a seed name one program, whatever is drawn beside it.
    """
    for seed in itertools.count(first):
        for family in families:
            own = kind or _kind(family, seed)
            if family in FORWARD_ONLY or target != "cpu":
                own = "forward" if own == "gradients" else own
            yield Task(family, seed, Choice(own == "dynamic", own == "gradients"))


def _kind(family: str, seed: int) -> str:
    return {2: "dynamic", 5: "gradients"}.get((seed + [*FAMILIES].index(family)) % 7, "forward")


def _line(counts: Counter[str], started: float) -> str:
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return f"{sum(counts.values())} programs in {time.monotonic() - started:.0f} s: {words}"


if __name__ == "__main__":
    main()

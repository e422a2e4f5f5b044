"""`python -m benchmarks.breadth`: builds a library's architectures and writes a page of them."""

from __future__ import annotations

import importlib.metadata
import json
import random
import sys
from pathlib import Path

import click
import torch

from benchmarks import machine
from benchmarks.breadth import page
from benchmarks.breadth.judge import DTYPES, RIGHT, Outcome
from benchmarks.breadth.pool import LIBRARIES, outcomes_of

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "breadth"


@click.command()
@click.option("--library", type=click.Choice(sorted(LIBRARIES)), default="transformers")
@click.option("--target", default="cpu", show_default=True)
@click.option("--tune", type=click.Choice(("off", "quick")), default="off", show_default=True)
@click.option("--dtype", type=click.Choice(sorted(DTYPES)), default="f32", show_default=True)
@click.option("--jobs", default=1, show_default=True, help="Processes, which share the cores.")
@click.option("--limit-seconds", default=600.0, show_default=True, help="Of one model.")
@click.option("--only", multiple=True, metavar="MODEL", help="These models only.")
@click.option("--sample", default=0, help="As many, drawn at random; 0: all.")
@click.option("--seed", default=0, show_default=True)
@click.option("--again", is_flag=True, help="Try anew what was found and is not right.")
@click.option(
    "--journal", type=click.Path(path_type=Path),
    help="Where a run that was ended goes on; a line a model.",
)  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The page.")
def main(
    library: str,
    target: str,
    tune: str,
    dtype: str,
    jobs: int,
    limit_seconds: float,
    only: tuple[str, ...],
    sample: int,
    seed: int,
    again: bool,
    journal: Path | None,
    out: Path | None,
) -> None:
    """Build every architecture of a library at a small size, compare with eager, write a table."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stem = f"{library}-{target.replace(':', '-')}-{dtype}"
    journal = journal or FOLDER / f"{stem}.jsonl"
    names = LIBRARIES[library].names()
    wanted = list(only) or names
    if sample:
        wanted = sorted(random.Random(seed).sample(wanted, min(sample, len(wanted))))
    found = {each.name: each for each in _known(journal)}
    if again:
        found = {name: each for name, each in found.items() if each.verdict == RIGHT}
    out = out or FOLDER / f"{stem}.md"
    waiting = [name for name in wanted if name not in found]
    setting = {"library": library, "target": target, "tune": tune, "dtype": dtype}
    setting |= {"cache_dir": FOLDER / "cache"}
    facts = machine.facts() | {
        library: importlib.metadata.version(library),
        "commit": machine.commit(ROOT),
        "target": f"{target}, {dtype}, `--tune {tune}`",
        "command": f"`python -m benchmarks.breadth {' '.join(sys.argv[1:])}`",
    }
    if target.startswith("cuda"):
        facts["device"] = torch.cuda.get_device_name()
    for outcome in outcomes_of(waiting, jobs, limit_seconds, setting):
        found[outcome.name] = outcome
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome.record()) + "\n")
        print(f"{len(found)}: {outcome.name} {outcome.verdict} {outcome.reason[:160]}", flush=True)
        out.write_text(page.render(library, list(found.values()), facts, len(names)), "utf-8")
    out.write_text(page.render(library, list(found.values()), facts, len(names)), "utf-8")


def _known(journal: Path) -> list[Outcome]:
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return [Outcome(**json.loads(line)) for line in lines if line.endswith("}")]


if __name__ == "__main__":
    main()

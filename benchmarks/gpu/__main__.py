"""`python -m benchmarks.gpu`: the models beside torch on this machine's GPU; writes
`docs/benchmarks-gpu.md` and `.json`. See `parts.py` for what is run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.gpu import machine, page
from benchmarks.gpu.parts import MODELS, PARTS, USUAL
from benchmarks.suite import ROOT, Suite


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice([*PARTS]), help="Only these.")
@click.option("--model", "names", multiple=True, type=click.Choice([row.name for row in MODELS]))
@click.option("--work", type=click.Path(path_type=Path), default=ROOT / "build" / "bench-gpu")
@click.option("--seconds", default=86400.0, help="Begin nothing after this; end what still runs.")
@click.option(
    "--tune", default="quick", show_default=True, type=click.Choice(["off", "quick", "full"])
)
@click.option("--again", is_flag=True, help="Forget all earlier results of these models.")
@click.option("--page-only", is_flag=True, help="Measure nothing: write the page anew.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs")
def main(
    parts: tuple[str, ...],
    names: tuple[str, ...],
    work: Path,
    seconds: float,
    tune: str,
    again: bool,
    page_only: bool,
    out: Path,
) -> None:
    """Run what has no result yet, then write the page from all results there are."""
    work = work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    suite = Suite(work, seconds, tune)
    if not page_only:
        models = [row for row in MODELS if not names or row.name in names]
        if again:
            for path in (path for row in models for path in work.glob(f"*-{row.name}.json")):
                path.unlink()
        facts = {**machine.facts(), "tuning": f"`--tune {tune}`"}
        suite.result("facts", "machine").write_text(json.dumps(facts, indent=1) + "\n")
        for part in parts or USUAL:
            PARTS[part](suite, models)
            print(f"{part} done, {suite.left_s():.0f} s left", flush=True)
    page.write(suite, out)


if __name__ == "__main__":
    main()

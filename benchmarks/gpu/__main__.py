"""`python -m benchmarks.gpu`: the models beside torch on this machine's GPU; writes
`docs/benchmarks-gpu.md` and `.json`. See `suite.py` for the parts."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.gpu import page
from benchmarks.gpu.suite import MODELS, PARTS, ROOT, Suite, steps


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), help="Only these parts.")
@click.option("--model", "names", multiple=True, type=click.Choice([row.name for row in MODELS]))
@click.option("--work", type=click.Path(path_type=Path), default=ROOT / "build" / "bench-gpu")
@click.option("--seconds", default=86400.0, help="Begin nothing after this; end what still runs.")
@click.option(
    "--tune", default="quick", show_default=True, type=click.Choice(["off", "quick", "full"])
)
@click.option("--again", is_flag=True, help="Forget earlier results of these parts.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=ROOT / "docs")
def main(
    parts: tuple[str, ...],
    names: tuple[str, ...],
    work: Path,
    seconds: float,
    tune: str,
    again: bool,
    out: Path,
) -> None:
    """Run what has no result yet, then write the page from all results there are."""
    work.mkdir(parents=True, exist_ok=True)
    suite = Suite(work, seconds, tune)
    models = [row for row in MODELS if not names or row.name in names]
    for part in parts or PARTS:
        for step in steps(suite, part, [row for row in models if Path(row.path).is_file()]):
            if again:
                suite.result(step.part, step.name).unlink(missing_ok=True)
            suite.run(step)
    page.write(suite, out)


if __name__ == "__main__":
    main()

"""`python -m benchmarks.zoo`: builds, checks and times every model; writes `docs/zoo.md`."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from benchmarks.suite import Suite
from benchmarks.zoo import builds, page
from benchmarks.zoo.contest import Terms, read_record, run, write_record
from benchmarks.zoo.measure import ROOT, Figures
from benchmarks.zoo.step import BUILDERS
from benchmarks.zoo.table import ZOO

RECORDS = ROOT / "benchmarks" / "records"
PATH = click.Path(path_type=Path)


@click.command()
@click.option("--small/--full", "is_small", default=True, help="Sizes of CI, or published ones.")
@click.option("--rounds", default=5, show_default=True, help="Turns of a contender; 0: no timing.")
@click.option("--only", multiple=True, type=click.Choice(list(ZOO)), help="These models only.")
@click.option("--cores", default=2, show_default=True, help="Cores that a contender has.")
@click.option(
    "--side-by-side",
    default=1,
    show_default=True,
    help="Models timed at once, on cores of their own; no more than the machine has room for.",
)
@click.option(
    "--without", multiple=True, type=click.Choice(list(BUILDERS)), help="Leave this peer out."
)
@click.option("--seconds", default=86400.0, help="Begin nothing after this; end what still runs.")
@click.option("--resume", is_flag=True, help="Leave out models with times in the record.")
@click.option("--work", type=PATH, help="Folder of steps' results, which are not run again.")
@click.option("--record", type=PATH, help="Figures kept between runs.")
@click.option("--builds", "is_of_builds", is_flag=True, help="Time builds, cold and warm, instead.")
@click.option("-o", "--out", type=PATH, help="The page.")
def main(
    is_small: bool,
    rounds: int,
    only: tuple[str, ...],
    cores: int,
    side_by_side: int,
    without: tuple[str, ...],
    seconds: float,
    resume: bool,
    work: Path | None,
    record: Path | None,
    is_of_builds: bool,
    out: Path | None,
) -> None:
    """Measure the zoo on this machine; models that are not named keep their recorded figures."""
    if importlib.util.find_spec("transformers") is None:
        raise click.UsageError("the zoo's models are made by `transformers`, which is missing")
    size = "small" if is_small else "full"
    kind = "builds" if is_of_builds else "zoo"
    record = record or RECORDS / f"{kind}-{size}.json"
    out = out or ROOT / "docs" / f"zoo{'' if is_small else '-full'}.md"
    if is_of_builds:
        builds.run(only or tuple(ZOO), size, record, out.with_name(f"{out.stem}-builds.md"))
        return
    terms = Terms(not is_small, cores, side_by_side, rounds, without=without)
    found = read_record(record)
    known = {name for name, row in found.items() if resume and row.forward_us}
    rows = [ZOO[name] for name in only or ZOO if name not in known]

    def keep(row: Figures) -> None:
        if found.get(row.name) == row:
            return
        found[row.name] = row
        print(_line(row), flush=True)
        listed = [found[name] for name in ZOO if name in found]
        write_record(record, listed)
        out.write_text(page.render(size, listed), encoding="utf-8")

    with ExitStack() as stack:
        folder = work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aotc-zoo-")))
        folder.mkdir(parents=True, exist_ok=True)
        run(Suite(folder.resolve(), seconds), rows, terms, keep)
    failed = [row.name for row in found.values() if row.refused or not row.is_correct]
    sys.exit(1 if failed else 0)


def _line(row: Figures) -> str:
    if row.refused:
        return f"{row.name}: refused: {row.refused}"
    speedup = row.speedup()
    times = ", ".join(f"{kind} {us / 1e3:.2f} ms" for kind, us in row.forward_us.items())
    text = f"{row.name}: {row.difference:.1e} from eager, {row.kernels} kernels, {times}"
    return text if speedup is None else f"{text}, {speedup:.2f}×"


if __name__ == "__main__":
    main()

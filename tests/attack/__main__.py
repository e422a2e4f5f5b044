"""`scripts/attack [-o PAGE] [--only SYSTEM] [--packages A.pt2 B.pt2] [--scale X] [--jobs N]`."""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from aotc.aot.folders import owned

from .attempts import Bench, run
from .page import cell, page
from .systems import (
    Bundle,
    Cache,
    Inductor,
    PinnedBundle,
    RemoteCache,
    SafeTensors,
    System,
    TritonCache,
)
from .trial import digest_of


def main() -> None:
    """Attack every system and print or write the page."""
    parser = argparse.ArgumentParser(prog="scripts/attack", description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--only", action="append", help="a word of a system's name")
    parser.add_argument(
        "--packages", type=Path, nargs=2, help="packages of AOTInductor made before"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of trials")
    parser.add_argument("--jobs", type=int, default=2, help="systems that are attacked at once")
    given = parser.parse_args()
    packages = None if given.packages is None else (given.packages[0], given.packages[1])
    systems: list[System] = [
        Cache(),
        RemoteCache(),
        Bundle(),
        PinnedBundle(),
        TritonCache(),
        Inductor(packages),
        SafeTensors(),
    ]
    if given.only:
        names = [each.name for each in systems]
        systems = [each for each in systems if any(word in each.name for word in given.only)]
        if not systems:
            parser.error(f"no system is named {given.only}, expected a word of {names}")
    _import(systems)
    with ProcessPoolExecutor(given.jobs, get_context("fork")) as pool:
        found = list(pool.map(attack, systems, [given.scale] * len(systems)))
    columns = {each.name: rows for each, rows in zip(systems, found, strict=True)}
    command = shlex.join(["scripts/attack", *sys.argv[1:]])
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = page(systems, columns, command, date)
    if given.output:
        given.output.write_text(text)
    else:
        print(text)


def _import(systems: Sequence[System]) -> None:
    """What uses need, here and once: trials are forks of this process."""
    import aotc.cache.remote
    import aotc.runtime.loading  # noqa: F401

    for each in systems:
        assert isinstance(each.version, str)


def attack(system: System, scale: float = 1.0):
    """Row → outcomes of one system."""
    with owned("attack") as name:
        scratch = Path(name)
        made = (scratch / "right" / "artifact", scratch / "other" / "artifact")
        for variant, folder in enumerate(made):
            folder.mkdir(parents=True, mode=0o700)
            system.make(folder, variant)
        bench = Bench(system, made, "", scratch, scale)
        honest = digest_of(lambda: system.use(bench.copy()))
        bench = Bench(system, made, honest, scratch, scale)
        found = {}
        for row, outcomes in run(bench):
            found[row] = outcomes
            print(f"{system.name}: {row}: {cell(outcomes)}", file=sys.stderr, flush=True)
        return found


if __name__ == "__main__":
    main()

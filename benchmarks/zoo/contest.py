"""The zoo beside its peers: what is built first, in parallel, and then timed side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from benchmarks import cores, machine
from benchmarks.suite import Step, Suite
from benchmarks.zoo.measure import Figures
from benchmarks.zoo.row import Row
from benchmarks.zoo.step import BUILDERS

TIMING_RESERVE_SECONDS = 30.0  # of a model: four processes start, one after the other, and run
RESERVE_SHARE = 0.6  # of all seconds, that timing may keep from building at most


@dataclass(frozen=True, slots=True)
class Terms:
    """How models are measured: their size, each contender's cores, models at once, its turns."""

    is_full: bool = False
    cores: int = 2
    side_by_side: int = 1
    rounds: int = 5  # 0: built and compared only
    turn_seconds: float = 0.3
    without: tuple[str, ...] = ()  # peers that are left out

    @property
    def size(self) -> str:
        """The name of the size."""
        return "full" if self.is_full else "small"

    def facts(self) -> dict[str, str]:
        """The machine, and how much of it a contender has."""
        found = machine.facts()
        share = f"{self.cores} of {found['cores']} for each contender"
        count = len(self.timing_groups())
        at_once = "1 model at a time" if count == 1 else f"{count} models at a time"
        return {**found, "cores": f"{share}, {at_once}"}

    def timing_groups(self) -> list[cores.Cores]:
        """The cores of the models that are timed at once; no two of them share a core."""
        return cores.groups(self.cores, self.side_by_side, cores.physical())


def run(suite: Suite, rows: Sequence[Row], terms: Terms, found: Callable[[Figures], None]) -> None:
    """Build everything, then time it; `found` is called for each model when more of it is known.

    Nothing is timed while something is built.
    """
    everywhere, apart = cores.groups(terms.cores), terms.timing_groups()
    facts = terms.facts()

    def tell() -> None:
        for row in rows:
            if suite.result("built", row.name).is_file():
                found(replace(figures(suite, row.name), facts=facts))

    suite.on_cores([_step(suite, "built", row, terms) for row in rows], everywhere, 0.0, tell)
    if not terms.rounds:
        return
    sound = [
        row for row in rows if (built := suite.read("built", row.name)) and not built["refused"]
    ]
    reserve_s = TIMING_RESERVE_SECONDS * -(-len(sound) // len(apart))
    kinds = [kind for kind in BUILDERS if kind not in terms.without]
    for kind, row in product(terms.without, sound):
        suite.result(kind, row.name).write_text(json.dumps({"skipped": "left out on request"}))
    peers = [_step(suite, kind, row, terms) for row in sound for kind in kinds]
    suite.on_cores(peers, everywhere, min(reserve_s, RESERVE_SHARE * suite.seconds))
    turns = (str(terms.rounds), str(terms.turn_seconds))
    suite.on_cores([_step(suite, "times", row, terms, *turns) for row in sound], apart, 0.0, tell)


def _step(suite: Suite, part: str, row: Row, terms: Terms, *numbers: str) -> Step:
    out = str(suite.result(part, row.name))
    place = (terms.size, str(suite.work / row.name), out)
    return Step(part, row.name, ("-m", "benchmarks.zoo.step", part, row.name, *place, *numbers))


def figures(suite: Suite, name: str) -> Figures:
    """What the steps of a model have found so far."""
    built, times = suite.read("built", name), suite.read("times", name)
    return Figures(**{**built, **times})


def read_record(path: Path) -> dict[str, Figures]:
    """The figures of earlier runs by the model's name."""
    if not path.exists():
        return {}
    return {row["name"]: Figures(**row) for row in json.loads(path.read_text())}


def write_record(path: Path, rows: Sequence[Figures]) -> None:
    """Keep the figures; whole or not at all, whenever the run is cut off."""
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps([row.record() for row in rows], indent=1) + "\n")
    beside.replace(path)

"""One step of the zoo's benchmark, in a process of its own: a part of what is found of a model.

    python -m benchmarks.zoo.step PART MODEL SIZE FOLDER OUT [ROUNDS SECONDS]

PART is a row of PARTS, SIZE `small` or `full`. FOLDER is the model's own, where a part finds what
those before it made; OUT gets the result as JSON. The process and all that it starts keep to the
cores that they were given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotc.aot.cli.contest import contest, once
from benchmarks.zoo.measure import PEERS, build_and_compare, write_spec
from benchmarks.zoo.row import Row
from benchmarks.zoo.table import ZOO

BUILDERS = {"compile": ("first", "compile"), "aoti": ("build-aoti",)}  # peer → contender's mode


@dataclass(frozen=True, slots=True)
class Place:
    """A model at one size and the folder of what is made of it."""

    row: Row
    is_full: bool
    folder: Path

    @property
    def spec(self) -> Path:
        """Its SPEC file, written anew."""
        return write_spec(self.row, self.is_full, self.folder)

    @property
    def bundle(self) -> Path:
        """Where its bundle stands."""
        return self.folder / self.row.name


def main(part: str, name: str, size: str, folder: str, out: str, *numbers: str) -> None:
    """Run one part and write its result."""
    place = Place(ZOO[name], size == "full", Path(folder))
    result = PARTS[part](place, *map(float, numbers))
    Path(out).write_text(json.dumps(result, indent=1) + "\n")


def _built(place: Place) -> dict[str, Any]:
    """The bundle, and how far its numbers are from eager's."""
    return build_and_compare(place.row, place.is_full, place.folder).record()


def _peer(kind: str) -> Callable[[Place], dict[str, Any]]:
    """A peer's code, compiled into its cache or package; or why it is skipped."""

    def build(place: Place) -> dict[str, Any]:
        return once(*BUILDERS[kind], str(place.spec), str(place.folder), "cpu")

    return build


def _times(place: Place, rounds: float, seconds: float) -> dict[str, Any]:
    """Median microseconds of each contender whose code is there, and why the others are skipped."""
    answers = {kind: _answer(place, kind) for kind in BUILDERS}
    skipped = {kind: why for kind, row in answers.items() if (why := row.get("skipped"))}
    kinds = [kind for kind in ("aotc", *PEERS) if kind not in skipped]
    folders = (place.bundle, str(place.spec), kinds, int(rounds), seconds, "cpu", place.folder)
    results = contest(*folders)
    skipped |= {row.kind: row.skipped for row in results if row.skipped}
    times_us = {row.kind: row.median_us for row in results if not row.skipped}
    return {"forward_us": times_us, "skipped": skipped}


def _answer(place: Place, kind: str) -> dict[str, Any]:
    """What building a peer gave; it is skipped where that did not end in its time."""
    path = place.folder.parent / f"{kind}-{place.row.name}.json"
    if not path.is_file():
        return {"skipped": "its build did not end in the time that it was given"}
    answer: dict[str, Any] = json.loads(path.read_text())
    return answer


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "built": _built,
    **{kind: _peer(kind) for kind in BUILDERS},
    "times": _times,
}


if __name__ == "__main__":
    main(*sys.argv[1:])

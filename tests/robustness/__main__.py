"""`scripts/robustness [-o P] [--jobs N] [--scale X] [--seconds S] [--only WORD]… [--folder F]`.

With `-o P` the rows go into P's file with the suffix `.json` too, in place of the same parts of
earlier runs; the page is of all of them. `--journal J` makes the killed builds go on where an
earlier run ended.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import variations

from aotc.aot.folders import owned

from . import damage, disk, faults, inputs, kills
from .page import Row, describe_run, line_of, merge, page, read_rows, write_rows
from .spread import Found, Work, spread, threads
from .starter import BUILD_S

RACERS = 32
EXAMPLE = Path(__file__).parents[2] / "examples" / "black_scholes.py"
ELSEWHERE_S = 3600.0
RUN = 250  # kills, or loads, of one process


class Impossible(Exception):
    """A part cannot run on this machine."""


@dataclass(frozen=True)
class Given:
    """What every part works with."""

    jobs: int
    scale: float
    seconds: float
    folder: Path
    specs: list[Path]
    bundles: list[Path]  # built ones
    all: list[Path]  # and the small one
    journal: Path | None = None

    def count(self, asked: int) -> int:
        """Pieces of work at this scale."""
        return max(1, round(asked * self.scale))

    def spread(self, work: Work, asked: int) -> Found:
        """Work on as many pieces."""
        return spread(work, self.count(asked), self.jobs, self.seconds)


Part = Callable[[Given], tuple[int, Found, str]]


def fuzzed_inputs(given: Given) -> tuple[int, Found, str]:
    """Altered bytes and values for every reader."""
    asked = 1_000_000
    work = inputs.read_altered(given.bundles, given.folder)
    return asked, given.spread(work, asked), "altered files of 13 kinds; 1 s and 64 MiB each"


def fuzzed_plans(given: Given) -> tuple[int, Found, str]:
    """False plans on honest libraries."""
    asked = 100
    note = f"processes of {damage.LIES} false plans each, run between guard pages"
    return asked, given.spread(damage.run_lies(given.bundles), asked), note


def every_bit(given: Given) -> tuple[int, Found, str]:
    """One bit of what says what the rest is."""
    places = damage.bits_of(given.all)
    chosen = places[:: max(1, round(1 / given.scale))]
    found = spread(
        damage.flip_bits(given.all, chosen, given.folder), len(chosen), given.jobs, given.seconds
    )
    return len(places), found, f"manifest, plan and list of extras of {len(given.all)} bundles"


def payload_bits(given: Given) -> tuple[int, Found, str]:
    """One bit of code or weights."""
    asked = 100_000
    found = given.spread(damage.flip_payloads(given.all, given.folder), asked)
    return asked, found, "code and weights, at random"


def killed_builds(given: Given) -> tuple[int, Found, str]:
    """Builds ended by SIGKILL."""
    asked = 300
    work = kills.kill_builds(given.specs[0], given.folder, given.journal)
    found = spread(work, given.count(asked), given.jobs, given.seconds, BUILD_S)
    return asked, found, "then one `gc`"


def surroundings(given: Given) -> tuple[int, Found, str]:
    """The same model built in other surroundings."""
    specs = [*given.specs, EXAMPLE]
    work = kills.build_elsewhere(specs, given.folder)
    found = spread(work, len(specs), min(given.jobs, len(specs)), given.seconds, ELSEWHERE_S)
    note = f"{len(variations.VARIATIONS)} builds each, by `tests/build/variations.py`; `diff -r`"
    return len(specs), found, note


def full_disk(given: Given) -> tuple[int, Found, str]:
    """A tmpfs with few pages free."""
    asked = len(disk.CASES)
    if not disk.is_possible(given.folder):
        raise Impossible("this user may not mount a tmpfs here")
    found = given.spread(disk.fill(given.folder), asked)
    return asked, found, f"the same operations, 0 to {disk.PAGES - 1} pages of a tmpfs free"


def killed_writers(given: Given) -> tuple[int, Found, str]:
    """Writers of one cache ended by SIGKILL."""
    asked = 10_000
    work = kills.run_script("scripts/kill_writers.py", "--kills", str(RUN), "--seconds", "600")
    found = given.spread(work, asked // RUN)
    return asked, found, f"`scripts/kill_writers.py`, {RUN} kills a run"


def swapped_bundles(given: Given) -> tuple[int, Found, str]:
    """Loads of a bundle that is replaced without end."""
    asked = 5000
    found = given.spread(
        kills.run_script("tests/hostile/swaps.py", "{folder}", str(RUN)), asked // RUN
    )
    return asked, found, f"`tests/hostile/swaps.py`, {RUN} loads a run"


def keys_made_once(given: Given) -> tuple[int, Found, str]:
    """Processes that make the same keys at once."""
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        found = spread(kills.make_keys(Path(name), RACERS), RACERS, RACERS, given.seconds)
    if found.counts["made"] != kills.KEYS:
        found.say(f"{found.counts['made']} made, expected {kills.KEYS}")
    return RACERS, found, f"processes at once, the same {kills.KEYS} keys"


def failing_calls(given: Given) -> tuple[int, Found, str]:
    """Every system call fails."""
    listed = faults.cases(given.folder)
    chosen = listed[:: max(1, round(1 / given.scale))]
    found = spread(faults.fail_calls(chosen, given.folder), len(chosen), given.jobs, given.seconds)
    note = f"{len(faults.OPERATIONS)} operations of cache, pack, push, pull and load"
    return len(listed), found, f"{note}; each call fails with each error"


PARTS: dict[str, Part] = {
    "fuzzed inputs": fuzzed_inputs,
    "false plans": fuzzed_plans,
    "every bit": every_bit,
    "bits of code and weights": payload_bits,
    "failing system calls": failing_calls,
    "a full disk": full_disk,
    "keys made once": keys_made_once,
    "swapped bundles": swapped_bundles,
    "killed writers": killed_writers,
    "killed builds": killed_builds,
    "models in other surroundings": surroundings,
}


def main() -> int:
    """Run every part, print or write the page; 1 where something was wrong."""
    parser = argparse.ArgumentParser(
        prog="scripts/robustness", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--jobs", type=int, default=2, help="processes of one part; 0: this one")
    parser.add_argument("--scale", type=float, default=1.0, help="of the counts")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="after which a part begins no more"
    )
    parser.add_argument("--only", action="append", help="a word of a part's name")
    parser.add_argument(
        "--folder", type=Path, help="a fast file system; the system's temporary one"
    )
    parser.add_argument("--journal", type=Path, help="a file of the killed builds so far")
    options = parser.parse_args()
    chosen = {
        name: part
        for name, part in PARTS.items()
        if not options.only or any(word in name for word in options.only)
    }
    if not chosen:
        parser.error(f"no part is named {options.only}, expected a word of {list(PARTS)}")
    rows: list[Row] = []
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    run = describe_run(shlex.join(["scripts/robustness", *sys.argv[1:]]), date)
    tempfile.tempdir = str(options.folder) if options.folder else None
    with owned("robustness") as made:
        folder = Path(made)
        bundles = damage.build_bundles(folder)
        specs = [path.with_suffix(".py") for path in bundles]
        rest = (specs, bundles, [damage.small(folder), *bundles])
        given = Given(options.jobs, options.scale, options.seconds, folder, *rest, options.journal)
        for name, part in chosen.items():
            rows.append(replace(run_part(name, part, given), run=run))
            print(line_of(rows[-1]), file=sys.stderr, flush=True)
    if options.output:
        data = options.output.with_suffix(".json")
        shown = merge(read_rows(data), rows, list(PARTS))
        write_rows(data, shown)
        options.output.write_text(page(shown, data))
    else:
        print(page(rows, Path("nowhere.json")))
    return 1 if any(row.found is not None and row.found.counts["wrong"] for row in rows) else 0


def run_part(name: str, part: Part, given: Given) -> Row:
    """A part, with its time."""
    if threads() > 1:
        raise RuntimeError(f"{threads()} threads, expected one: parts are forks of this process")
    started_s = time.monotonic()
    try:
        asked, found, note = part(given)
    except Impossible as reason:
        return Row(name, 0, None, str(reason), 0.0)
    return Row(name, asked, found, note, time.monotonic() - started_s)


if __name__ == "__main__":
    sys.exit(main())

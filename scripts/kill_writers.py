#!/usr/bin/env python3
"""Kill processes that put, delete and collect entries of one cache folder, as often as asked.

    nice -n 10 python scripts/kill_writers.py --kills 10000

After each kill every entry is read: it has to be whole, of one writer, or absent. At the end one
`gc` has to leave no staging folder, no half-deleted entry, no lock and no quarantine.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import filelock  # noqa: F401  here, so that no writer spends its life importing it

from aotc.cache import Entry, Key, Store
from aotc.cache.checking import check
from aotc.cache.collect import collect_all, prune, rows

KEYS = [Key.of("binaries", kernel=f"k{index}") for index in range(8)]
NAMES = ("a.o", "b.o", "meta.json")


def write_for_ever(root: Path, begun: int) -> None:
    """Put, get, delete, collect; each writer's bytes are its own, the same in all its files."""
    store, turn = Store(root), 0
    while True:
        for key in KEYS:
            body = f"{os.getpid()}:{turn};".encode() * 500
            with store.lock(key, timeout_s=0.1):
                store.put(key, dict.fromkeys(NAMES, body))
            if turn == 0 and key is KEYS[0]:
                os.write(begun, b"x")
            if turn % 2:
                prune(store, cap_bytes=60_000)
        if turn % 5 == 4:
            collect_all(store, 40_000)
        turn += 1


def is_whole(entry: Entry) -> bool:
    """Whether all files of an entry are there and one writer's."""
    return set(entry.files) == {*NAMES} and len({bytes(data) for data in entry.files.values()}) == 1


def kill_one(store: Store, reader: int, begun: int) -> tuple[int, int]:
    """Start a writer, kill it within some milliseconds; returns (entries read, torn ones)."""
    pid = os.fork()
    if pid == 0:
        try:
            write_for_ever(store.root, begun)
        finally:
            os._exit(1)
    os.read(reader, 1)
    time.sleep(random.uniform(0, 0.03))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    found = [entry for key in KEYS if (entry := store.get(key)) is not None]
    return len(found), sum(not is_whole(entry) for entry in found)


def left_behind(store: Store) -> list[Path]:
    """What is in the folder beside entries and the cache's tag."""
    names = ("staging", "quarantine", "locks")
    beside = [path for name in names for path in (store.root / name).glob("*")]
    entries = {row.folder for row in rows(store)}
    torn = [path for path in store.root.glob("binaries-*/??/*") if path not in entries]
    loose = [path for path in store.root.iterdir() if path.is_file() and path.suffix != ".TAG"]
    return [*beside, *torn, *loose]


def main() -> int:
    """Print what was found; 1 where an entry was torn or something was left."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    given = parser.parse_args()
    warnings.simplefilter("error")  # a damaged entry would warn
    reader, begun = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        store, started_s = Store(Path(folder) / "cache"), time.monotonic()
        kills = read = torn = 0
        while kills < given.kills and time.monotonic() - started_s < given.seconds:
            found, bad = kill_one(store, reader, begun)
            kills, read, torn = kills + 1, read + found, torn + bad
        before = len(left_behind(store))
        collect_all(store, None)
        left = left_behind(store)
        unsound = sum(finding.state != "sound" for finding in check(store))
    seconds = time.monotonic() - started_s
    print(
        f"{kills} kills in {seconds:.0f} s, {read} entries read, {torn} torn, {unsound} unsound; "
        f"{before} leftovers before one gc, {len(left)} after it"
    )
    return 1 if torn or left or unsound else 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds that are killed, writers that are killed, writers in a race: old, new or nothing.

A build is a fork of a process that has imported what builds import and has no threads
(`starter.py`); it leads a group of processes, its workers among them, and the build alone is
killed: workers have to notice it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import variations

from aotc.aot import folders
from aotc.cache import Key, Store
from aotc.cache.checking import check
from aotc.cache.collect import collect_all
from aotc.runtime.bundle.manifest import digest_of
from aotc.runtime.loading import load
from aotc.runtime.verify import verify

from .spread import Found, kill_group
from .starter import NoEnd, Starter

TESTS = Path(__file__).parents[1]
WORKERS_S = 30.0  # within which workers of a killed build have to be gone
KEYS = 200
WARM = 1  # the seed of the builds whose cache stays
Work = Callable[[Iterator[int], Found], None]


def kill_builds(spec: Path, folder: Path, journal: Path | None = None) -> Work:
    """For each number a build; two that finish say how long the others have.

    What was found of each is added to the journal, a line a number; numbers that it has already
    are not tried again.
    """
    known = _known(journal)

    def work(numbers: Iterator[int], found: Found) -> None:
        with contextlib.ExitStack() as stack:
            builds: _Builds | None = None
            for number in numbers:
                if number in known:
                    found.add(known[number])
                    continue
                one = Found()
                try:
                    builds = builds or _Builds(spec, folder, stack)
                    builds.kill(random.Random(number), one)
                except NoEnd as reason:
                    one.say(f"build {number}: {reason}")
                    stack.close()
                    builds = None
                found.add(one)
                _append(journal, number, one)

    return work


def _known(journal: Path | None) -> dict[int, Found]:
    """What earlier runs found, by number."""
    if journal is None or not journal.exists():
        return {}
    rows = map(json.loads, journal.read_text().splitlines())
    return {row.pop("number"): Found.of(row) for row in rows}


def _append(journal: Path | None, number: int, found: Found) -> None:
    if journal is not None:
        with journal.open("a") as file:  # one write: other processes append too
            file.write(json.dumps({"number": number, **vars(found)}) + "\n")


class _Builds:
    """Builds one after another into one place, over what is there, by one starter."""

    def __init__(self, spec: Path, folder: Path, stack: contextlib.ExitStack) -> None:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        self._spec, self._own = spec, own
        self._starter = stack.enter_context(Starter(spec, own))
        self._cold_s, self._warm_s = self._time(), self._time()
        self._digests = {load(own / "out").digest}
        shutil.copytree(own / "out", own / "whole")

    def _time(self) -> float:
        """Seconds of a build that is left alone."""
        answer = self._begin(WARM, None)
        if answer["code"]:
            said = (self._own / "log").read_text()[-1000:]
            raise RuntimeError(f"a build failed with {answer['code']}: {said}")
        return float(answer["seconds"])

    def _begin(self, seed: int, after_s: float | None) -> dict[str, Any]:
        """A build into `out`, with the cache of that seed."""
        words = [str(self._spec), "-o", str(self._own / "out"), "--force", "--quiet"]
        words += ["--cache-dir", str(self._own / f"cache {seed}"), "--jobs", "2"]
        return self._starter.build(words, self._own, after_s)

    def kill(self, draw: random.Random, found: Found) -> None:
        """One build, killed; what it leaves, before and after one collection."""
        found.at_most("seconds of a build", self._cold_s)
        is_warm = draw.random() < 0.3
        seed = WARM if is_warm else draw.randrange(WARM + 1, 1 << 30)
        out, cache = self._own / "out", self._own / f"cache {seed}"
        is_new = draw.random() < 0.3
        if is_new:
            _remove(out)
        elif not out.exists():
            shutil.copytree(self._own / "whole", out)
        answer = self._begin(seed, draw.uniform(0, self._warm_s if is_warm else self._cold_s))
        code, leader = answer["code"], answer["leader"]
        found.counts["killed" if code == -signal.SIGKILL else "ended before"] += 1
        what = f"build {seed}, exit {code}"
        if code not in (0, -signal.SIGKILL):
            found.say(f"{what}: {(self._own / 'log').read_text()[-500:]}")
        if not _are_gone(leader):
            found.say(f"{what}: workers live on")
            kill_group(leader)
        if out.exists():
            found.counts["bundle whole"] += 1
            failed = [row for row in verify(out, ("integrity", "golden")) if row.status == "failed"]
            digest = digest_of((out / "manifest.msgpack").read_bytes())
            if failed or digest not in self._digests:
                found.say(f"{what}: {failed or 'another bundle'}")
        elif is_new:
            found.counts["no bundle"] += 1
        else:
            found.say(f"{what}: the old bundle is gone")
        _collect(self._own, cache, what, found)


def _collect(own: Path, cache: Path, what: str, found: Found) -> None:
    """What `aotc cache gc` does; then only entries, bundle and nothing else are there."""
    temporary = own / "tmp"
    if cache.exists():
        store = Store(cache)
        unsound = [row for row in check(store) if row.state != "sound"]
        if unsound:
            found.say(f"{what}: {unsound[0]}")
        collect_all(store, None)
        left = [path for name in ("staging", "locks") for path in (cache / name).glob("*")]
        if left:
            found.say(f"{what}: gc leaves {left[:3]}")
        if cache.name != f"cache {WARM}":
            _remove(cache)
    user = temporary / f"aotc-{os.geteuid()}"
    if user.exists():
        folders.sweep(str(user))
        left = list(user.iterdir())
        if left:
            found.say(f"{what}: a sweep leaves {left[:3]}")
    left = [path for path in temporary.iterdir() if path != user] if temporary.exists() else []
    if left:
        found.say(f"{what}: the temporary folder has {[path.name for path in left[:3]]}")
        _remove(*left)
    beside = [path for path in own.iterdir() if path.name.startswith(".out.")]
    found.counts["staging until the next build"] += len(beside)


def _are_gone(leader: int) -> bool:
    """Whether no process of a group is left, within WORKERS_S."""
    deadline = time.monotonic() + WORKERS_S
    while time.monotonic() < deadline:
        try:
            os.killpg(leader, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def _remove(*paths: Path) -> None:
    subprocess.run(["rm", "-rf", *map(str, paths)], check=True)


def run_script(path: str, *words: str) -> Work:
    """For each number a run of a script of this project, which exits with 0 where all is well.

    The first number among the words is how many pieces of work a run has.
    """
    pieces = int(next(word for word in words if word.isdigit()))

    def work(numbers: Iterator[int], found: Found) -> None:
        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                given = [word.format(folder=folder) for word in words]
                command = [sys.executable, str(TESTS.parent / path), *given]
                ran = subprocess.run(command, capture_output=True, text=True, check=False)
            found.counts["done"] += pieces - 1
            if ran.returncode:
                found.say(f"{path}, run {number}: {ran.stdout[-500:]}{ran.stderr[-500:]}")

    return work


def build_elsewhere(specs: list[Path], folder: Path) -> Work:
    """For each number a model, built in each of the surroundings; all files have the same bytes."""

    def work(numbers: Iterator[int], found: Found) -> None:
        for number in numbers:
            with tempfile.TemporaryDirectory(dir=folder) as name:
                root = Path(name)
                root.chmod(0o755)  # one of them is another user
                spec = root / "model" / specs[number].name
                spec.parent.mkdir()
                shutil.copy(specs[number], spec)
                first: Path | None = None
                for variation in variations.VARIATIONS:
                    made = variations.build(root / "builds", variation, spec)
                    what = f"{spec.stem}: {variation}"
                    if made == variations.IMPOSSIBLE:
                        found.counts[f"not possible here: {variation}"] += 1
                    elif isinstance(made, str):
                        found.say(f"{what}: {made}")
                    else:
                        first = first or made
                        differing = variations.differing(first, made)
                        found.counts["the same"] += not differing
                        if differing:
                            found.say(f"{what}: {differing}")

    return work


def make_keys(root: Path, processes: int) -> Work:
    """All numbers are processes of one race: each makes what is missing of KEYS, under locks."""

    def work(numbers: Iterator[int], found: Found) -> None:
        warnings.simplefilter("error")
        store = Store(root / "cache")
        for number in numbers:
            (root / f"ready {number}").touch()
            while len(list(root.glob("ready *"))) < processes:
                time.sleep(0.005)
            for index in range(KEYS):
                key = Key.of("binaries", kernel=f"k{index}")
                files = {"a.o": f"{number}".encode() * 500, "meta.json": f"{number}".encode() * 500}
                if store.get(key) is None:
                    with store.lock(key) as is_held:
                        found.counts["without a lock"] += not is_held
                        if store.get(key) is None:
                            found.counts["made"] += 1
                            store.put(key, files)
                entry = store.get(key)
                if entry is None or len(set(entry.files.values())) != 1:
                    found.say(f"key {index}: torn")

    return work

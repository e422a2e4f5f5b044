"""Builds that are killed, writers that are killed, writers in a race: old, new or nothing.

A build is a fork of this process, which has imported what builds import, so that its time is spent
in the stages and not in imports; it leads a group of processes, its workers among them, and the
build alone is killed: workers have to notice it.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from aotc.aot import folders
from aotc.cache import Key, Store
from aotc.cache.checking import check
from aotc.cache.collect import collect_all
from aotc.runtime.bundle.manifest import digest_of
from aotc.runtime.loading import load
from aotc.runtime.verify import verify

from .spread import Found, kill_group

TESTS = Path(__file__).parents[1]
BUILD_S = 300.0
WORKERS_S = 30.0  # within which workers of a killed build have to be gone
KEYS = 200
WARM = 1  # the seed of the builds whose cache stays
Work = Callable[[Iterator[int], Found], None]


def kill_builds(spec: Path, folder: Path) -> Work:
    """For each number a build; two that finish say how long the others have."""

    def work(numbers: Iterator[int], found: Found) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as name:
            own = Path(name)
            cold_s, warm_s = _time(spec, own), _time(spec, own)
            found.at_most("seconds of a build", cold_s)
            digests = {load(own / "out").digest}
            for number in numbers:
                _kill(spec, own, random.Random(number), (cold_s, warm_s), digests, found)

    return work


def _time(spec: Path, own: Path) -> float:
    """Seconds of a build that is left alone."""
    started_s = time.monotonic()
    if os.waitstatus_to_exitcode(os.waitpid(_begin(spec, own, WARM), 0)[1]):
        raise RuntimeError(f"a build failed: {(own / 'log').read_text()[-1000:]}")
    return time.monotonic() - started_s


def _begin(spec: Path, own: Path, seed: int) -> int:
    """Start a build into `own/out`, over what is there, with a cache of its own."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        temporary = own / "tmp"
        temporary.mkdir(exist_ok=True)
        os.environ["TMPDIR"], tempfile.tempdir = str(temporary), None
        log = os.open(own / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        from aotc.aot.cli.program import run

        cache = own / f"cache {seed}"
        words = ["build", str(spec), "-o", str(own / "out"), "--force", "--quiet"]
        code = run([*words, "--cache-dir", str(cache), "--jobs", "2"])
    finally:
        os._exit(code)


def _kill(
    spec: Path,
    own: Path,
    draw: random.Random,
    seconds: tuple[float, float],
    digests: set[str],
    found: Found,
) -> None:
    """One build, killed; what it leaves, before and after one collection."""
    is_warm = draw.random() < 0.3
    seed = WARM if is_warm else draw.randrange(WARM + 1, 1 << 30)
    out, cache = own / "out", own / f"cache {seed}"
    is_new = draw.random() < 0.3 or not out.exists()
    if is_new:
        _remove(out)
    child = _begin(spec, own, seed)
    time.sleep(draw.uniform(0, seconds[is_warm]))
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found.counts["killed" if code == -signal.SIGKILL else "ended before"] += 1
    what = f"build {seed}, exit {code}"
    if code not in (0, -signal.SIGKILL):
        found.say(f"{what}: {(own / 'log').read_text()[-500:]}")
    if not _are_gone(child):
        found.say(f"{what}: workers live on")
        kill_group(child)
    if out.exists():
        found.counts["bundle whole"] += 1
        failed = [row for row in verify(out, ("integrity", "golden")) if row.status == "failed"]
        if failed or digest_of((out / "manifest.msgpack").read_bytes()) not in digests:
            found.say(f"{what}: {failed or 'another bundle'}")
    elif is_new:
        found.counts["no bundle"] += 1
    else:
        found.say(f"{what}: the old bundle is gone")
    _collect(own, cache, what, found)


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
    left = [path for path in temporary.iterdir() if path != user]
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

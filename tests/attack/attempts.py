"""The attacks: one function each, which alters an artifact or returns what came of a whole trial.

Whoever attacks may write the artifact's files, and where a row says so also makes every digest and
checksum beside them right; keys, pinned digests and the user's process are out of reach.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .systems import Bundle, Inductor, SafeTensors, System
from .trial import REFUSED, SOUND, USED, Outcome, digest_of, outcome_of

Outcomes = list[Outcome]
SEED = 17


class NotApplicable(Exception):
    """The system has nothing of the kind."""


@dataclass(frozen=True)
class Bench:
    """A system, its two artifacts, and where altered copies of them go."""

    system: System
    made: tuple[Path, Path]
    honest: str  # digest of what use of the first gives
    scratch: Path
    scale: float = 1.0  # of the numbers of trials

    def copy(self) -> Path:
        """A fresh copy of the first artifact, which its user can write."""
        folder = self.scratch / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.made[0], folder, symlinks=True)
        os.chmod(folder, 0o700)  # noqa: PTH101
        for path in folder.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        return folder

    def used(self, folder: Path) -> Outcome:
        """What the user gets from an altered copy."""
        return outcome_of(lambda: self.system.use(folder), self.honest)

    @property
    def main(self) -> str:
        """The part that matters most."""
        return "code" if "code" in self.system.parts else "weights"


def flipped(part: str) -> Callable[[Bench], Outcomes]:
    """One bit of a part, at random places."""

    def attempt(bench: Bench) -> Outcomes:
        if part not in bench.system.parts:
            raise NotApplicable
        draw, found = random.Random(SEED), []
        for _ in range(max(2, int(bench.system.flips * bench.scale))):
            folder = bench.copy()
            data = bytearray(bench.system.read(folder, part))
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            bench.system.write(folder, part, bytes(data))
            found.append(bench.used(folder))
        return found

    return attempt


def replaced(bench: Bench) -> Outcomes:
    """The code or numbers of another artifact in their place, nothing else changed."""
    folder = bench.copy()
    other = bench.system.read(bench.made[1], bench.main)
    try:
        bench.system.write(folder, bench.main, other)
    except NotImplementedError:
        raise NotApplicable from None
    return [bench.used(folder)]


def replaced_and_consistent(bench: Bench) -> Outcomes:
    """The same, by somebody who makes digests and checksums beside it right."""
    system, folder = bench.system, bench.copy()
    if isinstance(system, Inductor):
        system.replace(folder, system.read(bench.made[1], "code"))
    elif isinstance(system, Bundle):  # the whole bundle is what is consistent with it
        shutil.rmtree(folder)
        shutil.copytree(bench.made[1], folder)
    else:
        system.write(folder, bench.main, system.read(bench.made[1], bench.main))
        system.make_consistent(folder)
    return [bench.used(folder)]


def cut(bench: Bench) -> Outcomes:
    """The file that holds it cut in half."""
    folder = bench.copy()
    path = bench.system.path(folder, bench.main)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return [bench.used(folder)]


def emptied(bench: Bench) -> Outcomes:
    """Zeros in the place of its bytes, as after a power cut."""
    folder = bench.copy()
    path = bench.system.path(folder, bench.main)
    path.write_bytes(bytes(path.stat().st_size))
    return [bench.used(folder)]


def linked(bench: Bench) -> Outcomes:
    """A symbolic link to a file of the attacker's, with another artifact's bytes."""
    folder = bench.copy()
    path = bench.system.path(folder, bench.main)
    path.unlink()
    path.symlink_to(bench.system.path(bench.made[1], bench.main).resolve())
    return [bench.used(folder)]


def pipe(bench: Bench) -> Outcomes:
    """A FIFO in its place."""
    folder = bench.copy()
    path = bench.system.path(folder, bench.main)
    path.unlink()
    os.mkfifo(path)
    return [bench.used(folder)]


def open_to_all(bench: Bench) -> Outcomes:
    """A folder that everybody may write, with an artifact by nobody known."""
    folder = bench.copy()
    shutil.rmtree(folder)
    shutil.copytree(bench.made[1], folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return [bench.used(folder)]


def golden(bench: Bench) -> Outcomes:
    """The numbers by which the artifact is judged."""
    if "golden" not in bench.system.parts:
        raise NotApplicable
    assert isinstance(bench.system, Bundle)
    folder = bench.copy()
    digest_of(lambda: bench.system.verify(folder))
    data = bytearray(bench.system.read(folder, "golden"))
    for at in range(len(data) - 512, len(data)):
        data[at] ^= 1
    bench.system.write(folder, "golden", bytes(data))
    found = outcome_of(lambda: bench.system.verify(folder), "")  # type: ignore[attr-defined]
    return [found]


def deep(bench: Bench) -> Outcomes:
    """A record that nests 100,000 levels."""
    if "record" not in bench.system.parts:
        raise NotApplicable
    folder = bench.copy()
    text = b"[" * 100_000
    if isinstance(bench.system, Bundle):
        text = bench.system.read(folder, "record")[:16] + b"\x91" * 100_000
    if isinstance(bench.system, SafeTensors):
        text = struct.pack("<Q", len(text)) + text
    bench.system.write(folder, "record", text)
    return [bench.used(folder)]


def announced(bench: Bench) -> Outcomes:
    """A file of 40 GB that takes no room on the disk, in its place."""
    folder = bench.copy()
    os.truncate(bench.system.path(folder, bench.main), 40 << 30)
    return [bench.used(folder)]


def kills(bench: Bench) -> Outcomes:
    """Writers killed at a random moment; then all that can be seen of what they wrote is read."""
    put, tags = getattr(bench.system, "put", None), getattr(bench.system, "tags", None)
    if put is None or tags is None:
        raise NotApplicable
    draw, torn, whole = random.Random(SEED), 0, 0
    seconds = _import(bench)
    for _ in range(max(3, int(60 * bench.scale))):
        folder = bench.scratch / "kills"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        child = os.fork()
        if child == 0:
            for number in range(10_000):
                put(folder, number, number % 251)
            os._exit(0)
        time.sleep(0.003 + draw.uniform(0, 4) * seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for number in range(10_000):
            found = tags(folder, number)
            if found is None:
                break
            is_whole = found == bench.system.whole(number % 251)
            whole, torn = whole + is_whole, torn + (not is_whole)
    return [Outcome(USED, "torn")] * torn + [Outcome(SOUND)] * whole


def races(bench: Bench) -> Outcomes:
    """Four writers of one key, each with bytes of its own, while it is read: a mixture is torn."""
    put, tags = getattr(bench.system, "put", None), getattr(bench.system, "tags", None)
    if put is None or tags is None:
        raise NotApplicable
    folder = bench.scratch / "races"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    _import(bench)
    children = [_writer(put, folder, tag) for tag in range(1, 5)]
    torn, reads, refused = 0, 0, []
    try:
        deadline = time.monotonic() + 4 * bench.scale
        while time.monotonic() < deadline:
            for number in range(20):
                try:
                    found = tags(folder, number)
                except Exception as error:
                    refused.append(Outcome(REFUSED, type(error).__name__))
                    continue
                if found is not None:
                    reads += 1
                    torn += found not in [bench.system.whole(tag) for tag in range(1, 5)]
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return [Outcome(USED, "mixed")] * torn + [Outcome(SOUND)] * (reads - torn) + refused


def _import(bench: Bench) -> float:
    """Write in this process, so that the writers, its forks, have imported what they need; seconds
    that an entry takes."""
    folder = bench.scratch / "first"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    bench.system.put(folder, 0, 1)  # type: ignore[attr-defined]
    started_s = time.monotonic()
    bench.system.put(folder, 1, 1)  # type: ignore[attr-defined]
    seconds = time.monotonic() - started_s
    assert bench.system.tags(folder, 0) == bench.system.whole(1)  # type: ignore[attr-defined]
    return seconds


def _writer(put: Callable[[Path, int, int], None], folder: Path, tag: int) -> int:
    child = os.fork()
    if child:
        return child
    while True:
        for number in range(20):
            try:
                put(folder, number, tag)
            except Exception:
                continue


# Row → attack. The text is what the page says.
ATTEMPTS: dict[str, Callable[[Bench], Outcomes]] = {
    "one bit of the code": flipped("code"),
    "one bit of the weights": flipped("weights"),
    "one bit of the record (manifest, metadata, header)": flipped("record"),
    "code (or numbers) of another artifact": replaced,
    "the same, all digests and checksums beside it made right": replaced_and_consistent,
    "cut in half": cut,
    "zeros in place of its bytes": emptied,
    "a symbolic link to another file": linked,
    "a FIFO in its place": pipe,
    "a folder that everybody may write": open_to_all,
    "altered golden numbers, then verified": golden,
    "a record nested 100,000 deep": deep,
    "a sparse file of 40 GB in its place": announced,
    "writers killed (60), then all is read": kills,
    "4 writers of one key in a race": races,
}


def run(bench: Bench) -> Iterator[tuple[str, Counter[tuple[str, str]] | None]]:
    """Every attack on one system: row, and how often which outcome came; None: does not apply."""
    for row, attempt in ATTEMPTS.items():
        try:
            found = attempt(bench)
        except NotApplicable:
            yield row, None
            continue
        yield row, Counter((each.kind, each.note) for each in found)

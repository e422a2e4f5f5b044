"""Bundles of real models: flipped bits are refused before anything runs; false plans reach nothing.

The bundles are those of `tests/hostile_models.py` and the small one of `tests/pack`.
"""

from __future__ import annotations

import ctypes  # noqa: F401  # imported here, so that the hook sees no first import
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import null_driver  # noqa: F401  # puts itself in the table of drivers
import small_bundle
from hostile_models import FIXED, VARYING

from aotc.runtime.bundle.manifest import EXTRAS_NAME, MANIFEST_NAME
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.drivers import load as load_driver
from aotc.runtime.errors import BundleError, IncompatibleError
from aotc.runtime.loading import load
from aotc.runtime.verify import verify

from .spread import Found

HOSTILE = Path(__file__).parents[1] / "hostile"
LIES = 300  # in one process
LIES_S = 120
BUILD_S = 300
Work = Callable[[Iterator[int], Found], None]


class Reached(BaseException):
    """Code of a damaged bundle was about to be opened."""


def write_specs(folder: Path) -> list[Path]:
    """The models of `tests/hostile_models.py` as files."""
    paths = []
    for name, text in (("fixed", FIXED), ("varying", VARYING)):
        paths.append(folder / f"{name}.py")
        paths[-1].write_text(textwrap.dedent(text))
    return paths


def build_bundles(folder: Path) -> list[Path]:
    """Both models, built for the processor, by another process: this one is to be forked."""
    found = []
    for spec in write_specs(folder):
        found.append(spec.with_suffix(".aotc"))
        words = ["build", str(spec), "-o", str(found[-1]), "--cache-dir", str(folder / "cache")]
        command = [sys.executable, "-m", "aotc.aot.cli", *words, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=BUILD_S)
    return found


def bits_of(bundles: list[Path]) -> list[tuple[Path, str, int]]:
    """Bundle, file and bit, for every bit of their manifests, plans and lists of extras."""
    found = []
    for path in bundles:
        for name in (MANIFEST_NAME, _target(path).plan, EXTRAS_NAME):
            found += [(path, name, bit) for bit in range(8 * (path / name).stat().st_size)]
    return found


def flip_bits(bundles: list[Path], places: list[tuple[Path, str, int]], folder: Path) -> Work:
    """Flip one bit at each of the places."""

    def work(numbers: Iterator[int], found: Found) -> None:
        with _copies(bundles, folder) as copies:
            for number in numbers:
                path, name, bit = places[number]
                _flip(copies[path], name, bit, found)

    return work


def flip_payloads(bundles: list[Path], folder: Path) -> Work:
    """Flip one bit of code or weights, at random."""

    def work(numbers: Iterator[int], found: Found) -> None:
        with _copies(bundles, folder) as copies:
            for number in numbers:
                draw = random.Random(number)
                path = draw.choice(bundles)
                name = draw.choice((_target(path).library, "weights.safetensors"))
                bit = draw.randrange(8 * (path / name).stat().st_size)
                _flip(copies[path], name, bit, found)

    return work


def _target(path: Path):
    with Bundle(path) as opened:
        return opened.manifest.targets[0]


class _copies:
    """Writable copies of bundles, while nothing of them may reach a driver."""

    def __init__(self, bundles: list[Path], folder: Path) -> None:
        self._bundles, self._folder = bundles, tempfile.TemporaryDirectory(dir=folder)
        self._honest: dict[Any, Any] = {}  # driver → its class

    def __enter__(self) -> dict[Path, Path]:
        copies = {}
        for number, path in enumerate(self._bundles):
            copy = shutil.copytree(path, Path(self._folder.name) / str(number))
            for each in (copy, *copy.rglob("*")):
                each.chmod(0o755 if each.is_dir() else 0o644)
            copies[path] = copy
            driver = load_driver(_target(path).device)
            self._honest.setdefault(driver, driver.Executable)
            driver.Executable = _reached
            try:
                load(copy)
            except Reached:
                continue
            raise AssertionError("an untouched bundle does not reach its driver")
        return copies

    def __exit__(self, *_: object) -> None:
        for driver, executable in self._honest.items():
            driver.Executable = executable
        self._folder.cleanup()


def _reached(*_args: object, **_named: object) -> None:
    raise Reached


def _flip(bundle: Path, name: str, bit: int, found: Found) -> None:
    what = f"{bundle.name}/{name}, bit {bit}"
    descriptor = os.open(bundle / name, os.O_RDWR)
    byte = os.pread(descriptor, 1, bit // 8)
    try:
        os.pwrite(descriptor, bytes([byte[0] ^ 1 << bit % 8]), bit // 8)
        if name == EXTRAS_NAME:
            rows = verify(bundle, ("integrity",))
            is_found = any(row.status == "failed" for row in rows)
        else:
            try:
                load(bundle).close()
                is_found = False
            except (BundleError, IncompatibleError):
                is_found = True
        found.counts["refused" if is_found else "accepted"] += 1
        if not is_found:
            found.say(what)
    except BaseException as error:
        found.say(f"{what}: {type(error).__name__}: {error}"[:300])
    finally:
        os.pwrite(descriptor, byte, bit // 8)
        os.close(descriptor)


def run_lies(bundles: list[Path]) -> Work:
    """LIES false and consistent plans for each number, run by a process of their own."""

    def work(numbers: Iterator[int], found: Found) -> None:
        for number in numbers:
            path = bundles[number % len(bundles)]
            command = [sys.executable, HOSTILE / "lies.py", path, LIES, number]
            ran = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, check=False, timeout=LIES_S
            )
            lines = ran.stdout.splitlines()
            counts = dict(line.split(": ") for line in lines if ": " in line)
            found.counts.update({name: int(count) for name, count in counts.items()})
            if ran.returncode:
                last = next((line for line in reversed(lines) if line.startswith("ran ")), "")
                text = f"{path.name}, seed {number}: exit {ran.returncode} after {last!r}"
                found.say(text + ran.stderr[-1000:])

    return work


def small(folder: Path) -> Path:
    """The bundle of the null driver."""
    small_bundle.write(folder / "small.aotc")
    return folder / "small.aotc"

"""Commands in a process that may open few files, or write none, say so and end with 7."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "pack"))

import small_bundle

from aotc.aot.cli import program
from aotc.cache.checking import Finding
from aotc.runtime.drivers.cpu import driver
from aotc.runtime.errors import LimitReached

REPOSITORY = Path(__file__).parents[2]
FEWEST_FILES = 4  # the interpreter itself needs them


def limited(limit, value, folder, *words):
    """A command in a process with this limit."""
    code = (
        "import resource, sys\n"
        "from aotc.aot.cli import program, inspect, backends, printing\n"
        "import pydoc, shutil, traceback\n"
        f"resource.setrlimit({limit}, ({value}, {value}))\n"
        "sys.exit(program.run(sys.argv[1:]))\n"
    )
    paths = os.pathsep.join(
        (str(REPOSITORY / "scripts" / "alias"), os.environ.get("PYTHONPATH", ""))
    )
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_too_few_files_are_no_bug_of_the_command(tmp_path):
    small_bundle.write(tmp_path / "bundle")
    for files in range(FEWEST_FILES, 12):
        done = limited(resource.RLIMIT_NOFILE, files, tmp_path, "inspect", "bundle", "--json")
        assert done.returncode in (0, 7), (files, done.stderr)
        assert "Traceback" not in done.stderr
        said = json.loads(done.stdout)
        assert done.returncode == 0 or said["code"] == "limit-reached"
    assert done.returncode == 0


def test_a_skeleton_that_cannot_be_written_leaves_nothing(tmp_path):
    done = limited(resource.RLIMIT_FSIZE, 0, tmp_path, "backends", "new", "scale")
    assert done.returncode == 7
    assert "error: cannot go on in `this process`: file too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_memory_that_does_not_suffice_is_no_bug_of_the_command(capsys, monkeypatch):
    def fail(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(program.program, "main", fail)
    assert program.run(["inspect", "bundle"]) == 7
    assert "cannot go on in `this process`: cannot allocate memory" in capsys.readouterr().err


@pytest.mark.parametrize(("states", "code"), [
    (("sound",), 0),
    (("sound", "unreadable"), 7),
    (("unreadable", "damaged"), 6),
    (("unsafe", "unreadable"), 6),
])  # fmt: skip
def test_entries_that_cannot_be_read_are_not_said_to_be_damaged(
    states, code, monkeypatch, tmp_path, capsys
):
    row = type("Row", (), {"digest": "ab" * 32, "kind": "kernels"})()
    found = [Finding(row, state, "why") for state in states]
    monkeypatch.setattr("aotc.cache.checking.check", lambda store: found)
    assert program.run(["cache", "verify", "--cache-dir", str(tmp_path)]) == code


def test_a_processor_that_cannot_be_asked_is_not_said_to_lack_all(monkeypatch, tmp_path):
    def refuse(*arguments, **options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(driver, "open", refuse, raising=False)
    with pytest.raises(LimitReached, match="cannot read `/proc/cpuinfo`: too many open files"):
        driver.features()
    monkeypatch.setattr(driver, "open", open, raising=False)
    monkeypatch.setattr(driver, "PROCESSOR_FILE", str(tmp_path / "none"))
    assert driver.features() == frozenset()

"""`aotc tune BUNDLE`: a bundle holds enough, and the result is what a build would give."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

from aotc.aot.plan.arena import Lifetime
from aotc.aot.sources import read_sources
from aotc.runtime import load
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.drivers.cuda import driver as cuda

RECORD = "tiny.record"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("retune")


@pytest.fixture
def tune(aotc, bundle, folder):
    """`aotc tune`, with a cache in which no other file's test has measured a kernel."""

    def call(out, *options, source=bundle, cache_dir=folder / "cache"):
        words = ("tune", source, "-o", out, "--json", "--quiet", "--cache-dir", cache_dir)
        code, text, errors = aotc(*words, *options)
        return code, json.loads(text) if text else {}, errors

    return call


def digest(path):
    with load(path) as program:
        return program.digest


def test_measured_here_and_built_with_its_record_are_the_same_bundle(
    tune, build, folder, tmp_path, aotc
):
    record = folder / RECORD
    code, report, errors = tune(tmp_path / "tuned", "--record", record)
    assert code == 0, errors
    assert 0 < report["measured"] <= report["kernels"]
    assert record.read_text().count("\n") == 1 + report["measured"]
    built = build(tmp_path / "built", "--record", record, "--frozen")
    assert built["digest"] == report["digest"] == digest(tmp_path / "tuned")
    code, _, errors = aotc("verify", tmp_path / "tuned")
    assert code == 0, errors


def test_a_record_alone_suffices_and_compiles_nothing_twice(tune, folder, tmp_path):
    record = folder / RECORD
    _, first, _ = tune(tmp_path / "first", "--record", record)
    code, again, errors = tune(tmp_path / "again", "--record", record, "--frozen")
    assert code == 0, errors
    assert (again["measured"], again["compiled"]) == (0, 0)
    assert again["digest"] == first["digest"]


def test_what_the_cache_knows_reaches_a_new_record(tune, folder, tmp_path):
    """As after a tuning that was interrupted when all was measured and nothing written."""
    _, report, _ = tune(tmp_path / "first", "--record", folder / RECORD)
    record = tmp_path / "new.record"
    code, again, errors = tune(tmp_path / "again", "--record", record)
    assert code == 0, errors
    assert again["measured"] == 0
    assert record.read_text() == (folder / RECORD).read_text()
    assert again["digest"] == report["digest"]


@pytest.mark.skipif(bool(cuda.features()), reason="there is a device")
def test_without_a_device_it_says_how_many_kernels_it_leaves(build, tune, tmp_path):
    build(tmp_path / "cuda", "--target", "cuda:sm_90")
    code, _, errors = tune(tmp_path / "out", source=tmp_path / "cuda")
    assert code == 4
    found = re.search("`cuda-sm_90`: ([0-9]+) kernels cannot be measured", errors)
    assert found, errors
    assert int(found[1]) > 0


def test_frozen_takes_choices_from_the_cache_and_is_refused_without_any(tune, tmp_path):
    code, _, errors = tune(tmp_path / "out", "--frozen", cache_dir=tmp_path / "cache")
    assert code == 4
    assert "no line in the tuning record" in errors
    assert not (tmp_path / "out").exists()
    assert tune(tmp_path / "tuned")[0] == 0
    code, report, errors = tune(tmp_path / "out", "--frozen")
    assert code == 0, errors
    assert (report["measured"], report["compiled"]) == (0, 0)


def test_a_target_is_named_by_its_device_too(tune, tmp_path):
    code, report, errors = tune(tmp_path / "out", "--target", "cpu")
    assert code == 0, errors
    assert [name.partition("-")[0] for name in report["targets"]] == ["cpu"]
    code, _, errors = tune(tmp_path / "other", "--target", "cuda")
    assert code == 2
    assert "target `cuda` is not known, expected one of: cpu, cpu-" in errors


def test_the_tuned_bundle_can_be_tuned_again(tune, tmp_path):
    assert tune(tmp_path / "first")[0] == 0
    code, report, errors = tune(tmp_path / "second", source=tmp_path / "first")
    assert code == 0, errors
    assert report["measured"] == 0  # the cache has the lines


def test_without_sources_it_says_so(tune, bundle, tmp_path):
    copy = tmp_path / "bundle"
    shutil.copytree(bundle, copy)
    (copy / "extras.msgpack").chmod(0o644)
    (copy / "extras.msgpack").unlink()
    code, _, errors = tune(tmp_path / "out", source=copy)
    assert code == 4
    assert "has no sources" in errors


HOOKED = """
import os, sys
from pathlib import Path

sys.modules["torch"] = None
bundle, allowed, words = Path(sys.argv[1]), tuple(sys.argv[2].split(os.pathsep)), sys.argv[3:]
texts = [path.read_text() for path in bundle.glob("sources/*.py")]
assert texts
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.link",
           "os.symlink", "shutil.")
NEVER = ("socket.__new__", "socket.connect", "socket.getaddrinfo", "os.system", "os.exec",
         "os.fork", "os.posix_spawn", "pickle.", "urllib.")
seen, workers = [], 0

def is_outside(path):
    if isinstance(path, int):  # of a descriptor that was opened
        return False
    path = os.path.abspath(os.fsdecode(path))
    return not path.startswith((*allowed, "/dev/"))

def hook(event, args):
    global workers
    if event == "open":
        if args[2] & WRITES and is_outside(args[0]):
            seen.append((event, args[0]))
    elif event.startswith(CHANGES):
        paths = [each for each in args[:2] if isinstance(each, (str, bytes))]
        if any(os.path.isabs(os.fsdecode(path)) and is_outside(path) for path in paths):
            seen.append((event, paths))
    elif event == "subprocess.Popen":
        workers += "confined" in args[1]
        if args[0] != sys.executable or "confined" not in args[1]:
            seen.append((event, args[1]))
    elif event == "compile":
        text = args[0].decode(errors="replace") if isinstance(args[0], bytes) else str(args[0])
        if any(each in text or text in each for each in texts if len(text) > 200):
            seen.append((event, args[1]))
    elif event == "exec":
        if args[0].co_filename.startswith((str(bundle), *allowed)):
            seen.append((event, args[0].co_filename))
    elif event.startswith(NEVER):
        seen.append((event, args))

sys.addaudithook(hook)
from aotc.aot.cli.program import run

code = run(words)
print(code, seen, workers > 0)
"""


def test_the_process_of_tune_executes_nothing_of_the_bundle(bundle, tmp_path):
    """Nor imports torch, opens a connection, or writes elsewhere: confined workers run sources."""
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    words = ("tune", bundle, "-o", tmp_path / "out", "--cache-dir", cache, "--quiet")
    done = subprocess.run(
        [sys.executable, "-c", HOOKED, bundle, str(tmp_path), *words],
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 [] True", done.stderr


def test_sources_are_read_as_they_were_written(bundle):
    from aotc.aot.sources import print_sources

    with Bundle(bundle) as opened:
        (name,) = (path.stem for path in (bundle / "sources").glob("*.json"))
        sources = read_sources(opened, name)
    written = print_sources([sources])
    assert written == {
        f"sources/{path.name}": path.read_bytes() for path in (bundle / "sources").iterdir()
    }


def test_where_in_a_buffer_a_launch_reads_is_kept(bundle, monkeypatch):
    from aotc.aot.sources import print_sources

    with Bundle(bundle) as opened:
        (name,) = (path.stem for path in (bundle / "sources").glob("*.json"))
        sources = read_sources(opened, name)
    first = sources.variants[0].assignment.launches[0]
    moved = replace(first.operands[0], space="buffer", value=0, start_bytes=256)
    (variant,) = sources.variants
    launches = (
        replace(first, operands=(moved, *first.operands[1:])),
        *variant.assignment.launches[1:],
    )
    buffers = variant.assignment.buffers or (Lifetime("0.0", 512, 0, 1),)
    variant = replace(
        variant, assignment=replace(variant.assignment, launches=launches, buffers=buffers)
    )
    written = print_sources([replace(sources, variants=(variant,))])
    monkeypatch.setattr(Bundle, "read_extra", lambda _, name: written.get(name))
    with Bundle(bundle) as opened:
        assert read_sources(opened, name).variants == (variant,)


def test_kernels_with_other_numbers_are_never_written(tune, bundle, tmp_path, monkeypatch):
    from aotc.aot import validation

    monkeypatch.setattr(validation, "run", lambda *arguments: None)  # outputs stay zero
    code, _, errors = tune(tmp_path / "out")
    assert code == 1
    assert "differs from the exported model" in errors
    assert not (tmp_path / "out").exists()

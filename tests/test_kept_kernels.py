"""What was compiled once is answered, once for each key; what failed is asked again. The same of
what Triton's interpreter gave."""

from __future__ import annotations

import os

import kept_results
import numpy
import pytest
from kept_kernels import KERNEL, WARM_UP, folder_of_this_compiler, kept_kernels

from aotc.aot.errors import KernelFailed
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.tasks.task import Outcome, Request
from aotc.aot.tasks.workers import Workers, _Batch
from aotc.cache import Key, Store

pytestmark = pytest.mark.triton
CODE = {"facts.json": b"{}", "kernel.code": b"code", "kernel.texts": b""}
ROW = next(iter(ISAS))


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """The requests that a compiler process was asked for; those named `wrong` fail."""
    asked = []

    def results(batch):
        while batch.waiting:
            number, request = batch.waiting.popleft()
            asked.append(request.name)
            failed = KernelFailed(kernel=request.name, detail="", source="")
            is_wrong = request.name == "wrong"
            value = None if is_wrong else (CODE, True)
            yield number, Outcome(request, value, failed if is_wrong else None, 0.0)

    monkeypatch.setattr(_Batch, "results", results)
    with kept_kernels(tmp_path / "kept"):
        yield asked


def request(name, root):
    return Request(name, KERNEL, (str(root), Key.of("binaries", source=name).fields, "cpu", (ROW,)))


def test_another_cache_gets_what_was_compiled(compiled, tmp_path):
    with Workers(1) as workers:
        for folder in ("first", "second"):
            names = ("a", "b") if folder == "first" else ("b", "c", "a")
            found = workers.map([request(name, tmp_path / folder) for name in names])
            assert [each.unwrap() for each in found] == [(CODE, True)] * len(names)
            assert [each.request.name for each in found] == list(names)
    assert compiled == ["a", "b", "c"]
    entry = Store(tmp_path / "second").get(Key.of("binaries", source="a"))
    assert dict(entry.files) == CODE


def test_a_test_may_have_all_compiled(compiled, compiled_anew, tmp_path):
    with Workers(1) as workers:
        for folder in ("first", "second"):
            workers.map([request("a", tmp_path / folder)])
    assert compiled == ["a", "a"]


def test_what_fails_is_asked_again(compiled, tmp_path):
    with Workers(1) as workers:
        for _ in range(2):
            (found,) = workers.map([request("wrong", tmp_path / "cache")])
            assert found.error is not None
    assert compiled == ["wrong", "wrong"]


def test_no_process_is_started_for_a_warm_up(compiled):
    with Workers(1) as workers:
        workers.map([Request("warm-up", WARM_UP, ("cpu",))])
    assert compiled == []


def test_each_compiler_has_a_folder_and_the_last_ones_stay(tmp_path, monkeypatch):
    folders = []
    for digest in "abcde":
        monkeypatch.setattr("kept_kernels.sources_digest", lambda paths, digest=digest: digest)
        folders.append(folder_of_this_compiler(tmp_path))
    assert len(set(folders)) == 5
    assert folders[-1] in tmp_path.iterdir()
    assert len(list(tmp_path.iterdir())) == 3


def test_results_are_those_of_the_same_job_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_results, "FOLDER", tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    program, results = tmp_path / "program.py", tmp_path / "results"
    program.write_text("one")
    results.write_bytes(b"results")
    arrays = {"x": numpy.zeros(3, "float32"), "y": numpy.ones(2, "int64")}
    key = kept_results.key_of("job", arrays, [program])
    assert not kept_results.found(key, tmp_path / "again")
    kept_results.keep(key, results)
    assert kept_results.found(key, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == b"results"
    others = [
        kept_results.key_of("another job", arrays, [program]),
        kept_results.key_of("job", {**arrays, "x": numpy.zeros(3, "int32")}, [program]),
        kept_results.key_of("job", {**arrays, "x": numpy.float32([0, 0, 1])}, [program]),
        kept_results.key_of("job", {"x": arrays["x"]}, [program]),
    ]
    program.write_text("two")
    others.append(kept_results.key_of("job", arrays, [program]))
    assert len({key, *others}) == 6


def test_what_no_run_reads_is_deleted(tmp_path):
    for name, days in (("old", kept_results.UNUSED_DAYS + 1), ("young", 1)):
        (tmp_path / name).touch()
        moment = (tmp_path / name).stat().st_mtime - days * 86400
        os.utime(tmp_path / name, (moment, moment))
    kept_results.delete_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young"]

"""A writer that meets a full disk, an error at any system call, or a kill: old bundle or new one,
never a mixture, and nothing left behind."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import resource
import signal
import time
from dataclasses import replace

import pytest
import small_bundle

from aotc.aot.errors import OutputExists
from aotc.aot.pack import TensorData, staging
from aotc.aot.pack.tensors import golden_tensors, tensor_file
from aotc.runtime import load
from aotc.runtime.errors import DiskFull, EnvironmentFault
from aotc.runtime.verify import verify

INJECTED = ("open", "write", "fsync", "mkdir", "makedirs", "rename", "listdir", "fstat", "stat")


class FaultyOs:
    """The module `os`, whose call number `fail_at` of the INJECTED functions raises."""

    def __init__(self, code: int, fail_at: int | None) -> None:
        self._code = code
        self._fail_at = fail_at
        self.calls = 0

    def __getattr__(self, name: str):
        function = getattr(os, name)
        if name not in INJECTED:
            return function

        def counted(*args, **named):
            self.calls += 1
            if self.calls - 1 == self._fail_at:
                raise OSError(self._code, os.strerror(self._code))
            return function(*args, **named)

        return counted


def count_calls(bundle, monkeypatch) -> int:
    faulty = FaultyOs(0, None)
    monkeypatch.setattr(staging, "os", faulty)
    small_bundle.write(bundle, value=3.0, force=True)
    return faulty.calls


def fault_of(bundle) -> EnvironmentFault | None:
    """The fault of replacing the bundle; None where the failed call was no part of the promise."""
    try:
        small_bundle.write(bundle, value=2.0, force=True)
    except EnvironmentFault as error:
        return error
    return None


@pytest.mark.parametrize(
    ("code", "exchange"),
    [(errno.ENOSPC, True), (errno.ENOSPC, False), (errno.EIO, True), (errno.EMFILE, False)],
)
def test_every_call_fails_once(bundle, monkeypatch, code, exchange):
    if not exchange:
        monkeypatch.setattr(staging, "_rename", lambda *_: False)
    old = load(bundle).digest
    total = count_calls(bundle, monkeypatch)
    assert total > 30
    for index in range(total):
        monkeypatch.setattr(staging, "os", os)
        if load(bundle).digest != old:
            assert small_bundle.write(bundle, force=True) == old
        monkeypatch.setattr(staging, "os", FaultyOs(code, index))
        fault = fault_of(bundle)
        assert fault is None or (code == errno.ENOSPC) == isinstance(fault, DiskFull), index
        assert fault is None or str(bundle.parent) in fault.message
        assert all(finding.status == "ok" for finding in verify(bundle)), index
        assert small_bundle.names(bundle.parent) == ["bundle"], index


@pytest.mark.parametrize("limit_bytes", [0, 100, 400, 1200, 2000])
def test_full_disk(bundle, limit_bytes):
    before = small_bundle.snapshot(bundle)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        try:
            small_bundle.write(bundle, value=2.0, force=True)
        except DiskFull:
            os._exit(7)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if limit_bytes < 1024:
        assert code == 7
        assert small_bundle.snapshot(bundle) == before
    assert small_bundle.names(bundle.parent) == ["bundle"]


def test_killed_writers(bundle):
    """80 writers are killed at a random moment of replacing one bundle by another."""
    digests = {load(bundle).digest, small_bundle.write(bundle, value=2.0, force=True)}
    chance = random.Random(7)
    for _ in range(80):
        child = os.fork()
        if child == 0:
            try:
                for turn in range(1000):
                    small_bundle.write(bundle, value=1.0 + turn % 2, force=True)
            finally:
                os._exit(1)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert load(bundle).digest in digests
    small_bundle.write(bundle, force=True)
    assert small_bundle.names(bundle.parent) == ["bundle"]
    assert all(finding.status == "ok" for finding in verify(bundle))


def test_writers_at_once(bundle):
    """Four writers replace the same bundle; a reader always finds a whole one."""
    digests = {load(bundle).digest}
    digests |= {small_bundle.write(bundle, value=float(v), force=True) for v in range(4)}
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(10):
                    small_bundle.write(bundle, value=float(number), force=True)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * 4
    assert load(bundle).digest in digests
    assert small_bundle.names(bundle.parent) == ["bundle"]


def test_without_renameat2_a_new_bundle_is_renamed_and_an_old_one_stays(tmp_path, monkeypatch):
    """What a file system or a C library without it gives."""
    monkeypatch.setattr(staging.ctypes, "CDLL", lambda *_, **__: object())
    digest = small_bundle.write(tmp_path / "bundle")
    with staging.Staging(str(tmp_path / "bundle")) as late, pytest.raises(OutputExists):
        late.publish(force=False)
    assert load(tmp_path / "bundle").digest == digest
    assert small_bundle.write(tmp_path / "bundle", value=2.0, force=True) != digest
    assert small_bundle.names(tmp_path) == ["bundle"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EIO])
def test_a_rename_that_is_refused(tmp_path, monkeypatch, code):
    """EINVAL: the file system does not know the flags; other errors are the caller's."""

    class Library:
        def renameat2(self, *_):
            ctypes.set_errno(code)
            return -1

    monkeypatch.setattr(staging.ctypes, "CDLL", lambda *_, **__: Library())
    if code == errno.EINVAL:
        assert not staging._rename("a", "b", staging.RENAME_EXCHANGE)
    else:
        with pytest.raises(OSError, match="Input/output error"):
            staging._rename("a", "b", staging.RENAME_EXCHANGE)


def test_the_old_bundle_of_a_killed_fallback_goes_where_a_new_one_stands(bundle):
    previous = bundle.parent / ".bundle.previous-0011aabb"
    small_bundle.write(previous)
    small_bundle.write(bundle, value=2.0, force=True)
    assert small_bundle.names(bundle.parent) == ["bundle"]


def test_another_writer_takes_each_new_folder_for_abandoned(tmp_path, monkeypatch):
    def gone(path):
        os.rmdir(path)  # noqa: PTH106
        raise FileNotFoundError(errno.ENOENT, "replaced", path)

    monkeypatch.setattr(staging, "lock_folder", gone)
    with pytest.raises(EnvironmentFault, match="other writers remove"):
        small_bundle.write(tmp_path / "bundle")
    assert small_bundle.names(tmp_path) == []


def test_what_cannot_be_written_is_refused_before_it_is():
    with pytest.raises(ValueError, match="11 bytes for f32"):
        TensorData("f32", (3,), bytes(11))
    with pytest.raises(ValueError, match="cannot be written"):
        b"".join(tensor_file({'a"b': TensorData("u8", (1,), b"x")}))
    right = small_bundle.contents()
    wrong = TensorData("f32", (7,), bytes(28))
    (entry,) = right.entries
    golden = replace(right.golden[entry.name], inputs=(wrong,))
    with pytest.raises(ValueError, match="golden input `x`"):
        golden_tensors(golden, entry)

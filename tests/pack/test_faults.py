"""A writer that meets a full disk, an error at any system call, or a kill: old bundle or new one,
never a mixture, and nothing left behind."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import time

import pytest
import small_bundle

from aotc.aot.pack import staging
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

"""The worker pool under load: threads, forks, exits, and what a call may never do: hang."""

from __future__ import annotations

import array
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("triton")

from aotc.runtime.drivers.cpu import pool as pool_module
from aotc.runtime.drivers.cpu.driver import CpuSession

sys.path.insert(0, str(Path(__file__).parents[1] / "targets_cpu"))
import native

TIMEOUT_SECONDS = 120


def _call(session: CpuSession, start: int) -> None:
    """One checked call; the numbers differ from call to call."""
    given = array.array("q", range(start, start + native.PROGRAMS))
    result = array.array("q", bytes(8 * native.PROGRAMS))
    session.addresses[:] = [given.buffer_info()[0], result.buffer_info()[0]]
    session.run()
    assert result == array.array("q", [15 * value for value in given])


def _hammer(executable, calls: int, failures: list) -> None:
    try:
        session = executable.session()
        for call in range(calls):
            _call(session, call)
    except BaseException as error:
        failures.append(error)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_every_program_runs_once(threads: int) -> None:
    session = native.multiply_executable(threads).session()
    for start in range(300):
        _call(session, start)
    assert session.workers == threads - 1


def test_python_threads_at_once() -> None:
    executables, failures = [native.multiply_executable(threads) for threads in (2, 3, 4)], []
    callers = [
        threading.Thread(target=_hammer, args=(executables[index % 3], 1500, failures))
        for index in range(8)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(TIMEOUT_SECONDS)
        assert not caller.is_alive()
    assert not failures


def test_more_callers_than_slots() -> None:
    executable, failures = native.multiply_executable(2), []
    callers = [threading.Thread(target=_hammer, args=(executable, 50, failures)) for _ in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(TIMEOUT_SECONDS)
    assert not failures


def test_sleeping_workers_are_woken() -> None:
    import time

    session = native.multiply_executable(3).session()
    for start in range(20):
        _call(session, start)
        time.sleep(0.002)  # beyond the spin


def test_fork_between_calls() -> None:
    session = native.multiply_executable(3).session()
    _call(session, 1)
    workers = pool_module.process_pool().workers
    children = []
    for child in range(4):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                assert pool_module.process_pool().workers == 0
                for call in range(200):
                    _call(session, call * child)
                status = 0
            finally:
                os._exit(status)
        children.append(process)
    for call in range(200):
        _call(session, call)
    assert [os.waitpid(process, 0)[1] for process in children] == [0] * 4
    assert pool_module.process_pool().workers == workers


def test_fork_while_another_thread_calls() -> None:
    executable, failures = native.multiply_executable(3), []
    session = executable.session()
    caller = threading.Thread(target=_hammer, args=(executable, 2000, failures))
    caller.start()
    for _ in range(10):
        process = os.fork()
        if process == 0:
            status = 1
            try:
                for call in range(20):
                    _call(session, call)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(process, 0)[1] == 0
    caller.join(TIMEOUT_SECONDS)
    assert not failures


EXIT = """
import sys, threading
sys.path[:0] = {path!r}
import native
sys.path[:0] = [{runtime_tests!r}]
import test_pool
executable = native.multiply_executable(4)
session = executable.session()
test_pool._call(session, 1)
if {busy}:
    threading.Thread(
        target=test_pool._hammer, args=(executable, 10**9, []), daemon=True
    ).start()
    for call in range(50):
        test_pool._call(session, call)
print("done")
"""


@pytest.mark.parametrize("busy", [False, True])
def test_exit_with_live_workers(busy: bool) -> None:
    path = [str(Path(native.__file__).parent)]
    code = EXIT.format(path=path, runtime_tests=str(Path(__file__).parent), busy=busy)
    for _ in range(3):
        result = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        assert result.stdout == "done\n"


def test_refused_threads_are_done_without(monkeypatch) -> None:
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    session = native.multiply_executable(9).session()
    monkeypatch.setattr(pool_module._thread, "start_new_thread", refuse)
    _call(session, 7)


V2, V1 = "/sys/fs/cgroup", "/sys/fs/cgroup/cpu/cpu.cfs"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 12),
        ({"/proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "250000 100000\n"}, 2),
        ({"/proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "max 100000\n"}, 12),
        ({"/proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "50000 100000\n"}, 1),
        ({"/proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "nonsense\n"}, 12),
        ({"/proc/self/cgroup": "1:x:/\n0::/a/b\n", f"{V2}/a/cpu.max": "600000 100000"}, 6),
        ({f"{V1}_quota_us": "400000\n", f"{V1}_period_us": "100000\n"}, 4),
        ({f"{V1}_quota_us": "-1\n", f"{V1}_period_us": "100000\n"}, 12),
    ],
)
def test_threads_follow_affinity_and_quota(files: dict, expected: int, monkeypatch) -> None:
    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    monkeypatch.setattr(pool_module, "_read", read)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)))
    assert pool_module.default_threads() == expected

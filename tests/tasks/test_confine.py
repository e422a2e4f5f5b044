"""Workers that execute the sources of a bundle have no network and write into their folders."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import resource
import sys

import pytest

from aotc.aot.tasks.confine import REFUSED_CALLS
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers

HELD = Request("held", "aotc.aot.tasks.worker:held", ())
LANDLOCK_VERSION = (444, None, ctypes.c_size_t(0), 1)


@pytest.fixture
def outcomes(tmp_path_factory):
    """Runs requests in one confined worker: (values, reasons)."""
    texts = tmp_path_factory.mktemp("texts")  # of what fails
    with Workers(1, texts, is_confined=True) as pool:

        def run(*requests):
            found = pool.map([Request(f, f, arguments) for f, arguments in requests])
            return [(each.value, str(each.error or "")) for each in found]

        yield run


def test_there_is_no_network(outcomes):
    calls = [("socket:socket", (family,)) for family in (1, 2, 10, 16)]
    calls.append(("subprocess:check_call", (["python3", "-c", "import socket; socket.socket()"],)))
    for value, reason in outcomes(*calls):
        assert value is None
        assert "Permission denied" in reason or "non-zero exit status" in reason


def test_calls_that_reach_other_processes_are_refused(outcomes):
    script = "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
    script += "assert all(libc.syscall(n, 0, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 13"
    script += f" for n in {sorted(REFUSED_CALLS.values())})"
    ((code, reason),) = outcomes(("subprocess:call", (["python3", "-c", script],)))
    assert (code, reason) == (0, "")


def test_modes_owners_and_times_of_files_stay(outcomes, tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("x")
    kept.chmod(0o600)
    before = kept.stat()
    calls = [
        ("os:chmod", (str(kept), 0o666)),
        ("os:chown", (str(kept), -1, -1)),
        ("os:utime", (str(kept),)),
        ("os:setxattr", (str(kept), "user.a", b"b")),
    ]
    for value, reason in outcomes(*calls):
        assert value is None
        assert "Permission denied" in reason
    assert kept.stat() == before


def test_limits_of_other_processes_stay(outcomes):
    ((value, reason),) = outcomes(("resource:prlimit", (os.getpid(), resource.RLIMIT_NOFILE)))
    assert value is None
    assert "Permission denied" in reason
    ((value, reason),) = outcomes(("resource:getrlimit", (resource.RLIMIT_NOFILE,)))
    assert (value, reason) == (resource.getrlimit(resource.RLIMIT_NOFILE), "")


def test_nothing_is_typed_into_the_terminal():
    """In a process that has one: the worker has none, and may not type into one that it opens."""
    script = """
import os
from aotc.aot.tasks.task import Request
from aotc.aot.tasks.workers import Workers

calls = [
    ("os:open", ("/dev/tty", os.O_RDONLY)),
    ("os:open", (os.ttyname(0), os.O_RDONLY | os.O_NOCTTY)),
    ("fcntl:ioctl", (0, 0x5412, b"x")),
    ("fcntl:ioctl", (0, 0x541C, b"x")),
]
with Workers(1, is_confined=True) as pool:
    found = pool.map([Request(f, f, arguments) for f, arguments in calls])
for each in found:
    print(each.value, repr(str(each.error)))
"""
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", script])
    text = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while part := os.read(terminal, 4096):
            text += part
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0, text
    own, opened, typed, linux = text.decode().splitlines()[-4:]
    assert "No such device" in own
    assert opened.endswith("'None'")
    assert "Permission denied" in typed
    assert "Permission denied" in linux


def landlock_version():
    return ctypes.CDLL(None).syscall(*LANDLOCK_VERSION)


def test_files_are_written_in_its_own_folder_only(outcomes, tmp_path):
    if landlock_version() < 3:
        pytest.skip("a kernel without this part of Landlock")
    kept = tmp_path / "kept"
    kept.write_text("x")
    ((own, reason),) = outcomes(("tempfile:mkdtemp", ()))
    assert not reason
    refused = [
        ("os:mkdir", (str(tmp_path / "made"),)),
        ("os:unlink", (str(kept),)),
        ("os:truncate", (str(kept), 0)),
        ("os:rename", (str(kept), f"{own}/moved")),
        ("os:link", (str(kept), str(tmp_path / "linked"))),
    ]
    for value, reason in outcomes(*refused):
        assert value is None
        assert "Permission denied" in reason or "cross-device" in reason
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert kept.read_text() == "x"


def test_signals_do_not_leave_it(outcomes):
    if landlock_version() < 6:
        pytest.skip("a kernel without this part of Landlock")
    ((_, reason),) = outcomes(("os:kill", (os.getpid(), 0)))
    assert "not permitted" in reason


def test_it_does_not_write_into_the_cache_itself():
    with Workers(1) as pool:
        assert pool.shares_files
    with Workers(1, is_confined=True) as pool:
        assert not pool.shares_files  # then the parent puts what comes back


def test_what_was_given_up_is_known():
    with Workers(1, is_confined=True) as pool:
        (given_up,) = pool.map([HELD])
    assert "network" in given_up.value
    with Workers(1) as pool:
        assert pool.map([HELD])[0].value == ()

"""Calls that a signal's handler ends by raising: wherever it does, the next call works."""

from __future__ import annotations

import _ctypes
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from interrupting import LONGEST_S, in_another_thread, interrupt_everywhere

sys.path.insert(0, str(Path(__file__).parents[1] / "state"))

from aotc.runtime import load
from aotc.runtime.arrays import exchange
from aotc.runtime.bundle.directory import Directory
from aotc.runtime.drivers.cpu.library import Library
from aotc.runtime.programs.turns import holding

GOOD = bytes(24)


@pytest.fixture(params=["stateless", "with states", "on a device"])
def program(request, tmp_path):
    given = GOOD
    if request.param == "stateless":
        import small_bundle as made
    elif request.param == "with states":
        import small_state_bundle as made
    else:
        import device_bundle as made

        request.getfixturevalue("cuda")
        given = bytes(96)
    made.write(tmp_path / "bundle")
    with load(tmp_path / "bundle") as opened:
        yield opened, given


def test_a_program_serves_after_a_call_that_was_interrupted(program):
    opened, given = program

    def check():
        opened(given)
        in_another_thread(lambda: opened(given))

    assert interrupt_everywhere(lambda: opened(given), check) > 5


def test_a_session_serves_after_a_call_that_was_interrupted(program):
    opened, given = program
    session = opened.session()
    assert interrupt_everywhere(lambda: session(given), lambda: session(given)) > 5
    bound = opened.bind(given)
    assert interrupt_everywhere(bound, bound)


def test_sessions_whose_making_was_interrupted_leave_nothing(program):
    opened, given = program
    opened(given)

    def make():
        with opened.session() as session:
            session(given)

    assert interrupt_everywhere(make, lambda: opened(given)) > 10
    loaded = opened._loaded
    assert len([each for each in loaded.sessions() if each._loaded is not None]) == 1
    assert opened.drain(LONGEST_S)


def test_weights_that_change_leave_no_turn_taken():
    turns = [threading.Lock() for _ in range(20)]
    done = []

    def check():
        assert not any(turn.locked() for turn in turns)

    assert interrupt_everywhere(lambda: holding(turns, lambda: done.append(1)), check)
    check()
    assert done


def test_files_whose_opening_was_interrupted_are_closed_once(tmp_path, monkeypatch):
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    (folder / "file").write_bytes(b"")
    twice, close = [], os.close

    def closing(descriptor):
        try:
            close(descriptor)
        except OSError:  # closed before: another thread may have a file of that number by now
            twice.append(descriptor)

    monkeypatch.setattr(os, "close", closing)

    def read():
        with Directory(str(tmp_path)) as directory:
            os.close(directory.open("a/b/c/file")[0])

    assert interrupt_everywhere(read, lambda: None) > 10
    assert not twice


def test_a_library_whose_closing_was_interrupted_is_unloaded_once(monkeypatch):
    closed = []
    monkeypatch.setattr(_ctypes, "dlclose", lambda handle: abs(closed.append(handle) or 0))
    made = []

    def close():
        library = object.__new__(Library)
        library._kept, library._handle = False, SimpleNamespace(_handle=len(made))
        made.append(library)
        library.close()

    def check():
        for library in made[-1:]:
            library.close()  # as the finalizer does
        assert len(closed) == len(set(closed))

    assert interrupt_everywhere(close, check) > 2


def test_what_a_handler_raises_is_not_taken_for_the_argument_s_own_error(tmp_path, monkeypatch):
    import small_bundle

    class TooLong(Exception):
        """What a server's handler raises."""

    def interrupted(value):
        raise TooLong

    small_bundle.write(tmp_path / "bundle")
    with load(tmp_path / "bundle") as program:
        monkeypatch.setattr(exchange, "memoryview", interrupted, raising=False)
        with pytest.raises(TooLong):
            program(GOOD)

"""Calls that a signal's handler ends by raising: wherever it does, the next call works."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from interrupting import LONGEST_S, in_another_thread, interrupt_everywhere

sys.path.insert(0, str(Path(__file__).parents[1] / "state"))

from aotc.runtime import load
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

"""A session that two threads use at once says so, on every kind of program; programs serve all."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "state"))

from aotc.runtime import load
from aotc.runtime.errors import InputUnreadable, ProgramClosed, SessionBusy

GOOD = bytes(24)
SECONDS = 60


class Slow:
    """An input of a call that lasts until it is let go, and then fails."""

    shape, dtype = (2, 6), "float32"

    def __init__(self):
        self.entered, self.released = threading.Event(), threading.Event()

    def __dlpack_device__(self):
        self.entered.set()
        assert self.released.wait(SECONDS)
        raise RuntimeError("let go")

    def __dlpack__(self, **options):
        raise AssertionError


def null(tmp_path, request):
    import small_bundle

    small_bundle.write(tmp_path / "bundle")
    return GOOD


def with_state(tmp_path, request):
    import small_state_bundle

    small_state_bundle.write(tmp_path / "bundle")
    return GOOD


def on_device(tmp_path, request):
    import device_bundle

    request.getfixturevalue("cuda")
    device_bundle.write(tmp_path / "bundle")
    return bytes(96)


def dynamic_on_device(tmp_path, request):
    import numpy
    import test_dynamic_device

    request.getfixturevalue("cuda")
    test_dynamic_device.write(tmp_path / "bundle")
    return numpy.zeros((2, 6), "f4")


@pytest.fixture(
    params=[null, with_state, on_device, dynamic_on_device], ids=lambda made: made.__name__
)
def program(request, tmp_path):
    given = request.param(tmp_path, request)
    with load(tmp_path / "bundle") as opened:
        yield opened, given


@pytest.fixture
def in_a_call():
    """Starts a call of a session in another thread; it lasts until the test lets it go."""
    started = []

    def start(call):
        slow = Slow()

        def run():
            with pytest.raises(InputUnreadable):
                call(slow)

        thread = threading.Thread(target=run)
        thread.start()
        assert slow.entered.wait(SECONDS)
        started.append((slow, thread))

        def let_go():
            slow.released.set()
            thread.join(SECONDS)

        return let_go

    yield start
    for slow, thread in started:
        slow.released.set()
        thread.join(SECONDS)


def test_a_session_in_a_call_refuses_another(program, in_a_call):
    program, given = program
    with program.session() as session:
        session(given)
        let_go = in_a_call(session)
        for _ in range(2):
            with pytest.raises(SessionBusy, match="one thread at a time"):
                session(given)
        program(given)  # which lends a session that is free
        with program.session() as other:
            other(given)
        let_go()
        session(given)


def test_a_session_is_closed_once_its_call_has_ended(program, in_a_call):
    program, given = program
    session = program.session()
    let_go = in_a_call(session)
    closer = threading.Thread(target=session.close)
    closer.start()
    assert closer.is_alive()
    let_go()
    closer.join(SECONDS)
    with pytest.raises(ProgramClosed):
        session(given)


def test_a_state_is_read_between_calls(tmp_path, request, in_a_call):
    with_state(tmp_path, request)
    with load(tmp_path / "bundle") as program, program.session() as session:
        let_go = in_a_call(session)
        found = []
        reader = threading.Thread(target=lambda: found.append(bytes(session.state["last"])))
        reader.start()
        assert not found
        let_go()
        reader.join(SECONDS)
        assert len(found) == 1


def test_a_bound_call_and_its_session_take_turns(program, in_a_call):
    program, given = program
    session = program.session()
    bound = session.bind(given)
    let_go = in_a_call(session)
    ended = []
    caller = threading.Thread(target=lambda: ended.append(bound()))
    caller.start()
    assert not ended
    let_go()
    caller.join(SECONDS)
    assert len(ended) == 1
    bound.close()


def test_a_program_serves_threads_that_call_at_once(program):
    program, given = program
    ended = []

    def call():
        for _ in range(20):
            program(given)
        ended.append(True)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert ended == [True] * len(threads)

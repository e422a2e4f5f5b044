"""Checks of data on the fake device: asynchronous calls, raised at the next wait, run or close."""

import ctypes

import pytest
from fake_cubin import text_image
from fake_program import COUNT, Host

from aotc.runtime.bundle.plan import Check, Image, Kernel, Launch, LaunchPlan
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.errors import IndexOutOfRange

GOOD, BAD = bytes(range(4)) * 4, bytes([1, 2, 9, 0] * 4)
CHECKS = (
    Check("divisor", "remainder", "", 0, 0),
    Check("index", "gather", "m.py:7 in forward", 0, 3),
)


def checked_copy(memory, grid, values):
    """to = index; the word holds an element above 3, plus 1."""
    to, index = (memory(address, COUNT) for address in values[:2])
    to[:] = index
    wrong = [each for each in index if each > 3]
    if wrong:
        ctypes.c_int64.from_buffer(memory(values[2], 8)).value = wrong[-1] + 1


def checking_plan(count=1):
    image = text_image({"checked_copy": 5})
    row = Image(0, len(image), 128, 0, 0, False)
    arguments = ("output", 0), ("input", 0), ("check", 1)
    return image, LaunchPlan(
        arena_bytes=0,
        scratch_bytes=0,
        buffers=(),
        kernels=(Kernel("checked_copy", "checked_copy", row),),
        steps=(Launch(0, (1, 1, 1), arguments),) * count,
        checks=CHECKS,
    )


@pytest.fixture
def executable(fake_cuda):
    fake_cuda.kernels["checked_copy"] = checked_copy
    executable = Executable(*checking_plan(), {}, (COUNT,), (COUNT,), 0)
    yield executable
    executable.close()
    assert fake_cuda.live() == {}


def begin(session, data):
    """One asynchronous call on host memory."""
    given = Host(data)
    session.copy_in(0, given.address)
    session.stage(1)
    session.run(session.stream)


def test_a_run_is_asynchronous_and_the_next_wait_raises(executable, fake_cuda):
    session = executable.session()
    begin(session, GOOD)
    session.synchronize()
    fake_cuda.calls.clear()
    begin(session, BAD)
    assert "cuStreamSynchronize" not in fake_cuda.calls
    with pytest.raises(IndexOutOfRange, match=r"index 9 in `gather` at m.py:7 in forward, .* 0 to"):
        session.synchronize()
    begin(session, GOOD)
    session.synchronize()  # it is raised once
    session.close()


def test_the_next_run_raises_what_has_come_by_then(executable, fake_cuda):
    session = executable.session()
    begin(session, BAD)
    fake_cuda.settle()
    launched = len(fake_cuda.launches)
    with pytest.raises(IndexOutOfRange):
        session.run(session.stream)
    fake_cuda.settle()
    assert len(fake_cuda.launches) == launched  # that run did not begin
    session.run(session.stream)
    with pytest.raises(IndexOutOfRange):
        session.synchronize()
    session.close()


def test_closing_waits_and_raises_what_was_not_raised(executable, fake_cuda):
    session = executable.session()
    begin(session, BAD)
    with pytest.raises(IndexOutOfRange):
        session.close()
    session.close()


def test_a_check_adds_nothing_to_a_graph_and_replays(executable, fake_cuda):
    session = executable.session()
    begin(session, GOOD)
    session.synchronize()
    fake_cuda.calls.clear()
    for _ in range(3):
        session.run(session.stream)
    session.synchronize()
    assert fake_cuda.calls["cuGraphLaunch"] == 3
    assert not [name for name in fake_cuda.calls if "Memcpy" in name or "SetParams" in name]
    session.close()


def test_sessions_learn_of_their_own_calls_only(executable):
    first, second = executable.session(), executable.session()
    begin(first, BAD)
    begin(second, GOOD)
    second.synchronize()
    with pytest.raises(IndexOutOfRange):
        first.synchronize()
    first.close()
    second.close()


def test_shapes_of_one_caller_tell_each_other(executable):
    shared = executable.shared(is_growing=True)
    part = executable.at(executable.plan, (COUNT,), (COUNT,))
    first, second = part.session(shared), part.session(shared)
    begin(first, BAD)
    with pytest.raises(IndexOutOfRange):
        second.synchronize()
    first.close()
    second.close()
    shared.close()


def test_no_room_for_the_words_leaves_nothing_behind(executable, fake_cuda):
    before = fake_cuda.live()
    fake_cuda.fail("cuMemHostAlloc", 2)
    with pytest.raises(Exception, match="memory"):
        executable.session()
    assert fake_cuda.live() == before

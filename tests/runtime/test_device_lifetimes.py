"""How long arrays, sessions, programs and threads live on a device, over a fake CUDA driver."""

from __future__ import annotations

import gc
import struct
import sys
import threading

import device_bundle
import pytest
from device_bundle import NUMBERS, OTHERS, DeviceBlock, Interface, Lender, numbers

from aotc.runtime import load
from aotc.runtime.drivers.cuda.errors import CudaError
from aotc.runtime.errors import InputUnreadable, ProgramClosed
from aotc.runtime.programs import device
from aotc.runtime.verify import verify


def test_many_borrowed_arrays_are_released(program):
    given = [Lender(DeviceBlock(NUMBERS)) for _ in range(3)]
    for call in range(900):
        program(given[call % 3])
    assert sum(each.borrowed for each in given) < 300


def test_large_borrowed_arrays_are_released_without_waiting_for_the_last_call(
    program, cuda, monkeypatch
):
    """Only the calls of the older half are waited for; the newer ones may still run."""
    monkeypatch.setattr(device, "BORROWED_BYTES_LIMIT", 96)
    given = [Lender(DeviceBlock(NUMBERS)) for _ in range(12)]
    outs = [DeviceBlock(bytes(96)) for _ in given]
    weight = Interface(DeviceBlock(bytes(24)), shape=(6,))
    for lender, out in zip(given, outs, strict=True):
        program(lender, out=(Interface(out), weight))
    assert sum(each.borrowed for each in given) < 6
    assert [out.read() == NUMBERS for out in outs[:6]] == [True] * 6
    assert outs[-1].read() == bytes(96)
    assert cuda.calls["cuCtxSynchronize"] == 0


def test_outputs_outlive_their_program(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    y, w = program(Lender(DeviceBlock(NUMBERS)))
    program.close()
    del program
    gc.collect()
    assert numbers(y, cuda) == NUMBERS
    del y, w
    gc.collect()
    assert cuda.live() == {}


def test_closing(program):
    session, bound = program.session(), program.bind(NUMBERS)
    program.close()
    calls = [(program, [NUMBERS]), (session, [NUMBERS]), (bound, []), (program.session, [])]
    for call, arguments in calls:
        with pytest.raises(ProgramClosed):
            call(*arguments)
    session.close()
    session.close()


def test_close_frees_everything_though_errors_are_kept(tmp_path, cuda):
    """The tracebacks of caught errors hold the frames of the calls that raised them."""
    program, kept = load(device_bundle.write(tmp_path / "bundle")), []
    for given in (NUMBERS[:-1], [1.0]):
        with pytest.raises(InputUnreadable) as caught:
            program(given)
        kept.append(caught.value)
    cuda.fail("cuGraphLaunch", 1)
    with pytest.raises(CudaError) as caught:
        program(NUMBERS)
    kept.append(caught.value)
    assert bytes(program(NUMBERS)[0]) == NUMBERS
    on_device = program(Interface(DeviceBlock(NUMBERS)))
    gc.disable()
    try:
        program.close()
        del on_device
        assert cuda.live() == {}
    finally:
        gc.enable()
    assert len(kept) == 3


def test_close_frees_everything_though_frames_are_kept(tmp_path, cuda):
    """Memory checkers keep the Python frames of allocations, and with them all their variables."""
    path, frames = device_bundle.write(tmp_path / "bundle"), []
    sys.setprofile(lambda frame, event, argument: frames.append(frame))
    try:
        program = load(path)
        session, bound = program.session(), program.bind(NUMBERS)
        results = program(NUMBERS), session(NUMBERS), bound()
    finally:
        sys.setprofile(None)
    assert all(bytes(y) == NUMBERS for y, _ in results)
    for each in (session, bound, program):
        each.close()
    assert cuda.live() == {}
    assert frames


def test_sessions_and_bound_calls_keep_the_weights_until_they_are_closed(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    session, bound = program.session(), program.bind(NUMBERS)
    program.close()
    for owner, left in ((session, 1), (bound, 0)):
        assert cuda.live()["contexts"] == 1
        with owner:
            pass
        owner.close()
        assert cuda.live().get("contexts", 0) == left
    assert cuda.live() == {}
    with pytest.raises(ProgramClosed):
        bound()
    assert bytes(bound.outputs[0]) == bytes(96)


def test_verify_leaves_nothing_behind(tmp_path, cuda, monkeypatch):
    path = device_bundle.write(tmp_path / "bundle")
    gc.disable()
    try:
        for is_separate in ("0", "1"):
            monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", is_separate)
            assert all(each.status == "ok" for each in verify(path))
            assert cuda.live() == {}
    finally:
        gc.enable()


def test_close_while_work_is_pending(tmp_path, cuda):
    program = load(device_bundle.write(tmp_path / "bundle"))
    block, out = DeviceBlock(NUMBERS), DeviceBlock(bytes(96))
    program(Lender(block), out=(Lender(out), Lender(DeviceBlock(bytes(24)), shape=(6,))))
    assert out.read() == bytes(96)  # the fake puts work off
    program.close()
    del program
    gc.collect()
    assert out.read() == NUMBERS
    del block, out
    gc.collect()
    assert cuda.live() == {}


def test_close_while_others_call(tmp_path, cuda):
    path = device_bundle.write(tmp_path / "bundle")
    for _ in range(5):
        program = load(path)
        stopped: list[bool] = []

        def work(program=program, stopped=stopped) -> None:
            try:
                while bytes(program(NUMBERS)[0]) == NUMBERS:
                    pass
            except ProgramClosed:
                stopped.append(True)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        program.close()
        for thread in threads:
            thread.join()
        assert stopped == [True] * 3


def test_threads_share_a_program(program):
    wrong: list[int] = []

    def work(seed: int) -> None:
        caller = program.session() if seed % 2 else program
        for call in range(40):
            data = struct.pack("<24f", *range(seed * 100 + call, seed * 100 + call + 24))
            if bytes(caller(data)[0]) != data:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_program_has_one_session_for_all_threads(program, cuda):
    """Memory is taken at load: no call of a thread allocates an arena."""
    program(NUMBERS)
    before = cuda.live()["memory"]
    threads = [threading.Thread(target=lambda: program(NUMBERS)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cuda.live()["memory"] == before


def test_a_call_inside_a_call(program):
    """A producer that calls the program itself gets a session of its own, and no deadlock."""

    class Caller(Lender):
        def __dlpack__(self, **named):
            self.inner = bytes(program(OTHERS)[0])
            return super().__dlpack__(**named)

    given, out = Caller(DeviceBlock(NUMBERS)), bytearray(96)
    program(given, out=(out, bytearray(24)))
    assert (given.inner, bytes(out)) == (OTHERS, NUMBERS)

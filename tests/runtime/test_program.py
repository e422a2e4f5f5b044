"""Programs: how they are called, shared, bound, closed and forked."""

from __future__ import annotations

import array
import gc
import os
import threading
from pathlib import Path

import pytest

from aotc.runtime import load
from aotc.runtime.arrays.strided import merge_dims
from aotc.runtime.errors import (
    BundleIncompatible,
    DeviceUnknown,
    DigestMismatch,
    InputCount,
    InputMissing,
    InputNotContiguous,
    InputUnknown,
    ProgramClosed,
    SettingInvalid,
)

ONES = array.array("f", [1.0] * 6)


def test_signature(bundle):
    with load(bundle) as program:
        assert [(each.name, each.dtype, each.shape) for each in program.inputs] == [
            ("x", "f32", (2, 3))
        ]
        assert [each.name for each in program.outputs] == ["y", "w"]
        assert program.target == "null"
        assert len(program.digest) == 64
        assert repr(program) == "<aotc program (x: f32[2, 3]) -> (y: f32[2, 3], w: f32[6]) on null>"


def test_calls_by_position_and_by_name(bundle):
    with load(bundle) as program:
        assert program(ONES)[0].tolist() == program(x=ONES)[0].tolist() == [[1.0] * 3] * 2
        with pytest.raises(InputCount, match="2 inputs were given, expected 1: `x`"):
            program(ONES, ONES)
        with pytest.raises(InputMissing, match=r"input `x` is missing, expected f32\[2, 3\]"):
            program()
        with pytest.raises(InputUnknown, match="input `z` is not known"):
            program(ONES, z=ONES)
        with pytest.raises(InputUnknown, match="given by position too"):
            program(ONES, x=ONES)


def test_launches_reach_the_driver_in_order(bundle):
    with load(bundle) as program:
        session = program.session()
        session(ONES)
        log = session._on_driver.executable.log
        arena = session._on_driver.arena_address
        x, y, w = session._on_driver.addresses
        weights = session._on_driver.executable.weights
        assert [args for _, _, args in log] == [
            (arena, x, 24),
            (y, arena, 24),
            (w, weights["layer.weight"], 24),
        ]
        assert all(grid == (1, 1, 1) for _, grid, _ in log)
        assert all(address % 64 == 0 for address in (arena, *weights.values()))


def test_bound_calls_see_new_contents(bundle):
    given, first, second = array.array("f", [0.0] * 6), bytearray(24), bytearray(24)
    with load(bundle) as program:
        bound = program.bind(given, out=(first, second))
        for value in (1.0, 2.0):
            given[0] = value
            assert bound() is bound.outputs
            assert memoryview(first).cast("f")[0] == value
        fresh = program.bind(x=given)
        assert fresh()[0].tolist()[0][0] == 2.0


def test_bind_refuses_what_it_would_have_to_copy(bundle):
    numpy = pytest.importorskip("numpy")
    with load(bundle) as program, pytest.raises(InputNotContiguous):
        program.bind(numpy.zeros((3, 2), "f4").T)


def test_close(bundle):
    program = load(bundle)
    session, bound = program.session(), program.bind(ONES)
    executable = session._on_driver.executable
    program.close()
    program.close()
    assert program.closed
    for call, args in ((program, [ONES]), (session, [ONES]), (bound, []), (program.session, [])):
        with pytest.raises(ProgramClosed):
            call(*args)
    assert not executable.closed  # the open session keeps the code
    session.close()
    session.close()
    del session, bound, call
    gc.collect()
    assert executable.closed
    assert executable.sessions_open == 0


def test_a_dropped_program_frees_its_code(bundle):
    program = load(bundle)
    executable = program.session()._on_driver.executable
    program(ONES)
    del program
    gc.collect()
    assert executable.closed


def test_digest_pin(bundle):
    digest = load(bundle).digest
    load(bundle, digest=digest).close()
    load(bundle, digest="sha256:" + digest.upper()).close()
    with pytest.raises(DigestMismatch) as caught:
        load(bundle, digest="0" * 64)
    assert caught.value.exit_code == 6
    for wrong in ("", "sha256:12", digest[:-1], "md5:" + digest):
        with pytest.raises(SettingInvalid):
            load(bundle, digest=wrong)


def test_arguments_of_load(bundle, monkeypatch):
    assert load(bundle, threads=3).threads == 3
    monkeypatch.setenv("AOTC_THREADS", "2")
    assert load(bundle).threads == 2
    monkeypatch.setenv("AOTC_THREADS", "two")
    with pytest.raises(SettingInvalid, match="AOTC_THREADS"):
        load(bundle)
    with pytest.raises(SettingInvalid):
        load(bundle, threads=-1)
    with pytest.raises(SettingInvalid):
        load(bundle, threads=1, verify="some")
    with pytest.raises(DeviceUnknown, match="`gpu`"):
        load(bundle, threads=1, device="gpu")


def test_instruction_set_that_is_not_there(native, monkeypatch):
    from aotc.runtime import check
    from aotc.runtime.drivers.cpu import driver as cpu

    monkeypatch.setattr(cpu, "processor_features", lambda: frozenset(("fpu",)))
    rows = check(native)
    assert [(row.code, row.target) for row in rows] == [("instruction-set", "cpu-x86-64-v2")]
    assert rows[0].as_map()["found"] == "this CPU without `sse4_2`"
    with pytest.raises(BundleIncompatible, match="sse4_2") as caught:
        load(native)
    assert caught.value.exit_code == 5
    assert caught.value.mismatches == rows


@pytest.mark.parametrize(
    ("shape", "strides", "merged"),
    [
        ((2, 3, 4), (48, 16, 4), ((24,), (4,))),
        ((2, 3, 4), (96, 16, 4), ((2, 12), (96, 4))),
        ((3, 2), (4, 12), ((3, 2), (4, 12))),
        ((5, 1, 7), (28, 999, 4), ((35,), (4,))),
        ((1, 1), (0, 0), ((1,), (4,))),
        ((), (), ((1,), (4,))),
        ((4, 6), (0, 4), ((4, 6), (0, 4))),
        ((4,), (-4,), ((4,), (-4,))),
    ],
)
def test_merged_dims(shape, strides, merged):
    assert merge_dims(4, shape, strides) == merged


def run_native(program, start: int) -> bool:
    given = array.array("q", range(start, start + 192))
    return program(given).tolist() == [15 * number for number in given]


def test_threads_share_a_program(native):
    """Eight Python threads, 200 calls each, every result checked."""
    with load(native, threads=2) as program:
        wrong: list[int] = []

        def work(start: int) -> None:
            caller = program.session() if start % 2 else program
            wrong.extend(call for call in range(200) if not run_native(caller, start + call))

        threads = [threading.Thread(target=work, args=(1000 * i + i % 2,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_close_while_others_call(native):
    for _ in range(20):
        program = load(native, threads=2)
        stopped: list[bool] = []

        def work(program=program, stopped=stopped) -> None:
            try:
                while run_native(program, 5):
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


def test_fork_after_load_and_after_calls(native):
    """As gunicorn's preload does: the parent loads and calls, its children call at once."""
    program = load(native, threads=2)
    for _ in range(3):
        assert run_native(program, 1)
        children = []
        for number in range(3):
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if all(run_native(program, number + i) for i in range(50)) else 1)
                finally:
                    os._exit(2)
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0, 0, 0]
        assert run_native(program, 2)
    program.close()


def test_many_loads_leave_nothing_behind(native):
    def resident_bytes() -> int:
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    def cycle(count: int) -> None:
        for _ in range(count):
            with load(native, threads=1) as program:
                assert run_native(program, 3)
        gc.collect()

    cycle(20)
    files, before = open_files(), resident_bytes()
    cycle(200)
    assert open_files() == files
    assert resident_bytes() - before < 4 << 20

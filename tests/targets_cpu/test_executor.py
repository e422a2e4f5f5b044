"""The native executor through the driver: grids, arguments, strided copies, loading, refusals."""

from __future__ import annotations

import array
import ctypes
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

import numpy as np

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu import executor
from aotc.runtime.drivers.cpu import driver as cpu
from aotc.runtime.drivers.cpu import executor_abi, library
from aotc.runtime.errors import DriverFault

sys.path.insert(0, str(Path(__file__).parent))
import native


def _addresses(*arrays: array.array) -> list[int]:
    return [each.buffer_info()[0] for each in arrays]


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("grid", [(1, 1, 1), (192, 1, 1), (1, 192, 1), (1, 1, 192), (3, 8, 8)])
def test_programs_see_every_coordinate_once(grid: tuple[int, int, int], threads: int) -> None:
    arguments = [("input", 0), ("output", 0), ("int", -3)]
    plan = native.plan([("k_multiply", grid, arguments)], 0)
    session = cpu.Executable(native.library_bytes(), plan, {}, (8,), (8,), 0, threads).session()
    given, result = array.array("q", range(192)), array.array("q", bytes(8 * 192))
    session.addresses[:] = _addresses(given, result)
    session.run()
    programs = grid[0] * grid[1] * grid[2]
    expected = [-3 * value for value in range(programs)] + [0] * (192 - programs)
    assert result == array.array("q", expected)


@pytest.mark.parametrize("threads", [1, 2, 300])
@pytest.mark.parametrize("programs", [1, 2, 33, 4095, 4096, 12_292, (1 << 31) - 1])
def test_chunks_cover_all_programs(programs: int, threads: int) -> None:
    found, chunk, chunks = cpu.split_programs((programs, 1, 1), threads)
    assert found == programs
    assert chunks <= executor_abi.CHUNKS_LIMIT
    assert (chunks - 1) * chunk < programs <= chunks * chunk


def test_more_programs_than_chunks() -> None:
    count = 10_007
    arguments = [("input", 0), ("output", 0), ("int", 2)]
    plan = native.plan([("k_multiply", (count, 1, 1), arguments)], 0)
    session = cpu.Executable(native.library_bytes(), plan, {}, (8,), (8,), 0, 2).session()
    given, result = array.array("q", range(count)), array.array("q", bytes(8 * count))
    session.addresses[:] = _addresses(given, result)
    session.run()
    assert result == array.array("q", [2 * value for value in range(count)])


def test_sessions_have_memory_of_their_own() -> None:
    executable = native.multiply_executable(2)
    first, second = executable.session(), executable.session()
    assert first.arena_address != second.arena_address
    assert first.arena_address % 64 == 0
    first.close()
    first.close()
    given = array.array("q", range(native.PROGRAMS))
    result = array.array("q", bytes(8 * native.PROGRAMS))
    second.addresses[:] = _addresses(given, result)
    second.run()
    assert result == array.array("q", [15 * value for value in given])


def test_a_plan_without_launches_runs() -> None:
    session = cpu.Executable(native.library_bytes(), native.plan([], 0), {}, (), ()).session()
    session.run()


STRIDED = [
    ((5,), lambda x: x[::-1]),
    ((8, 9), lambda x: x.T),
    ((50, 37), lambda x: x.T),
    ((2, 33, 48), lambda x: x.transpose(0, 2, 1)),
    ((33, 48), lambda x: x[::-1, ::-1].T),
    ((70, 20), lambda x: x[1::2, 3:].T),
    ((40, 1), lambda x: np.broadcast_to(x, (40, 5)).T),
    ((4, 6, 5), lambda x: x[:, ::2, 1:4]),
    ((4, 6, 5), lambda x: x[1:, :, ::-1].transpose(2, 0, 1)),
    ((3, 1), lambda x: np.broadcast_to(x, (3, 7))),
    ((2,) * 8, lambda x: x.transpose(7, 0, 6, 1, 5, 2, 4, 3)),
    ((3, 4), lambda x: x[:, :0]),
    ((3, 4), lambda x: x[:0, :]),
    ((), lambda x: x),
]


@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "i8", "c16"])
def test_strided_copies(dtype: str) -> None:
    executable = native.multiply_executable()
    for shape, view in STRIDED:
        count = int(np.prod(shape, dtype=int))
        source = view(np.arange(count).astype(dtype).reshape(shape))
        target = np.full(source.shape, 7, dtype)
        executable.copy_strided(
            target.ctypes.data, source.ctypes.data, source.itemsize, source.shape, source.strides
        )
        np.testing.assert_array_equal(target, source)


def test_library_exports_nothing_else() -> None:
    compiled = toolchain.link({"executor": executor.executor_object().data})
    names = {export.name for export in executor.EXPORTS}
    assert toolchain.elf.exported_symbols(compiled) == names
    assert toolchain.elf.undefined_symbols(compiled) <= toolchain.ALLOWED_UNDEFINED


def _library_with_abi(abi: int) -> bytes:
    text = executor.executor_text().replace(f"ret i32 {executor_abi.ABI}\n", f"ret i32 {abi}\n", 1)
    compiled = toolchain.compile_module(text, executor.EXPORTS, executor.CPU)
    return toolchain.link({"executor": compiled.data})


def test_another_abi_is_refused() -> None:
    with pytest.raises(DriverFault, match="executor ABI 9, expected 1"):
        library.Library(_library_with_abi(9))


def test_a_missing_kernel_is_refused() -> None:
    plan = native.plan([("k_multiply", (1, 1, 1), [])], 0)
    only_executor = _library_with_abi(executor_abi.ABI)
    with pytest.raises(DriverFault, match="k_multiply"):
        cpu.Executable(only_executor, plan, {}, (), ())


@pytest.mark.parametrize("data", [b"", b"not a library", b"\x7fELF" + bytes(100)])
def test_bytes_that_do_not_load_are_refused(data: bytes) -> None:
    before = _open_files()
    with pytest.raises(DriverFault):
        library.Library(data)
    assert _open_files() == before


def test_closed_libraries_leave_no_descriptor() -> None:
    native.multiply_executable(2).session()  # the pool keeps the first library
    before = _open_files()
    for _ in range(5):
        executable = native.multiply_executable()
        executable.close()
        executable.close()
    assert _open_files() == before


def test_isa_rows_are_ordered_and_found() -> None:
    rows = list(cpu.ISA_FEATURES.items())
    for place, (name, needed) in enumerate(rows):
        assert cpu.best_isa(needed) == name
        assert not any(more <= needed for _, more in rows[place + 1 :])
    assert cpu.best_isa(frozenset()) is None
    assert cpu.best_isa(rows[-1][1] | {"sse"}) == rows[-1][0]
    assert "sse2" in cpu.features()


def test_session_of_no_memory_is_typed() -> None:
    plan = native.plan([], 1 << 60)
    with pytest.raises(DriverFault, match="no memory"):
        cpu.Executable(native.library_bytes(), plan, {}, (), ()).session()


def test_arena_starts_zeroed_and_large_ones_are_aligned() -> None:
    plan = native.plan([], 5 << 20)
    session = cpu.Executable(native.library_bytes(), plan, {}, (), ()).session()
    assert session.arena_address % (2 << 20) == 0
    assert ctypes.string_at(session.arena_address, 5 << 20) == bytes(5 << 20)

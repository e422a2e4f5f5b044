"""States whose sizes a session fixes, on a device: over a fake CUDA driver."""

from __future__ import annotations

import struct

import pytest
from device_bundle import PARAMETERS, DeviceBlock, Lender, numbers
from fake_cubin import text_image
from one_entry import one_entry
from plan_trees import with_uses

from aotc.aot.pack import Golden, TargetContents, TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.extent import Extent
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.bundle.signature import Dim, Guard, SessionDim
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.errors import SessionSizeDiffers, SessionSizeInvalid, SizeGuard

ROW_BYTES, MOST = 24, 1 << 20
FIRST = struct.pack("<f", 7.5)


def plan(image: bytes) -> Plan:
    """y = the first n rows of the state; then x is written there."""
    # Values: m, n, 24, bytes of x, bytes of the state.
    sizes = [["number", ROW_BYTES, 0], ["mul", 1, 2], ["mul", 0, 2]]
    rest = {"kind": "kernel", "kernel": 0, "maps": [], "grid": [1, 1, 1]}
    steps = [
        {**rest, "args": [["output", 0], ["state", 0], ["int", [3]]]},
        {**rest, "args": [["state", 0], ["input", 0], ["int", [3]]]},
    ]
    variant = {
        "arena_bytes": 0, "zeroed_bytes": 0, "ranges": [[1, MOST], [1, MOST]], "buffers": [],
        "steps": steps, "checks": [], "entry": 0,
    }  # fmt: skip
    row = {"offset": 0, "nbytes": len(image), "threads": 32, "shared_bytes": 0}
    row |= {"scratch_bytes": 0, "is_programmatic": 0}
    tree = {
        "abi": PLAN_ABI,
        "dims": 2,
        "features": ["dynamic-shapes", "state"],
        "states": [{"nbytes": [4], "initial": "state.kept", "initial_bytes": 4}],
        "sizes": sizes,
        "limits": [],
        "scratch_bytes": 0,
        "kernels": [{"symbol": "copy", "name": "copy", "image": row}],
        "variants": [variant],
    }
    return Plan.from_map(with_uses(tree))


@pytest.fixture
def program(tmp_path, cuda):
    image, rows = text_image({"copy": PARAMETERS}, 90), Extent(1, "n")
    golden = TensorData("f32", (2, 6), bytes(48))
    contents = one_entry(
        inputs=(TensorSpec("x", "f32", (rows, 6)),),
        outputs=(TensorSpec("y", "f32", (rows, 6)),),
        targets=(TargetContents("cuda-sm_90", "cuda", ("sm_90",), plan(image), image),),
        weights={"state.kept": TensorData("f32", (1,), FIRST)},
        golden=Golden((golden,), (golden,), (0.0,)),
        dims=(Dim("m", 1, MOST, None, 0), Dim("n", 1, MOST, 0, 0)),
        sizes=(("number", -1, 0), ("mul", 2, 1), ("add", 0, 3)),
        guards=(Guard(4, 0, MOST, "n <= m"),),
        states=(TensorSpec("kept", "f32", (Extent(0, "m"), 6)),),
        session_dims=(SessionDim("m", 1, MOST, 4),),
    )
    pack(contents, tmp_path / "b")
    opened = load(tmp_path / "b")
    yield opened
    opened.close()


def data(rows: int, start: int) -> bytes:
    return struct.pack(f"<{rows * 6}f", *range(start, start + rows * 6))


def given(rows: int, start: int) -> Lender:
    return Lender(DeviceBlock(data(rows, start)), shape=(rows, 6))


def called(session, cuda, rows: int, start: int) -> bytes:
    return numbers(session(given(rows, start)), cuda)


def test_sessions_have_the_sizes_that_they_ask_for(program, cuda):
    for size in (1, 4, 300):
        with program.session(m=size) as session:
            assert session.sizes == {"m": size}
            assert bytes(session.state["kept"]) == FIRST * 6 * size
            assert called(session, cuda, size, 5) == FIRST * 6 * size
            assert called(session, cuda, 1, 90) == data(1, 5)
            assert bytes(session.state["kept"]) == data(1, 90) + data(size, 5)[ROW_BYTES:]
            with pytest.raises(SizeGuard, match="n <= m"):
                session(given(size + 1, 0))
            session.reset()
            assert called(session, cuda, 1, 0) == FIRST * 6
    assert program.state["kept"].shape == (4, 6)
    with pytest.raises(SessionSizeInvalid, match="m` of a session is 0"):
        program.session(m=0)


def test_forks_are_copied_on_the_device(program, cuda):
    with program.session(m=3) as session:
        called(session, cuda, 3, 1)
        cuda.calls.clear()
        fork = session.fork()
        assert not {"cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"} & set(cuda.calls)
        assert called(session, cuda, 2, 50) == data(2, 1)
        assert called(fork, cuda, 3, 70) == data(3, 1)
        assert called(session, cuda, 1, 0) == data(1, 50)
        fork.close()


def test_a_view_lies_on_the_device(program, cuda):
    session = program.session(m=2)
    called(session, cuda, 2, 1)
    view = session.state.view("kept")
    assert view.__dlpack_device__() == (2, 0)
    assert bytes(cuda.memory(view.address, 2 * ROW_BYTES)) == data(2, 1)
    cuda.memory(view.address, ROW_BYTES)[:] = data(1, 80)
    assert called(session, cuda, 2, 3) == data(1, 80) + data(2, 1)[ROW_BYTES:]
    session.close()
    assert bytes(cuda.memory(view.address, 2 * ROW_BYTES)) == data(2, 3)


def test_more_sessions_than_there_is_room_for(program, cuda):
    """Each opens whole or not at all, and the error says what is needed and what is free."""
    nbytes = MOST * ROW_BYTES
    sessions = [program.session(m=MOST) for _ in range(cuda.total_bytes // nbytes)]
    with pytest.raises(DeviceMemoryFull, match="no device memory for a session's states") as caught:
        program.session(m=MOST)
    assert caught.value.fields["needed"] == nbytes
    assert f"{nbytes} bytes" in str(caught.value)
    assert called(sessions[0], cuda, 1, 9) == FIRST * 6
    sessions.pop().close()
    sessions.append(program.session(m=MOST))
    assert called(sessions[-1], cuda, 1, 9) == FIRST * 6
    for session in sessions:
        session.close()


def test_a_thousand_sessions(program, cuda):
    sessions = [program.session(m=1) for _ in range(1000)]
    for number in (0, 500, 999):
        called(sessions[number], cuda, 1, number)
    assert [bytes(sessions[number].state["kept"]) for number in (0, 1, 500, 999)] == [
        data(1, 0), FIRST * 6, data(1, 500), data(1, 999),
    ]  # fmt: skip
    for session in sessions:
        session.close()


def test_what_a_call_shows_must_be_the_sessions(program, cuda):
    """A size that an input shows too is held against the session's."""
    size = program.dims[0].replace(input=0)
    signature = program.signature.replace(dims=(size, program.dims[1]))
    with pytest.raises(SessionSizeDiffers, match=r"`m` is 3 \(input `x`, dim 0\), expected 2"):
        signature.bind(((3, 6),), {"m": 2})

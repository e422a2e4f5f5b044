"""Programs on a device whose shapes depend on the call, over a fake CUDA driver."""

from __future__ import annotations

import struct

import pytest
from device_bundle import PARAMETERS, WEIGHT, DeviceBlock, Interface, Lender, numbers
from fake_cubin import text_image
from one_entry import one_entry
from plan_trees import with_uses

from aotc.aot.pack import Golden, TargetContents, TensorData, pack
from aotc.runtime import load
from aotc.runtime.bundle.extent import Extent
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.bundle.signature import Size
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.errors import SizeInvalid, SizeOutOfRange
from aotc.runtime.programs.device import DeviceProgram
from aotc.runtime.programs.program import LEAST_SHAPES_KEPT

ROW_BYTES = 24
# Values: n, 24, bytes of x, 64, bytes of the buffer.
SIZES = [["number", ROW_BYTES, 0], ["mul", 0, 1], ["number", 64, 0], ["mul", 0, 3]]
LARGEST = 1 << 16  # rows


def plan(image: bytes, grid=(1, 1, 1), high: int = LARGEST) -> Plan:
    """x → arena → y, weight → w; the launches of x have a row count of bytes."""
    zeroed = 256
    rows, arena_bytes = [*SIZES, ["number", zeroed, 0], ["add", 4, 5]], [6]
    rest = {"kind": "kernel", "kernel": 0, "maps": []}
    launches = [
        {**rest, "grid": list(grid), "args": [["arena", zeroed], ["input", 0], ["int", [2]]]},
        {**rest, "grid": [1, 1, 1], "args": [["output", 0], ["arena", zeroed], ["int", [2]]]},
        {
            **rest,
            "grid": [1, 1, 1],
            "args": [["output", 1], ["weight", "layer.weight"], ["int", ROW_BYTES]],
        },
    ]
    buffers = [
        {"name": "copy of x", "offset": zeroed, "nbytes": [2]},
        {"name": "zeroed", "offset": 0, "nbytes": zeroed},
    ]
    ranges = [[[1, 4]], [[5, high]]]
    variants = [
        {
            "arena_bytes": arena_bytes,
            "zeroed_bytes": zeroed,
            "entry": 0,
            "ranges": row,
            "buffers": buffers,
            "steps": launches,
            "checks": [],
        }
        for row in ranges
    ]
    row = {"offset": 0, "nbytes": len(image), "threads": 32, "shared_bytes": 0}
    row |= {"scratch_bytes": 0, "is_programmatic": 0}
    return Plan.from_map(
        with_uses(
            {
                "abi": PLAN_ABI,
                "dims": 1,
                "features": ["dynamic-shapes"],
                "states": [],
                "sizes": rows,
                "limits": [],
                "scratch_bytes": 0,
                "kernels": [{"symbol": "copy", "name": "copy", "image": row}],
                "variants": variants,
            }
        )
    )


def write(path, **named):
    """A bundle for sm_90."""
    image = text_image({"copy": PARAMETERS}, 90)
    extent, high = Extent(0, "n"), named.get("high", LARGEST)
    zeros = TensorData("f32", (4, 6), bytes(96))
    target = TargetContents("cuda-sm_90", "cuda", ("sm_90",), plan(image, **named), image)
    contents = one_entry(
        inputs=(TensorSpec("x", "f32", (extent, 6)),),
        outputs=(TensorSpec("y", "f32", (extent, 6)), TensorSpec("w", "f32", (6,))),
        targets=(target,),
        weights={"layer.weight": TensorData("f32", (6,), WEIGHT)},
        golden=Golden((zeros,), (zeros, TensorData("f32", (6,), WEIGHT)), (0.0, 0.0)),
        dims=(Size("n", 1, high, 0, 0, 1, 0),),
    )
    pack(contents, path)
    return path


@pytest.fixture
def dynamic(tmp_path, cuda):
    opened = load(write(tmp_path / "bundle"))
    yield opened
    opened.close()


def data(rows: int, start: int = 0) -> bytes:
    """Distinct floats of so many rows."""
    return struct.pack(f"<{rows * 6}f", *range(start, start + rows * 6))


def lent(rows: int, start: int = 0) -> Lender:
    return Lender(DeviceBlock(data(rows, start)), shape=(rows, 6))


def test_each_shape_gives_its_numbers(dynamic, cuda):
    assert isinstance(dynamic, DeviceProgram)
    for rows in (1, 4, 5, 300, 4, 1):
        y, w = dynamic(lent(rows, rows))
        assert y.shape == (rows, 6)
        assert numbers(y, cuda) == data(rows, rows)
        assert numbers(w, cuda) == WEIGHT
        y, _ = dynamic(Interface(DeviceBlock(data(rows)), shape=(rows, 6)))
        assert numbers(y, cuda) == data(rows)


def test_host_arrays_of_growing_and_shrinking_shapes(dynamic):
    numpy = pytest.importorskip("numpy")
    for rows in (3, 1, 50, 2):
        given = numpy.frombuffer(data(rows, rows), "f4").reshape(rows, 6)
        y, w = dynamic(given)
        assert (y == given).all()
        assert bytes(w) == WEIGHT


def test_the_memory_of_the_largest_shape_is_taken_at_once(tmp_path, cuda):
    program = load(write(tmp_path / "bundle"))
    needed = 256 + 64 * LARGEST
    assert any(block.nbytes == needed for block in cuda.blocks.values())
    program(lent(5))
    before = cuda.calls["cuMemAlloc_v2"]
    arrays = [lent(rows) for rows in (7, LARGEST, 2)]
    for given in arrays:
        program(given, out=None)
    # Inputs and fresh outputs: no arena.
    assert cuda.calls["cuMemAlloc_v2"] - before == len(arrays) * 3
    program.close()


def test_what_has_no_room_is_refused_when_loaded(tmp_path, cuda):
    cuda.total_bytes = 1 << 20
    path = write(tmp_path / "bundle")
    with pytest.raises(DeviceMemoryFull, match="the largest in their ranges"):
        load(path)
    assert not cuda.blocks


def test_a_range_without_an_end_takes_what_each_shape_needs(tmp_path, cuda):
    cuda.total_bytes = 1 << 20
    with load(write(tmp_path / "bundle", high=2**31 - 1)) as program:
        for rows in (2, 40, 3):
            y, _ = program(lent(rows))
            assert numbers(y, cuda) == data(rows)


def test_growing_instead(tmp_path, cuda, monkeypatch):
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "grow")
    cuda.total_bytes = 1 << 20
    with load(write(tmp_path / "bundle")) as program:
        for rows in (2, 40, 3):
            y, _ = program(lent(rows))
            assert numbers(y, cuda) == data(rows)
        with pytest.raises(DeviceMemoryFull):
            program(lent(1 << 14))
        y, _ = program(lent(6))  # as if nothing had been
        assert numbers(y, cuda) == data(6)


def test_calls_of_other_shapes_and_streams_follow_each_other(dynamic, cuda):
    """Both use one arena: the second must not overwrite what the first still reads."""
    arrays = [lent(3, 10), lent(9, 50)]
    streams = [arrays[0].block.device.stream() for _ in range(2)]
    found = [
        dynamic(given, stream=stream.handle) for given, stream in zip(arrays, streams, strict=True)
    ]
    for stream in reversed(streams):
        stream.synchronize()
    assert [numbers(y, cuda) for y, _ in found] == [data(3, 10), data(9, 50)]


def test_shapes_in_turn_on_one_stream_cost_no_events(dynamic, cuda):
    """The stream orders them; an event at each call would cost as much as a small kernel."""
    blocks = [DeviceBlock(data(rows, rows)) for rows in (3, 9)]
    outputs = [[DeviceBlock(bytes(block.nbytes)), DeviceBlock(bytes(24))] for block in blocks]
    loading = cuda.calls["cuEventRecord"]
    for _ in range(3):
        for rows, block, own in zip((3, 9), blocks, outputs, strict=True):
            dynamic.run_at([block.address, *(each.address for each in own)], ((rows, 6),))
    assert cuda.calls["cuGraphLaunch"] == 6
    assert cuda.calls["cuEventRecord"] == loading
    assert not cuda.calls["cuStreamWaitEvent"]
    cuda.settle()
    for block, (own, _) in zip(blocks, outputs, strict=True):
        assert cuda.memory(own.address, block.nbytes) == cuda.memory(block.address, block.nbytes)


def test_a_stream_waits_for_another_shape_on_the_legacy_stream(dynamic, cuda):
    arrays = [lent(3, 10), lent(9, 50), lent(3, 70), lent(9, 90)]
    stream = arrays[0].block.device.stream()
    places = (0, stream.handle, stream.handle, 0)
    found = [dynamic(given, stream=each) for given, each in zip(arrays, places, strict=True)]
    stream.synchronize()
    expected = [data(3, 10), data(9, 50), data(3, 70), data(9, 90)]
    assert [numbers(y, cuda) for y, _ in found] == expected


def test_only_so_many_shapes_are_kept(dynamic, cuda, monkeypatch):
    monkeypatch.setattr(Executable, "steps_kept", 16)
    dynamic(lent(1))
    for rows in range(2, 3 * LEAST_SHAPES_KEPT):
        dynamic(lent(1))  # used again and again: it stays
        dynamic(lent(rows))
    assert len(cuda.executions) <= LEAST_SHAPES_KEPT
    made = cuda.calls["cuGraphInstantiateWithFlags"]
    dynamic(lent(1))
    assert cuda.calls["cuGraphInstantiateWithFlags"] == made


def test_a_thousand_shapes_in_turn_are_made_once(dynamic, cuda):
    for rows in range(1, 1001):
        dynamic(lent(rows))
    made = cuda.calls["cuGraphInstantiateWithFlags"]
    for rows in range(1, 1001):
        dynamic(lent(rows))
    assert cuda.calls["cuGraphInstantiateWithFlags"] == made >= 1000


def test_bound_calls_keep_their_shape(dynamic, cuda):
    block = DeviceBlock(data(7))
    bound = dynamic.bind(Lender(block, shape=(7, 6)))
    dynamic(lent(2))
    y, _ = bound()
    assert numbers(y, cuda) == data(7)
    bound.close()


def test_sizes_out_of_range(dynamic):
    with pytest.raises(SizeOutOfRange):
        dynamic(lent(LARGEST + 1))


def test_grids_that_no_device_starts(tmp_path, cuda):
    """Along the second axis a device starts 65535 programs."""
    with load(write(tmp_path / "bundle", grid=(1, [0], 1), high=1 << 17)) as program:
        with pytest.raises(SizeInvalid, match="along y"):
            program(lent(65536))
        y, _ = program(lent(65535))
        assert numbers(y, cuda) == data(65535)


def test_nothing_is_left_behind(tmp_path, cuda):
    program = load(write(tmp_path / "bundle"))
    for rows in (1, 20, 6):
        program(lent(rows))
    session = program.session()
    session(lent(4))
    session.close()
    program.close()
    assert cuda.live() == {} or set(cuda.live()) <= {"context"}

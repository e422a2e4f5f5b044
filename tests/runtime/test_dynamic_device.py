"""Programs on a device whose shapes depend on the call, over a fake CUDA driver."""

from __future__ import annotations

import itertools
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
from aotc.runtime.bundle.signature import Dim
from aotc.runtime.drivers.cuda import streams
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.errors import SizeInvalid, SizeOutOfRange
from aotc.runtime.programs.device import DeviceSession
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
        dims=(Dim("n", 1, high, 0, 0, 1, 0),),
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


def foreign(rows: int, start: int = 0) -> Lender:
    return Lender(DeviceBlock(data(rows, start)), shape=(rows, 6))


def test_each_shape_gives_its_numbers(dynamic, cuda):
    assert isinstance(dynamic.session(), DeviceSession)
    for rows in (1, 4, 5, 300, 4, 1):
        y, w = dynamic(foreign(rows, rows))
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
    program(foreign(5))
    before = cuda.calls["cuMemAlloc_v2"]
    arrays = [foreign(rows) for rows in (7, LARGEST, 2)]
    for given in arrays:
        program(given, out=None)
    # Inputs and fresh outputs: no arena.
    assert cuda.calls["cuMemAlloc_v2"] - before == len(arrays) * 3
    program.close()


def test_what_has_no_room_is_refused_when_loaded(tmp_path, cuda, monkeypatch):
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "maximum")
    cuda.total_bytes = 1 << 20
    path = write(tmp_path / "bundle")
    with pytest.raises(DeviceMemoryFull, match="the largest in their ranges"):
        load(path)
    assert not cuda.blocks


NEEDED = 256 + 64 * LARGEST  # bytes of the largest shape


@pytest.mark.parametrize(("free_bytes", "is_taken"), [(3 * NEEDED, True), (NEEDED, False)])
def test_the_largest_shape_is_taken_where_it_leaves_room(tmp_path, cuda, free_bytes, is_taken):
    cuda.total_bytes = free_bytes
    with load(write(tmp_path / "bundle")) as program:
        assert is_taken == any(block.nbytes == NEEDED for block in cuda.blocks.values())
        for rows in (2, 40, 3):
            y, _ = program(foreign(rows))
            assert numbers(y, cuda) == data(rows)


def test_an_end_that_no_device_holds(tmp_path, cuda):
    """Ranges whose ends are torch's own: the largest shape needs 2^37 bytes."""
    cuda.total_bytes = 1 << 20
    with load(write(tmp_path / "bundle", high=(1 << 31) - 2)) as program:
        with program.session() as session:
            for call in (program, session):
                for rows in (2, 40, 3, 41):
                    y, _ = call(foreign(rows, rows))
                    assert numbers(y, cuda) == data(rows, rows)
            with program.bind(foreign(9, 5)) as bound, session.fork() as fork:
                program(foreign(400))  # the arena that grows is another
                assert numbers(bound()[0], cuda) == data(9, 5)
                assert numbers(fork(foreign(500))[0], cuda) == data(500)
                assert numbers(bound()[0], cuda) == data(9, 5)
        with pytest.raises(DeviceMemoryFull, match=r"those of this call.* needs .*free"):
            program(foreign(1 << 14))
        y, _ = program(foreign(6))
        assert numbers(y, cuda) == data(6)


def test_growing_in_small_steps_makes_few_arenas(tmp_path, cuda, monkeypatch):
    """Each growth makes the graphs of all shapes anew."""
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "grow")
    with load(write(tmp_path / "bundle")) as program:
        shapes = 200
        for rows in range(1, shapes + 1):
            y, _ = program(foreign(rows))
            assert numbers(y, cuda) == data(rows)
        arenas = cuda.calls["cuMemAlloc_v2"] - 3 * shapes  # one input and two outputs a call
        assert arenas < 20


def test_growing_waits_for_calls_that_run(tmp_path, cuda, monkeypatch):
    """Calls on other streams still read the old arena when it has to go."""
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "grow")
    with load(write(tmp_path / "bundle")) as program:
        arrays = [foreign(3, 10), foreign(900, 50), foreign(3, 70)]
        streams = [arrays[0].block.device.stream() for _ in arrays]
        found = [
            program(given, stream=stream.handle)
            for given, stream in zip(arrays, streams, strict=True)
        ]
        for stream in reversed(streams):
            stream.synchronize()
        assert [numbers(y, cuda) for y, _ in found] == [data(3, 10), data(900, 50), data(3, 70)]


def test_a_range_without_an_end_takes_what_each_shape_needs(tmp_path, cuda):
    cuda.total_bytes = 1 << 20
    with load(write(tmp_path / "bundle", high=2**31 - 1)) as program:
        for rows in (2, 40, 3):
            y, _ = program(foreign(rows))
            assert numbers(y, cuda) == data(rows)


def test_growing_instead(tmp_path, cuda, monkeypatch):
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "grow")
    cuda.total_bytes = 1 << 20
    with load(write(tmp_path / "bundle")) as program:
        for rows in (2, 40, 3):
            y, _ = program(foreign(rows))
            assert numbers(y, cuda) == data(rows)
        with pytest.raises(DeviceMemoryFull):
            program(foreign(1 << 14))
        y, _ = program(foreign(6))  # as if nothing had been
        assert numbers(y, cuda) == data(6)


def test_calls_of_other_shapes_and_streams_follow_each_other(dynamic, cuda):
    """Both use one arena: the second must not overwrite what the first still reads."""
    arrays = [foreign(3, 10), foreign(9, 50)]
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
    assert cuda.calls["cuGraphLaunch"] == 4  # and a list of launches at the first call of each
    assert cuda.calls["cuEventRecord"] == loading
    assert not cuda.calls["cuStreamWaitEvent"]
    cuda.settle()
    for block, (own, _) in zip(blocks, outputs, strict=True):
        assert cuda.memory(own.address, block.nbytes) == cuda.memory(block.address, block.nbytes)


def test_a_call_at_addresses_runs_on_the_current_stream_of_torch(dynamic, cuda, monkeypatch):
    """Shapes on two streams share one arena: the second waits for the first."""
    given = [foreign(3, 10), foreign(9, 50)]
    outputs = [[DeviceBlock(bytes(24 * rows)), DeviceBlock(bytes(24))] for rows in (3, 9)]
    made = [given[0].block.device.stream() for _ in range(2)]
    now = []
    monkeypatch.setattr(streams, "_torch_current", [lambda ordinal: now[-1]])
    for stream, value, own in zip(made, given, outputs, strict=True):
        now.append(stream.handle)
        rows = own[0].nbytes // 24
        addresses = [value.block.address, *(each.address for each in own)]
        dynamic.run_at(addresses, ((rows, 6),))
    assert cuda.calls["cuStreamWaitEvent"] == 1
    for stream in reversed(made):
        stream.synchronize()
    for value, (own, _) in zip(given, outputs, strict=True):
        assert cuda.memory(own.address, own.nbytes) == cuda.memory(value.block.address, own.nbytes)


def test_a_stream_waits_for_another_shape_on_the_legacy_stream(dynamic, cuda):
    arrays = [foreign(3, 10), foreign(9, 50), foreign(3, 70), foreign(9, 90)]
    stream = arrays[0].block.device.stream()
    places = (0, stream.handle, stream.handle, 0)
    found = [dynamic(given, stream=each) for given, each in zip(arrays, places, strict=True)]
    stream.synchronize()
    expected = [data(3, 10), data(9, 50), data(3, 70), data(9, 90)]
    assert [numbers(y, cuda) for y, _ in found] == expected


def test_only_so_many_shapes_are_kept(dynamic, cuda, monkeypatch):
    monkeypatch.setattr(Executable, "steps_kept", 16)
    dynamic(foreign(1))
    for rows in range(2, 3 * LEAST_SHAPES_KEPT):
        dynamic(foreign(1))  # used again and again: it stays
        dynamic(foreign(rows))
    assert len(cuda.executions) <= LEAST_SHAPES_KEPT
    made = cuda.calls["cuGraphInstantiateWithFlags"]
    dynamic(foreign(1))
    assert cuda.calls["cuGraphInstantiateWithFlags"] == made


def test_a_thousand_shapes_in_turn_are_made_once(dynamic, cuda):
    """A graph of each shape that comes again."""
    made = [cuda.calls["cuGraphInstantiateWithFlags"]]
    for _ in range(3):
        for rows in range(1, 1001):
            dynamic(foreign(rows))
        made.append(cuda.calls["cuGraphInstantiateWithFlags"])
    assert [later - before for before, later in itertools.pairwise(made)] == [0, 1000, 0]


def test_bound_calls_keep_their_shape(dynamic, cuda):
    block = DeviceBlock(data(7))
    bound = dynamic.bind(Lender(block, shape=(7, 6)))
    dynamic(foreign(2))
    y, _ = bound()
    assert numbers(y, cuda) == data(7)
    bound.close()


def test_bound_calls_of_a_session_take_up_their_memory(dynamic, cuda):
    """On the device and on the host, after calls of the same shape, and of more than are kept."""
    block, given = DeviceBlock(data(7)), bytearray(data(3))
    with dynamic.session() as session:
        on_device = session.bind(Lender(block, shape=(7, 6)))
        on_host = session.bind(memoryview(given).cast("f", [3, 6]))
        for rows in (7, 3, *range(1, 1100)):
            session(foreign(rows))
            if rows in (3, 7, 500, 1099):
                y, _ = on_device()
                assert numbers(y, cuda) == data(7)
                y, _ = on_host()
                assert bytes(y) == data(3)


def test_sizes_out_of_range(dynamic):
    with pytest.raises(SizeOutOfRange):
        dynamic(foreign(LARGEST + 1))


def test_grids_that_no_device_starts(tmp_path, cuda):
    """Along the second axis a device starts 65535 programs."""
    with load(write(tmp_path / "bundle", grid=(1, [0], 1), high=1 << 17)) as program:
        with pytest.raises(SizeInvalid, match="along y"):
            program(foreign(65536))
        y, _ = program(foreign(65535))
        assert numbers(y, cuda) == data(65535)


def test_nothing_is_left_behind(tmp_path, cuda):
    program = load(write(tmp_path / "bundle"))
    for rows in (1, 20, 6):
        program(foreign(rows))
    session = program.session()
    session(foreign(4))
    session.close()
    program.close()
    assert cuda.live() == {} or set(cuda.live()) <= {"context"}

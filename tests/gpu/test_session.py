"""Sessions on a real device: pointers, streams, threads, torch beside us, memory over time."""

import threading

import numpy
import pytest
from programs import COUNT, NBYTES, capability, fetched, filled, sum_program

from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull


@pytest.fixture
def arch(device):
    return capability(device)


@pytest.fixture
def program(arch):
    made = []

    def make(**options):
        made.append(sum_program(arch, **options))
        return made[-1]

    yield make
    for executable, _ in made:
        executable.close()


def data(seed):
    return numpy.random.default_rng(seed).standard_normal(COUNT, dtype=numpy.float32)


def test_calls_with_changing_pointers(program):
    executable, w = program()
    device, session = executable.gpu, executable.session()
    inputs = [data(seed) for seed in range(3)]
    places, to = [filled(device, x) for x in inputs], [device.allocate(NBYTES) for _ in range(2)]
    for at in range(12):
        session.addresses[:] = [places[at % 3], to[at % 2]]
        session.run()
        session.synchronize()
        found = fetched(device, to[at % 2], w)
        numpy.testing.assert_array_equal(found, (inputs[at % 3] + w) + w)


def test_a_pointer_that_changes_while_a_call_is_in_flight(program):
    executable, w = program(additions=40)
    device, session = executable.gpu, executable.session()
    inputs = [data(seed) for seed in range(8)]
    places = [filled(device, x) for x in inputs]
    to = [device.allocate(NBYTES) for _ in inputs]
    stream = device.stream()
    for pair in zip(places, to, strict=True):
        session.addresses[:] = pair
        session.run(stream.handle)
    stream.synchronize()
    for x, address in zip(inputs, to, strict=True):
        expected = x.copy()
        for _ in range(41):
            expected += w
        numpy.testing.assert_array_equal(fetched(device, address, w), expected)


def test_one_session_on_many_streams(program):
    executable, w = program(additions=30)
    device, session = executable.gpu, executable.session()
    streams = [device.stream() for _ in range(4)]
    inputs = [data(seed) for seed in range(16)]
    places = [filled(device, x) for x in inputs]
    to = [device.allocate(NBYTES) for _ in inputs]
    for at, pair in enumerate(zip(places, to, strict=True)):
        session.addresses[:] = pair
        session.run(streams[at % 4].handle)
    device.synchronize()
    for x, address in zip(inputs, to, strict=True):
        expected = x.copy()
        for _ in range(31):
            expected += w
        numpy.testing.assert_array_equal(fetched(device, address, w), expected)


def test_threads_with_sessions_and_streams_of_their_own(program):
    executable, w = program(additions=5)
    device, wrong = executable.gpu, []

    def work(seed):
        try:
            session, stream, x = executable.session(), device.stream(), data(seed)
            source, to = filled(device, x), device.allocate(NBYTES)
            session.addresses[:] = [source, to]
            expected = x.copy()
            for _ in range(6):
                expected += w
            for _ in range(50):
                session.run(stream.handle)
                stream.synchronize()
                if not (fetched(device, to, w) == expected).all():
                    wrong.append(seed)
            session.close()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_host_buffers(program):
    executable, w = program()
    session = executable.session()
    for seed in range(4):
        x, y = data(seed), numpy.zeros(COUNT, numpy.float32)
        session.copy_in(0, x.ctypes.data)
        x_before, x[:] = x.copy(), 0
        session.stage(1)
        session.run(session.stream if seed % 2 else 0)
        session.copy_out(1, y.ctypes.data)
        session.synchronize()
        numpy.testing.assert_array_equal(y, (x_before + w) + w)


def test_torch_in_the_same_process(program):
    torch = pytest.importorskip("torch")
    executable, w = program(additions=20)
    session = executable.session()
    weight = torch.from_numpy(w).cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for seed in range(5):
            x = torch.randn(COUNT, device="cuda", generator=torch.Generator("cuda"))
            y = torch.empty_like(x)
            session.addresses[:] = [x.data_ptr(), y.data_ptr()]
            session.run(torch.cuda.current_stream().cuda_stream)
            expected = x.clone()
            for _ in range(21):
                expected += weight
            assert torch.equal(y, expected), seed
    x, y = torch.ones(COUNT, device="cuda"), torch.empty(COUNT, device="cuda")
    session.addresses[:] = [x.data_ptr(), y.data_ptr()]
    session.run(torch.cuda.current_stream().cuda_stream)
    expected = x.clone()
    for _ in range(21):
        expected += weight
    assert torch.equal(y, expected)
    executable.close()
    assert torch.ones(3, device="cuda").sum().item() == 3


def test_a_thousand_calls_need_no_more_memory(program):
    executable, _ = program(additions=4)
    device, session = executable.gpu, executable.session()
    places = [device.allocate(NBYTES) for _ in range(6)]
    session.addresses[:] = places[:2]
    session.run()
    session.synchronize()
    before = device.memory()[0]
    for at in range(1000):
        session.addresses[:] = [places[at % 3], places[3 + at % 2]]
        session.run()
    session.synchronize()
    assert device.memory()[0] == before


def test_unload_leaves_nothing_behind(arch):
    watch = Device()

    def load_and_unload():
        executable, _ = sum_program(arch, additions=8)
        sessions = [executable.session() for _ in range(4)]
        for session in sessions:
            session.addresses[:] = [executable.gpu.allocate(NBYTES) for _ in range(2)]
            session.run()
        sessions[0].close()
        executable.close()
        assert executable.gpu.owned == []

    load_and_unload()  # what the driver itself keeps, it keeps from the first time on
    before = watch.memory()[0]
    for _ in range(4):
        load_and_unload()
    assert watch.memory()[0] == before
    watch.close()


def test_no_room_for_a_session(program):
    executable, _ = program()
    device = executable.gpu
    ballast = device.allocate(device.memory()[0] - (64 << 20))
    kept = []
    try:
        with pytest.raises(DeviceMemoryFull) as caught:
            kept.extend(executable.session() for _ in range(2000))
        assert caught.value.free < 64 << 20
        assert "needs" in str(caught.value)
    finally:
        for session in kept:
            session.close()
        device.free(ballast)
    session = executable.session()
    session.addresses[:] = [device.allocate(NBYTES) for _ in range(2)]
    session.run()
    session.synchronize()


def test_separate_buffers(program, monkeypatch):
    monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", "1")
    executable, w = program(additions=3)
    device, session, x = executable.gpu, executable.session(), data(1)
    to = device.allocate(NBYTES)
    session.addresses[:] = [filled(device, x), to]
    session.run()
    session.synchronize()
    numpy.testing.assert_array_equal(fetched(device, to, w), (((x + w) + w) + w) + w)


def test_weights_of_several_chunks(arch):
    """More than the ring holds, so that every half of it is used again."""
    from aotc.runtime.drivers.cuda.upload import CHUNK_BYTES, Upload

    device = Device()
    tensors = [numpy.arange(n, dtype=numpy.uint32) for n in (20_000_003, 77, 9_000_001)]
    table = {str(at): (each.ctypes.data, each.nbytes) for at, each in enumerate(tensors)}
    upload = Upload(device, table)
    upload.finish()
    assert sum(each.nbytes for each in tensors) > 8 * CHUNK_BYTES
    for at, each in enumerate(tensors):
        numpy.testing.assert_array_equal(fetched(device, upload.addresses[str(at)], each), each)
    assert set(device.owned) == {"cuMemFree_v2", "cuMemFreeHost"}  # the pool keeps the ring
    device.close()

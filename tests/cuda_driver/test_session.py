"""Sessions: what runs, with which pointers, in which order, and what is patched."""

import os
import threading

import pytest
from fake_cuda import FakeCuda, install
from fake_program import COUNT, Host, small_plan

from aotc.runtime.drivers.cuda import call_graphs, streams
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import (
    AddressMissing,
    DeviceClosed,
    DeviceForked,
    DeviceMemoryFull,
    StreamForeign,
)

PATCH = "cuGraphExecKernelNodeSetParams_v2"
INSTANTIATE = "cuGraphInstantiateWithFlags"


def place(executable, data):
    """Device memory that holds these bytes."""
    host = Host(data)
    address = executable.gpu.allocate(len(data))
    executable.gpu.copy_to_device(address, host.address, host.nbytes)
    return address


def fetch(executable, address, nbytes=COUNT):
    host = Host(bytes(nbytes))
    executable.gpu.synchronize()
    executable.gpu.copy_to_host(host.address, address, nbytes)
    return host.bytes


@pytest.fixture
def session(program):
    executable = program()
    yield executable.session()
    executable.close()


def test_a_call(program, fake_cuda):
    executable = program()
    session = executable.session()
    x, y = place(executable, bytes(range(COUNT))), place(executable, bytes(COUNT))
    session.addresses[:] = [x, y]
    session.run()
    assert fetch(executable, y) == bytes(range(30, 30 + COUNT))
    first, second, third = fake_cuda.launches
    assert first.grid == (4, 2, 1)
    assert first.threads == 128
    assert first.values[0] == second.values[2] == second.values[0] + 256
    assert third.values[:2] == (y, first.values[0] + 256)
    assert first.values[3:] == (0, 0)
    executable.close()
    assert fake_cuda.live() == {}


def test_only_nodes_whose_pointers_changed_are_patched(program, fake_cuda):
    executable = program()
    session = executable.session()
    arrays = [place(executable, bytes([fill] * COUNT)) for fill in (1, 2, 0, 0)]
    session.addresses[:] = [arrays[0], arrays[2]]
    session.run()
    assert fake_cuda.calls[PATCH] == 2
    session.run()
    assert fake_cuda.calls[PATCH] == 2
    session.addresses[0] = arrays[1]
    session.run()
    assert fake_cuda.calls[PATCH] == 3
    assert fetch(executable, arrays[2]) == bytes([32] * COUNT)
    session.addresses[1] = arrays[3]
    session.run()
    assert fake_cuda.calls[PATCH] == 4
    assert fetch(executable, arrays[3]) == bytes([32] * COUNT)
    assert [row.values[1] for row in fake_cuda.launches[::3]] == [
        arrays[0],
        arrays[0],
        arrays[1],
        arrays[1],
    ]
    executable.close()


class Layers:
    """Calls of one session on as many sets of arrays as a model has layers."""

    def __init__(self, executable, fake, count):
        self.executable, self.fake, self.session = executable, fake, executable.session()
        self.sets = [
            (place(executable, bytes([at] * COUNT)), place(executable, bytes(COUNT)))
            for at in range(count)
        ]

    def step(self, *streams_of_calls):
        """All layers once, on streams in turns; how many nodes were patched."""
        before = self.fake.calls[PATCH]
        for at, addresses in enumerate(self.sets):
            self.session.addresses[:] = addresses
            self.session.run(
                streams_of_calls[at % len(streams_of_calls)] if streams_of_calls else 0
            )
        for at, (_, result) in enumerate(self.sets):
            assert fetch(self.executable, result) == bytes([at + 30] * COUNT)
        return self.fake.calls[PATCH] - before


def test_addresses_that_come_back_get_graphs_of_their_own(program, fake_cuda):
    executable = program()
    layers = Layers(executable, fake_cuda, 5)
    counts = [layers.step() for _ in range(5)]
    assert counts[0] == 10
    assert counts[2:] == [0, 0, 0]
    assert fake_cuda.calls[INSTANTIATE] == 5
    executable.close()
    assert fake_cuda.live() == {}


def test_addresses_that_do_not_come_back_share_one_graph(program, fake_cuda):
    executable = program()
    layers = Layers(executable, fake_cuda, 1)
    for _ in range(100):
        layers.sets = [(place(executable, bytes(COUNT)), place(executable, bytes(COUNT)))]
        assert layers.step() == 2
    assert fake_cuda.calls[INSTANTIATE] == 1
    executable.close()


@pytest.mark.parametrize("count", [4, 9])
def test_more_sets_than_graphs_leave_most_of_them_as_they_are(
    program, fake_cuda, monkeypatch, count
):
    monkeypatch.setattr(call_graphs, "GRAPHS_LIMIT", 4)
    executable = program()
    layers = Layers(executable, fake_cuda, count)
    counts = [layers.step() for _ in range(6)]
    assert max(counts[3:]) <= (0 if count == 4 else 2 * (count - 3))
    assert fake_cuda.calls[INSTANTIATE] == 4
    executable.close()
    assert fake_cuda.live() == {}


def test_graphs_of_addresses_of_the_past_serve_others(program, fake_cuda, monkeypatch):
    monkeypatch.setattr(call_graphs, "GRAPHS_LIMIT", 3)
    executable = program()
    layers = Layers(executable, fake_cuda, 3)
    for _ in range(3):
        layers.step()
    layers.sets = Layers(executable, fake_cuda, 3).sets
    counts = [layers.step() for _ in range(30)]
    assert counts[-1] == 0
    executable.close()


def test_graphs_wait_for_each_other_from_stream_to_stream(program, fake_cuda):
    """Also where a stream was destroyed, and its number is another one's."""
    executable = program()
    layers = Layers(executable, fake_cuda, 5)
    own = [executable.gpu.stream() for _ in range(3)]
    for number in range(40):
        layers.session.addresses[:] = layers.sets[number % 5]
        stream = own[number % 3]
        layers.session.run(stream.handle)
        if number % 7 == 6:
            stream.synchronize()
            assert len(fake_cuda.launches) == 3 * (number + 1)
        if number % 4 == 3:
            layers.session.run(0)
            layers.session.run(own[(number + 1) % 3].handle)
            own[(number + 1) % 3].synchronize()
            fake_cuda.launches[:] = [None] * (3 * (number + 1))
        if number % 9 == 8:
            stream.close()
            own[number % 3] = executable.gpu.stream()
    assert fake_cuda.calls[INSTANTIATE] == 5
    layers.step()
    executable.close()
    assert fake_cuda.live() == {}


def test_calls_that_fail_make_no_graphs_without_end(program, fake_cuda, monkeypatch):
    monkeypatch.setattr(call_graphs, "GRAPHS_LIMIT", 3)
    executable = program()
    layers = Layers(executable, fake_cuda, 2)
    layers.step()
    for _ in range(20):
        layers.session.addresses[:] = [layers.sets[0][0], 0]
        with pytest.raises(AddressMissing):
            layers.session.run()
    assert fake_cuda.calls[INSTANTIATE] <= 3
    layers.step()
    executable.close()
    assert fake_cuda.live() == {}


def test_without_memory_for_more_graphs_there_is_one(program, fake_cuda):
    executable = program()
    layers = Layers(executable, fake_cuda, 3)
    layers.step()
    fake_cuda.fail(INSTANTIATE, 2)
    assert [layers.step() for _ in range(3)] == [6, 6, 6]
    executable.close()
    assert fake_cuda.live() == {}


def test_a_replayed_call_makes_two_calls_of_the_driver(program, fake_cuda):
    executable = program()
    session = executable.session()
    session.addresses[:] = [place(executable, bytes(COUNT)) for _ in range(2)]
    session.run()
    before = len(fake_cuda.trace)
    session.run()
    assert fake_cuda.trace[before:] == ["cuCtxGetCurrent", "cuGraphLaunch"]
    executable.close()


def test_a_failed_patch_is_made_again(program, fake_cuda):
    executable = program()
    session = executable.session()
    x, z, y = (place(executable, bytes([fill] * COUNT)) for fill in (1, 2, 0))
    session.addresses[:] = [x, y]
    session.run()
    session.addresses[0] = z
    fake_cuda.fail(PATCH, 1)
    with pytest.raises(Exception, match="CUDA_ERROR_INVALID_VALUE"):
        session.run()
    session.run()
    assert fetch(executable, y) == bytes([32] * COUNT)
    executable.close()


def test_an_address_that_was_not_given_is_refused(session):
    session.addresses[1] = 4096
    with pytest.raises(AddressMissing, match="address 0 of the session"):
        session.run()


def test_a_closed_session_refuses(session):
    session.close()
    session.close()
    with pytest.raises(DeviceClosed, match="the session was closed"):
        session.run()


def test_host_buffers(program, fake_cuda):
    executable = program()
    session = executable.session()
    given, back = Host(bytes(range(COUNT))), Host(bytes(COUNT))
    for stream in (session.stream, 0):
        session.copy_in(0, given.address)
        session.stage(1)
        session.run(stream)
        session.copy_out(1, back.address)
        session.synchronize()
        assert back.bytes == bytes(range(30, 30 + COUNT))
        back.buffer.raw = bytes(COUNT)
    assert session.nbytes == 1024 + 2 * COUNT
    session.close()
    executable.close()
    assert fake_cuda.live() == {}


def test_a_host_buffer_may_change_at_once(program):
    executable = program()
    session = executable.session()
    given, back = Host(bytes([1] * COUNT)), Host(bytes(COUNT))
    session.copy_in(0, given.address)
    given.buffer.raw = bytes([2] * COUNT)
    session.stage(1)
    session.run(session.stream)
    session.copy_in(0, given.address)
    session.copy_out(1, back.address)
    session.synchronize()
    assert back.bytes == bytes([31] * COUNT)
    executable.close()


def test_a_session_follows_its_last_run_to_another_stream(program, fake_cuda):
    executable = program()
    session = executable.session()
    x, y = place(executable, bytes(COUNT)), place(executable, bytes(COUNT))
    session.addresses[:] = [x, y]
    first, second = executable.gpu.stream(), executable.gpu.stream()
    session.run(first.handle)
    session.run(second.handle)
    second.synchronize()
    assert len(fake_cuda.launches) == 6
    executable.close()


def test_a_stream_of_another_context_is_refused(monkeypatch, weights):
    fake = install(monkeypatch, FakeCuda(devices=2))
    image, plan = small_plan()
    here = Executable(image, plan, weights, (COUNT,), (COUNT,), 0)
    there = Executable(image, plan, weights, (COUNT,), (COUNT,), 1)
    stream = there.gpu.stream()
    session = here.session()
    session.addresses[:] = [place(here, bytes(COUNT)) for _ in range(2)]
    with pytest.raises(StreamForeign, match="expected a stream of device 0"):
        session.run(stream.handle)
    here.close()
    there.close()
    assert fake.live() == {}
    fake.check()


def test_the_context_of_the_caller_comes_back(monkeypatch, weights):
    fake = install(monkeypatch, FakeCuda(devices=2))
    image, plan = small_plan()
    here = Executable(image, plan, weights, (COUNT,), (COUNT,), 1)
    assert fake._stack() == [0]
    session = here.session()
    session.addresses[:] = [place(here, bytes(COUNT)) for _ in range(2)]
    session.run()
    assert fake._stack() == [0]  # a thread without a context means device 0
    other = fake.devices[0]
    other.retained += 1
    fake._stack()[-1] = other.context
    session.run()
    assert fake._stack() == [other.context]
    here.close()
    assert fake._stack() == [other.context]
    fake.check()


def test_no_context_is_left_in_a_thread_after_the_last_close(program, fake_cuda):
    executable = program()
    session = executable.session()
    session.addresses[:] = [place(executable, bytes(COUNT)) for _ in range(2)]
    session.run()
    assert fake_cuda._stack() == [fake_cuda.devices[0].context]
    executable.close()
    assert fake_cuda._stack() == [0]


def test_scratch_of_the_hungriest_launch(program, fake_cuda):
    executable = program(scratch_bytes=384)
    assert executable.scratch_bytes == 8 * 384
    session = executable.session()
    assert session.nbytes == 1024 + 8 * 384
    session.addresses[:] = [place(executable, bytes(COUNT)) for _ in range(2)]
    session.run()
    executable.gpu.synchronize()
    assert {row.values[3] - row.values[0] for row in fake_cuda.launches[1:2]} == {1024}
    assert len({row.values[3] for row in fake_cuda.launches}) == 1
    executable.close()


def test_shared_memory_is_asked_for(program, fake_cuda):
    executable = program(shared_bytes=100 << 10)
    assert fake_cuda.calls["cuFuncSetAttribute"] == 2
    session = executable.session()
    session.addresses[:] = [place(executable, bytes(COUNT)) for _ in range(2)]
    session.run()
    executable.gpu.synchronize()
    assert fake_cuda.launches[0].shared_bytes == 100 << 10
    executable.close()


def test_no_room_for_an_arena(monkeypatch, weights):
    fake = install(monkeypatch, FakeCuda(total_bytes=2000))
    image, plan = small_plan()
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    first = executable.session()
    with pytest.raises(DeviceMemoryFull) as caught:
        executable.session()
    error = caught.value
    assert (error.needed, error.total) == (1024, 2000)
    assert error.free == 2000 - fake.used_bytes < 1024
    assert str(error).startswith("no device memory for a session's arena: needs 1024 bytes")
    first.close()
    executable.session()
    executable.close()
    assert fake.live() == {}


def test_separate_buffers(program, fake_cuda, monkeypatch):
    monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", "1")
    executable = program(scratch_bytes=128)
    assert fake_cuda.live()["memory"] == 2
    session = executable.session()
    assert fake_cuda.live()["memory"] == 2 + 3 + 1
    x, y = place(executable, bytes(range(COUNT))), place(executable, bytes(COUNT))
    session.addresses[:] = [x, y]
    session.run()
    assert fetch(executable, y) == bytes(range(30, 30 + COUNT))
    assert session.nbytes == 3 * COUNT + 8 * 128
    session.close()
    executable.close()
    assert fake_cuda.live() == {}


@pytest.mark.parametrize(
    ("setting", "is_programmatic", "edges"), [("1", True, 2), ("1", False, 0), ("0", True, 0)]
)
def test_programmatic_launch(program, fake_cuda, monkeypatch, setting, is_programmatic, edges):
    """Only kernels that wait by themselves are launched before the one before them has ended."""
    monkeypatch.setenv("AOTC_PROGRAMMATIC_LAUNCH", setting)
    executable = program(is_programmatic=is_programmatic)
    session = executable.session()
    assert fake_cuda.calls["cuGraphAddDependencies_v2"] == edges
    for data in (bytes(range(COUNT)), bytes(range(50, 50 + COUNT))):  # the second one patches
        x, y = place(executable, data), place(executable, bytes(COUNT))
        session.addresses[:] = [x, y]
        session.run()
        assert fetch(executable, y) == bytes((each + 30) % 256 for each in data)
    executable.close()


def test_threads_with_sessions_of_their_own(program, fake_cuda):
    executable = program()
    wrong = []

    def work(fill):
        session = executable.session()
        stream = executable.gpu.stream()
        x, y = place(executable, bytes([fill] * COUNT)), place(executable, bytes(COUNT))
        session.addresses[:] = [x, y]
        for _ in range(5):
            session.run(stream.handle)
        stream.synchronize()
        if fetch(executable, y) != bytes([fill + 30] * COUNT):
            wrong.append(fill)
        session.close()

    threads = [threading.Thread(target=work, args=(fill,)) for fill in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    executable.close()
    assert fake_cuda.live() == {}


def test_a_forked_child_gets_an_error(program):
    executable = program()
    session = executable.session()
    session.addresses[:] = [place(executable, bytes(COUNT)) for _ in range(2)]
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            session.run()
        except DeviceForked as error:
            os.write(write, error.code.encode())
        try:
            executable.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 100) == b"device-forked"
    session.run()
    executable.close()


def test_closing_the_executable_closes_its_sessions(program, fake_cuda):
    executable = program()
    session = executable.session()
    executable.close()
    assert fake_cuda.live() == {}
    with pytest.raises(DeviceClosed):
        session.run()
    session.close()


def test_what_is_closed_while_torch_records_is_closed_behind_it(fake_cuda, program, monkeypatch):
    """A wait would end the recording, and Python's collector may close things at any time."""
    executable = program()
    session = executable.session()
    with monkeypatch.context() as recording:
        recording.setattr(streams, "is_recording", lambda: True)
        before = dict(fake_cuda.calls)
        session.close()
        executable.close()
        assert dict(fake_cuda.calls) == before
    assert fake_cuda.live()
    other = program()
    other.close()
    assert fake_cuda.live() == {}

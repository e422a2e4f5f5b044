"""A real device by itself: facts, memory, code, launches, graphs, events, errors."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy
import pytest
from programs import capability, fetched, filled
from triton_kernels import compiled

from aotc.runtime.drivers.cuda import driver as cuda
from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.errors import (
    CudaError,
    DeviceAbsent,
    DeviceMemoryFull,
    ImageRefused,
)
from aotc.runtime.drivers.cuda.handles import Arguments

HERE = Path(__file__).parent


def load(device, name):
    kernel = compiled(name, capability(device))
    function = device.function(device.load(kernel.code), kernel.symbol, kernel.shared_bytes)
    return kernel, function


def test_facts(device):
    free, total = device.memory()
    assert 0 < free <= total
    assert f"sm_{capability(device)}" in cuda.features()
    ordinal, name, architecture, nbytes = cuda.describe()[0]
    assert (ordinal, name, architecture) == (0, device.name, f"sm_{capability(device)}")
    assert nbytes == total
    assert device.attribute("multiprocessors") > 0
    assert device.attribute("shared_bytes") >= 48 << 10


def test_no_such_device():
    with pytest.raises(DeviceAbsent, match="the driver shows"):
        Device(99)


def test_a_launch(device):
    kernel, function = load(device, "add")
    x = numpy.arange(5000, dtype=numpy.float32)
    addresses = [filled(device, each) for each in (x, 2 * x, 0 * x)]
    device.launch(function, (5, 1, 1), kernel.threads, Arguments([*addresses, 5000, 0, 0]))
    numpy.testing.assert_array_equal(fetched(device, addresses[2], x), 3 * x)
    assert function.registers > 0
    assert function.local_bytes == 0
    assert function.resident_programs(kernel.threads) >= 1


def test_shared_memory_beyond_48_kib(device):
    import torch

    kernel, function = load(device, "shared_product")
    assert kernel.shared_bytes > 48 << 10
    x, y = (torch.randn(128, 128).bfloat16() for _ in range(2))
    arrays = [each.view(torch.int16).numpy() for each in (x, y, torch.zeros_like(x))]
    addresses = [filled(device, each) for each in arrays]
    device.launch(function, (1, 1, 1), kernel.threads, Arguments([*addresses, 0, 0]))
    found = torch.from_numpy(fetched(device, addresses[2], arrays[2])).view(torch.bfloat16)
    torch.testing.assert_close(found.float(), x.float() @ y.float(), rtol=0.02, atol=0.1)


def test_descriptors_made_on_the_device(device):
    kernel, function = load(device, "described_copy")
    assert kernel.scratch_bytes > 0
    x = numpy.random.default_rng(0).standard_normal((256, 64), dtype=numpy.float32)
    source, to = filled(device, x), filled(device, 0 * x)
    scratch = device.allocate(8 * kernel.scratch_bytes)
    device.launch(function, (8, 1, 1), kernel.threads, Arguments([source, to, 256, scratch, 0]))
    numpy.testing.assert_array_equal(fetched(device, to, x), x)


def test_a_graph_with_patched_pointers(device):
    kernel, function = load(device, "add")
    x = numpy.arange(2048, dtype=numpy.float32)
    a, b, c, d = (filled(device, each) for each in (x, 10 * x, 0 * x, 0 * x))
    first, second = Arguments([a, b, c, 2048, 0, 0]), Arguments([c, c, d, 2048, 0, 0])
    graph = device.graph()
    for arguments in (first, second):
        graph.kernel(function, (2, 1, 1), kernel.threads, arguments)
    graph.instantiate()
    graph.upload()
    graph.launch()
    numpy.testing.assert_array_equal(fetched(device, d, x), 22 * x)
    first.slots[1] = a
    graph.patch(0)
    graph.launch()
    numpy.testing.assert_array_equal(fetched(device, d, x), 4 * x)
    graph.close()


def test_a_graph_with_fills_and_events(device):
    kernel, function = load(device, "add")
    x = numpy.arange(1024, dtype=numpy.float32)
    a, c = filled(device, x), filled(device, x)
    begin, end = device.event(), device.event()
    graph = device.graph()
    graph.fill(c, 0, x.nbytes)
    graph.record(begin)
    graph.kernel(function, (1, 1, 1), kernel.threads, Arguments([a, c, c, 1024, 0, 0]))
    graph.record(end)
    graph.instantiate()
    stream = device.stream()
    graph.launch(stream.handle)
    stream.synchronize()
    assert 0 < device.elapsed_ms(begin, end) < 1000
    numpy.testing.assert_array_equal(fetched(device, c, x), x)


def test_an_empty_graph(device):
    graph = device.graph()
    graph.instantiate()
    graph.launch()
    device.synchronize()


def test_an_image_of_another_architecture_is_refused(device):
    wrong = 80 if capability(device) >= 90 else 90
    with pytest.raises(ImageRefused, match="rebuild with `--target cuda:sm_"):
        device.load(compiled("add", wrong).code)
    with pytest.raises(CudaError):
        device.load(b"\x7fELF" + bytes(4096))
    with pytest.raises(CudaError):
        device.load(b"no image" + bytes(64))


def test_a_symbol_that_is_not_there(device):
    module = device.load(compiled("add", capability(device)).code)
    with pytest.raises(CudaError, match="CUDA_ERROR_NOT_FOUND"):
        device.function(module, "other")


def test_no_room(device):
    with pytest.raises(DeviceMemoryFull) as caught:
        device.allocate(1 << 50)
    assert caught.value.needed == 1 << 50
    assert 0 < caught.value.free <= caught.value.total
    device.free(device.allocate(1 << 20))


def test_everything_comes_back():
    watch = Device()
    free_bytes = []
    for _ in range(4):
        device = Device()
        for _ in range(4):
            device.allocate(64 << 20)
        device.pinned(1 << 20)
        load(device, "add")
        device.stream()
        device.event()
        device.close()
        free_bytes.append(watch.memory()[0])
    assert free_bytes[1:] == free_bytes[:1] * 3  # the driver keeps what its first module took
    watch.close()


def test_a_thread_keeps_no_stale_context():
    """A thread that used a context which was then released can use the next one."""
    steps, wrong = [threading.Semaphore(0) for _ in range(3)], []
    devices = []

    def work():
        try:
            devices[0].allocate(64)
            steps[0].release()
            steps[1].acquire()
            devices[1].allocate(64)
        except BaseException as error:
            wrong.append(error)
        steps[2].release()

    devices.append(Device())
    thread = threading.Thread(target=work)
    thread.start()
    steps[0].acquire()
    devices[0].close()
    devices.append(Device())
    steps[1].release()
    steps[2].acquire()
    thread.join()
    assert not wrong
    devices[1].close()


def test_own_and_default_streams_are_known(device):
    for stream in (0, 1, 2):
        device.check_stream(stream)
    own = device.stream()
    device.check_stream(own.handle)


def test_a_stray_write_loses_the_device_and_not_the_process():
    code = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {[str(HERE)]!r}
        from programs import capability, sum_program
        from triton_kernels import compiled
        from aotc.runtime.drivers.cuda.device import Device
        from aotc.runtime.drivers.cuda.errors import DeviceLost
        from aotc.runtime.drivers.cuda.handles import Arguments
        device = Device()
        arch = capability(device)
        executable, _ = sum_program(arch)
        session = executable.session()
        session.addresses[:] = [executable.gpu.allocate(1 << 18) for _ in range(2)]
        session.run()
        session.synchronize()
        kernel = compiled("stray", arch)
        function = device.function(device.load(kernel.code), kernel.symbol)
        device.launch(function, (1, 1, 1), kernel.threads, Arguments([8, 0, 0]))
        def refused(call):
            try:
                call()
            except DeviceLost as error:
                return error.name
        print(refused(device.synchronize), refused(lambda: device.allocate(1)))
        print(refused(session.run), refused(session.run), refused(executable.session))
        session.close(); executable.close(); device.close(); device.close()
        print("alive")
    """)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.split()
    assert lines[-1] == "alive"
    assert set(lines[:-1]) == {"CUDA_ERROR_ILLEGAL_ADDRESS"}

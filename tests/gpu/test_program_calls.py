"""Programs on a real device: torch, cupy, jax and host arrays in and out, streams, memory."""

import gc
import subprocess
import sys
import threading

import numpy
import pytest

from aotc.runtime import load
from aotc.runtime.drivers.cuda.device_array import DeviceArray
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull, StreamForeign
from aotc.runtime.errors import (
    InputDevice,
    InputDtype,
    InputMisaligned,
    InputNotContiguous,
    InputShape,
    OutputUnusable,
)
from aotc.runtime.verify import verify

ROWS, COLUMNS = 64, 256
MODEL = f"""
import torch


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 2, {COLUMNS}))

    def forward(self, x, y):
        mixed = (x + y) * self.scale
        return torch.softmax(mixed, -1), mixed * 2


def build_model():
    torch.manual_seed(0)
    return Pair()


example_inputs = (torch.randn({ROWS}, {COLUMNS}), torch.randn({ROWS}, {COLUMNS}))
"""


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    """The model as a bundle for the device here, then for the CPU."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "pair.py").write_text(MODEL)
    command = [sys.executable, "-m", "aotc.aot.cli", "build", str(folder / "pair.py")]
    command += ["-o", str(folder / "bundle"), "--target", "cuda", "--target", "cpu"]
    command += ["--cache-dir", str(folder / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder / "bundle"


@pytest.fixture
def program(path):
    with load(path, device="cuda") as opened:
        yield opened


def expected(x, y):
    """The two outputs in float64, as numpy arrays."""
    scale = numpy.linspace(0.5, 2, COLUMNS)
    mixed = (x.astype("f8") + y.astype("f8")) * scale
    powers = numpy.exp(mixed - mixed.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True), mixed * 2


def data(seed):
    generator = numpy.random.default_rng(seed)
    return [generator.standard_normal((ROWS, COLUMNS), dtype=numpy.float32) for _ in range(2)]


def check(found, given):
    for one, other in zip(found, expected(*given), strict=True):
        numpy.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return module


def on_device(torch, arrays):
    return [torch.from_numpy(each).cuda() for each in arrays]


def test_the_first_target_is_taken_and_the_golden_numbers_are_right(path):
    with load(path) as program:
        assert program.device == "cuda:0"
    for device in ("cuda", "cpu"):
        assert {each.status for each in verify(path, device=device)} == {"ok"}


def test_host_arrays(program):
    given = data(1)
    found = program(*given)
    assert type(found[0]) is numpy.ndarray
    check(found, given)
    found = program(*map(memoryview, given))
    check([numpy.asarray(each) for each in found], given)
    strided = [numpy.asfortranarray(each) for each in given]
    check(program(*strided), given)


def test_torch_tensors(program, torch):
    given = data(2)
    tensors = on_device(torch, given)
    first = program(*tensors)
    second = program(*on_device(torch, data(3)))
    assert first[0].device == torch.device("cuda:0")
    check([each.cpu().numpy() for each in first], given)  # the second call left them alone
    check([each.cpu().numpy() for each in second], data(3))
    out = tuple(torch.empty_like(each) for each in first)
    assert program(*tensors, out=out) is out
    check([each.cpu().numpy() for each in out], given)
    mixed = program(tensors[0], given[1])
    assert mixed[0].is_cuda
    check([each.cpu().numpy() for each in mixed], given)
    on_host = program(torch.from_numpy(given[0]), tensors[1])
    assert not on_host[0].is_cuda
    check([each.numpy() for each in on_host], given)


def test_torch_tensors_that_need_a_copy(program, torch):
    given = data(4)
    transposed = [torch.from_numpy(each.T.copy()).cuda().t() for each in given]
    check([each.cpu().numpy() for each in program(*transposed)], given)
    block = torch.empty(ROWS * COLUMNS + 1, device="cuda")
    moved = block[1:].view(ROWS, COLUMNS)
    moved.copy_(torch.from_numpy(given[0]))
    check([each.cpu().numpy() for each in program(moved, torch.from_numpy(given[1]).cuda())], given)
    with pytest.raises(InputMisaligned, match="output `output_0`"):
        program(*transposed, out=(moved, torch.empty(ROWS, COLUMNS, device="cuda")))
    with pytest.raises(InputNotContiguous):
        program.bind(*transposed)


def test_torch_refusals(program, torch):
    x, y = on_device(torch, data(5))
    cases = [
        (x.double(), InputDtype, "f64"),
        (x[:3], InputShape, r"\[3, 256\]"),
        (torch.empty(ROWS, COLUMNS, device="meta"), InputDevice, "meta, expected cuda:0"),
    ]
    if torch.cuda.device_count() > 1:
        cases.append((x.to("cuda:1"), InputDevice, "cuda:1, expected cuda:0"))
    for value, kind, text in cases:
        with pytest.raises(kind, match=text):
            program(value, y)
    with pytest.raises(OutputUnusable, match="in the memory of input `x`"):
        program(x, y, out=(x, torch.empty_like(x)))


def test_the_current_stream_of_torch(program, torch):
    """Work in front of the call on a side stream delays it: the call must wait for it."""
    x, y = on_device(torch, data(6))
    bound_x = torch.zeros_like(x)
    bound = program.bind(bound_x, y)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        late = torch.zeros_like(x)
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        found = program(late, y)
        bound_x.copy_(late)
        bound()
        host = [each.cpu().numpy() for each in found]
        again = [each.cpu().numpy() for each in bound.outputs]
    check(host, data(6))
    check(again, data(6))


def test_a_stream_that_is_named(program, torch):
    x, y = on_device(torch, data(7))
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    for stream in (side, side.cuda_stream):
        found = program(x, y, stream=stream)
        side.synchronize()
        check([each.cpu().numpy() for each in found], data(7))
    session = program.session(stream=side)
    found = session(x, y)
    side.synchronize()
    check([each.cpu().numpy() for each in found], data(7))
    if torch.cuda.device_count() > 1:
        with pytest.raises(StreamForeign):
            program(x, y, stream=torch.cuda.Stream("cuda:1"))


def test_memory_that_torch_reuses_is_not_written_late(program, torch):
    """Outputs dropped at once and made anew, on two streams in turn, keep their numbers."""
    sets = [data(seed) for seed in range(4)]
    tensors = [on_device(torch, each) for each in sets]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    kept = []
    for at in range(200):
        with torch.cuda.stream(streams[at % 2]):
            found = program(*tensors[at % 4])
            if at % 10 == 0:
                kept.append((at % 4, found))
    torch.cuda.synchronize()
    for at, found in kept:
        check([each.cpu().numpy() for each in found], sets[at])


def test_threads_with_sessions_and_streams(program, torch):
    wrong = []

    def work(seed):
        stream, given = torch.cuda.Stream(), data(seed)
        caller = program.session() if seed % 2 else program
        with torch.cuda.stream(stream):
            tensors = on_device(torch, given)
            for _ in range(50):
                found = caller(*tensors)
                try:
                    check([each.cpu().numpy() for each in found], given)
                except AssertionError as error:
                    wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_bound_calls(program, torch):
    x, y = on_device(torch, data(8))
    out = (torch.empty_like(x), torch.empty_like(x))
    bound = program.bind(x, y, out=out)
    for seed in (8, 9):
        given = data(seed)
        x.copy_(torch.from_numpy(given[0]))
        y.copy_(torch.from_numpy(given[1]))
        assert bound() is bound.outputs
        check([each.cpu().numpy() for each in out], given)
    given = data(10)
    on_host = program.bind(*given)
    given[0][:] = data(11)[0]
    check(on_host(), (data(11)[0], given[1]))


def test_cupy(program):
    cupy = pytest.importorskip("cupy")
    given = data(12)
    for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
        with stream:
            found = program(*map(cupy.asarray, given))
            assert isinstance(found[0], cupy.ndarray)
            check([cupy.asnumpy(each) for each in found], given)
    strided = [cupy.asarray(each.T.copy()).T for each in given]
    check([cupy.asnumpy(each) for each in program(*strided)], given)
    found = program(*map(cupy.asarray, given), stream=cupy.cuda.Stream())
    check([cupy.asnumpy(each) for each in found], given)


def test_jax(program):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this jax has no CUDA")
    given = data(13)
    found = program(*map(jax.numpy.asarray, given))
    assert isinstance(found[0], jax.Array)
    check([numpy.asarray(each) for each in found], given)


class Capsule:
    """A torch tensor of a library that knows DLPack only."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **named):
        return self._tensor.__dlpack__(**named)


class Interface:
    """A torch tensor of a library that knows `__cuda_array_interface__` only."""

    def __init__(self, tensor):
        self._tensor = tensor

    @property
    def __cuda_array_interface__(self):
        return self._tensor.__cuda_array_interface__


@pytest.mark.parametrize("library", [Capsule, Interface])
def test_protocols_alone(program, torch, library):
    given = data(14)
    found = program(*map(library, on_device(torch, given)))
    assert type(found[0]) is DeviceArray
    again = program(*found)
    host = [torch.as_tensor(each, device="cuda").cpu().numpy() for each in again]
    first = [torch.from_dlpack(each).cpu().numpy() for each in found]
    check(first, given)
    check(host, first)


def test_device_arrays_are_freed(program, torch):
    x, y = map(Capsule, on_device(torch, data(1)))
    for _ in range(3):
        program(x, y)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(300):
        torch.from_dlpack(program(x, y)[0])
    gc.collect()
    assert before - torch.cuda.mem_get_info()[0] < 8 << 20


def test_outputs_outlive_their_program(path, torch):
    given = data(15)
    program = load(path, device="cuda")
    x, y = map(Capsule, on_device(torch, given))
    found = program(x, y)
    program.close()
    del program
    gc.collect()
    check([torch.from_dlpack(each).cpu().numpy() for each in found], given)


def test_many_loads_leave_no_memory_behind(path, torch):
    def cycle():
        with load(path, device="cuda") as program:
            program(*on_device(torch, data(1)))
        gc.collect()

    cycle()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(20):
        cycle()
    assert before - torch.cuda.mem_get_info()[0] < 4 << 20


def test_too_little_memory_is_said_when_a_session_opens(path, torch):
    with load(path, device="cuda") as program:
        free = torch.cuda.mem_get_info()[0]
        ballast = torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda")
        try:
            opened = []
            with pytest.raises(DeviceMemoryFull, match="free"):
                opened.extend(program.session() for _ in range(4096))
        finally:
            opened.clear()
            del ballast
            torch.cuda.empty_cache()
        check(program(*data(1)), data(1))


def test_a_forked_child_gets_an_error(path):
    code = (
        "import os, sys\n"
        "import aotc.runtime as runtime\n"
        "program = runtime.load(sys.argv[1], device='cuda')\n"
        "data = bytes(65536)\n"
        "program(data, data)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        program(data, data)\n"
        "    except runtime.AotcError as error:\n"
        "        os._exit(3 if error.code == 'device-forked' else 4)\n"
        "    os._exit(5)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
        "program(data, data)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)

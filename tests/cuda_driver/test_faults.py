"""Every call of the driver × every error: typed, nothing left behind, and the process goes on."""

import pytest
from fake_cuda import FakeCuda, install
from fake_program import COUNT, KERNELS, Host, small_plan

from aotc.runtime.drivers.cuda import upload as cuda_upload
from aotc.runtime.drivers.cuda.driver import Executable, features, why_absent
from aotc.runtime.drivers.cuda.errors import STICKY, DeviceLost, DeviceMemoryFull, ImageRefused
from aotc.runtime.errors import AotcError

# Every call with one of each kind: plain, no memory, refused image, two that end the device; the
# first and the last call of each function with all others.
CODES = (1, 2, 209, 700, 999)
RARE_CODES = (3, 4, 46, 100, 201, 214, 304, 400, 500, 600, 701, 716, 719, 800, 802, 900, 906)
DESTROYED = {  # function → what its failure may leave behind
    "cuMemFree_v2": "memory",
    "cuMemFreeHost": "pinned",
    "cuModuleUnload": "modules",
    "cuStreamDestroy_v2": "streams",
    "cuEventDestroy_v2": "events",
    "cuGraphDestroy": "graphs",
    "cuGraphExecDestroy": "executions",
    "cuDevicePrimaryCtxRelease_v2": "contexts",
}
ANSWER = bytes(range(30, 30 + COUNT))


def scenario(weights):
    """Load, two sessions, runs with device memory and host buffers, close; returns the output."""
    image, plan = small_plan(scratch_bytes=128, shared_bytes=64 << 10)
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    try:
        given, back = Host(bytes(range(COUNT))), Host(bytes(COUNT))
        session, other = executable.session(), executable.session()
        for place in (other.stage(0), other.stage(1)):
            assert place
        other.run(executable.gpu.stream().handle)
        session.copy_in(0, given.address)
        session.stage(1)
        session.run(0)
        session.copy_out(1, back.address)
        session.synchronize()
        session.close()
        return back.bytes
    finally:
        executable.close()


@pytest.fixture
def double(monkeypatch):
    """`double()`: a fresh fake driver, with an upload through the ring even of small weights."""
    monkeypatch.setattr(cuda_upload, "DIRECT_LIMIT_BYTES", 1)
    monkeypatch.setattr(cuda_upload, "CHUNK_BYTES", 32)
    monkeypatch.setattr(cuda_upload, "THREADS", 2)

    def make():
        fake = install(monkeypatch, FakeCuda())
        fake.kernels.update(KERNELS)
        return fake

    return make


def called(weights, double):
    """How often each function is called where nothing fails."""
    fake = double()
    assert scenario(weights) == ANSWER
    assert fake.live() == {}
    fake.check()
    return dict(fake.calls)


@pytest.mark.parametrize("number", CODES + RARE_CODES)
def test_every_call(number, weights, double):
    for name, count in called(weights, double).items():
        for nth in chosen(name, count, number):
            fake = double()
            fake.fail(name, number, nth)
            try:
                assert scenario(weights) == ANSWER
            except AotcError as error:
                check_error(error, name, number)
            where = f"{name} #{nth} → {number}"
            left = set(fake.live()) - {DESTROYED.get(name)}
            assert not left, f"{where} left {fake.live()}"
            assert not fake.wrong, where
            assert not fake.hazards, f"{where}: {fake.hazards}"
            fake.faults.clear()  # threads share the uploads: not every count is reached
            again(fake, number, weights)


def chosen(name, count, number):
    """Which calls of a function to fail: contexts are changed everywhere in the same way."""
    if number not in CODES:
        return {1, count}
    return range(1, count + 1, 4 if name.startswith("cuCtx") else 1)


def check_error(error, name, number):
    assert error.exit_code in (2, 5, 7), error
    if number in STICKY and name not in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount"):
        assert isinstance(error, DeviceLost), (name, error)
    if number == 2 and name in ("cuMemAlloc_v2", "cuGraphInstantiateWithFlags"):
        assert isinstance(error, DeviceMemoryFull), error
    if number == 209 and name == "cuModuleLoadData":
        assert isinstance(error, ImageRefused), error


def again(fake, number, weights):
    """The next load works, or says that the device is lost."""
    if any(device.sticky for device in fake.devices):
        with pytest.raises(DeviceLost):
            scenario(weights)
    else:
        assert scenario(weights) == ANSWER


def test_an_error_of_a_kernel_comes_with_the_next_wait(weights, double):
    fake = double()

    def fault(memory, grid, values):
        memory(8, 4)

    image, plan = small_plan()
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    session = executable.session()
    places = [executable.gpu.allocate(COUNT) for _ in range(2)]
    session.addresses[:] = places
    fake.kernels["add"] = fault
    session.run()
    with pytest.raises(DeviceLost, match="CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
        session.synchronize()
    assert "restart the process" in str(caught.value)
    calls = sum(fake.calls.values())
    for refused in (session.run, executable.session, session.synchronize):
        with pytest.raises(DeviceLost):
            refused()
    assert sum(fake.calls.values()) == calls  # nobody asks a lost device again
    executable.close()
    assert fake.live() == {}


def test_features_never_raise(monkeypatch):
    for name in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGetAttribute"):
        fake = install(monkeypatch, FakeCuda())
        fake.fail(name, 100)
        assert features() == frozenset() or name == "cuDeviceGetCount"
        fake = install(monkeypatch, FakeCuda())
        fake.fail(name, 100)
        assert why_absent(), name

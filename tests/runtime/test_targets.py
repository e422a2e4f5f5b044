"""Which target of a bundle runs here, and what is said when none does; over a fake CUDA driver."""

from __future__ import annotations

import os

import device_bundle
import pytest
from device_bundle import host_target, target
from fake_cuda import FakeCuda, install

from aotc.runtime import check, load
from aotc.runtime.drivers.cuda import libcuda
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.errors import BundleIncompatible, DeviceUnknown, SettingInvalid

BOTH = (target(90), host_target())


def bundle(tmp_path, *targets):
    return device_bundle.write(tmp_path / "bundle", targets=targets)


@pytest.fixture
def no_driver(monkeypatch):
    """A machine without libcuda, as this one may or may not be."""

    def absent():
        raise libcuda.LibraryAbsent(
            "no NVIDIA driver: libcuda.so.1: cannot open shared object file"
        )

    monkeypatch.setattr(libcuda, "open_library", absent)
    monkeypatch.setattr(libcuda, "_process", {})


def test_the_first_fitting_target_in_the_order_of_the_manifest(tmp_path, cuda):
    path = bundle(tmp_path, target(100), target(90), host_target())
    with load(path) as program:
        assert (program.target, program.device, program.ordinal) == ("cuda-sm_90", "cuda:0", 0)
    other = device_bundle.write(tmp_path / "other", targets=(host_target(), target(90)))
    with load(other) as program:
        assert (program.target, program.device) == ("null", "null")
    with load(other, device="cuda") as program:
        assert program.target == "cuda-sm_90"
    with load(path, device="null") as program:
        assert program.target == "null"


def test_without_a_driver_the_host_is_taken(tmp_path, no_driver):
    path = bundle(tmp_path, *BOTH)
    with load(path) as program:
        assert program.target == "null"
    assert check(path) == []
    rows = check(path, "cuda")
    assert [(row.code, row.target) for row in rows] == [("driver-absent", "cuda-sm_90")]
    assert rows[0].found.startswith("absent (no NVIDIA driver")
    with pytest.raises(BundleIncompatible, match="no NVIDIA driver") as caught:
        load(path, device="cuda")
    assert caught.value.exit_code == 5
    assert "--gpus all" in caught.value.hint_text


@pytest.mark.parametrize(
    ("fake", "code", "text"),
    [
        (FakeCuda(driver_version=11040), "driver-too-old", "CUDA 11.4, expected 12.0 or later"),
        (FakeCuda(devices=0), "device-absent", "shows 0 devices"),
    ],
    ids=["old driver", "no device"],
)
def test_drivers_that_do_not_serve(tmp_path, monkeypatch, fake, code, text):
    install(monkeypatch, fake)
    with pytest.raises(BundleIncompatible, match=text) as caught:
        load(bundle(tmp_path, target(90)))
    assert [row.code for row in caught.value.mismatches] == [code]
    assert caught.value.hint_text == caught.value.mismatches[0].hint
    assert "CUDA 12.0 or later" in caught.value.mismatches[0].expected


@pytest.mark.parametrize(
    ("number", "code", "name"),
    [(100, "device-absent", "CUDA_ERROR_NO_DEVICE"), (3, "driver-fails", "NOT_INITIALIZED")],
)
def test_a_driver_that_does_not_start(tmp_path, monkeypatch, number, code, name):
    fake = install(monkeypatch, FakeCuda())
    for nth in range(1, 20):
        fake.fail("cuInit", number, nth)
    with pytest.raises(BundleIncompatible, match=name) as caught:
        load(bundle(tmp_path, target(90)))
    assert [row.code for row in caught.value.mismatches] == [code]


def test_wrong_architecture(tmp_path, cuda):
    path = bundle(tmp_path, target(80), target(100))
    rows = check(path)
    assert [(row.code, row.target, row.expected) for row in rows] == [
        ("architecture", "cuda-sm_80", "`sm_80`"),
        ("architecture", "cuda-sm_100", "`sm_100`"),
    ]
    assert all("`sm_90`" in row.found for row in rows)
    with pytest.raises(BundleIncompatible, match="sm_90") as caught:
        load(path)
    assert "--target cuda:sm_90" in caught.value.hint_text


def test_what_all_targets_lack_is_said_once(tmp_path, no_driver):
    rows = check(bundle(tmp_path, target(80), target(90), target(100)))
    assert [(row.code, row.target) for row in rows] == [("driver-absent", "")]


def test_code_for_8_0_runs_on_8_9(tmp_path, monkeypatch):
    fake = install(monkeypatch, FakeCuda(capability=(8, 9)))
    fake.kernels["copy"] = device_bundle.copy
    path = bundle(tmp_path, target(90), target(80))
    with load(path) as program:
        assert program.target == "cuda-sm_80"
        assert bytes(program(bytes(range(96)))[0]) == bytes(range(96))
    fake.check()


def test_a_driver_is_asked_only_when_its_target_may_be_taken(tmp_path, cuda):
    path = bundle(tmp_path, host_target(), target(90))
    with load(path) as program:
        assert program.target == "null"
    assert check(path) == []
    assert not cuda.calls


def test_the_number_of_a_device(tmp_path, monkeypatch):
    fake = install(monkeypatch, FakeCuda(devices=2))
    fake.kernels["copy"] = device_bundle.copy
    path = bundle(tmp_path, *BOTH)
    with load(path, device="cuda:1") as program:
        assert (program.device, program.ordinal) == ("cuda:1", 1)
        assert [each.retained for each in fake.devices] == [0, 1]
    with pytest.raises(BundleIncompatible, match="shows 2 devices"):
        load(path, device="cuda:2")
    with pytest.raises(BundleIncompatible, match="`null:1`"):
        load(path, device="null:1")
    for wrong in ("", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", "gpu", "cpu", "cuda:99999"):
        with pytest.raises(DeviceUnknown, match="expected one of: cuda, null"):
            load(path, device=wrong)


def test_a_forked_child_loads_nothing(tmp_path, cuda):
    """The real driver would show it no devices, or fail at whatever comes next."""
    path = bundle(tmp_path, target(90))
    with load(path):
        child = os.fork()
        if child == 0:
            try:
                load(path)
            except BundleIncompatible as error:
                is_said = "forked" in str(error) and "`spawn`" in error.hint_text
                os._exit(3 if is_said and error.mismatches[0].code == "device-forked" else 4)
            finally:
                os._exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_memory_that_does_not_suffice_is_said_at_load(tmp_path, monkeypatch):
    path = bundle(tmp_path, target(90))
    fake = install(monkeypatch, FakeCuda(total_bytes=64))
    with pytest.raises(DeviceMemoryFull, match=r"needs \d+ bytes.*free") as caught:
        load(path)
    assert caught.value.exit_code == 7
    assert fake.live() == {}
    fake.check()


def test_no_memory_for_the_arena_gives_the_weights_back(tmp_path, monkeypatch):
    """Also while the error is at hand, so that a caller may try something smaller."""
    path = bundle(tmp_path, target(90))
    fake = install(monkeypatch, FakeCuda(total_bytes=200))  # the weights, and not the arena
    with pytest.raises(DeviceMemoryFull, match="a session's arena") as caught:
        load(path)
    assert caught.value.fields["free"] < caught.value.fields["needed"]
    assert fake.calls["cuMemAlloc_v2"] == 2
    assert fake.live() == {}
    fake.check()


def test_streams_are_for_devices(tmp_path, no_driver):
    with pytest.raises(SettingInvalid, match="stream"):
        load(bundle(tmp_path, *BOTH), stream=0)


def test_altered_weights_leave_nothing_on_the_device(tmp_path, cuda):
    path = bundle(tmp_path, target(90))
    weights = path / "weights.safetensors"
    weights.chmod(0o644)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(Exception, match="was altered") as caught:
        load(path)
    assert caught.value.code == "bundle-altered"
    assert cuda.live() == {}
    assert not cuda.launches

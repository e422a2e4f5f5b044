"""Commands on bundles for a device: what is said where none serves, over a fake CUDA driver."""

import sys
from pathlib import Path

import pytest
from fake_cuda import FakeCuda, install

from aotc.runtime.drivers.cuda import libcuda

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("runtime", "pack")]
COMMANDS = ("run", "verify", "bench", "profile")
SPEC = Path(__file__).parents[2] / "examples" / "mlp_block.py"


class Without:
    """A machine without the library."""

    def __getattr__(self, name):
        raise libcuda.LibraryAbsent("no NVIDIA driver: libcuda.so.1: it is not there")


MACHINES = {  # name → (the driver, what is found, the hint)
    "no driver": (Without, "no NVIDIA driver", "install NVIDIA's driver"),
    "too old": (lambda: FakeCuda(driver_version=11040), "CUDA 11.4", "update NVIDIA's driver"),
    "no device": (lambda: FakeCuda(devices=0), "shows 0 devices", "CUDA_VISIBLE_DEVICES"),
    "other": (lambda: FakeCuda(capability=(10, 0)), "`sm_100`", "--target cuda:sm_100"),
}


@pytest.fixture
def path(tmp_path):
    import device_bundle

    return device_bundle.write(tmp_path / "bundle")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_target_fits(aotc, path, monkeypatch, command, machine):
    make, found, hint = MACHINES[machine]
    install(monkeypatch, make())
    code, out, errors = aotc(command, path)
    said = out + errors
    assert code == 5
    assert found in said
    assert "hint: " in said
    assert hint in said
    assert said.count("target `cuda-sm_90`: ") == 1


@pytest.mark.parametrize("command", ["run", "verify", "profile"])
def test_memory_that_does_not_suffice(aotc, path, monkeypatch, command):
    install(monkeypatch, FakeCuda(total_bytes=64))
    code, _, errors = aotc(command, path)
    assert code == 7
    assert "for the weights, beside 128 bytes for each session: needs 88 bytes" in errors
    assert "has 64 bytes of 64 bytes free" in errors


@pytest.mark.parametrize("command", ["run", "verify", "profile"])
def test_a_device_that_is_lost(aotc, path, monkeypatch, command):
    fake = install(monkeypatch, FakeCuda())
    fake.fail("cuGraphLaunch", 700)
    code, _, errors = aotc(command, path)
    assert code == 7, errors
    assert "device is lost" in errors
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in errors
    assert fake.live() == {}


def test_a_contender_says_why_it_cannot_be_measured(aotc, path, monkeypatch):
    """It is a process of its own, whose error arrives as this one's."""
    install(monkeypatch, FakeCuda())
    monkeypatch.setenv("AOTC_THREADS", "many")
    code, _, errors = aotc("bench", path)
    assert code == 2
    assert "setting `AOTC_THREADS` is 'many'" in errors


def test_a_build_for_the_device_present_needs_one(aotc, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    install(monkeypatch, Without())
    code, _, errors = aotc("build", SPEC, "-o", tmp_path / "out", "--target", "cuda")
    assert code == 7
    assert "no NVIDIA driver" in errors
    assert "`--target cuda:sm_90`" in errors
    assert not (tmp_path / "out").exists()

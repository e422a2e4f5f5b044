"""Errors of the driver: every class renders, travels, and has a code of its own."""

import inspect
import pickle
import string

import pytest
from fake_cuda import FakeCuda, install

from aotc.runtime import errors
from aotc.runtime.drivers.cuda import driver as cuda
from aotc.runtime.drivers.cuda import errors as cuda_errors
from aotc.runtime.drivers.cuda import libcuda
from aotc.runtime.drivers.cuda.device import Device

CLASSES = [
    each
    for _, each in inspect.getmembers(cuda_errors, inspect.isclass)
    if issubclass(each, errors.AotcError) and each.__module__ == cuda_errors.__name__
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_class(kind):
    texts = kind.template, kind.hint
    names = {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}
    error = kind(**{name: f"<{name}>" for name in names})
    assert error.exit_code in (2, 5, 7)
    assert not error.message.endswith(".")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert error.as_map()["code"] == kind.code


def test_codes_are_unique():
    others = [
        each.code
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.AotcError)
    ]
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes) | set(others)) == len(codes) + len(set(others))


def test_families():
    assert issubclass(cuda_errors.DeviceLost, errors.EnvironmentFault)
    assert issubclass(cuda_errors.DeviceMemoryFull, errors.EnvironmentFault)
    assert issubclass(cuda_errors.ImageRefused, errors.IncompatibleError)
    assert issubclass(cuda_errors.StreamForeign, errors.InputError)
    assert cuda_errors.DeviceMemoryFull.exit_code == 7
    assert cuda_errors.ImageRefused.exit_code == 5


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (4096, "4096 bytes"),
        (5 << 19, "2.50 MiB (2621440 bytes)"),
        (5 << 29, "2.50 GiB (2684354560 bytes)"),
        ("unknown", "unknown"),
    ],
)
def test_sizes_for_people(nbytes, text):
    assert cuda_errors.size_text(nbytes) == text


def test_no_driver(monkeypatch):
    def absent():
        raise libcuda.LibraryAbsent("no NVIDIA driver: it is not there")

    monkeypatch.setattr(libcuda, "_process", {})
    monkeypatch.setattr(libcuda, "open_library", absent)
    assert cuda.features() == frozenset()
    assert cuda.why_absent() == "no NVIDIA driver: it is not there"
    assert cuda.describe() == []
    with pytest.raises(cuda_errors.DeviceAbsent, match="device 0 cannot be used: no NVIDIA driver"):
        Device()


def test_too_old_a_driver(monkeypatch):
    install(monkeypatch, FakeCuda(driver_version=11040))
    assert cuda.features() == frozenset()
    assert cuda.why_absent() == "the NVIDIA driver is for CUDA 11.4, expected 12.0 or later"


def test_a_driver_without_a_function(monkeypatch):
    class Older:
        def __init__(self):
            self.fake = FakeCuda()

        def __getattr__(self, name):
            if name == "cuGraphAddKernelNode_v2":
                raise AttributeError(name)
            return getattr(self.fake, name)

    install(monkeypatch, Older())
    assert "has no `cuGraphAddKernelNode_v2`: it is too old" in cuda.why_absent()


def test_no_device(monkeypatch):
    install(monkeypatch, FakeCuda(devices=0))
    assert cuda.features() == frozenset()
    assert cuda.why_absent() == "the NVIDIA driver shows 0 devices to this process"


def test_a_driver_that_comes_up_later_is_found(monkeypatch):
    fake = install(monkeypatch, FakeCuda())
    fake.fail("cuInit", 100)
    assert "CUDA_ERROR_NO_DEVICE (100)" in cuda.why_absent()
    assert cuda.features() == {"sm_90"}


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((8, 0), {"sm_80"}),
        ((8, 9), {"sm_80", "sm_86", "sm_87", "sm_89"}),
        ((9, 0), {"sm_90"}),
        ((10, 0), {"sm_100"}),
        ((12, 0), {"sm_120"}),
    ],
)
def test_features(monkeypatch, capability, expected):
    install(monkeypatch, FakeCuda(capability=capability))
    assert cuda.features() == expected
    assert cuda.why_absent() == ""

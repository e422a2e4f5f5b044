"""Names of CUDA targets, and what `cuda` says where no device is."""

import pytest

from aotc.aot.errors import TargetDeviceAbsent, UnknownTarget
from aotc.aot.targets.cuda import target as cuda
from aotc.aot.targets.families import find_target

pytest.importorskip("triton")


class Driver:
    """In place of the driver's module: a machine with these features."""

    def __init__(self, *features):
        self.found = frozenset(features)

    def features(self):
        return self.found

    def why_absent(self):
        return "libcuda.so.1 was not found"


@pytest.mark.parametrize("text", ["cuda:sm_90", "cuda-sm_90", "sm_90", "cuda:sm_90a"])
def test_names_of_one_target(text):
    target = find_target(text)
    assert (target.name, target.device, target.architecture) == ("cuda-sm_90", "cuda", "sm_90")
    assert target.needs == ("sm_90",)
    assert target.traits.multiprocessors == 132
    assert target.argument == "cuda:sm_90"


@pytest.mark.parametrize("text", ["cuda:sm_70", "cuda:sm_9", "cuda:90", "sm_999", "rocm", ""])
def test_an_unknown_target_names_the_known_ones_of_all_families(text):
    with pytest.raises(UnknownTarget) as caught:
        find_target(text)
    assert "cuda:sm_90" in caught.value.known
    assert "cpu-x86-64-v3" in caught.value.known


def test_cuda_alone_is_the_best_device_present(monkeypatch):
    monkeypatch.setattr(cuda, "driver", Driver("sm_86", "sm_90"))
    assert find_target("cuda").name == "cuda-sm_90"


def test_cuda_alone_without_a_device_says_what_was_found(monkeypatch):
    monkeypatch.setattr(cuda, "driver", Driver())
    with pytest.raises(TargetDeviceAbsent, match=r"libcuda\.so\.1 was not found"):
        find_target("cuda")


def test_an_architecture_that_no_assembler_knows_is_not_offered(monkeypatch):
    monkeypatch.setattr(cuda, "assembler_architectures", lambda: frozenset({"sm_80"}))
    assert cuda.find("sm_90") is None
    assert list(cuda.known()) == ["cuda", "cuda:sm_80"]

"""Weights on their way: every byte arrives, whatever the sizes, gaps, threads and chunks."""

import ctypes
import itertools
import random
import subprocess
import sys

import pytest

from aotc.runtime.drivers.cuda import upload as cuda_upload
from aotc.runtime.drivers.cuda.device import Device
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull
from aotc.runtime.drivers.cuda.upload import Upload, lay_out


def tensors_of(seed, count=40):
    """(host memory, name → address and size): tensors in any order with gaps between them."""
    random_numbers = random.Random(seed)
    spans, used = [], random_numbers.randrange(64)
    for _ in range(count):
        nbytes = random_numbers.choice((0, 1, 2, 64, 100, 256, 1000, 5000))
        spans.append((used, nbytes))
        used += nbytes + random_numbers.choice((0, 1, 63, 255, 256, 257, 4000))
    host = ctypes.create_string_buffer(random_numbers.randbytes(used), used)
    base = ctypes.addressof(host)
    names = random_numbers.sample(range(count), count)
    table = {f"t{name}": (base + at, size) for name, (at, size) in zip(names, spans, strict=True)}
    return host, table


@pytest.mark.parametrize("seed", range(20))
def test_layout(seed):
    _, table = tensors_of(seed)
    runs, offsets, nbytes = lay_out(table)
    assert sum(run.end - run.begin for run in runs) <= nbytes
    taken = sorted((offsets[name], size) for name, (_, size) in table.items())
    for (start, size), (following, _) in itertools.pairwise(taken):
        assert start + size <= following
    assert taken[-1][0] + taken[-1][1] <= nbytes
    for name, (address, _) in table.items():
        assert (offsets[name] - address) % 256 == 0, "an address loses its alignment"


@pytest.mark.parametrize("is_separate", [False, True], ids=["one block", "separate"])
@pytest.mark.parametrize("is_direct", [False, True], ids=["ring", "direct"])
@pytest.mark.parametrize("seed", range(3))
def test_every_byte_arrives(seed, is_direct, is_separate, fake_cuda, monkeypatch):
    if not is_direct:
        monkeypatch.setattr(cuda_upload, "DIRECT_LIMIT_BYTES", 0)
    monkeypatch.setattr(cuda_upload, "CHUNK_BYTES", 333)
    host, table = tensors_of(seed)
    device = Device()
    upload = Upload(device, table, is_separate)
    upload.finish()
    pinned = set() if is_direct else {"cuMemFreeHost"}  # the pool keeps it for the next one
    assert set(device.owned) == {"cuMemFree_v2"} | pinned
    for name, (address, size) in table.items():
        found = ctypes.string_at(upload.addresses[name], size)
        assert found == ctypes.string_at(address, size), name
    rings = fake_cuda.calls["cuMemHostAlloc"]
    assert rings == 0 if is_direct else 1 <= rings <= cuda_upload.THREADS + 1
    device.close()
    assert fake_cuda.live() == {}
    assert len(host) > 0


def test_the_next_upload_takes_the_pinned_memory_of_the_last(fake_cuda, monkeypatch):
    monkeypatch.setattr(cuda_upload, "DIRECT_LIMIT_BYTES", 0)
    monkeypatch.setattr(cuda_upload, "THREADS", 0)
    host, table = tensors_of(3)
    device = Device()
    for _ in range(3):
        Upload(device, table).finish()
    assert fake_cuda.calls["cuMemHostAlloc"] == 1
    device.make_room()
    assert "cuMemFreeHost" not in set(device.owned)
    device.close()
    assert fake_cuda.live() == {}
    assert len(host) > 0


def test_nothing_to_bring(fake_cuda):
    device = Device()
    upload = Upload(device, {})
    upload.finish()
    assert upload.addresses == {}
    assert device.allocated_bytes == 0
    device.close()


def test_no_room_says_what_is_needed(fake_cuda):
    device = Device()
    with pytest.raises(DeviceMemoryFull, match="for the weights: needs") as caught:
        Upload(device, {"w": (1 << 20, fake_cuda.total_bytes + 1)})
    assert caught.value.needed > fake_cuda.total_bytes
    device.close()


def test_threads_that_the_system_refuses_are_done_without(fake_cuda, monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cuda_upload, "DIRECT_LIMIT_BYTES", 0)
    monkeypatch.setattr(cuda_upload, "CHUNK_BYTES", 500)
    monkeypatch.setattr(cuda_upload._thread, "start_new_thread", refuse)
    host, table = tensors_of(1)
    device = Device()
    upload = Upload(device, table)
    upload.finish()
    for name, (address, size) in table.items():
        assert ctypes.string_at(upload.addresses[name], size) == ctypes.string_at(address, size)
    device.close()
    assert len(host) > 0


def modules_after(code):
    command = [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_the_driver_brings_no_heavy_module():
    heavy = {"dataclasses", "typing", "pathlib", "json", "logging", "re", "inspect", "threading"}
    heavy |= {"contextlib", "numpy", "torch", "triton"}
    brought = modules_after("import aotc.runtime.drivers.cuda.driver") - modules_after("pass")
    assert "aotc.runtime.drivers.cuda.session" in brought
    assert not brought & heavy

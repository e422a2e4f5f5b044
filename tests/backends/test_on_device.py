"""Native functions in plans on a device, over the fake driver, whose memory is this process's.

The driver puts work off for as long as it may; a library in C cannot wait for it, so that the tests
have the stream end before each native call, and see in which order things were added to it.
"""

# ruff: noqa: E402
from __future__ import annotations

import hashlib
import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

for folder in ("runtime", "pack"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

import device_bundle

from aotc.aot.pack import BackendContents, pack
from aotc.runtime import load
from aotc.runtime.backends.errors import FunctionFailed, NativeDiffers
from aotc.runtime.bundle.native_plan import (
    SYMBOL,
    BackendEntry,
    NativeLaunch,
    NativeTensor,
)
from aotc.runtime.bundle.plan import NATIVE_ABI, Buffer, Kernel, Launch, LaunchPlan
from aotc.runtime.drivers import native as native_driver
from aotc.runtime.errors import BundleMalformed, SettingInvalid

NBYTES = 96
SHAPE = device_bundle.SHAPE
X = struct.unpack("<24f", device_bundle.NUMBERS)
TENSORS = (NativeTensor("f32", True, SHAPE), NativeTensor("f32", False, SHAPE))
COPY_IN = Launch(0, (1, 1, 1), (("arena", 0), ("input", 0), ("int", NBYTES)))
COPY_OUT = Launch(0, (1, 1, 1), (("output", 0), ("arena", 256), ("int", NBYTES)))
ROOM = ("arena", 512)


def scaled(out, x, grid=(1, 1, 1), room=ROOM):
    return Launch(1, grid, (out, x, room))


def native(launch, factor=2.0, workspace_bytes=NBYTES):
    scalars = [("real", float(factor).hex())]
    return NativeLaunch("on_device", "scaled", launch, TENSORS, scalars, workspace_bytes)


# Between two graphs; at both ends, on an input and an output; two in a row.
PLANS = {
    "middle": (
        (COPY_IN, scaled(("arena", 256), ("arena", 0)), COPY_OUT),
        (native(1),),
        2,
    ),
    "alone": ((scaled(("output", 0), ("input", 0)),), (native(0, 3.0),), 3),
    "row": (
        (scaled(("arena", 0), ("input", 0)), scaled(("output", 0), ("arena", 0))),
        (native(0), native(1)),
        4,
    ),
}


@pytest.fixture(scope="module")
def library(compile_library):
    return compile_library("on_device.c", "on_device")


@pytest.fixture
def cuda(fake_cuda, monkeypatch):
    fake_cuda.kernels["copy"] = device_bundle.copy
    fake_cuda.native_streams = []
    call = native_driver.DeviceStep.__call__

    def in_order(self, address_of, stream):
        fake_cuda.native_streams.append(stream)
        fake_cuda._finish(fake_cuda._stream(stream))
        call(self, address_of, stream)

    monkeypatch.setattr(native_driver.DeviceStep, "__call__", in_order)
    return fake_cuda


def write(path, library, launches, natives, **changes):
    target = device_bundle.target(nbytes=NBYTES)
    kernels = (*target.plan.kernels, Kernel(SYMBOL, "native functions"))
    buffers = tuple(
        Buffer(name, place, NBYTES) for name, place in (("a", 0), ("b", 256), ("w", 512))
    )
    plan = LaunchPlan(
        NATIVE_ABI, 768, 0, buffers=buffers, kernels=kernels, launches=launches, natives=natives
    )
    data = library.read_bytes()
    entry = BackendEntry("on_device", "0.0.1", hashlib.sha256(data).digest())
    contents = device_bundle.contents()
    contents = replace(
        contents,
        targets=(replace(target, plan=plan),),
        outputs=contents.outputs[:1],
        golden=None,
        backends=(BackendContents(entry, data),),
        **changes,
    )
    pack(contents, path)
    return path


@pytest.mark.parametrize("name", PLANS)
def test_in_the_streams_order(cuda, tmp_path, library, name):
    launches, natives, factor = PLANS[name]
    write(tmp_path / "bundle", library, launches, natives)
    expected = struct.pack("<24f", *(factor * x for x in X))
    with load(tmp_path / "bundle") as program:
        for _ in range(2):
            found = program(device_bundle.NUMBERS)
            assert bytes(memoryview(found).cast("B")) == expected
        assert len(cuda.native_streams) == 2 * len(natives)
        assert len(set(cuda.native_streams)) == 1


def test_a_function_that_fails(cuda, tmp_path, library):
    launches, _, _ = PLANS["middle"]
    write(tmp_path / "bundle", library, launches, (native(1, -1.0),))
    with load(tmp_path / "bundle") as program:
        for _ in range(2):
            with pytest.raises(FunctionFailed, match="`on_device::scaled` failed: factor -1 is"):
                program(device_bundle.NUMBERS)


def test_workspaces_are_reserved(cuda, tmp_path, library):
    launches, _, _ = PLANS["alone"]
    write(tmp_path / "bundle", library, launches, (native(0, 1.0, 8),))
    with pytest.raises(NativeDiffers, match="a workspace of 96 bytes, expected at most 8"):
        load(tmp_path / "bundle")


WRONG = {
    "no room": ((Launch(1, (1, 1, 1), (("output", 0), ("input", 0))),), "2 arguments, expected 3"),
    "room elsewhere": (
        (scaled(("output", 0), ("input", 0), room=("arena", 544)),),
        "workspace at",
    ),
    "tiles": ((scaled(("output", 0), ("input", 0), grid=(4, 1, 1)),), r"\[1, 1, 1\] on a device"),
}


@pytest.mark.parametrize("case", WRONG)
def test_plans_that_cannot_be(tmp_path, library, case):
    launches, text = WRONG[case]
    with pytest.raises(BundleMalformed, match=text):
        write(tmp_path / "bundle", library, launches, (native(0),))


def test_separate_buffers_are_refused(cuda, tmp_path, library, monkeypatch):
    launches, natives, _ = PLANS["alone"]
    write(tmp_path / "bundle", library, launches, natives)
    monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", "1")
    with pytest.raises(SettingInvalid, match="or native functions"):
        load(tmp_path / "bundle")


MODEL = """
import torch
from aotc import aot

scaled = aot.native_op(
    "on_device::scaled", backend={library!r}, fake=lambda x, factor: torch.empty_like(x),
    reference=lambda x, factor: x * factor,
)


class Model(torch.nn.Module):
    def forward(self, x):
        return scaled(x.relu(), 2.5).sum(-1)


model = Model()
example_inputs = (torch.randn(64, 512),)
"""


@pytest.mark.torch
@pytest.mark.triton
def test_built_without_a_device(aotc, cache, tmp_path, library):
    spec = tmp_path / "spec.py"
    spec.write_text(MODEL.format(library=str(library)))
    arguments = ["build", spec, "-o", tmp_path / "x", "--quiet", "--cache-dir", cache]
    code, _, words = aotc(*arguments, "--target", "cuda:sm_90", "--embed-backends")
    assert code == 0, words
    path = tmp_path / "x" / "targets" / "cuda-sm_90" / "plan.msgpack"
    plan = LaunchPlan.from_msgpack(path.read_bytes())
    (row,) = plan.natives
    assert row.scalars == (("real", (2.5).hex()),)
    assert row.workspace_bytes == 64 * 512 * 4
    assert len(plan.launches[row.launch].args) == 3
    assert plan.kernels[plan.launches[row.launch].kernel].image is None
    code, _, words = aotc(*arguments, "--force")
    assert code == 3
    assert "native function `on_device::scaled` takes no tensors of device `cpu`" in words

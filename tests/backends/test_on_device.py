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
from aotc.runtime.backends import steps as native_driver
from aotc.runtime.backends.errors import FunctionFailed, NativeDiffers
from aotc.runtime.bundle.native_plan import BackendEntry, NativeLaunch, NativeTensor
from aotc.runtime.bundle.plan import Buffer, Launch, LaunchPlan, Plan
from aotc.runtime.errors import BundleMalformed

NBYTES = 96
SHAPE = device_bundle.SHAPE
X = struct.unpack("<24f", device_bundle.NUMBERS)
COPY_IN = Launch(0, (1, 1, 1), (("arena", 0), ("input", 0), ("int", NBYTES)))
COPY_OUT = Launch(0, (1, 1, 1), (("output", 0), ("arena", 256), ("int", NBYTES)))
ROOM = ("arena", 512)


def scaled(out, x, factor=2.0, **rest):
    """out = factor · x."""
    tensors = (NativeTensor("f32", True, SHAPE, out), NativeTensor("f32", False, SHAPE, x))
    rest = {"workspace_bytes": NBYTES, "workspace": ROOM, **rest}
    return NativeLaunch("on_device", "scaled", tensors, [("real", float(factor).hex())], **rest)


MIDDLE = scaled(("arena", 256), ("arena", 0))
THRICE = scaled(("output", 0), ("input", 0), 3.0)
# Between two graphs; at both ends, on an input and an output; two in a row; a workspace that the
# function is asked for when the program is loaded.
PLANS = {
    "middle": ((COPY_IN, MIDDLE, COPY_OUT), 2),
    "alone": ((THRICE,), 3),
    "row": ((scaled(("arena", 0), ("input", 0)), scaled(("output", 0), ("arena", 0))), 4),
    "workspace": (
        (scaled(("output", 0), ("input", 0), 5.0, workspace_bytes=None, workspace=None),),
        5,
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


def write(path, library, steps, **changes):
    target = device_bundle.target(nbytes=NBYTES)
    buffers = tuple(
        Buffer(name, place, NBYTES) for name, place in (("a", 0), ("b", 256), ("w", 512))
    )
    plan = Plan.of(LaunchPlan(768, 0, buffers, target.plan.kernels, steps))
    data = library.read_bytes()
    entry = BackendEntry("on_device", "0.0.1", hashlib.sha256(data).digest())
    contents = device_bundle.contents()
    contents = replace(
        contents,
        targets=(replace(target, plan=plan),),
        entries=(contents.entries[0].replace(outputs=contents.entries[0].outputs[:1]),),
        golden={},
        backends=(BackendContents(entry, data),),
        **changes,
    )
    pack(contents, path)
    return path


@pytest.mark.parametrize("name", PLANS)
def test_in_the_streams_order(cuda, tmp_path, library, name):
    steps, factor = PLANS[name]
    natives = [step for step in steps if type(step) is NativeLaunch]
    write(tmp_path / "bundle", library, steps)
    expected = struct.pack("<24f", *(factor * x for x in X))
    with load(tmp_path / "bundle") as program:
        for _ in range(2):
            found = program(device_bundle.NUMBERS)
            assert bytes(memoryview(found).cast("B")) == expected
        assert len(cuda.native_streams) == 2 * len(natives)
        assert len(set(cuda.native_streams)) == 1


def test_a_function_that_fails(cuda, tmp_path, library):
    failing = scaled(("arena", 256), ("arena", 0), -1.0)
    write(tmp_path / "bundle", library, (COPY_IN, failing, COPY_OUT))
    with load(tmp_path / "bundle") as program:
        for _ in range(2):
            with pytest.raises(FunctionFailed, match="`on_device::scaled` failed: factor -1 is"):
                program(device_bundle.NUMBERS)


def test_workspaces_are_reserved(cuda, tmp_path, library):
    write(tmp_path / "bundle", library, (scaled(("output", 0), ("input", 0), workspace_bytes=8),))
    with pytest.raises(NativeDiffers, match="a workspace of 96 bytes, expected at most 8"):
        load(tmp_path / "bundle")


WRONG = {
    "no workspace": ({"workspace": None}, "a place in the arena"),
    "workspace elsewhere": ({"workspace": ("arena", 544)}, "workspace at"),
    "workspace in an output": ({"workspace": ("output", 0)}, "workspace at"),
    "tiles": ({"tiles": 4}, "1 on a device"),
}


@pytest.mark.parametrize("case", WRONG)
def test_plans_that_cannot_be(tmp_path, library, case):
    changes, text = WRONG[case]
    with pytest.raises(BundleMalformed, match=text):
        write(tmp_path / "bundle", library, (scaled(("output", 0), ("input", 0), **changes),))


def test_separate_buffers(cuda, tmp_path, library, monkeypatch):
    steps, factor = PLANS["middle"]
    write(tmp_path / "bundle", library, steps)
    monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", "1")
    with load(tmp_path / "bundle") as program:
        found = program(device_bundle.NUMBERS)
        expected = struct.pack("<24f", *(factor * x for x in X))
        assert bytes(memoryview(found).cast("B")) == expected
    assert cuda.live() == {}


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
    code, _, words = aotc(*arguments, "--target", "cuda:sm_121", "--embed-backends")
    assert code == 0, words
    path = tmp_path / "x" / "targets" / "cuda-sm_121" / "plan.msgpack"
    (row,) = Plan.from_msgpack(path.read_bytes()).at().natives
    assert row.scalars == (("real", (2.5).hex()),)
    assert row.workspace_bytes == 64 * 512 * 4
    assert row.workspace is not None
    code, _, words = aotc(*arguments, "--force")
    assert code == 3
    assert "native function `on_device::scaled` takes no tensors of device `cpu`" in words

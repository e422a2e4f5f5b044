"""Bundles that run ops through torch on a device: the order of graphs and ops on a fake driver.

Its memory is this process's, so that torch's ops for the host stand in for those of the device; it
puts work off for as long as it may, so that an op which does not wait for its stream reads nothing.
"""

from __future__ import annotations

import struct
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))

import device_bundle  # noqa: E402

from aotc.aot.pack import Golden, TensorData, pack  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.bundle.manifest import MAIN  # noqa: E402
from aotc.runtime.bundle.plan import Buffer, Launch, LaunchPlan, Plan  # noqa: E402
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall  # noqa: E402
from aotc.runtime.errors import EnvironmentFault  # noqa: E402
from aotc.runtime.programs import fallback  # noqa: E402

pytestmark = pytest.mark.torch
NBYTES = 96
SHAPE = device_bundle.SHAPE
X = struct.unpack("<24f", device_bundle.NUMBERS)
WEIGHT = struct.unpack("<6f", device_bundle.WEIGHT)


def tensor(space, value, shape=SHAPE):
    return CallTensor("f32", (space, value), shape)


def negated(source, target):
    return TorchCall("aten::neg", (source,), (target,), (("", "tensor", 0),))


# Calls in the middle; at both ends, on an input and a weight; two in a row; no launch at all.
COPY_IN = Launch(0, (1, 1, 1), (("arena", 0), ("input", 0), ("int", NBYTES)))
COPY_OUT = Launch(0, (1, 1, 1), (("output", 0), ("arena", 256), ("int", NBYTES)))
WEIGHT_OUT = negated(tensor("weight", "layer.weight", (6,)), tensor("output", 1, (6,)))
PLANS = {
    "middle": (WEIGHT_OUT, COPY_IN, negated(tensor("arena", 0), tensor("arena", 256)), COPY_OUT),
    "ends": (negated(tensor("input", 0), tensor("arena", 256)), COPY_OUT, WEIGHT_OUT),
    "row": (
        COPY_IN,
        negated(tensor("arena", 0), tensor("arena", 256)),
        TorchCall(
            "aten::add.Tensor", (tensor("arena", 256),), (tensor("output", 0),),
            (("", "tensor", 0), ("", "tensor", 0), ("alpha", "int", 0)),
        ),
        WEIGHT_OUT,
    ),
    "no launch": (WEIGHT_OUT, negated(tensor("input", 0), tensor("output", 0))),
}  # fmt: skip


class OnFake(fallback.OnDevice):
    """torch's host in the place of the device; an op waits for what its stream holds."""

    __slots__ = ()
    fake = None
    streams: list = []  # noqa: RUF012

    def __init__(self, torch, *device):
        super().__init__(torch, *device)
        self.device = "cpu"

    def bytes_at(self, address, nbytes):
        memory = self.fake.memory(address, nbytes)
        return torch.frombuffer(memory, dtype=torch.uint8)

    @contextmanager
    def running(self, stream):
        self.streams.append(stream)
        self.fake._finish(self.fake._stream(stream))
        yield


@pytest.fixture
def cuda(fake_cuda, monkeypatch):
    fake_cuda.kernels["copy"] = device_bundle.copy
    OnFake.fake, OnFake.streams = fake_cuda, []
    monkeypatch.setattr(fallback, "OnDevice", OnFake)
    return fake_cuda


def write(path, name):
    target = device_bundle.target(nbytes=NBYTES)
    buffers = (Buffer("a", 0, NBYTES), Buffer("b", 256, NBYTES))
    plan = Plan.of(LaunchPlan(512, 0, buffers, target.plan.kernels, PLANS[name]))
    y, w = struct.pack("<24f", *(-x for x in X)), struct.pack("<6f", *(-x for x in WEIGHT))
    golden = Golden(
        (TensorData("f32", SHAPE, device_bundle.NUMBERS),),
        (TensorData("f32", SHAPE, y), TensorData("f32", (6,), w)),
        (0.0, 0.0),
    )
    contents = replace(device_bundle.contents(), targets=(replace(target, plan=plan),))
    pack(replace(contents, golden={MAIN: golden}), path)
    return path


def numbers(values):
    return tuple(-x for x in struct.unpack(f"<{len(values) // 4}f", values))


@pytest.mark.parametrize("name", PLANS)
def test_graphs_and_ops_follow_each_other_on_the_stream(name, tmp_path, cuda):
    with load(write(tmp_path / "bundle", name)) as program:
        for numbers_of in (device_bundle.NUMBERS, device_bundle.OTHERS, device_bundle.NUMBERS):
            y, w = program(numbers_of)
            assert numbers(bytes(y)) == struct.unpack("<24f", numbers_of)
            assert numbers(bytes(w)) == WEIGHT
        assert sum(program.fallback_calls.values()) == 3 * len(
            [step for step in PLANS[name] if type(step) is TorchCall]
        )
        assert len(set(OnFake.streams)) == 1
    assert cuda.live() == {}


def test_device_arrays_and_streams(tmp_path, cuda):
    with load(write(tmp_path / "bundle", "ends")) as program:
        block = device_bundle.DeviceBlock(device_bundle.NUMBERS)
        y, w = program(device_bundle.Lender(block))
        assert numbers(device_bundle.numbers(y, cuda)) == X
        assert numbers(device_bundle.numbers(w, cuda)) == WEIGHT
        assert OnFake.streams == [0, 0]
        del y, w, block


def test_sessions_and_bound_calls(tmp_path, cuda):
    with load(write(tmp_path / "bundle", "middle")) as program:
        with program.session() as session:
            y, _ = session(device_bundle.OTHERS)
            assert numbers(bytes(y)) == struct.unpack("<24f", device_bundle.OTHERS)
        given = bytearray(device_bundle.NUMBERS)
        with program.bind(given) as bound:
            assert numbers(bytes(bound()[0])) == X
            given[:] = device_bundle.OTHERS
            assert numbers(bytes(bound()[0])) == struct.unpack("<24f", device_bundle.OTHERS)
    assert cuda.live() == {}


def test_what_does_not_fit_leaves_nothing_behind(tmp_path, cuda):
    path = write(tmp_path / "bundle", "middle")
    load(path).close()
    for name in ("cuMemAlloc_v2", "cuGraphCreate", "cuGraphAddKernelNode_v2"):
        cuda.fail(name, 2, nth=2)
        with pytest.raises(EnvironmentFault):
            load(path)
        assert cuda.live() == {}, name


def test_buffers_of_their_own(tmp_path, cuda, monkeypatch):
    monkeypatch.setenv("AOTC_SEPARATE_BUFFERS", "1")
    with load(write(tmp_path / "bundle", "middle")) as program:
        y, _ = program(device_bundle.NUMBERS)
        assert numbers(bytes(y)) == X
    assert cuda.live() == {}

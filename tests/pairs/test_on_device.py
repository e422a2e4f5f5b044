"""Every combination of what a plan can hold on a CUDA device, over the fake driver.

{fixed shapes, sizes of a call} × {stateless, a state} × {all kernels, an op of torch's between} ×
{no, a native function}; each called, bound, with `out=`, and from two threads.
"""

# ruff: noqa: E402
from __future__ import annotations

import hashlib
import itertools
import struct
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from one_entry import one_entry

torch = pytest.importorskip("torch")
for folder in ("runtime", "pack"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))

import device_bundle
from fake_cubin import text_image
from plan_trees import with_uses

from aotc.aot.pack import BackendContents, TargetContents, TensorData, pack
from aotc.runtime import load
from aotc.runtime.backends import steps as native_driver
from aotc.runtime.bundle import schema
from aotc.runtime.bundle.extent import Extent
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.native_plan import BackendEntry
from aotc.runtime.bundle.plan import PLAN, PLAN_ABI, Image, Kernel, Plan
from aotc.runtime.bundle.plan_rules import features_of
from aotc.runtime.bundle.signature import Dim
from aotc.runtime.programs import fallback
from tests.backends.conftest import compile_library  # noqa: F401  a fixture

pytestmark = pytest.mark.torch
FEATURES = ("dynamic-shapes", "state", "torch", "native-back-ends")
CASES = [
    tuple(name for name, is_there in zip(FEATURES, row, strict=True) if is_there)
    for row in itertools.product((False, True), repeat=4)
]
ROW, FIXED_ROWS, MOST_ROWS = 24, 4, 64
STATE = {"initial": "w", "initial_bytes": 0, "nbytes": ROW}
WEIGHT = struct.pack("<6f", 1, 2, 3, 4, 5, 6)
# Of n rows: 24, bytes, 255, bytes + 255, 256, blocks, the buffer's bytes, then two, three and four.
SIZES = [
    ["number", ROW, 0], ["mul", 0, 1], ["number", 255, 0], ["add", 2, 3], ["number", 256, 0],
    ["floordiv", 4, 5], ["mul", 6, 5], ["add", 7, 7], ["add", 8, 7], ["add", 9, 7],
]  # fmt: skip


def plan_of(features, image) -> Plan:
    """x → a, a → ±b, b → 1 or 2 · c, c → y; the state → s and c's first row → the state."""
    is_dynamic = "dynamic-shapes" in features
    rows, nbytes, second, third, fourth, end = (
        ([0], [2], [7], [8], [9], [10])
        if is_dynamic
        else (FIXED_ROWS, FIXED_ROWS * ROW, 256, 512, 768, 1024)
    )
    a, b, c, workspace = ["arena", 0], ["arena", second], ["arena", third], ["arena", fourth]

    def copy(to, source, size=nbytes):
        args = [to, source, ["int", size]]
        return {"kind": "kernel", "kernel": 0, "grid": [1, 1, 1], "args": args, "maps": []}

    def tensor(memory, **more):
        return {"dtype": "f32", "memory": memory, "shape": [rows, 6], **more}

    negated = {
        "kind": "torch", "op": "aten::neg", "arguments": [["", "tensor", 0]],
        "operands": [tensor(a)], "results": [tensor(b)],
    }  # fmt: skip
    doubled = {
        "kind": "native", "backend": "on_device", "function": "scaled", "tiles": 1,
        "scalars": [["real", (2.0).hex()]],
        "tensors": [tensor(c, is_written=1), tensor(b, is_written=0)],
        "workspace": None if is_dynamic else workspace,
        "workspace_bytes": None if is_dynamic else nbytes,
    }  # fmt: skip
    kept = [copy(["output", 1], ["state", 0], ROW), copy(["state", 0], c, ROW)]
    steps = [
        copy(a, ["input", 0]),
        negated if "torch" in features else copy(b, a),
        doubled if "native-back-ends" in features else copy(c, b),
        copy(["output", 0], c),
        *(kept if "state" in features else [copy(["output", 1], ["weight", "w"], ROW)]),
    ]
    offsets = zip("abcd", (0, second, third, fourth), strict=True)
    variant = {
        "arena_bytes": end,
        "buffers": [{"name": name, "offset": at, "nbytes": nbytes} for name, at in offsets],
        "checks": [],
        "ranges": [[1, MOST_ROWS]] if is_dynamic else [],
        "steps": steps,
        "zeroed_bytes": 0,
        "entry": 0,
    }
    tree = {
        "abi": PLAN_ABI,
        "dims": int(is_dynamic),
        "features": [],
        "kernels": [schema.write(Kernel, Kernel("copy", "copy", Image(0, len(image), 32, 0, 0)))],
        "limits": [],
        "scratch_bytes": 0,
        "sizes": SIZES if is_dynamic else [],
        "states": [{"initial": "w", "initial_bytes": 0, "nbytes": ROW}]
        if "state" in features
        else [],
        "variants": [variant],
    }
    tree = with_uses(tree)
    plan = schema.read(PLAN, tree, "plan", int(is_dynamic) + len(tree["sizes"]))
    features = features_of(plan.dims, plan.states, plan.variants)
    return Plan.from_map({**tree, "features": list(features)})


def write(path, features, library):
    image = text_image({"copy": device_bundle.PARAMETERS})
    is_dynamic = "dynamic-shapes" in features
    rows = Extent(0, "n") if is_dynamic else FIXED_ROWS
    plan = plan_of(features, image)
    data = library.read_bytes()
    entry = BackendEntry("on_device", "0.0.1", hashlib.sha256(data).digest())
    has_native = "native-back-ends" in features
    contents = one_entry(
        inputs=(TensorSpec("x", "f32", (rows, 6)),),
        outputs=(TensorSpec("y", "f32", (rows, 6)), TensorSpec("s", "f32", (6,))),
        targets=(TargetContents("cuda-sm_90", "cuda", ("sm_90",), plan, image),),
        weights={"w": TensorData("f32", (6,), WEIGHT)},
        dims=(Dim("n", 1, MOST_ROWS, 0, 0),) if is_dynamic else (),
        backends=(BackendContents(entry, data),) if has_native else (),
        states=(TensorSpec("last", "f32", (6,)),) if "state" in features else (),
    )
    pack(contents, path)
    return path


@pytest.fixture(scope="module")
def library(compile_library):  # noqa: F811
    return compile_library("on_device.c", "on_device")


@pytest.fixture
def cuda(fake_cuda, monkeypatch):
    """The fake driver; torch's ops and native functions wait for what their stream holds."""
    fake_cuda.kernels["copy"] = device_bundle.copy

    class OnFake(fallback.OnDevice):
        def __init__(self, module, *device):
            super().__init__(module, *device)
            self.device = "cpu"

        def bytes_at(self, address, nbytes):
            return torch.frombuffer(fake_cuda.memory(address, nbytes), dtype=torch.uint8)

        @contextmanager
        def running(self, stream):
            fake_cuda._finish(fake_cuda._stream(stream))
            yield

    call = native_driver.DeviceStep.__call__

    def in_order(self, address_of, stream):
        fake_cuda._finish(fake_cuda._stream(stream))
        call(self, address_of, stream)

    monkeypatch.setattr(fallback, "OnDevice", OnFake)
    monkeypatch.setattr(native_driver.DeviceStep, "__call__", in_order)
    return fake_cuda


def rows_of(rows, start):
    return memoryview(
        struct.pack(f"<{rows * 6}f", *range(start, start + rows * 6))
    ).cast("B").cast("f", (rows, 6))  # fmt: skip


def expected(features, x, last):
    """(y, s, the state after the call) as bytes."""
    factor = (-1 if "torch" in features else 1) * (2 if "native-back-ends" in features else 1)
    values = struct.unpack(f"<{len(bytes(x)) // 4}f", bytes(x))
    y = struct.pack(f"<{len(values)}f", *(factor * value for value in values))
    return y, last, y[:ROW] if "state" in features else last


def check(found, wanted):
    assert [bytes(memoryview(each).cast("B")) for each in found] == list(wanted)


@pytest.mark.parametrize("features", CASES, ids=lambda features: "-".join(features) or "plain")
def test_a_bundle(features, tmp_path, cuda, library, monkeypatch):
    monkeypatch.setenv("AOTC_DYNAMIC_ARENA", "grow")  # a state stays where the arena grows
    sizes = (4, 1, 40, 12, 4) if "dynamic-shapes" in features else (FIXED_ROWS,) * 3
    with load(write(tmp_path / "bundle", features, library)) as program:
        serve(program, features, sizes)
        thread = threading.Thread(target=serve, args=(program, features, sizes))
        failures: list = []
        monkeypatch.setattr(threading, "excepthook", failures.append)
        thread.start()
        thread.join()
        assert not failures
        if "torch" in features:
            assert set(program.fallback_calls) == {"aten::neg"}
    assert cuda.live() == {}


def serve(program, features, sizes):
    """Calls of the program, of a session with `out=`, and bound ones, from the initial state."""
    last = kept = held = WEIGHT
    with program.session() as session:
        for number, rows in enumerate(sizes):
            x = rows_of(rows, number)
            y, s, last = expected(features, x, last)
            check(program(x), (y, s))
            y, s, kept = expected(features, x, kept)
            out = (memoryview(bytearray(len(y))).cast("f", (rows, 6)), memoryview(bytearray(ROW)))
            session(x, out=(out[0], out[1].cast("f", (6,))))
            check(out, (y, s))
        if "state" in features:
            assert bytes(session.state["last"]) == bytes(program.state["last"]) == kept
            session.reset()
            assert bytes(session.state["last"]) == WEIGHT
    given = bytearray(bytes(rows_of(sizes[0], 7)))
    x = memoryview(given).cast("f", (sizes[0], 6))
    with program.bind(x) as bound:
        for _ in range(2):
            y, s, held = expected(features, x, held)
            check(bound(), (y, s))
            given[:4] = struct.pack("<f", 99)

"""A bundle of a few hundred bytes for the null driver whose plan calls torch between two copies:
`y` is the input `x` minus a weight, sorted along rows; `order` is the order of the sort."""

from __future__ import annotations

import struct
from pathlib import Path

from one_entry import one_entry

from aotc.aot.pack import BundleContents, Golden, TargetContents, TensorData, pack
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.bundle.torch_calls import CallTensor, TorchCall

SHAPE = (2, 3)
NBYTES = 24
INPUT = (3.0, 1.0, 2.0, -1.0, 5.0, 0.0)
OUTPUT = (0.0, 1.0, 2.0, -2.0, -1.0, 4.0)  # of a weight of ones
ORDER = (1, 2, 0, 0, 2, 1)


def plan() -> LaunchPlan:
    """x → arena (a launch) → minus the weight, sorted (two calls) → y (a launch) and order."""
    grid = (1, 1, 1)
    difference = CallTensor("f32", ("arena", 64), SHAPE)
    values = CallTensor("f32", ("arena", 128), SHAPE)
    return LaunchPlan(
        arena_bytes=192,
        scratch_bytes=0,
        buffers=(
            Buffer("copy of x", 0, NBYTES),
            Buffer("difference", 64, NBYTES),
            Buffer("values", 128, NBYTES),
        ),
        kernels=(Kernel("null_copy", "copy"),),
        steps=(
            Launch(0, grid, (("arena", 0), ("input", 0), ("int", NBYTES))),
            TorchCall(
                "aten::sub.Tensor",
                (
                    CallTensor("f32", ("arena", 0), SHAPE),
                    CallTensor("f32", ("weight", "layer.weight"), (3,)),
                ),
                (difference,),
                (("", "tensor", 0), ("", "tensor", 1), ("alpha", "float", (1.0).hex())),
            ),
            TorchCall(
                "aten::sort.stable",
                (difference,),
                (values, CallTensor("i64", ("output", 1), SHAPE)),
                (("", "tensor", 0), ("dim", "int", 1), ("stable", "bool", 1)),
            ),
            Launch(0, grid, (("output", 0), ("arena", 128), ("int", NBYTES))),
        ),
    )


def contents() -> BundleContents:
    """The bundle's contents with its golden numbers."""
    spec = TensorSpec("x", "f32", SHAPE)
    return one_entry(
        inputs=(spec,),
        outputs=(TensorSpec("y", "f32", SHAPE), TensorSpec("order", "i64", SHAPE)),
        targets=(TargetContents("null", "null", (), Plan.of(plan()), b"no code"),),
        weights={"layer.weight": TensorData("f32", (3,), struct.pack("<3f", 1, 1, 1))},
        golden=Golden(
            (TensorData("f32", SHAPE, struct.pack("<6f", *INPUT)),),
            (
                TensorData("f32", SHAPE, struct.pack("<6f", *OUTPUT)),
                TensorData("i64", SHAPE, struct.pack("<6q", *ORDER)),
            ),
            (1e-6, 0.0),
        ),
        extras={"provenance.json": b"{}\n"},
    )


def write(path: Path) -> str:
    """Pack it; returns the digest."""
    return pack(contents(), path).digest

"""A bundle of a few hundred bytes for the null driver that gives the input of the call before.

Its plan copies the state `last`, which starts as a weight, to the output, and then the input to the
state. `spare` starts with zeros, and nothing reads it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from one_entry import one_entry

from aotc.aot.pack import BundleContents, Golden, TargetContents, TensorData, pack
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Kernel, Launch, LaunchPlan, Plan, StateSlot

SHAPE, NBYTES = (2, 3), 24
FIRST = (9.0, 8.0, 7.0, 6.0, 5.0, 4.0)
INPUT = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)


SPARE = TensorSpec("spare", "i64", ())


def plan(spare: TensorSpec = SPARE) -> LaunchPlan:
    """y ← last, last ← x."""
    grid = (1, 1, 1)
    return LaunchPlan(
        arena_bytes=0,
        scratch_bytes=0,
        buffers=(),
        kernels=(Kernel("null_copy", "copy"),),
        steps=(
            Launch(0, grid, (("output", 0), ("state", 0), ("int", NBYTES))),
            Launch(0, grid, (("state", 0), ("input", 0), ("int", NBYTES))),
        ),
        states=(StateSlot(NBYTES, "state.last"), StateSlot(spare.nbytes)),
    )


def contents(spare: TensorSpec = SPARE) -> BundleContents:
    """The bundle's contents with its golden numbers."""
    return one_entry(
        inputs=(TensorSpec("x", "f32", SHAPE),),
        outputs=(TensorSpec("y", "f32", SHAPE),),
        states=(TensorSpec("last", "f32", SHAPE), spare),
        targets=(TargetContents("null", "null", (), Plan.of(plan(spare)), b"no code"),),
        weights={"state.last": TensorData("f32", SHAPE, struct.pack("<6f", *FIRST))},
        golden=Golden(
            (TensorData("f32", SHAPE, struct.pack("<6f", *INPUT)),),
            (TensorData("f32", SHAPE, struct.pack("<6f", *FIRST)),),
            (0.0,),
        ),
        extras={"provenance.json": b"{}\n"},
    )


def write(path: Path, spare: TensorSpec = SPARE) -> str:
    """Pack it; returns the digest."""
    return pack(contents(spare), path).digest

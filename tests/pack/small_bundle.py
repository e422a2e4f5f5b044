"""A bundle of a few hundred bytes for the null driver: output `y` is a copy of input `x`, by way of
the arena, and output `w` is a copy of the weight."""

from __future__ import annotations

import struct
from pathlib import Path

from one_entry import one_entry

from aotc.aot.pack import Golden, TargetContents, TensorData, pack
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Kernel, Launch, LaunchPlan, Plan

SHAPE = (2, 3)
COUNTED = (
    "manifest.msgpack",
    "targets/null/kernels.so",
    "targets/null/plan.msgpack",
    "weights.safetensors",
)


def copy_plan(nbytes: int, weight_bytes: int, weight: str = "layer.weight") -> LaunchPlan:
    """x → arena → y, weight → w."""
    grid = (1, 1, 1)
    return LaunchPlan(
        arena_bytes=-(-nbytes // 64) * 64,
        scratch_bytes=0,
        buffers=(Buffer("copy of x", 0, nbytes),),
        kernels=(Kernel("null_copy", "copy"),),
        steps=(
            Launch(0, grid, (("arena", 0), ("input", 0), ("int", nbytes))),
            Launch(0, grid, (("output", 0), ("arena", 0), ("int", nbytes))),
            Launch(0, grid, (("output", 1), ("weight", weight), ("int", weight_bytes))),
        ),
    )


def contents(value: float = 1.0, dtype: str = "f32", shape: tuple[int, ...] = SHAPE):
    """Contents whose weight is six times `value`; `x` and `y` have the type given."""
    spec = TensorSpec("x", dtype, shape)
    weight = TensorData("f32", (6,), struct.pack("<6f", *[value] * 6))
    zeros = TensorData(dtype, shape, bytes(spec.nbytes))
    return one_entry(
        inputs=(spec,),
        outputs=(TensorSpec("y", dtype, shape), TensorSpec("w", "f32", (6,))),
        targets=(
            TargetContents("null", "null", (), Plan.of(copy_plan(spec.nbytes, 24)), b"no code"),
        ),
        weights={"layer.bias": TensorData("u8", (3,), b"abc"), "layer.weight": weight},
        golden=Golden((zeros,), (zeros, weight), (0.0, 1e-4)),
        extras={"provenance.json": b"{}\n", "sources/copy.py": b"# a kernel\n"},
    )


def write(path: Path, value: float = 1.0, force: bool = False) -> str:
    """Pack it; returns the digest."""
    return pack(contents(value), path, force).digest


def write_writable(path: Path) -> Path:
    """Pack it and make its files writable, so that tests can damage them."""
    write(path)
    for file in path.rglob("*"):
        file.chmod(0o755 if file.is_dir() else 0o644)
    return path


def snapshot(path: Path) -> dict[str, bytes]:
    """Name → bytes of every file of a bundle."""
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


def names(path: Path) -> list[str]:
    """Names of what lies in a folder."""
    return sorted(each.name for each in path.iterdir())

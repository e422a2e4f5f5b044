"""Tensor maps: boxes and patterns are Triton's own, and a plan keeps none that no device takes."""

from dataclasses import replace

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aotc.aot.lower.spec import Candidate, Form, KernelSpec, TensorMap
from aotc.runtime.bundle.plan import Image, Kernel, Launch, LaunchPlan, Plan
from aotc.runtime.errors import BundleMalformed

TRITON = {"bf16": "bf16", "f16": "fp16", "f32": "fp32"}
ROW = TensorMap("a", 0, "bf16", 8, (128, 256), (256, 1), (64, 64))


@triton.jit
def product(out0, a, b, BM: tl.constexpr, BN: tl.constexpr):
    """A tile of a · bᵀ."""
    value = tl.dot(a.load([0, 0]), b.load([0, 0]).T, input_precision="tf32")
    place = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(out0 + place, value)


@pytest.mark.triton
@pytest.mark.parametrize("dtype", TRITON)
@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(64, 128, 64), (128, 256, 128), (64, 32, 32), (64, 16, 16)]
)
def test_boxes_are_those_of_the_kernel(dtype, rows, columns, depth):
    kind = TRITON[dtype]
    a = TensorMap("a", 0, kind, 0, (512, 512), (512, 1), (rows, depth))
    b = TensorMap("b", 0, kind, 0, (512, 512), (512, 1), (columns, depth))
    signature = {"out0": "*fp32", "a": a.type, "b": b.type, "BM": "constexpr", "BN": "constexpr"}
    source = ASTSource(product, signature, {"BM": rows, "BN": columns}, {})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    for row, facts in zip((a, b), made.metadata.tensordesc_meta, strict=True):
        found = row.placed()
        assert list(found.box) == list(facts["block_size"])
        assert {0: 0, 1: 32, 2: 64, 3: 128}[facts["swizzle"]] == found.swizzle_bytes


def plan_of(row):
    launch = Launch(0, (1, 1, 1), (("input", 0), ("int", 3)), (row,))
    kernel = Kernel("k", "k", Image(0, 1, 32, 0, 0))
    return Plan.of(LaunchPlan(0, 0, (), (kernel,), (launch,)))


def changed(**fields):
    row = ROW.placed().as_map() | fields
    return type(ROW.placed())(**row)


def test_a_plan_keeps_its_maps():
    plan = plan_of(ROW.placed())
    assert Plan.from_msgpack(plan.to_msgpack()) == plan


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"argument": 2}, "argument"),
        ({"argument": 1}, "argument"),
        ({"strides": (256, 2)}, "strides"),
        ({"strides": (250, 1)}, "maps"),
        ({"start": 1}, "maps"),
        ({"strides": (1,)}, "maps"),
        ({"box": (512, 64)}, "box"),
        ({"box": (64, 4)}, "box"),
        ({"swizzle_bytes": 64}, "swizzle_bytes"),
        ({"swizzle_bytes": 48}, "swizzle_bytes"),
        ({"dtype": "i64"}, "dtype"),
    ],
)
def test_maps_that_no_device_takes(fields, field):
    with pytest.raises(BundleMalformed) as caught:
        plan_of(changed(**fields)).to_msgpack()
    assert field in caught.value.field


def test_maps_need_a_device_with_images():
    plan = plan_of(ROW.placed())
    plan.validate([(1, 0)], (), "plan", 1)
    launch = Launch(0, (1, 1, 1), (("input", 0),), (ROW.placed(),))
    host = Plan.of(LaunchPlan(0, 0, (), (Kernel("k", "k"),), (launch,)))
    with pytest.raises(BundleMalformed, match="maps"):
        host.validate([(1, 0)], (), "plan", None)


def test_kernels_of_other_memory_are_other_kernels():
    form = Form("mapped", "text", "k")
    rows = [
        Candidate((), (1, 1, 1), "mapped", (), (each,)) for each in (ROW, replace(ROW, start=0))
    ]
    first, second = (KernelSpec("k", (form,), (), (row,), 0, 0) for row in rows)
    assert first.digest != second.digest

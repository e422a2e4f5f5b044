"""The work of lowering a kernel grows with its operations, however often a value is read."""

from __future__ import annotations

import sys

import pytest

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import lower

pytestmark = pytest.mark.triton

HEAD = """import triton
import triton.language as tl


@triton.jit
def kernel(a, b, out, other):
"""
POINTWISE = ["x = tl.arange(0, 64)", "v = tl.load(a + x)"]
PRODUCT = [
    "x, y = tl.arange(0, 32)[:, None], tl.arange(0, 64)[None, :]",
    "k = tl.arange(0, 16)",
    "left, right = tl.load(a + x * 16 + k[None, :]), tl.load(b + k[:, None] * 64 + y)",
    'v = tl.dot(left, right, input_precision="ieee")',
    "x = x * 64 + y",
]
# How a chain of values begins, each of which the next one reads three times, and how it ends.
KINDS = {
    "stored": (POINTWISE, ["tl.store(out + x, v)"]),
    "stored twice": (POINTWISE, ["tl.store(out + x, v)", "tl.store(other + x, v + 1.0)"]),
    "summed": (POINTWISE, ["tl.store(out, tl.sum(v))"]),
    "summed and stored": (POINTWISE, ["tl.store(other + x, v)", "tl.store(out, tl.sum(v))"]),
    "broadcast": (
        ["x, y = tl.arange(0, 64)[None, :], tl.arange(0, 4)[:, None] * 64", "v = tl.load(a + x)"],
        ["tl.store(out + x + y, v + tl.load(b + x + y))"],
    ),
    "of a product": (PRODUCT, ["tl.store(out + x, v)"]),
}
STEPS = ["v = tl.where(v < {at}.0, v + 1.0, v * 2.0)", "v = tl.exp(v) + v * tl.sqrt(v)"]


def calls_of_lowering(kind: str, step: str, count: int) -> int:
    """How many functions of the compiler are called for a chain of so many steps."""
    begin, end = KINDS[kind]
    lines = [*begin, *(step.format(at=at) for at in range(count)), *end]
    kernel = toolchain.load_kernel(HEAD + "".join(f"    {line}\n" for line in lines), "kernel")
    ttir = toolchain.ttir_text(kernel, [(name, "*fp32") for name in kernel.arg_names], {})
    calls = 0

    def count_call(frame: object, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        lower(ttir, ISAS["x86-64-v3"], no_alias=True)
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("step", STEPS, ids=["chosen", "computed"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_lowering_grows_with_the_kernel(kind, step):
    none, some, more = (calls_of_lowering(kind, step, count) for count in (0, 6, 12))
    assert more - none < 3 * (some - none)

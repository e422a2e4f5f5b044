"""Quotients of few lanes: some of two end LLVM's process, so that they are computed one by one."""

from __future__ import annotations

import pytest

from aotc.aot.targets import toolchain
from aotc.aot.targets.cpu.compile import compile_library
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.workers import Request, Workers

pytestmark = pytest.mark.triton

SOURCE = """import triton
import triton.language as tl


@triton.jit
def places(a, out, B: tl.constexpr):
    x = tl.arange(0, B)
    wide = tl.minimum(tl.maximum((x * 3 + 1).to(tl.int64) * 2, 0), 11)
    place = wide.to(tl.int32)
    at = (((place % 3) * 4) // 3) * 12 + (place // 3) * 3 + (place * 4) % 3
    tl.store(out + x, tl.load(a + at))
"""


@pytest.mark.parametrize("isa", ISAS)
def test_quotients_of_few_lanes_compile(isa):
    function = f"{compile_library.__module__}:{compile_library.__name__}"
    kernel = toolchain.load_kernel(SOURCE, "places")
    params = [("a", "*bf16"), ("out", "*bf16"), ("B", "constexpr")]
    texts = [toolchain.ttir_text(kernel, params, {"B": lanes}) for lanes in (1, 2, 4, 8, 16, 32)]
    requests = [Request("places", function, (text, isa, True)) for text in texts]
    with Workers(2) as workers:
        assert [each.error for each in workers.map(requests)] == [None] * len(requests)

"""Kernels compiled by Triton alone, for tests of the driver."""

import functools
from dataclasses import dataclass

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from aotc.runtime.bundle.plan import Image

BLOCK = 1024


@triton.jit
def add(x, y, z, n, B: tl.constexpr):
    """z = x + y, float32."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


@triton.jit
def tally(counter, x, z, n, B: tl.constexpr):
    """z = x + how many programs came before, and the counter back to zero by the last one."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    count = tl.atomic_add(counter, 1)
    tl.store(z + at, tl.load(x + at, mask=at < n), mask=at < n)
    if count == tl.num_programs(0) - 1:
        tl.store(counter, 0)


@triton.jit
def described_copy(x, z, rows, B: tl.constexpr):
    """z = x of [rows, 64] float32 by descriptors that are made on the device."""
    source = tl.make_tensor_descriptor(x, [rows, 64], [64, 1], [B, 64])
    to = tl.make_tensor_descriptor(z, [rows, 64], [64, 1], [B, 64])
    at = tl.program_id(0) * B
    to.store([at, 0], source.load([at, 0]))


@triton.jit
def shared_product(x, y, z, B: tl.constexpr):
    """z = x @ y of [128, 128] bfloat16, with far more than 48 KiB of shared memory."""
    at = tl.arange(0, 128)
    total = tl.zeros((128, 128), tl.float32)
    for k in range(0, 128, B):
        inner = k + tl.arange(0, B)
        a = tl.load(x + at[:, None] * 128 + inner[None, :])
        b = tl.load(y + inner[:, None] * 128 + at[None, :])
        total = tl.dot(a, b, total)
    tl.store(z + at[:, None] * 128 + at[None, :], total.to(tl.bfloat16))


@triton.jit
def stray(z, B: tl.constexpr):
    """Write where nothing is."""
    tl.store(z + tl.arange(0, B).to(tl.int64) * 1000000007, tl.zeros((B,), tl.float32))


KERNELS = {
    "add": (add, ("*fp32", "*fp32", "*fp32", "i32"), BLOCK),
    "tally": (tally, ("*i32", "*fp32", "*fp32", "i32"), BLOCK),
    "described_copy": (described_copy, ("*fp32", "*fp32", "i32"), 32),
    "shared_product": (shared_product, ("*bf16", "*bf16", "*bf16"), 64),
    "stray": (stray, ("*fp32",), BLOCK),
}


@dataclass(frozen=True)
class Compiled:
    """A cubin and what a launch of it takes."""

    symbol: str
    code: bytes
    threads: int
    shared_bytes: int
    scratch_bytes: int

    def image(self, offset):
        """Its row in a plan."""
        size = len(self.code)
        return Image(offset, size, self.threads, self.shared_bytes, self.scratch_bytes)


@functools.cache
def compiled(name, capability, stages=3):
    """The kernel of this name for a compute capability such as 90."""
    function, types, block = KERNELS[name]
    names = function.arg_names
    signature = {**dict(zip(names, types, strict=False)), names[-1]: "constexpr"}
    pointers = [(at,) for at, kind in enumerate(types) if kind.startswith("*")]
    source = ASTSource(
        function,
        signature=signature,
        constexprs={(len(types),): block},
        attrs={path: [["tt.divisibility", 16]] for path in pointers},
    )
    target = GPUTarget("cuda", capability, 32)
    found = triton.compile(source, target=target, options={"num_stages": stages})
    facts = found.metadata
    scratch_bytes = getattr(facts, "global_scratch_size", 0) or 0
    threads = 32 * facts.num_warps
    return Compiled(facts.name, found.asm["cubin"], threads, facts.shared, scratch_bytes)

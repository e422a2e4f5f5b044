# in0: *fp32
# out0: *fp32
# BLOCK=256 num_stages=2 num_warps=4 grid 3×1×1
# BLOCK=512 num_stages=2 num_warps=8 grid 2×1×1

import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def kernel(
    in0, out0, BLOCK: tl.constexpr
):
    scale(
        x_ptr=in0 + 40,
        out_ptr=out0,
        n=tl.full((), 640, tl.int32),
        factor=0.5,
        BLOCK=BLOCK,
    )

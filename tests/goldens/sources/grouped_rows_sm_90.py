# in0: *fp32
# in1: *fp32
# in2: *i32
# out0: *fp32
# BM=64 BN=64 BK=64 num_stages=3 num_warps=4 grid 1×2×1
# BM=32 BN=64 BK=64 num_stages=3 num_warps=4 grid 1×3×1
# BM=64 BN=32 BK=64 num_stages=3 num_warps=4 grid 2×2×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: grouped_rows, grouped_depth.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    grouped_rows(
        out_ptr=out0,
        a_ptr=in0,
        b_ptr=in1,
        ends_ptr=in2,
        ROWS=70,
        N=36,
        K=48,
        GROUPS=5,
        SPAN=8,
        A=(48, 1),
        B=(1728, 36, 1),
        ACCUMULATOR=tl.float32,
        BM=BM,
        BN=BN,
        BK=BK,
    )

# in0: *bf16
# in1: *bf16
# in2: *i64
# out0: *bf16
# BM=64 BN=64 BK=64 grid 1×1×5
# BM=32 BN=64 BK=64 grid 1×2×5
# BM=64 BN=32 BK=64 grid 2×1×5

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: grouped_rows, grouped_depth.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    grouped_depth(
        out_ptr=out0,
        a_ptr=in0,
        b_ptr=in1,
        ends_ptr=in2,
        ROWS=70,
        M=48,
        N=36,
        A=(1, 48),
        B=(36, 1),
        ACCUMULATOR=tl.float32,
        BM=BM,
        BN=BN,
        BK=BK,
    )

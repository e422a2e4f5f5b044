# in0: *i32
# in1: *i32
# in2: *bf16
# out0: *bf16
# num_stages=1 num_warps=1 grid 30×2×2

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: scatter, scatter_copied, _write, _start_of, _places, scatter_shares,
# scatter_both, scatter_shares_both, merge_each, count_places, sum_runs.


@triton.jit
def kernel(
    in0, in1, in2, out0
):
    sum_runs(
        out_ptr=out0,
        row_ptr=in0,
        start_ptr=in1,
        source_ptr=in2,
        EXTENT=30,
        INNER=200,
        LENGTH=70,
        LINES=8,
        BLOCK=128,
        ACCUMULATOR=tl.float32,
    )

# in0: *fp32
# in1: *i32
# in2: *fp32
# out0: *fp32
# num_stages=1 num_warps=1 grid 5×1×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: scatter, scatter_copied, _write, _start_of, _places, scatter_shares,
# scatter_both, scatter_shares_both, merge_each, count_places, sum_runs.


@triton.jit
def kernel(
    in0, in1, in2, out0
):
    scatter(
        out_ptr=out0,
        place_ptr=in1,
        source_ptr=in2,
        ROWS=7,
        EXTENT=30,
        INNER=8,
        DISTINCT=1,
        WITHIN=5,
        FAR=0,
        NEAR=56,
        STEP=8,
        HOP=0,
        BESIDE=1,
        SHARED=False,
        MERGE='replace',
        BLOCK=8,
    )

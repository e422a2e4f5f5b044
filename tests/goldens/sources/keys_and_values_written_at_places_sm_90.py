# in0: *bf16
# in1: *i32
# in2: *bf16
# in3: *bf16
# out0: *bf16
# out1: *bf16
# num_stages=1 num_warps=1 grid 1×1×2

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: scatter, scatter_copied, _write, _start_of, _places, scatter_shares,
# scatter_both, scatter_shares_both, merge_each, count_places, sum_runs.


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, out1
):
    scatter_both(
        out_ptr=out0,
        second_out_ptr=out1,
        place_ptr=in1,
        source_ptr=in2 + 64,
        second_source_ptr=in2 + 128,
        ROWS=12,
        EXTENT=5000,
        INNER=16,
        DISTINCT=1,
        WITHIN=1,
        FAR=0,
        NEAR=0,
        STEP=192,
        HOP=16,
        BESIDE=4,
        SHARED=True,
        MERGE='replace',
        BLOCK=16,
        SECOND_WITHIN=1,
        SECOND_FAR=0,
        SECOND_NEAR=0,
        SECOND_STEP=192,
        SECOND_HOP=16,
    )

# in0: *i32
# in1: *i32
# out0: *i32
# num_stages=1 num_warps=4 grid 3×3×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: scatter, scatter_copied, _write, _start_of, _places, scatter_shares,
# scatter_both, scatter_shares_both, merge_each, count_places, sum_runs.


@triton.jit
def kernel(
    in0, in1, out0
):
    count_places(
        out_ptr=out0,
        place_ptr=in1,
        ROWS=5000,
        EXTENT=40,
        SPAN=64,
        PARTS=3,
        TILE=2048,
    )

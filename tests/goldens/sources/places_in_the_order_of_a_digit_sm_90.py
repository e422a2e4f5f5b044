# in0: *i32
# in1: *i32
# in2: *i32
# out0: *i32
# num_stages=1 num_warps=2 grid 3×2×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: _key_of, _count_below, _last_among, _keep_below_bound, _keep_first,
# _sort_by_rank, _sort_by_digits, order_rows, take_least, _digit_at, _ones, _fields, _tile_at,
# _counts_of_rows, count_digits, order_by_digit.


@triton.jit
def kernel(
    in0, in1, in2, out0
):
    order_by_digit(
        out_ptr=out0,
        data_ptr=in0,
        order_ptr=in1,
        counts_ptr=in2,
        N=5000,
        PARTS=3,
        LENGTH=2048,
        SPAN=4,
        SHIFT=8,
        IS_DESCENDING=True,
        TILE=512,
    )

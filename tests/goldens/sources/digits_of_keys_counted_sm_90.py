# in0: *i64
# out0: *i32
# num_stages=1 num_warps=1 grid 3×2×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: _key_of, _count_below, _last_among, _keep_below_bound, _keep_first,
# _sort_by_rank, _sort_by_digits, sort_rows, select_rows, nth_places, order_rows, take_least,
# _digit_of, _with_bit, _chosen, _same_digit, _bits_set, count_digits, sum_digits, order_by_digit,
# sort_runs, merge_runs.


@triton.jit
def kernel(
    in0, out0
):
    count_digits(
        out_ptr=out0,
        words_ptr=in0,
        N=5000,
        PARTS=3,
        LENGTH=2048,
        SHIFT=40,
    )

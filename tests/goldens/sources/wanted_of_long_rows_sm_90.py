# in0: *fp32
# out0: *i32
# num_stages=1 num_warps=8 grid 3×1×1

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
    select_rows(
        out_ptr=out0,
        values_ptr=out0,
        data_ptr=in0,
        ROWS=3,
        N=4096,
        WANTED=50,
        IS_DESCENDING=True,
        HAS_VALUES=False,
        SPAN=4096,
        TILE=1,
    )

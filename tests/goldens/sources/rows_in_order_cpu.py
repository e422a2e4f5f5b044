# in0: *i64
# out0: *i32
# keys: *i64
# places: *i32
# counts: *i32
# scratch keys: any
# scratch places: any
# scratch counts: any
# grid 32×1×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: _key_of, _count_below, _last_among, _keep_below_bound, _keep_first,
# _sort_by_rank, _sort_by_digits, sort_rows, select_rows, nth_places, order_rows, take_least,
# _digit_of, _with_bit, _chosen, _same_digit, _bits_set, count_digits, sum_digits, order_by_digit,
# sort_runs, merge_runs.


@triton.jit
def kernel(
    in0, out0, keys, places, counts
):
    order_rows(
        out_ptr=out0,
        data_ptr=in0,
        ROWS=40,
        N=3000,
        WANTED=3000,
        IS_DESCENDING=False,
        IS_PART=False,
        HAS_BOUND=False,
        SPAN=0,
        BLOCK=64,
        keys_ptr=keys,
        places_ptr=places,
        counts_ptr=counts,
    )

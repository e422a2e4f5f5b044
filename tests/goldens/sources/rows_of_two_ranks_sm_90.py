# in0: *bf16
# in1: *i32
# out0: *bf16
# out1: *i32
# arrivals: *i64
# peer_0: i64
# peer_1: i64
# scratch arrivals: zeroed
# num_stages=1 num_warps=8 grid 3×1×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: _by_words, _by_flags, exchange.


@triton.jit
def kernel(
    in0, in1, out0, out1, arrivals, peer_0, peer_1
):
    exchange(
        out_ptr=out0,
        status_out_ptr=out1,
        data_ptr=in0,
        status_ptr=in1,
        COUNT=1500,
        RANKS=2,
        IS_SCATTERED=False,
        PROGRAMS=3,
        STATUS=32,
        FLAGS=32,
        UNIT=8,
        BLOCK=2048,
        MOST_WORDS=16384,
        WORDS_BLOCK=512,
        LIMIT=8388608,
        arrivals_ptr=arrivals,
        peers=(peer_0, peer_1,),
    )

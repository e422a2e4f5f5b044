# in0: *fp32
# out0: *fp32
# grid 2×1×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: state_copy.


@triton.jit
def kernel(
    in0, out0
):
    state_copy(
        out_ptr=out0,
        source_ptr=in0,
        COUNT=5000,
        BLOCK=4096,
    )

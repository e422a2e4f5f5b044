# in0: *fp32
# out0: *fp32
# size_m: i32
# size_n: i32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, size_m, size_n, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) // tl.cdiv(size_n, YBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < size_m
    y = tl.program_id(0) % tl.cdiv(size_n, YBLOCK) * YBLOCK + tl.arange(0, YBLOCK)[None, :]
    y_mask = y < size_n
    v0 = tl.load(in0 + y*size_m + x, mask=x_mask & y_mask)
    v1 = tl.exp(v0)
    tl.store(out0 + x*size_n + y, v1, mask=x_mask & y_mask)

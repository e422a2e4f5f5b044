# in0: *fp32
# out0: *fp32

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, out0, XBLOCK: tl.constexpr, YBLOCK: tl.constexpr
):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    x_mask = x < 98
    y = tl.arange(0, YBLOCK)[None, :]
    y_mask = y < 5
    inside0 = ((x // 7) % 7)*2 - 1 >= 0
    inside1 = (x % 7)*2 - 1 >= 0
    v0 = tl.load(in0 + (x // 49)*780 + ((x // 7) % 7)*130 + (x % 7)*10 + y - 70, mask=x_mask & y_mask & inside0 & inside1, other=float("-inf"))
    v1 = tl.load(in0 + (x // 49)*780 + ((x // 7) % 7)*130 + (x % 7)*10 + y - 65, mask=x_mask & y_mask & inside0, other=float("-inf"))
    v2 = tl.maximum(v0, v1, propagate_nan=tl.PropagateNan.ALL)
    inside2 = ((x // 7) % 7)*2 < 12
    v3 = tl.load(in0 + (x // 49)*780 + ((x // 7) % 7)*130 + (x % 7)*10 + y - 5, mask=x_mask & y_mask & inside2 & inside1, other=float("-inf"))
    v4 = tl.maximum(v2, v3, propagate_nan=tl.PropagateNan.ALL)
    v5 = tl.load(in0 + (x // 49)*780 + ((x // 7) % 7)*130 + (x % 7)*10 + y, mask=x_mask & y_mask & inside2, other=float("-inf"))
    v6 = tl.maximum(v4, v5, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out0 + x*5 + y, v6, mask=x_mask & y_mask)

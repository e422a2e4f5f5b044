# in0: *fp32
# in1: *fp32
# in2: *fp32
# in3: *fp32
# out0: *fp32

import triton
import triton.language as tl


# As in the template: place, last_seen, key_range, weigh, attend, finish.


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr
):
    z, tile = place(4, tl.cdiv(66, BM), GROUP, False)
    x = tile * BM + tl.arange(0, BM)[:, None]
    y = tl.arange(0, 32)[None, :]
    x_mask = x < 66
    d = tl.arange(0, 32)[None, :]
    q = tl.load(in0 + z*2112 + x*32 + d, mask=x_mask, other=0.0)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 32), tl.float32)
    low, high = last_seen(tile * BM, 0, BM)
    near, full, edge, end = key_range(low, high, 33, 0, BN, False)
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        k = tl.load(in1 + z*1056 + sk*32 + d)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        v0 = tl.load(in3 + z*2178 + x*33 + sl, mask=x_mask)
        scores = scores * 0.36067376022224085 + tl.where(v0 == float("-inf"), v0, tl.maximum(v0 * 1.4426950408889634, -2.5e38, propagate_nan=tl.PropagateNan.ALL))
        v = tl.load(in2 + z*1056 + sk*32 + y)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.0, "tf32x3")
    for at in range(edge, end, BN):
        start = at
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 33
        k = tl.load(in1 + z*1056 + sk*32 + d, mask=sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        sl_mask = sl < 33
        v1 = tl.load(in3 + z*2178 + x*33 + sl, mask=x_mask & sl_mask)
        scores = scores * 0.36067376022224085 + tl.where(v1 == float("-inf"), v1, tl.maximum(v1 * 1.4426950408889634, -2.5e38, propagate_nan=tl.PropagateNan.ALL))
        sl = s[None, :]
        scores = tl.where(sl < 33, scores, float("-inf"))
        v = tl.load(in2 + z*1056 + sk*32 + y, mask=sk_mask, other=0.0)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.0, "tf32x3")
    result = finish(acc, total, False)
    tl.store(out0 + (z // 2)*4224 + x*64 + (z % 2)*32 + y, result, mask=x_mask)

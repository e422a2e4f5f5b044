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
    z, tile = place(2, tl.cdiv(70, BM), GROUP, False)
    x = tile * BM + tl.arange(0, BM)[:, None]
    y = tl.arange(0, 32)[None, :]
    x_mask = x < 70
    d = tl.arange(0, 32)[None, :]
    d_mask = d < 24
    y_mask = y < 24
    inside0 = (x - 2 >= 0) & (x - 2 < 60)
    v0 = tl.load(in0 + z*1440 + x*24 + d - 48, mask=x_mask & d_mask & inside0, other=1.5)
    q = tl.where(x_mask & d_mask, v0, 0.0)
    inside1 = y >= 8
    inside2 = y < 8
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 32), tl.float32)
    low, high = last_seen(tile * BM, 0, BM)
    near, full, edge, end = key_range(low, high, 40, 0, BN, False)
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        v1 = tl.load(in1 + sk)
        k = tl.broadcast_to(tl.where(d_mask, v1, 0.0), BN, 32)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        v2 = tl.load(in3 + z*640 + sk*16 + y - 8, mask=y_mask & inside1)
        v3 = tl.load(in2 + z*320 + sk*8 + y, mask=y_mask & inside2)
        v4 = tl.where(inside2, v3, v2)
        v = tl.where(y_mask, v4, 0.0)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.4426950408889634, "tf32x3")
    for at in range(edge, end, BN):
        start = at
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 40
        v5 = tl.load(in1 + sk, mask=sk_mask, other=0.0)
        k = tl.broadcast_to(tl.where(d_mask, v5, 0.0), BN, 32)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        scores = tl.where(sl < 40, scores, float("-inf"))
        v6 = tl.load(in3 + z*640 + sk*16 + y - 8, mask=y_mask & sk_mask & inside1)
        v7 = tl.load(in2 + z*320 + sk*8 + y, mask=y_mask & sk_mask & inside2)
        v8 = tl.where(inside2, v7, v6)
        v = tl.where(y_mask & sk_mask, v8, 0.0)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.4426950408889634, "tf32x3")
    result = finish(acc, total, False)
    tl.store(out0 + z*1680 + x*24 + y, result, mask=x_mask & y_mask)

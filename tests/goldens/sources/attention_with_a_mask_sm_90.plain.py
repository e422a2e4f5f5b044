# in0: *fp32
# in1: *fp32
# in2: *fp32
# in3: *i1
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
    d_mask = d < 24
    y_mask = y < 24
    q = tl.load(in0 + z*1584 + x*24 + d, mask=x_mask & d_mask, other=0.0)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 32), tl.float32)
    low, high = last_seen(tile * BM, 0, BM)
    near, full, edge, end = key_range(low, high, 40, 0, BN, False)
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        k = tl.load(in1 + z*960 + sk*24 + d, mask=d_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        v0 = tl.load(in3 + (z // 2)*40 + sl)
        scores = tl.where(v0, scores, float("-inf"))
        v = tl.load(in2 + z*960 + sk*24 + y, mask=y_mask, other=0.0)
        peak, total, acc = attend(scores, v, peak, total, acc, 0.36067376022224085, "tf32x3")
    for at in range(edge, end, BN):
        start = at
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 40
        k = tl.load(in1 + z*960 + sk*24 + d, mask=d_mask & sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        sl_mask = sl < 40
        v1 = tl.load(in3 + (z // 2)*40 + sl, mask=sl_mask)
        scores = tl.where(v1, scores, float("-inf"))
        sl = s[None, :]
        scores = tl.where(sl < 40, scores, float("-inf"))
        v = tl.load(in2 + z*960 + sk*24 + y, mask=y_mask & sk_mask, other=0.0)
        peak, total, acc = attend(scores, v, peak, total, acc, 0.36067376022224085, "tf32x3")
    result = finish(acc, total, True)
    tl.store(out0 + (z // 2)*3168 + x*48 + (z % 2)*24 + y, result, mask=x_mask & y_mask)

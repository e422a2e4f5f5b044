# in0: *fp32
# in1: *fp32
# in2: *fp32
# out0: *fp32

import triton
import triton.language as tl


# As in the template: place, last_seen, key_range, weigh, attend, finish.


@triton.jit
def kernel(
    in0, in1, in2, out0, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr
):
    z, tile = place(4, tl.cdiv(37, BM), GROUP, False)
    x = tile * BM + tl.arange(0, BM)[:, None]
    x_mask = x < 37
    d = tl.arange(0, 16)[None, :]
    d_mask = d < 1
    v0 = tl.load(in0 + z*37 + x, mask=x_mask, other=0.0)
    q = tl.broadcast_to(tl.where(d_mask, v0, 0.0), BM, 16)
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 16), tl.float32)
    low, high = last_seen(tile * BM, 0, BM)
    near, full, edge, end = key_range(low, high, 21, 0, BN, False)
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        v1 = tl.load(in1 + (z // 2)*21 + sk)
        k = tl.broadcast_to(tl.where(d_mask, v1, 0.0), BN, 16)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        v2 = tl.load(in2 + (z // 2)*21 + sk)
        v = tl.broadcast_to(v2, BN, 16)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.4426950408889634, "tf32x3")
    for at in range(edge, end, BN):
        start = at
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 21
        v3 = tl.load(in1 + (z // 2)*21 + sk, mask=sk_mask, other=0.0)
        k = tl.broadcast_to(tl.where(d_mask, v3, 0.0), BN, 16)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        sl = s[None, :]
        scores = tl.where(sl < 21, scores, float("-inf"))
        v4 = tl.load(in2 + (z // 2)*21 + sk, mask=sk_mask, other=0.0)
        v = tl.broadcast_to(v4, BN, 16)
        peak, total, acc = attend(scores, v, peak, total, acc, 1.4426950408889634, "tf32x3")
    result = finish(acc, total, False)
    result = tl.sum(tl.where(tl.arange(0, 16)[None, :] == 0, result, 0.0), 1)[:, None]
    tl.store(out0 + z*37 + x, result, mask=x_mask)

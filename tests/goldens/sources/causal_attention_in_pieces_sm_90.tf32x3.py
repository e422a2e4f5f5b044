# in0: *fp32
# in1: *fp32
# in2: *fp32
# in3: *fp32
# out0: *fp32

import triton
import triton.language as tl


# As in the template: place, last_seen, key_range, weigh, join_keys, finish.


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr
):
    z, tile = place(4, tl.cdiv(100, BM), GROUP, True)
    x = tile * BM + tl.arange(0, BM)[:, None]
    x_mask = x < 100
    d = tl.arange(0, 64)[None, :]
    q = tl.load(in0 + z*8000 + x*80 + d, mask=x_mask, other=0.0)
    d1 = 64 + tl.arange(0, 16)[None, :]
    q1 = tl.load(in0 + z*8000 + x*80 + d1, mask=x_mask, other=0.0)
    y = tl.multiple_of(tl.arange(0, 64)[None, :], [1, 1])
    y1 = tl.multiple_of(64 + tl.arange(0, 16)[None, :], [1, 1])
    peak = tl.full((BM,), -3.0e38, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, 64), tl.float32)
    acc1 = tl.zeros((BM, 16), tl.float32)
    low, high = last_seen(tile * BM, 0, BM)
    near, full, edge, end = key_range(low, high, 100, 0, BN, True)
    edge = edge - (full - near)
    near, full = 0, 0
    for start in range(near, full, BN):
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        k = tl.load(in1 + z*8000 + sk*80 + d)
        k1 = tl.load(in1 + z*8000 + sk*80 + d1)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        scores = tl.dot(q1, tl.trans(k1), scores, input_precision="tf32x3")
        sl = s[None, :]
        v0 = tl.load(in3 + z*10000 + x*100 + sl, mask=x_mask)
        scores = scores * 0.36067376022224085 + tl.where(v0 == float("-inf"), v0, tl.maximum(v0 * 1.4426950408889634, -2.5e38, propagate_nan=tl.PropagateNan.ALL))
        s0 = (start + 4 * tl.arange(0, BN // 4))[:, None]
        s1 = (start + 1 + 4 * tl.arange(0, BN // 4))[:, None]
        s2 = (start + 2 + 4 * tl.arange(0, BN // 4))[:, None]
        s3 = (start + 3 + 4 * tl.arange(0, BN // 4))[:, None]
        v_0 = tl.load(in2 + z*8000 + s0*80 + y)
        v_1 = tl.load(in2 + z*8000 + s1*80 + y)
        v_2 = tl.load(in2 + z*8000 + s2*80 + y)
        v_3 = tl.load(in2 + z*8000 + s3*80 + y)
        v = join_keys(v_0, v_1, v_2, v_3)
        v1_0 = tl.load(in2 + z*8000 + s0*80 + y1)
        v1_1 = tl.load(in2 + z*8000 + s1*80 + y1)
        v1_2 = tl.load(in2 + z*8000 + s2*80 + y1)
        v1_3 = tl.load(in2 + z*8000 + s3*80 + y1)
        v1 = join_keys(v1_0, v1_1, v1_2, v1_3)
        peak, total, weights, shrink = weigh(scores, peak, total, 1.0)
        acc = tl.dot(weights, v, acc * shrink[:, None], input_precision="tf32x3")
        acc1 = tl.dot(weights, v1, acc1 * shrink[:, None], input_precision="tf32x3")
    for at in range(edge, end, BN):
        start = at
        s = start + tl.arange(0, BN)
        sk = s[:, None]
        sk_mask = sk < 100
        k = tl.load(in1 + z*8000 + sk*80 + d, mask=sk_mask, other=0.0)
        k1 = tl.load(in1 + z*8000 + sk*80 + d1, mask=sk_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="tf32x3")
        scores = tl.dot(q1, tl.trans(k1), scores, input_precision="tf32x3")
        sl = s[None, :]
        sl_mask = sl < 100
        v2 = tl.load(in3 + z*10000 + x*100 + sl, mask=x_mask & sl_mask)
        scores = scores * 0.36067376022224085 + tl.where(v2 == float("-inf"), v2, tl.maximum(v2 * 1.4426950408889634, -2.5e38, propagate_nan=tl.PropagateNan.ALL))
        sl = s[None, :]
        scores = tl.where(sl < 100, scores, float("-inf"))
        scores = tl.where(sl <= x, scores, float("-inf"))
        s0 = (start + 4 * tl.arange(0, BN // 4))[:, None]
        s0_mask = s0 < 100
        s1 = (start + 1 + 4 * tl.arange(0, BN // 4))[:, None]
        s1_mask = s1 < 100
        s2 = (start + 2 + 4 * tl.arange(0, BN // 4))[:, None]
        s2_mask = s2 < 100
        s3 = (start + 3 + 4 * tl.arange(0, BN // 4))[:, None]
        s3_mask = s3 < 100
        v_0 = tl.load(in2 + z*8000 + s0*80 + y, mask=s0_mask, other=0.0)
        v_1 = tl.load(in2 + z*8000 + s1*80 + y, mask=s1_mask, other=0.0)
        v_2 = tl.load(in2 + z*8000 + s2*80 + y, mask=s2_mask, other=0.0)
        v_3 = tl.load(in2 + z*8000 + s3*80 + y, mask=s3_mask, other=0.0)
        v = join_keys(v_0, v_1, v_2, v_3)
        v1_0 = tl.load(in2 + z*8000 + s0*80 + y1, mask=s0_mask, other=0.0)
        v1_1 = tl.load(in2 + z*8000 + s1*80 + y1, mask=s1_mask, other=0.0)
        v1_2 = tl.load(in2 + z*8000 + s2*80 + y1, mask=s2_mask, other=0.0)
        v1_3 = tl.load(in2 + z*8000 + s3*80 + y1, mask=s3_mask, other=0.0)
        v1 = join_keys(v1_0, v1_1, v1_2, v1_3)
        peak, total, weights, shrink = weigh(scores, peak, total, 1.0)
        acc = tl.dot(weights, v, acc * shrink[:, None], input_precision="tf32x3")
        acc1 = tl.dot(weights, v1, acc1 * shrink[:, None], input_precision="tf32x3")
    result = finish(acc, total, False)
    tl.store(out0 + (z // 2)*16000 + x*160 + (z % 2)*80 + y, result, mask=x_mask)
    y = y1
    result = finish(acc1, total, False)
    tl.store(out0 + (z // 2)*16000 + x*160 + (z % 2)*80 + y, result, mask=x_mask)

# in0: *bf16
# in1: *i8
# in2: *fp32
# out0: *bf16
# partials: *fp32
# counters: *i32
# scratch partials: any
# scratch counters: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, partials, counters, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr
):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    z = tl.program_id(2)
    width = GROUP * tl.cdiv(20, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(90, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    xa = tl.minimum(x, 89)
    yb = tl.minimum(y, 19)
    v0 = tl.load(in2 + xa)
    for step in range(0, tl.cdiv(576, BK * SPLIT) * BK, BK):
        start = part * (tl.cdiv(576, BK * SPLIT) * BK) + step
        cb = start // 16
        cb_mask = cb < 36
        ka = start + tl.arange(0, BK)[None, :]
        ka_mask = ka < 576
        codes = tl.load(in1 + xa*576 + ka, mask=ka_mask, other=0)
        a = codes.to(tl.int8, bitcast=True).to(tl.bfloat16)
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 576
        b = tl.load(in0 + yb*576 + kb, mask=kb_mask, other=0.0)
        sums = tl.dot(a, b, input_precision="ieee", out_dtype=tl.float32)
        acc += tl.where(cb_mask, sums * v0, 0.0)
    slot = z * tl.num_programs(0) + tile
    own = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    tl.store(partials + (slot * SPLIT + part) * (BM * BN) + own, acc)
    tl.debug_barrier()  # all of the tile is written before the count says so
    arrived = tl.atomic_add(counters + slot, 1, sem="acq_rel")
    if arrived == SPLIT - 1:
        tl.store(counters + slot, 0)
        total = tl.zeros((BM, BN), tl.float32)
        for other in range(SPLIT):
            if other == part:
                total += acc
            if other != part:
                place = partials + (slot * SPLIT + other) * (BM * BN) + own
                total += tl.load(place, cache_modifier=".cg")
        acc = total
        x_mask = x < 90
        y_mask = y < 20
        tl.store(out0 + y*90 + x, acc, mask=x_mask & y_mask)

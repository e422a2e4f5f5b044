# in0: *fp32
# in1: *i8
# in2: *i8
# in3: *fp32
# out0: *fp32
# partials: *fp32
# counters: *i32
# scratch partials: any
# scratch counters: zeroed

import triton
import triton.language as tl


# As in the template: number_at, numbers_of_bytes.


@triton.jit
def kernel(
    in0, in1, in2, in3, out0, partials, counters, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr
):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    z = tl.program_id(2)
    width = GROUP * tl.cdiv(3, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(33, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    yb = tl.minimum(y, 2)
    column = tl.minimum(xs + tl.arange(0, BM)[:, None, None], 32)
    for step in range(0, tl.cdiv(352, BK * SPLIT) * BK, BK):
        start = part * (tl.cdiv(352, BK * SPLIT) * BK) + step
        cb = start // 16 + tl.arange(0, BK // 16)[None, :, None]
        cb_mask = cb < 22
        codes = tl.load(in1.to(tl.pointer_type(tl.int32), bitcast=True) + column*88 + cb*4 + tl.arange(0, 4)[None, None, :], mask=cb_mask, other=0)
        numbers = numbers_of_bytes(codes, -2139062144, 128)
        v0 = tl.load(in3 + column*11 + cb // 2, mask=cb_mask)
        v1 = tl.load(in2 + column*11 + cb // 2, mask=cb_mask)
        v2 = v1.to(tl.float32)
        numbers = (tl.where(cb_mask, numbers * v0 + ((0.0 - v2) * v0), 0.0)).to(tl.float32)
        a = tl.reshape(numbers, (BM, BK))
        kb = start + tl.arange(0, BK)[:, None]
        kb_mask = kb < 352
        b = tl.load(in0 + yb*352 + kb, mask=kb_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32x3", out_dtype=tl.float32)
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
        x_mask = x < 33
        y_mask = y < 3
        tl.store(out0 + y*33 + x, acc, mask=x_mask & y_mask)

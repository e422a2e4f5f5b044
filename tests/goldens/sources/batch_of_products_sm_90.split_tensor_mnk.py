# in0: *fp16
# in1: *fp16
# out0: *fp16
# partials: *fp32
# counters: *i32
# scratch partials: any
# scratch counters: zeroed

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, out0, partials, counters, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    GROUP: tl.constexpr, SPLIT: tl.constexpr
):
    tile = tl.program_id(0)
    part = tl.program_id(1)
    z = tl.program_id(2)
    width = GROUP * tl.cdiv(72, BN)
    first = tile // width * GROUP
    height = tl.minimum(tl.cdiv(136, BM) - first, GROUP)
    xs = (first + tile % width % height) * BM
    ys = tile % width // height * BN
    x = xs + tl.arange(0, BM)[:, None]
    y = ys + tl.arange(0, BN)[None, :]
    a_rows = tl.make_tensor_descriptor(in0 + z * 136000, [136, 1000], [1000, 1], [BM, BK])
    b_rows = tl.make_tensor_descriptor(in1 + z * 72000, [1000, 72], [72, 1], [BK, BN])
    acc = tl.zeros((BM, BN), tl.float32)
    for step in range(0, tl.cdiv(1000, BK * SPLIT) * BK, BK):
        start = part * (tl.cdiv(1000, BK * SPLIT) * BK) + step
        a = a_rows.load([xs, start])
        b = b_rows.load([start, ys])
        acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
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
        x_mask = x < 136
        y_mask = y < 72
        ev0 = acc * 0.5
        tl.store(out0 + z*9792 + x*72 + y, ev0, mask=x_mask & y_mask)

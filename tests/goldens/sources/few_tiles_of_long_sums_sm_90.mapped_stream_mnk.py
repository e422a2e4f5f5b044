# in0: *bf16
# in1: *bf16
# in2: *bf16
# out0: *bf16
# partials: *fp32
# counters: *i32
# a_rows: tensordesc<bf16[128, 64]>
# b_rows: tensordesc<bf16[128, 64]>
# scratch partials: any
# scratch counters: zeroed
# map a_rows of parameter 0 at 0: [3080, 8200] [8200, 1]
# map b_rows of parameter 1 at 0: [776, 8200] [8200, 1]

import triton
import triton.language as tl


@triton.jit
def kernel(
    in0, in1, in2, out0, partials, counters, a_rows, b_rows, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr
):
    program = tl.program_id(0)
    own = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    width = GROUP * tl.cdiv(776, BN)
    steps = tl.cdiv(8200, BK)
    total = tl.cdiv(3080, BM) * tl.cdiv(776, BN) * steps
    share = tl.cdiv(total, PROGRAMS)
    end = tl.minimum(program * share + share, total)
    for tile in range(program * share // steps, tl.cdiv(end, steps)):
        begin = tl.maximum(program * share - tile * steps, 0)
        stop = tl.minimum(end - tile * steps, steps)
        first = tile // width * GROUP
        height = tl.minimum(tl.cdiv(3080, BM) - first, GROUP)
        xs = (first + tile % width % height) * BM
        ys = tile % width // height * BN
        x = xs + tl.arange(0, BM)[:, None]
        y = ys + tl.arange(0, BN)[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(begin * BK, stop * BK, BK):
            a = a_rows.load([xs, start])
            b = b_rows.load([ys, start]).T
            acc = tl.dot(a, b, acc, input_precision="ieee", out_dtype=tl.float32)
        has_all = stop - begin == steps
        if stop - begin < steps:
            slot = program * 2 + (begin == 0).to(tl.int32)
            tl.store(partials + slot * (BM * BN) + own, acc)
            tl.debug_barrier()  # all of the part is written before the count says so
            arrived = tl.atomic_add(counters + tile, stop - begin, sem="acq_rel")
            has_all = arrived + stop - begin == steps
            if has_all:
                tl.store(counters + tile, 0)
                earliest = tile * steps // share
                acc = tl.zeros((BM, BN), tl.float32)
                for other in range(earliest, (tile * steps + steps - 1) // share + 1):
                    slot = other * 2 + (other * share <= tile * steps).to(tl.int32)
                    acc += tl.load(partials + slot * (BM * BN) + own, cache_modifier=".cg")
        if has_all:
            x_mask = x < 3080
            y_mask = y < 776
            v0 = tl.load(in2 + y, mask=y_mask).to(tl.float32)
            v1 = acc + v0
            v2 = tl.where(v1 < 0, 0, v1)
            tl.store(out0 + x*776 + y, v2, mask=x_mask & y_mask)

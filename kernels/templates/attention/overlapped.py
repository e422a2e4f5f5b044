"""Attention forward for sm_90 in Gluon: one warp brings blocks, two groups of four warps attend.

Each program works through tiles of 128 query rows, 64 a group; blocks of the next tile are on their
way while the last one ends. A group adds the values of one block while it computes the softmax of
the next, and the groups take turns at the tensor cores, so that one's exponentials run under the
other's products. Barriers in shared memory say which blocks are there (`ready`), which were used by
both groups (`free`), and whose turn it is. Holes: the descriptors `queries`, `keys`, `values` and
`result` (all heads: two axes of them, then rows of contiguous elements) and `head_q`, `head_k`,
`head_v`, `head_out` (where among them head z lies).
Heads, rows, keys and the mask's offset are numbers, or known at the call only (VARIES): then a last
block is taken to be no whole one, and the first one too where there may be fewer keys (LEAST).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def describe(memory, HEADS: gl.constexpr, ROWS: gl.constexpr, WIDTH: gl.constexpr,
             BLOCK: gl.constexpr, LAYOUT: gl.constexpr):  # fmt: skip
    return tma.make_tensor_descriptor(
        memory, [1, HEADS, ROWS, WIDTH], [HEADS * ROWS * WIDTH, ROWS * WIDTH, WIDTH, 1], BLOCK,
        LAYOUT,
    )  # fmt: skip


@gluon.jit
def head_q(z, RATIO: gl.constexpr):
    return 0, z


@gluon.jit
def head_k(z, RATIO: gl.constexpr):
    return 0, z // RATIO


@gluon.jit
def head_v(z, RATIO: gl.constexpr):
    return 0, z // RATIO


@gluon.jit
def head_out(z, RATIO: gl.constexpr):
    return 0, z


@gluon.jit
def waves_of(TILES):
    """Tiles that fall to this program."""
    programs = gl.num_programs(0)
    whole = TILES // programs
    position = gl.program_id(0)
    if whole % 2 == 1:
        position = programs - 1 - position
    return whole + (position < TILES - whole * programs).to(gl.int32)


@gluon.jit
def place(wave, HEADS, T, GROUP: gl.constexpr, CAUSAL: gl.constexpr):
    """Head and first row of a tile: GROUP heads side by side, long causal rows first.

    Every other wave runs backwards over the programs, so that none has all the long tiles.
    """
    TILES = (T + 127) // 128
    programs = gl.num_programs(0)
    position = gl.program_id(0)
    if wave % 2 == 1:
        position = programs - 1 - position
    number = wave * programs + position
    first = number // (TILES * GROUP) * GROUP
    width = gl.minimum(GROUP, HEADS - first)
    within = number - first * TILES
    tile = within // width
    if CAUSAL:
        tile = TILES - 1 - tile
    return first + within % width, tile * 128


@gluon.jit
def blocks_until(
    first, S, OFFSET, CAUSAL: gl.constexpr, TAIL: gl.constexpr, BN: gl.constexpr
):  # fmt: skip
    """Blocks of keys that a row of the tile sees; one at least."""
    end = S
    if CAUSAL:
        end = gl.maximum(gl.minimum(S, first + 128 + OFFSET), 1)
    elif TAIL:  # a constant bound would unroll the last block: it takes more registers
        end = gl.minimum(S, first + 128 + S)
    return gl.cdiv(end, BN)


@gluon.jit
def begins_at(first, until, OFFSET, WINDOW: gl.constexpr, BN: gl.constexpr):
    """The first block of keys that a row of the tile sees; before `until`."""
    begin = 0
    if WINDOW:
        begin = gl.maximum(first + OFFSET - WINDOW + 1, 0) // BN
        begin = gl.minimum(begin, until - 1)
    return begin


@gluon.jit
def near_until(row, OFFSET, WINDOW: gl.constexpr, BN: gl.constexpr):
    """Blocks of keys of which a row from `row` on does not see all for its window."""
    return gl.cdiv(gl.maximum(row + 64 + OFFSET - WINDOW, 0), BN)


@gluon.jit
def full_until(row, S, OFFSET, CAUSAL: gl.constexpr, BN: gl.constexpr):
    """Blocks of keys that all rows from `row` on see whole."""
    full = S // BN
    if CAUSAL:
        full = gl.minimum(full, gl.maximum(row + OFFSET + 1, 0) // BN)
    return full


@gluon.jit
def bring(
    queries, keys, values, q_tiles, k_tiles, v_tiles, q_ready, q_free, k_ready, k_free, v_ready,
    v_free, HEADS, RATIO: gl.constexpr, T, S, OFFSET, WINDOW: gl.constexpr, CAUSAL: gl.constexpr,
    TAIL: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The producer: of every tile q, then k and v block by block as places become free."""
    count = 0
    for wave in range(waves_of(HEADS * ((T + 127) // 128))):
        z, first = place(wave, HEADS, T, GROUP, CAUSAL)
        q0, q1 = head_q(z, RATIO)
        k0, k1 = head_k(z, RATIO)
        v0, v1 = head_v(z, RATIO)
        for half in gl.static_range(2):
            mbarrier.wait(q_free.index(half), (wave & 1) ^ 1)
            mbarrier.expect(q_ready.index(half), queries.block_type.nbytes)
            tma.async_copy_global_to_shared(
                queries, [q0, q1, first + half * 64, 0], q_ready.index(half), q_tiles.index(half)
            )
        until = blocks_until(first, S, OFFSET, CAUSAL, TAIL, BN)
        for block in range(begins_at(first, until, OFFSET, WINDOW, BN), until):
            at = count % STAGES
            turn = (count // STAGES) & 1
            mbarrier.wait(k_free.index(at), turn ^ 1)
            mbarrier.expect(k_ready.index(at), keys.block_type.nbytes)
            tma.async_copy_global_to_shared(
                keys, [k0, k1, block * BN, 0], k_ready.index(at), k_tiles.index(at)
            )
            mbarrier.wait(v_free.index(at), turn ^ 1)
            mbarrier.expect(v_ready.index(at), values.block_type.nbytes)
            tma.async_copy_global_to_shared(
                values, [v0, v1, block * BN, 0], v_ready.index(at), v_tiles.index(at)
            )
            count += 1


@gluon.jit
def hide(
    scores, first, start, S, OFFSET, WINDOW: gl.constexpr, CAUSAL: gl.constexpr,
    TAIL: gl.constexpr, BN: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Keys that rows do not see, or that do not exist: without a mask, of the last block."""
    column = gl.arange(0, BN, gl.SliceLayout(0, LAYOUT))[None, :]
    if CAUSAL:
        x = first + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
        if TAIL:
            scores = gl.where(start + column < S, scores, float("-inf"))
        scores = gl.where(start + column <= x + OFFSET, scores, float("-inf"))
        if WINDOW:
            scores = gl.where(start + column > x + OFFSET - WINDOW, scores, float("-inf"))
    elif TAIL:
        scores = gl.where(column < S - start, scores, float("-inf"))
    return scores


@gluon.jit
def capped(scores, RATE: gl.constexpr, CAP: gl.constexpr):
    """CAP · tanh(scores · RATE) as in blocks.py, or the scores where that is 0."""
    if CAP > 0.0:
        scores = CAP - 2.0 * CAP / (1.0 + gl.exp2(scores * (RATE * 2.8853900817779268)))
    return scores


@gluon.jit
def soften(scores, peak, total, SCALE: gl.constexpr):
    """Weights of a block, the new row maximum and sum, and the factor for what was before; rows of
    huge scores as in blocks.py."""
    highest = gl.max(scores, 1)
    bits = gl.full((), SCALE * 1.3333334, gl.float32).to(gl.int32, bitcast=True)
    power = (bits & 0x7F800000).to(gl.float32, bitcast=True)
    factor = gl.where(gl.abs(highest) * SCALE < 67108864.0, SCALE, power)
    higher = gl.maximum(peak, highest * factor)
    weights = gl.exp2(scores * factor[:, None] - higher[:, None])
    shrink = gl.exp2(peak - higher)
    return weights, higher, total * shrink + gl.sum(weights, 1), shrink


@gluon.jit
def keys_at(k_tiles, at, BN: gl.constexpr, BD: gl.constexpr):
    return k_tiles.index(at).reshape([BN, BD]).permute((1, 0))


@gluon.jit
def wait_next(k_ready, count, has_next, STAGES: gl.constexpr):
    """Wait for the keys after block `count`, where the tile has more.

    Between a softmax and the wait for a product: the loop that polls the barrier keeps the
    assembler from moving the exponentials behind that wait, where they would overlap with nothing.
    """
    after = count + 1
    mbarrier.wait(k_ready.index(after % STAGES), (after // STAGES) & 1, pred=has_next)


@gluon.jit
def step(
    half: gl.constexpr, q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, turns, p, acc, peak,
    total, count, turn, row, start, has_next, HIDES: gl.constexpr, S,
    OFFSET, WINDOW: gl.constexpr, CAUSAL: gl.constexpr, TAIL: gl.constexpr, SCALE: gl.constexpr,
    RATE: gl.constexpr, CAP: gl.constexpr, BN: gl.constexpr, BD: gl.constexpr,
    BV: gl.constexpr, STAGES: gl.constexpr, SCORES: gl.constexpr, WEIGHTS: gl.constexpr,
):  # fmt: skip
    """Scores of block `count` while the values of the block before it are added."""
    at = count % STAGES
    before = (count - 1) % STAGES
    zeros = gl.zeros((64, BN), gl.float32, SCORES)
    mbarrier.wait(turns.index(half), (turn & 1) ^ (1 - half))
    scores = warpgroup_mma(q, keys_at(k_tiles, at, BN, BD), zeros, use_acc=False, is_async=True)
    mbarrier.wait(v_ready.index(before), ((count - 1) // STAGES) & 1)
    acc = warpgroup_mma(p, v_tiles.index(before).reshape([BN, BV]), acc, is_async=True)
    mbarrier.arrive(turns.index(1 - half))
    scores = warpgroup_mma_wait(1, deps=(scores,))
    mbarrier.arrive(k_free.index(at))
    scores = capped(scores, RATE, CAP)
    if HIDES:
        scores = hide(scores, row, start, S, OFFSET, WINDOW, CAUSAL, TAIL, BN, SCORES)
    weights, peak, total, shrink = soften(scores, peak, total, SCALE)
    wait_next(k_ready, count, has_next, STAGES)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(v_free.index(before))
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout))[:, None]
    p = gl.convert_layout(weights.to(p.dtype), WEIGHTS)
    return p, acc, peak, total


@gluon.jit
def begin(
    q, k_tiles, k_ready, k_free, count, row, start, has_next, S, OFFSET,
    WINDOW: gl.constexpr, CAUSAL: gl.constexpr, TAIL: gl.constexpr, SHORT: gl.constexpr,
    SCALE: gl.constexpr, RATE: gl.constexpr, CAP: gl.constexpr, BN: gl.constexpr,
    BD: gl.constexpr, STAGES: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Weights of a tile's first block, the row maximum and sum."""
    at = count % STAGES
    zeros = gl.zeros((64, BN), gl.float32, SCORES)
    peak = gl.full((64,), -3.0e38, gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.zeros((64,), gl.float32, gl.SliceLayout(1, SCORES))
    mbarrier.wait(k_ready.index(at), (count // STAGES) & 1)
    scores = warpgroup_mma(q, keys_at(k_tiles, at, BN, BD), zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(k_free.index(at))
    scores = capped(scores, RATE, CAP)
    if CAUSAL or SHORT:
        scores = hide(scores, row, start, S, OFFSET, WINDOW, CAUSAL, TAIL, BN, SCORES)
    weights, peak, total, _ = soften(scores, peak, total, SCALE)
    wait_next(k_ready, count, has_next, STAGES)
    return weights, peak, total


@gluon.jit
def end(result, o, acc, total, z, row, RATIO: gl.constexpr, SAFE: gl.constexpr, BV: gl.constexpr):
    """Divide by the sum and send the rows out; the tile before must have left the memory."""
    if SAFE:
        total = gl.where(total == 0.0, 1.0, total)
    share = gl.convert_layout(1.0 / total, gl.SliceLayout(1, acc.type.layout))
    tma.store_wait(0)
    gl.thread_barrier()
    o.reshape([64, BV]).store((acc * share[:, None]).to(o.dtype))
    fence_async_shared()
    gl.thread_barrier()
    z0, z1 = head_out(z, RATIO)
    tma.async_copy_shared_to_global(result, [z0, z1, row, 0], o)


@gluon.jit
def attend(
    half: gl.constexpr, result, q_tiles, k_tiles, v_tiles, o_tiles, q_ready, q_free, k_ready,
    k_free, v_ready, v_free, turns, HEADS, RATIO: gl.constexpr, T, S, OFFSET,
    WINDOW: gl.constexpr, CAUSAL: gl.constexpr, TAIL: gl.constexpr, SHORT: gl.constexpr,
    SCALE: gl.constexpr, RATE: gl.constexpr, CAP: gl.constexpr, SAFE: gl.constexpr,
    BN: gl.constexpr, BD: gl.constexpr, BV: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A consumer: 64 rows of every tile against all its blocks."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    RESULT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BV, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, RESULT, 2)
    q = q_tiles.index(half).reshape([64, BD])
    count = 0
    turn = 0
    for wave in range(waves_of(HEADS * ((T + 127) // 128))):
        z, first = place(wave, HEADS, T, GROUP, CAUSAL)
        row = first + half * 64
        until = blocks_until(first, S, OFFSET, CAUSAL, TAIL, BN)
        head = begins_at(first, until, OFFSET, WINDOW, BN)
        counted = count - head  # block b of the keys is block counted + b of the program
        taken = turn - head - 1
        mbarrier.wait(q_ready.index(half), wave & 1)
        weights, peak, total = begin(
            q, k_tiles, k_ready, k_free, count, row, head * BN, head + 1 < until, S, OFFSET,
            WINDOW, CAUSAL, TAIL, SHORT, SCALE, RATE, CAP, BN, BD, STAGES, SCORES,
        )  # fmt: skip
        p = gl.convert_layout(weights.to(q.dtype), WEIGHTS)
        acc = gl.zeros((64, BV), gl.float32, RESULT)
        near = head + 1
        full = gl.minimum(full_until(row, S, OFFSET, CAUSAL, BN), until)
        if WINDOW:
            near = gl.minimum(gl.maximum(near_until(row, OFFSET, WINDOW, BN), near), until)
            for block in range(head + 1, near):
                p, acc, peak, total = step(
                    half, q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, turns, p, acc,
                    peak, total, counted + block, taken + block, row, block * BN, block + 1 < until,
                    True, S, OFFSET, WINDOW, CAUSAL, TAIL, SCALE, RATE, CAP, BN, BD, BV,
                    STAGES, SCORES, WEIGHTS,
                )  # fmt: skip
        for block in range(near, full):
            p, acc, peak, total = step(
                half, q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, turns, p, acc, peak,
                total, counted + block, taken + block, row, block * BN, block + 1 < until, False, S,
                OFFSET, WINDOW, CAUSAL, TAIL, SCALE, RATE, CAP, BN, BD, BV, STAGES, SCORES, WEIGHTS,
            )  # fmt: skip
        for block in range(gl.maximum(full, near), until):
            p, acc, peak, total = step(
                half, q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, turns, p, acc, peak,
                total, counted + block, taken + block, row, block * BN, block + 1 < until, True, S,
                OFFSET, WINDOW, CAUSAL, TAIL, SCALE, RATE, CAP, BN, BD, BV, STAGES, SCORES, WEIGHTS,
            )  # fmt: skip
        mbarrier.arrive(q_free.index(half))
        count, turn = counted + until, taken + until
        last = (count - 1) % STAGES
        mbarrier.wait(v_ready.index(last), ((count - 1) // STAGES) & 1)
        acc = warpgroup_mma(p, v_tiles.index(last).reshape([BN, BV]), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(v_free.index(last))
        end(result, o_tiles.index(half), acc, total, z, row, RATIO, SAFE, BV)
    tma.store_wait(0)


@gluon.jit
def barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers in shared memory, each complete after so many arrivals."""
    found = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(NUMBER):
        mbarrier.init(found.index(at), count=ARRIVALS)
    return found


@gluon.jit
def attention_overlapped(
    in0, in1, in2, out0, HEADS: gl.constexpr, RATIO: gl.constexpr, T: gl.constexpr,
    S: gl.constexpr, D: gl.constexpr, DV: gl.constexpr, BD: gl.constexpr, BV: gl.constexpr,
    SCALE: gl.constexpr, RATE: gl.constexpr, CAP: gl.constexpr, CAUSAL: gl.constexpr,
    OFFSET: gl.constexpr, WINDOW: gl.constexpr, SAFE: gl.constexpr, VARIES: gl.constexpr,
    LEAST: gl.constexpr, BN: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    DTYPE: gl.constexpr = in0.dtype.element_ty
    TAIL: gl.constexpr = True if VARIES else S % BN != 0
    SHORT: gl.constexpr = LEAST < BN
    QUERIES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, 64, BD], DTYPE)
    KEYS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, BN, BD], DTYPE)
    VALUES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, BN, BV], DTYPE)
    RESULTS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, 64, BV], DTYPE)
    queries = describe(in0, HEADS, T, D, [1, 1, 64, BD], QUERIES)
    keys = describe(in1, HEADS // RATIO, S, D, [1, 1, BN, BD], KEYS)
    values = describe(in2, HEADS // RATIO, S, DV, [1, 1, BN, BV], VALUES)
    result = describe(out0, HEADS, T, DV, [1, 1, 64, BV], RESULTS)
    q_tiles = gl.allocate_shared_memory(DTYPE, [2, 1, 1, 64, BD], QUERIES)
    k_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BN, BD], KEYS)
    v_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BN, BV], VALUES)
    o_tiles = gl.allocate_shared_memory(DTYPE, [2, 1, 1, 64, BV], RESULTS)
    q_ready = barriers(2, 1)
    q_free = barriers(2, 1)
    turns = barriers(2, 1)
    k_ready = barriers(STAGES, 1)
    k_free = barriers(STAGES, 2)
    v_ready = barriers(STAGES, 1)
    v_free = barriers(STAGES, 2)
    fence_async_shared()
    gl.warp_specialize(
        [
            (attend, (0, result, q_tiles, k_tiles, v_tiles, o_tiles, q_ready, q_free, k_ready,
                      k_free, v_ready, v_free, turns, HEADS, RATIO, T, S, OFFSET, WINDOW, CAUSAL,
                      TAIL, SHORT, SCALE, RATE, CAP, SAFE, BN, BD, BV, GROUP, STAGES)),
            (attend, (1, result, q_tiles, k_tiles, v_tiles, o_tiles, q_ready, q_free, k_ready,
                      k_free, v_ready, v_free, turns, HEADS, RATIO, T, S, OFFSET, WINDOW, CAUSAL,
                      TAIL, SHORT, SCALE, RATE, CAP, SAFE, BN, BD, BV, GROUP, STAGES)),
            (bring, (queries, keys, values, q_tiles, k_tiles, v_tiles, q_ready, q_free, k_ready,
                     k_free, v_ready, v_free, HEADS, RATIO, T, S, OFFSET, WINDOW, CAUSAL, TAIL, BN,
                     GROUP, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip

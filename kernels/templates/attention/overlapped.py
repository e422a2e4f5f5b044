"""Attention forward for sm_90 in Gluon: one warp brings blocks, two groups of four warps attend.

Each group has 64 query rows of its own. The product of the next scores is under way while the
softmax of the last ones is computed, and so is the product with the values: the tensor cores and
the exponentials overlap. Holes: `describe_q`, `describe_k`, `describe_v`, `describe_out` (rows of
contiguous elements of one head). The groups never meet: barriers in shared memory say which blocks
are there (`ready`) and which were used by both (`free`).
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
def describe_q(in0, z, T: gl.constexpr, D: gl.constexpr, BD: gl.constexpr, LAYOUT: gl.constexpr):
    return tma.make_tensor_descriptor(in0 + z * T * D, [T, D], [D, 1], [64, BD], LAYOUT)


@gluon.jit
def describe_k(
    in1, z, S: gl.constexpr, D: gl.constexpr, BN: gl.constexpr, BD: gl.constexpr,
    LAYOUT: gl.constexpr,
):  # fmt: skip
    return tma.make_tensor_descriptor(in1 + z * S * D, [S, D], [D, 1], [BN, BD], LAYOUT)


@gluon.jit
def describe_v(
    in2, z, S: gl.constexpr, DV: gl.constexpr, BN: gl.constexpr, BV: gl.constexpr,
    LAYOUT: gl.constexpr,
):  # fmt: skip
    return tma.make_tensor_descriptor(in2 + z * S * DV, [S, DV], [DV, 1], [BN, BV], LAYOUT)


@gluon.jit
def describe_out(
    out0, z, T: gl.constexpr, DV: gl.constexpr, BV: gl.constexpr, LAYOUT: gl.constexpr
):
    return tma.make_tensor_descriptor(out0 + z * T * DV, [T, DV], [DV, 1], [64, BV], LAYOUT)


@gluon.jit
def place(HEADS: gl.constexpr, TILES: gl.constexpr, GROUP: gl.constexpr, CAUSAL: gl.constexpr):
    """Head and row tile of a program: GROUP heads side by side, long causal rows first."""
    program = gl.program_id(0)
    first = program // (TILES * GROUP) * GROUP
    width = gl.minimum(GROUP, HEADS - first)
    within = program - first * TILES
    tile = within // width
    if CAUSAL:
        tile = TILES - 1 - tile
    return first + within % width, tile


@gluon.jit
def bring(
    queries, keys, values, q_tiles, k_tiles, v_tiles, q_ready, k_ready, k_free, v_ready, v_free,
    first, blocks, BN: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The producer: q once, then k and v block by block as places become free."""
    for half in gl.static_range(2):
        mbarrier.expect(q_ready.index(half), queries.block_type.nbytes)
        tma.async_copy_global_to_shared(
            queries, [first + half * 64, 0], q_ready.index(half), q_tiles.index(half)
        )
    for block in range(blocks):
        at = block % STAGES
        turn = (block // STAGES) & 1
        mbarrier.wait(k_free.index(at), turn ^ 1)
        mbarrier.expect(k_ready.index(at), keys.block_type.nbytes)
        tma.async_copy_global_to_shared(keys, [block * BN, 0], k_ready.index(at), k_tiles.index(at))
        mbarrier.wait(v_free.index(at), turn ^ 1)
        mbarrier.expect(v_ready.index(at), values.block_type.nbytes)
        tma.async_copy_global_to_shared(
            values, [block * BN, 0], v_ready.index(at), v_tiles.index(at)
        )


@gluon.jit
def hide(
    scores, first, start, S: gl.constexpr, OFFSET: gl.constexpr, CAUSAL: gl.constexpr,
    BN: gl.constexpr, LAYOUT: gl.constexpr,
):  # fmt: skip
    """Keys that do not exist, or that the causal rows do not see."""
    s = start + gl.arange(0, BN, gl.SliceLayout(0, LAYOUT))[None, :]
    if S % BN != 0:
        scores = gl.where(s < S, scores, float("-inf"))
    if CAUSAL:
        x = first + gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
        scores = gl.where(s <= x + OFFSET, scores, float("-inf"))
    return scores


@gluon.jit
def soften(scores, peak, total, SCALE: gl.constexpr):
    """Weights of a block, the new row maximum and sum, and the factor for what was before."""
    higher = gl.maximum(peak, gl.max(scores, 1) * SCALE)
    weights = gl.exp2(scores * SCALE - higher[:, None])
    shrink = gl.exp2(peak - higher)
    return weights, higher, total * shrink + gl.sum(weights, 1), shrink


@gluon.jit
def step(
    q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, p, acc, peak, total, block, first,
    HIDES: gl.constexpr, S: gl.constexpr, OFFSET: gl.constexpr, CAUSAL: gl.constexpr,
    SCALE: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, SCORES: gl.constexpr,
    WEIGHTS: gl.constexpr,
):  # fmt: skip
    """Scores of `block` while the values of the block before it are added."""
    at = block % STAGES
    before = (block - 1) % STAGES
    zeros = gl.zeros((64, BN), gl.float32, SCORES)
    mbarrier.wait(k_ready.index(at), (block // STAGES) & 1)
    scores = warpgroup_mma(
        q, k_tiles.index(at).permute((1, 0)), zeros, use_acc=False, is_async=True
    )
    mbarrier.wait(v_ready.index(before), ((block - 1) // STAGES) & 1)
    acc = warpgroup_mma(p, v_tiles.index(before), acc, is_async=True)
    scores = warpgroup_mma_wait(1, deps=(scores,))
    mbarrier.arrive(k_free.index(at))
    if HIDES:
        scores = hide(scores, first, block * BN, S, OFFSET, CAUSAL, BN, SCORES)
    weights, peak, total, shrink = soften(scores, peak, total, SCALE)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(v_free.index(before))
    acc = acc * gl.convert_layout(shrink, gl.SliceLayout(1, acc.type.layout))[:, None]
    p = gl.convert_layout(weights.to(p.dtype), WEIGHTS)
    return p, acc, peak, total


@gluon.jit
def attend(
    half: gl.constexpr, result, q_tiles, k_tiles, v_tiles, q_ready, k_ready, k_free, v_ready,
    v_free, first, blocks, S: gl.constexpr, OFFSET: gl.constexpr, CAUSAL: gl.constexpr,
    SCALE: gl.constexpr, SAFE: gl.constexpr, BN: gl.constexpr, BV: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """A consumer: 64 rows of the tile against all blocks."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    RESULT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BV, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, RESULT, 2)
    row = first + half * 64
    q = q_tiles.index(half)
    peak = gl.full((64,), -3.0e38, gl.float32, gl.SliceLayout(1, SCORES))
    total = gl.zeros((64,), gl.float32, gl.SliceLayout(1, SCORES))
    acc = gl.zeros((64, BV), gl.float32, RESULT)
    zeros = gl.zeros((64, BN), gl.float32, SCORES)
    mbarrier.wait(q_ready.index(half), 0)
    mbarrier.wait(k_ready.index(0), 0)
    scores = warpgroup_mma(q, k_tiles.index(0).permute((1, 0)), zeros, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, deps=(scores,))
    mbarrier.arrive(k_free.index(0))
    scores = hide(scores, row, 0, S, OFFSET, CAUSAL, BN, SCORES)
    weights, peak, total, _ = soften(scores, peak, total, SCALE)
    p = gl.convert_layout(weights.to(q.dtype), WEIGHTS)
    full = S // BN
    if CAUSAL:
        full = gl.minimum(full, gl.maximum(row + OFFSET + 1, 0) // BN)
    for block in range(1, full):
        p, acc, peak, total = step(
            q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, p, acc, peak, total, block, row,
            False, S, OFFSET, CAUSAL, SCALE, BN, STAGES, SCORES, WEIGHTS,
        )  # fmt: skip
    for block in range(gl.maximum(full, 1), blocks):
        p, acc, peak, total = step(
            q, k_tiles, v_tiles, k_ready, k_free, v_ready, v_free, p, acc, peak, total, block, row,
            True, S, OFFSET, CAUSAL, SCALE, BN, STAGES, SCORES, WEIGHTS,
        )  # fmt: skip
    last = blocks - 1
    mbarrier.wait(v_ready.index(last % STAGES), (last // STAGES) & 1)
    acc = warpgroup_mma(p, v_tiles.index(last % STAGES), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    if SAFE:
        total = gl.where(total == 0.0, 1.0, total)
    share = gl.convert_layout(1.0 / total, gl.SliceLayout(1, RESULT))
    q.store((acc * share[:, None]).to(q.dtype))
    fence_async_shared()
    gl.thread_barrier()
    tma.async_copy_shared_to_global(result, [row, 0], q)
    tma.store_wait(0)


@gluon.jit
def blocks_until(
    first, S: gl.constexpr, OFFSET: gl.constexpr, CAUSAL: gl.constexpr, BN: gl.constexpr
):
    end = S
    if CAUSAL:
        end = gl.maximum(gl.minimum(S, first + 128 + OFFSET), 1)
    return gl.cdiv(end, BN)


@gluon.jit
def attention_overlapped(
    in0,
    in1,
    in2,
    out0,
    HEADS: gl.constexpr,
    RATIO: gl.constexpr,
    T: gl.constexpr,
    S: gl.constexpr,
    D: gl.constexpr,
    DV: gl.constexpr,
    BD: gl.constexpr,
    BV: gl.constexpr,
    SCALE: gl.constexpr,
    CAUSAL: gl.constexpr,
    OFFSET: gl.constexpr,
    SAFE: gl.constexpr,
    BN: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
):
    z, tile = place(HEADS, gl.cdiv(T, 128), GROUP, CAUSAL)
    first = tile * 128
    DTYPE: gl.constexpr = in0.dtype.element_ty
    ROWS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, BD], DTYPE)
    KEYS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BD], DTYPE)
    VALUES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BN, BV], DTYPE)
    queries = describe_q(in0, z, T, D, BD, ROWS)
    keys = describe_k(in1, z // RATIO, S, D, BN, BD, KEYS)
    values = describe_v(in2, z // RATIO, S, DV, BN, BV, VALUES)
    result = describe_out(out0, z, T, DV, BV, ROWS)
    q_tiles = gl.allocate_shared_memory(DTYPE, [2, 64, BD], ROWS)
    k_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, BN, BD], KEYS)
    v_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, BN, BV], VALUES)
    q_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for at in gl.static_range(2):
        mbarrier.init(q_ready.index(at), count=1)
    for at in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(at), count=1)
        mbarrier.init(v_ready.index(at), count=1)
        mbarrier.init(k_free.index(at), count=2)
        mbarrier.init(v_free.index(at), count=2)
    fence_async_shared()
    blocks = blocks_until(first, S, OFFSET, CAUSAL, BN)
    gl.warp_specialize(
        [
            (attend, (0, result, q_tiles, k_tiles, v_tiles, q_ready, k_ready, k_free, v_ready,
                      v_free, first, blocks, S, OFFSET, CAUSAL, SCALE, SAFE, BN, BV, STAGES)),
            (attend, (1, result, q_tiles, k_tiles, v_tiles, q_ready, k_ready, k_free, v_ready,
                      v_free, first, blocks, S, OFFSET, CAUSAL, SCALE, SAFE, BN, BV, STAGES)),
            (bring, (queries, keys, values, q_tiles, k_tiles, v_tiles, q_ready, k_ready, k_free,
                     v_ready, v_free, first, blocks, BN, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip

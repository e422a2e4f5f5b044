# in0: *fp16
# in1: *fp16
# in2: *fp16
# out0: *fp16

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


# As in the template: waves_of, place, blocks_until, begins_at, near_until, full_until, bring,
# hide, capped, soften, keys_at, wait_next, step, begin, end, attend, barriers.


@gluon.jit
def head_q(z, RATIO: gl.constexpr):
    return z, 0


@gluon.jit
def head_k(z, RATIO: gl.constexpr):
    return z, 0


@gluon.jit
def head_v(z, RATIO: gl.constexpr):
    return z, 0


@gluon.jit
def head_out(z, RATIO: gl.constexpr):
    return z, 0


@gluon.jit
def kernel(
    in0, in1, in2, out0, BN: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr
):
    DTYPE: gl.constexpr = in0.dtype.element_ty
    TAIL: gl.constexpr = True if False else 1024 % BN != 0
    SHORT: gl.constexpr = 1024 < BN
    QUERIES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, 64, 64], DTYPE)
    KEYS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, BN, 64], DTYPE)
    VALUES: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, BN, 64], DTYPE)
    RESULTS: gl.constexpr = gl.NVMMASharedLayout.get_default_for([1, 1, 64, 64], DTYPE)
    queries = tma.make_tensor_descriptor(
        in0, [2, 1, 1024, 64], [65536, 64, 64, 1],
        [1, 1, 64, 64], QUERIES,
    )
    keys = tma.make_tensor_descriptor(
        in1, [2, 1, 1024, 64], [65536, 64, 64, 1],
        [1, 1, BN, 64], KEYS,
    )
    values = tma.make_tensor_descriptor(
        in2, [2, 1, 1024, 64], [65536, 64, 64, 1],
        [1, 1, BN, 64], VALUES,
    )
    result = tma.make_tensor_descriptor(
        out0, [2, 1, 1024, 64], [64, 128, 128, 1],
        [1, 1, 64, 64], RESULTS,
    )
    q_tiles = gl.allocate_shared_memory(DTYPE, [2, 1, 1, 64, 64], QUERIES)
    k_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BN, 64], KEYS)
    v_tiles = gl.allocate_shared_memory(DTYPE, [STAGES, 1, 1, BN, 64], VALUES)
    o_tiles = gl.allocate_shared_memory(DTYPE, [2, 1, 1, 64, 64], RESULTS)
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
                      k_free, v_ready, v_free, turns, 2, 1, 1024, 1024, 0, 0, False,
                      TAIL, SHORT, 0.36067376022224085, 0.0, 0.0, False, BN, 64, 64, GROUP, STAGES)),
            (attend, (1, result, q_tiles, k_tiles, v_tiles, o_tiles, q_ready, q_free, k_ready,
                      k_free, v_ready, v_free, turns, 2, 1, 1024, 1024, 0, 0, False,
                      TAIL, SHORT, 0.36067376022224085, 0.0, 0.0, False, BN, 64, 64, GROUP, STAGES)),
            (bring, (queries, keys, values, q_tiles, k_tiles, v_tiles, q_ready, q_free, k_ready,
                     k_free, v_ready, v_free, 2, 1, 1024, 1024, 0, 0, False, TAIL, BN,
                     GROUP, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip

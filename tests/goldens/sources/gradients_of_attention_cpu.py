# in0: *fp32
# in1: *fp32
# in2: *fp32
# in3: *fp32
# in4: *fp32
# in5: *fp32
# out0: *fp32
# out1: *fp32
# out2: *fp32
# BM=32 BN=32 grid 2×2×1
# BM=32 BN=64 grid 2×2×1
# BM=64 BN=32 grid 2×2×1
# BM=128 BN=128 grid 2×2×1

from __future__ import annotations
import triton
import triton.language as tl
from triton.language.extra import libdevice


# As in the template: LOWEST, normal_exp, of_head, places, block, masks, shows_any, last_of,
# scored, begun, weigh, first_block, store_rows, attention_forward, weighed, add_product,
# attention_backward.


@triton.jit
def kernel(
    in0, in1, in2, in3, in4, in5, out0, out1, out2, BM: tl.constexpr, BN: tl.constexpr
):
    attention_backward(
        dq_ptr=out0,
        dk_ptr=out1,
        dv_ptr=out2,
        q_ptr=in0,
        k_ptr=in1,
        v_ptr=in2,
        mask_ptr=in0,
        g_ptr=in3,
        out_ptr=in4,
        sums_ptr=in5,
        RATIO=2,
        T=70,
        S=70,
        T_UNIT=70,
        S_UNIT=70,
        S_MOST=70,
        D=32,
        E=32,
        BD=32,
        BE=32,
        SCALE=0.25,
        CAUSAL=0,
        WINDOW=0,
        Q=(8960, 2240, 32,),
        K=(4480, 2240, 32,),
        V=(4480, 2240, 32,),
        MASK=None,
        G=(8960, 2240, 32,),
        OUT=(8960, 2240, 32,),
        SUMS=(280, 70, 1,),
        DQ=(128, 0,),
        DK=(64, 0,),
        DV=(64, 0,),
        BM=BM,
        BN=BN,
    )

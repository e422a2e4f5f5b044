# in0: *fp32
# in1: *fp32
# out0: *fp32
# num_stages=1 num_warps=2 grid 5×1×1

from __future__ import annotations
import triton
import triton.language as tl


# As in the template: DIAGONAL: tl.constexpr = tl.constexpr(0.7071067811865476), SINE_OF_THIRD:
# tl.constexpr = tl.constexpr(0.8660254037844386), COSINE_OF_FIFTH: tl.constexpr =
# tl.constexpr(0.30901699437494745), COSINE_OF_FIFTHS: tl.constexpr =
# tl.constexpr(-0.8090169943749475), SINE_OF_FIFTH: tl.constexpr =
# tl.constexpr(0.9510565162951535), SINES_OF_FIFTHS: tl.constexpr =
# tl.constexpr(0.6180339887498949), COSINE_OF_SEVENTH: tl.constexpr =
# tl.constexpr(0.6234898018587335), COSINE_OF_SEVENTHS: tl.constexpr =
# tl.constexpr(-0.2225209339563144), COSINE_OF_THREE_SEVENTHS: tl.constexpr =
# tl.constexpr(-0.9009688679024191), SINE_OF_SEVENTHS: tl.constexpr =
# tl.constexpr(0.9749279121818236), SINE_OF_SEVENTH: tl.constexpr =
# tl.constexpr(0.8019377358048383), SINE_OF_THREE_SEVENTHS: tl.constexpr =
# tl.constexpr(0.4450418679126288), two, quarter_on, four, eight, plus, rotated_both, three, five,
# _three_of, seven, butterfly, _times_root, _times_roots, _joined, _parted, _exchanged_part,
# _exchanged, _last, _passed, _element, _store, fourier.


@triton.jit
def kernel(
    in0, in1, out0
):
    fourier(
        out_ptr=out0,
        re_ptr=in1,
        im_ptr=in0,
        roots_ptr=in0,
        ROWS=5,
        INNER=5,
        FAR=0,
        NEAR=512,
        HOP=1,
        OUT_FAR=0,
        OUT_NEAR=514,
        OUT_HOP=2,
        N=512,
        KEEP=257,
        SIGN=-1,
        IS_REAL=True,
        IS_HALF=False,
        HAS_IM=True,
        T=1,
    )

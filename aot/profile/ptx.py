"""Texts of the two kernels that measure a device's limits: a copy, and matrix products in shared
memory. PTX, which the driver assembles, so that the serving machine needs no compiler for them."""

from __future__ import annotations

COPY_BYTES = 16384  # of one program
COPY_THREADS = 256
COPY = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry aotc_copy(.param .u64 to, .param .u64 source)
{
  .reg .b32 %i<4>, %x<16>;
  .reg .b64 %a<8>;
  ld.param.u64 %a0, [to];
  ld.param.u64 %a1, [source];
  mov.u32 %i0, %ctaid.x;
  mov.u32 %i1, %tid.x;
  mul.wide.u32 %a2, %i0, 16384;
  mul.wide.u32 %a3, %i1, 16;
  add.s64 %a2, %a2, %a3;
  add.s64 %a0, %a0, %a2;
  add.s64 %a1, %a1, %a2;
  cvta.to.global.u64 %a0, %a0;
  cvta.to.global.u64 %a1, %a1;
  ld.global.v4.b32 {%x0, %x1, %x2, %x3}, [%a1];
  ld.global.v4.b32 {%x4, %x5, %x6, %x7}, [%a1+4096];
  ld.global.v4.b32 {%x8, %x9, %x10, %x11}, [%a1+8192];
  ld.global.v4.b32 {%x12, %x13, %x14, %x15}, [%a1+12288];
  st.global.v4.b32 [%a0], {%x0, %x1, %x2, %x3};
  st.global.v4.b32 [%a0+4096], {%x4, %x5, %x6, %x7};
  st.global.v4.b32 [%a0+8192], {%x8, %x9, %x10, %x11};
  st.global.v4.b32 [%a0+12288], {%x12, %x13, %x14, %x15};
  ret;
}
"""

MATRIX_THREADS = 256
# Operations of one turn of one program: two warpgroups, four products of 64×256×16 each.
WARPGROUP_OPERATIONS = 2 * 4 * 2 * 64 * 256 * 16
# The same of eight warps with 32 products of 16×8×16 each.
WARP_OPERATIONS = 8 * 32 * 2 * 16 * 8 * 16

_FILL = """
  mov.u32 %i0, %tid.x;
  mov.u32 %i1, tile;
  shl.b32 %i2, %i0, 2;
FILL:
  mul.lo.u32 %i3, %i2, 747796405;
  add.u32 %i3, %i3, 2891336453;
  shr.u32 %i4, %i3, 15;
  xor.b32 %i3, %i3, %i4;
  mul.lo.u32 %i3, %i3, 277803737;
  and.b32 %i3, %i3, 0x807F807F;
  or.b32 %i3, %i3, 0x3F003F00;
  add.u32 %i4, %i1, %i2;
  st.shared.b32 [%i4], %i3;
  add.u32 %i2, %i2, 1024;
  setp.lt.u32 %p0, %i2, 49152;
  @%p0 bra FILL;
  bar.sync 0;
"""
_STORE = """\
  ld.param.u64 %d2, [to];
  cvta.to.global.u64 %d2, %d2;
  mul.wide.u32 %d3, %i0, 4;
  add.s64 %d2, %d2, %d3;
  st.global.f32 [%d2], %f0;
  ret;
"""
# Every number is between 0.5 and 1 with a random sign and mantissa: zeros would draw less power.


def warpgroup_text() -> str:
    """Products by `wgmma` from shared memory (compute capability 9.0)."""
    accumulators = ", ".join(f"%f{at}" for at in range(128))
    zeros = "\n".join(f"  mov.f32 %f{at}, 0f00000000;" for at in range(128))
    products = "\n".join(
        f"  add.s64 %d4, %d0, {2 * step};\n  add.s64 %d5, %d1, {2 * step};\n"
        f"  wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{accumulators}}}, "
        "%d4, %d5, 1, 1, 1, 0, 0;"
        for step in range(4)
    )
    sums = "\n".join(f"  add.f32 %f0, %f0, %f{at};" for at in range(1, 128))
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.visible .entry aotc_matrix(.param .u64 to, .param .u32 turns)
.maxntid {MATRIX_THREADS}, 1, 1
{{
  .shared .align 1024 .b8 tile[49152];
  .reg .b32 %i<12>;
  .reg .f32 %f<128>;
  .reg .b64 %d<12>;
  .reg .pred %p<2>;
{_FILL}
  fence.proxy.async;
  shr.u32 %i5, %i0, 7;
  shl.b32 %i5, %i5, 13;
  add.u32 %i5, %i1, %i5;
  add.u32 %i6, %i1, 16384;
  and.b32 %i5, %i5, 0x3FFFF;
  and.b32 %i6, %i6, 0x3FFFF;
  shr.u32 %i5, %i5, 4;
  shr.u32 %i6, %i6, 4;
  cvt.u64.u32 %d0, %i5;
  cvt.u64.u32 %d1, %i6;
  or.b64 %d0, %d0, 0x4000004000010000;
  or.b64 %d1, %d1, 0x4000004000010000;
{zeros}
  ld.param.u32 %i7, [turns];
  mov.u32 %i8, 0;
TURN:
  wgmma.fence.sync.aligned;
{products}
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
  add.u32 %i8, %i8, 1;
  setp.lt.u32 %p0, %i8, %i7;
  @%p0 bra TURN;
{sums}
{_STORE}}}
"""


def warp_text() -> str:
    """Products by `mma.sync` from registers (compute capability 8.0 and later)."""
    chains = 16
    products = "\n".join(
        "  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        f"{{%f{4 * at}, %f{4 * at + 1}, %f{4 * at + 2}, %f{4 * at + 3}}}, "
        "{%x0, %x1, %x2, %x3}, {%x4, %x5}, "
        f"{{%f{4 * at}, %f{4 * at + 1}, %f{4 * at + 2}, %f{4 * at + 3}}};"
        for at in [*range(chains), *range(chains)]
    )
    zeros = "\n".join(f"  mov.f32 %f{at}, 0f00000000;" for at in range(4 * chains))
    sums = "\n".join(f"  add.f32 %f0, %f0, %f{at};" for at in range(1, 4 * chains))
    loads = "\n".join(f"  ld.shared.b32 %x{at}, [%i5+{1024 * at}];" for at in range(6))
    return f"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry aotc_matrix(.param .u64 to, .param .u32 turns)
{{
  .shared .align 1024 .b8 tile[49152];
  .reg .b32 %i<12>, %x<6>;
  .reg .f32 %f<{4 * chains}>;
  .reg .b64 %d<4>;
  .reg .pred %p<2>;
{_FILL}
  shl.b32 %i5, %i0, 2;
  add.u32 %i5, %i1, %i5;
{loads}
{zeros}
  ld.param.u32 %i7, [turns];
  mov.u32 %i8, 0;
TURN:
{products}
  add.u32 %i8, %i8, 1;
  setp.lt.u32 %p0, %i8, %i7;
  @%p0 bra TURN;
{sums}
{_STORE}}}
"""

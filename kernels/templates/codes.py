"""Sums of the products of f32 numbers with narrow codes, a chunk of codes a thread.

An integer becomes a float without a conversion: as bits of the fraction of a power of two, which is
then subtracted.
"""

import triton
import triton.language as tl


@triton.jit
def every_other(a):
    """The even and the odd elements along the last axis."""
    pairs = tl.reshape(a, (a.shape[0], a.shape[1], a.shape[2], a.shape[3] // 2, 2))
    return tl.split(pairs)


@triton.jit
def halves(a):
    """The first and the second half along the last axis."""
    shape: tl.constexpr = (a.shape[0], a.shape[1], a.shape[2], 2, a.shape[3] // 2)
    return tl.split(tl.permute(tl.reshape(a, shape), (0, 1, 2, 4, 3)))


@triton.jit
def joined(a, b):
    """Two tensors, one behind the other along the last axis."""
    shape: tl.constexpr = (a.shape[0], a.shape[1], a.shape[2], a.shape[3] * 2)
    return tl.reshape(tl.permute(tl.join(a, b), (0, 1, 2, 4, 3)), shape)


@triton.jit
def number_at(word, MASK: tl.constexpr, ZERO: tl.constexpr):
    """word & MASK - ZERO in f32, for masks below 2^23."""
    bits = (word & MASK) | 0x4B000000
    return bits.to(tl.float32, bitcast=True) - (8388608.0 + ZERO)


@triton.jit
def numbers_of_bytes(words, FLIP: tl.constexpr, ZERO: tl.constexpr):
    """The bytes of words [rows, chunks, words] less ZERO, in f32 [rows, chunks, bytes]."""
    words = words ^ FLIP
    even = tl.join(number_at(words, 0xFF, ZERO), number_at(words >> 16, 0xFF, ZERO))
    odd = tl.join(number_at(words >> 8, 0xFF, ZERO), number_at(words >> 24, 0xFF, ZERO))
    shape: tl.constexpr = (words.shape[0], words.shape[1], words.shape[2] * 4)
    return tl.reshape(tl.join(even, odd), shape)


@triton.jit
def numbers_of_nibbles(words, FLIP: tl.constexpr, ZERO: tl.constexpr):
    """The halves of the bytes of words less ZERO, the low ones first, in f32."""
    words = words ^ FLIP
    even = tl.join(number_at(words, 0xF, ZERO), number_at(words >> 16, 0xF, ZERO))
    more = tl.join(number_at(words >> 8, 0xF, ZERO), number_at(words >> 24, 0xF, ZERO))
    odd = tl.join(number_at(words >> 4, 0xF, ZERO), number_at(words >> 20, 0xF, ZERO))
    rest = tl.join(number_at(words >> 12, 0xF, ZERO), number_at(words >> 28, 0xF, ZERO))
    whole = tl.join(tl.join(even, more), tl.join(odd, rest))
    shape: tl.constexpr = (words.shape[0], words.shape[1], words.shape[2] * 8)
    return tl.reshape(whole, shape)


@triton.jit
def widened_e4m3(codes):
    """The numbers in f32 of bytes that are e4m3 floats."""
    return codes.to(tl.float8e4nv, bitcast=True).to(tl.float32)


@triton.jit
def widened_e5m2(codes):
    """The numbers in f32 of bytes that are e5m2 floats."""
    return codes.to(tl.float8e5, bitcast=True).to(tl.float32)


@triton.jit
def widened_bytes(words, KIND: tl.constexpr):
    """The numbers in f32 of the four bytes of words, the low one first, which are floats of a kind
    of PTX. A word that one step loads for the next takes one register, four bytes take four."""
    return tl.inline_asm_elementwise(
        "{ .reg .b16 low, high, a, b, c, d; .reg .b32 p, q; mov.b32 {low, high}, $4;"
        " cvt.rn.f16x2." + KIND + "x2 p, low; cvt.rn.f16x2." + KIND + "x2 q, high;"
        " mov.b32 {a, b}, p; mov.b32 {c, d}, q; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b;"
        " cvt.f32.f16 $2, c; cvt.f32.f16 $3, d; }",
        "=f,=f,=f,=f,r",
        [words],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@triton.jit
def numbers_of_floats(words, KIND: tl.constexpr):
    """The same one behind the other: [rows, chunks, words] → [rows, chunks, bytes]."""
    first, second, third, fourth = widened_bytes(words, KIND)
    shape: tl.constexpr = (words.shape[0], words.shape[1], words.shape[2] * 4)
    return tl.reshape(tl.join(tl.join(first, third), tl.join(second, fourth)), shape)


@triton.jit
def numbers_of_e4m3(words):
    """The numbers of words of e4m3 floats in f32."""
    return numbers_of_floats(words, "e4m3")


@triton.jit
def numbers_of_e5m2(words):
    """The numbers of words of e5m2 floats in f32."""
    return numbers_of_floats(words, "e5m2")


@triton.jit
def raised_nibbles(codes, ONES: tl.constexpr, dtype: tl.constexpr):
    """The low and the high halves of bytes as the last bits of numbers of 16 bits, two of which are
    ONES in hexadecimal, four bytes a time."""
    low, high = tl.inline_asm_elementwise(
        "{ .reg .b32 a, b, c, d, ones, mask; mov.b32 mask, 0x000F000F; mov.b32 ones, "
        + ONES
        + "; prmt.b32 a, $4, 0, 0x4140; prmt.b32 b, $4, 0, 0x4342; shr.u32 c, a, 4;"
        " shr.u32 d, b, 4; lop3.b32 $0, a, mask, ones, 0x6A; lop3.b32 $1, b, mask, ones, 0x6A;"
        " lop3.b32 $2, c, mask, ones, 0x6A; lop3.b32 $3, d, mask, ones, 0x6A; }",
        "=r,=r,=r,=r,r",
        [codes],
        dtype=(tl.int16, tl.int16),
        is_pure=True,
        pack=4,
    )
    return low.to(dtype, bitcast=True), high.to(dtype, bitcast=True)


@triton.jit
def unknown_zero(pointer):
    """0, which the assembler cannot know: addresses are below 2^63.

    What is added to it stays in a register, and an instruction of a word, a mask and ones is one.
    """
    return (pointer.to(tl.int64, bitcast=True) >> 63).to(tl.int32)


@triton.jit
def raised(word, MASK: tl.constexpr, ones):
    """word & MASK as the upper bits of a fraction, whose exponent is in `ones`."""
    return ((word & MASK) | ones).to(tl.float32, bitcast=True)


@triton.jit
def less_bytes(a, ZERO: tl.constexpr):
    """What is too much in the sums of `plus_bytes`: bytes are added to 256."""
    return -(256.0 + ZERO) * tl.sum(a, axis=3, keep_dims=True)


@triton.jit
def plus_bytes(p, a, words, zero, FLIP: tl.constexpr):
    """p + Σ a · (256 + byte) along the last axis: a has four elements for each word."""
    even, odd = every_other(a)
    a0, a2 = every_other(even)
    a1, a3 = every_other(odd)
    words = words ^ FLIP
    ones = zero + 0x43800000
    q = a0 * raised(words << 15, 0x7F8000, ones)
    q += a1 * raised(words << 7, 0x7F8000, ones)
    q += a2 * raised(words >> 1, 0x7F8000, ones)
    q += a3 * raised(words >> 9, 0x7F8000, ones)
    return p + tl.sum(q, axis=3, keep_dims=True)


@triton.jit
def less_nibbles(a, ZERO: tl.constexpr):
    """What is too much in the sums of `plus_nibbles`: halves of bytes are added to 2048 or 128."""
    even, odd = every_other(a)
    low = tl.sum(even, axis=3, keep_dims=True)
    return -(2048.0 + ZERO) * low - (128.0 + ZERO) * tl.sum(odd, axis=3, keep_dims=True)


@triton.jit
def plus_nibbles(p, a, words, zero, FLIP: tl.constexpr):
    """p + Σ a · (2048 or 128 + half of a byte) along the last axis: a has eight elements for each
    word. Of two halves that lie together the low one is added to 2048: one shift serves both."""
    even, odd = every_other(a)
    even0, even1 = every_other(even)
    odd0, odd1 = every_other(odd)
    a0, a4 = every_other(even0)
    a2, a6 = every_other(even1)
    a1, a5 = every_other(odd0)
    a3, a7 = every_other(odd1)
    words = words ^ FLIP
    low = zero + 0x45000000
    high = zero + 0x43000000
    first, second, third, fourth = words << 12, words << 4, words >> 4, words >> 12
    q = p + a0 * raised(first, 0xF000, low)
    q += a1 * raised(first, 0xF0000, high)
    q += a2 * raised(second, 0xF000, low)
    q += a3 * raised(second, 0xF0000, high)
    q += a4 * raised(third, 0xF000, low)
    q += a5 * raised(third, 0xF0000, high)
    q += a6 * raised(fourth, 0xF000, low)
    q += a7 * raised(fourth, 0xF0000, high)
    return q


@triton.jit
def plus_floats(p, a, words, KIND: tl.constexpr):
    """p + Σ a · number along the last axis: a has four elements for each word."""
    even, odd = every_other(a)
    a0, a2 = every_other(even)
    a1, a3 = every_other(odd)
    first, second, third, fourth = widened_bytes(words, KIND)
    q = a0 * first
    q += a1 * second
    q += a2 * third
    q += a3 * fourth
    return p + tl.sum(q, axis=3, keep_dims=True)


@triton.jit
def plus_e4m3(p, a, words):
    """The same of e4m3 floats."""
    return plus_floats(p, a, words, "e4m3")


@triton.jit
def plus_e5m2(p, a, words):
    """The same of e5m2 floats."""
    return plus_floats(p, a, words, "e5m2")

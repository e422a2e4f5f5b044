"""Random bits of a counter, so that each element of each draw has its own whatever computes it."""

import triton
import triton.language as tl


@triton.jit
def philox_word(seed, offset, element, site: tl.constexpr, word: tl.constexpr):
    """Word `word` of Philox 4x32-10 with the key `seed` and the counter (element, offset, site)."""
    c0 = element.to(tl.uint32)
    c1 = (offset >> 32).to(tl.uint32)
    c2 = offset.to(tl.uint32)
    words = tl.philox(seed, c0, c1, c2, c0 * 0 + site)
    return words[word].to(tl.int32, bitcast=True)

"""What all forms of attention share: the place of a program, its keys, one step over a block.

These functions go into every filled source as they stand.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def place(HEADS: tl.constexpr, TILES: tl.constexpr, GROUP: tl.constexpr, CAUSAL: tl.constexpr):
    """Head and row tile of a program: GROUP heads side by side, long causal rows first."""
    program = tl.program_id(0)
    first = program // (TILES * GROUP) * GROUP
    width = tl.minimum(GROUP, HEADS - first)
    within = program - first * TILES
    tile = within // width
    if CAUSAL:
        tile = TILES - 1 - tile
    return first + within % width, tile


@triton.jit
def last_seen(first, OFFSET: tl.constexpr, BM: tl.constexpr):
    """The last keys that the first and the last row of a tile see, where rows are causal."""
    return first + OFFSET, first + BM - 1 + OFFSET


@triton.jit
def key_range(
    low, high, S: tl.constexpr, WINDOW: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):
    """Rows of the tile see keys up to `low` at least, and `high` at most.

    Keys from `near` to `full` are visible to all rows. Blocks of which some rows see some keys are
    those from `edge` to `end`, if those before `full` are counted as if they lay next to the others
    (`edge_block`)."""
    near = 0
    full = S // BN * BN
    end = S
    if CAUSAL:
        full = tl.minimum(full, tl.maximum(low + 1, 0) // BN * BN)
        end = tl.minimum(end, high + 1)
    edge = full
    if WINDOW:
        begin = tl.maximum(low - WINDOW + 1, 0) // BN * BN
        near = tl.cdiv(tl.maximum(high - WINDOW + 1, 0), BN) * BN
        near = tl.minimum(near, tl.cdiv(tl.maximum(end, 0), BN) * BN)
        full = tl.maximum(full, near)
        edge = full - (near - begin)
    return near, full, edge, end


@triton.jit
def edge_block(at, near, full):
    """First key of the block that is counted as `at`: before `near`, or from `full` on."""
    return tl.where(at < full, at - (full - near), at)


@triton.jit
def share_of(
    split, low, high, S: tl.constexpr, WINDOW: tl.constexpr, SPLITS: tl.constexpr, BN: tl.constexpr
):
    """Keys of one split, of those that the rows see: up to `low` at least and `high` at most."""
    begin = 0
    if WINDOW:
        begin = tl.maximum(low - WINDOW + 1, 0) // BN * BN
    end = tl.minimum(S, high + 1)
    share = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), BN), SPLITS) * BN
    return begin + split * share, tl.minimum(begin + split * share + share, end)


@triton.jit
def capped(scores, RATE: tl.constexpr, CAP: tl.constexpr, EXACT: tl.constexpr):
    """CAP · tanh(scores · RATE); unless EXACT, by a power of two and off by 3e-7 · CAP."""
    if EXACT:
        found = CAP * libdevice.tanh(scores * RATE)
    else:
        found = CAP - 2.0 * CAP / (1.0 + tl.exp2(scores * (RATE * 2.8853900817779268)))
    return found


@triton.jit
def weigh(scores, peak, total, SCALE: tl.constexpr):
    """One block of keys: the rows' maximum and sum with it, its weights, and the factor of what is
    there.

    A multiply-add takes the rounded product of a row's highest score from the exact one of each.
    For the highest itself that is the product's rounding error, which past 2**26 may be of any
    size. There the scale's nearest power of two takes its place, whose products are exact: no
    other score of such a row is near enough to weigh.
    """
    highest = tl.max(scores, 1)
    bits = tl.full((), SCALE * 1.3333334, tl.float32).to(tl.int32, bitcast=True)
    power = (bits & 0x7F800000).to(tl.float32, bitcast=True)
    factor = tl.where(tl.abs(highest) * SCALE < 67108864.0, SCALE, power)
    higher = tl.maximum(peak, highest * factor)
    weights = tl.exp2(scores * factor[:, None] - higher[:, None])
    shrink = tl.exp2(peak - higher)
    return higher, total * shrink + tl.sum(weights, 1), weights, shrink


@triton.jit
def attend(scores, v, peak, total, acc, SCALE: tl.constexpr, PRECISION: tl.constexpr):
    """One block of keys: rescale what is there by the new row maximum, add the block's share."""
    peak, total, weights, shrink = weigh(scores, peak, total, SCALE)
    acc = tl.dot(weights.to(v.dtype), v, acc * shrink[:, None], input_precision=PRECISION)
    return peak, total, acc


@triton.jit
def join_keys(v0, v1, v2, v3):
    """Tiles of every fourth key [BN / 4, BV] as one of all keys [BN, BV]: a thread has four of them
    beside each other."""
    found = tl.join(tl.join(v0, v2), tl.join(v1, v3))
    return tl.reshape(tl.permute(found, (0, 2, 3, 1)), (4 * v0.shape[0], v0.shape[1]))


@triton.jit
def finish(acc, total, SAFE: tl.constexpr):
    """The product divided by the sum; a row that saw nothing is zeros if SAFE, else no number."""
    if SAFE:
        total = tl.where(total == 0.0, 1.0, total)
    return acc * (1.0 / total)[:, None]


@triton.jit
def join(
    partial, sums, z, SPLITS: tl.constexpr, ROWS: tl.constexpr, BV: tl.constexpr,
    BR: tl.constexpr, BS: tl.constexpr,
):  # fmt: skip
    """Product and sum of one head, [BR, BV] and [BR], from those of its splits, of which BS are
    loaded together. Each is a tile of its own, so that nothing moves between threads."""
    r = tl.arange(0, BR)
    is_there = r < ROWS
    first = z * SPLITS * ROWS + r
    peak = tl.full((BR,), -3.0e38, tl.float32)
    if SPLITS <= 32:
        for i in tl.static_range(0, SPLITS):
            at = (first + i * ROWS) * 2
            peaks = tl.load(sums + at, mask=is_there, other=-3.0e38, cache_modifier=".cg")
            peak = tl.maximum(peak, peaks)
    else:
        for i in range(SPLITS):
            at = (first + i * ROWS) * 2
            peaks = tl.load(sums + at, mask=is_there, other=-3.0e38, cache_modifier=".cg")
            peak = tl.maximum(peak, peaks)
    total = tl.zeros((BR,), tl.float32)
    acc = tl.zeros((BR, BV), tl.float32)
    for i in tl.range(0, SPLITS, loop_unroll_factor=BS):
        at = first + i * ROWS
        peaks = tl.load(sums + at * 2, mask=is_there, other=-3.0e38, cache_modifier=".cg")
        totals = tl.load(sums + at * 2 + 1, mask=is_there, other=0.0, cache_modifier=".cg")
        elements = at[:, None] * BV + tl.arange(0, BV)[None, :]
        block = tl.load(partial + elements, mask=is_there[:, None], other=0.0, cache_modifier=".cg")
        weights = tl.exp2(peaks - peak)
        total += totals * weights
        acc += block * weights[:, None]
    return acc, total

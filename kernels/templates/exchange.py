"""What the ranks of a program that is split over GPUs give each other, by stores to their memory.

Rank r's result is `[RANKS, COUNT]`: a row of each rank. Nobody reads what has not come, by one of
two protocols:

- Few elements travel in words of 8 bytes, each of which says by itself that it has come: bit 32 is
  set above the element. A program stores its words into `mail` of the other ranks, looks at its own
  until all have come, and clears them. A word takes one way, with no fence. (NCCL's protocol LL:
  Hu et al., "Demystifying NCCL", 2025.)
- Many elements travel as they are, into the results themselves. Each program sets a flag on each
  rank behind its stores, and waits for those of the others: a release and an acquire of the whole
  system.

Program p of one rank waits for program p of another alone, so that no two need be on a device at
once. Words and flags are zero before and after; two exchanges in a row use different ones, since a
rank may be one ahead.

A rank waits LIMIT looks and then goes on: 1 + the number of the silent rank is its status, with
which no exchange behind this one waits any more.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _by_words(
    out_ptr, data_ptr, mail_ptr, peers, rank, status, COUNT,
    RANKS: tl.constexpr, IS_SCATTERED: tl.constexpr, PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Exchange words; returns the status."""
    kind: tl.constexpr = data_ptr.dtype.element_ty
    bits: tl.constexpr = tl.core.get_int_dtype(kind.primitive_bitwidth, True)
    program = tl.program_id(0)
    length = tl.cdiv(COUNT, BLOCK) * BLOCK  # of a row of `mail`: whole blocks, without masks
    for start in range(program * BLOCK, COUNT, PROGRAMS * BLOCK):
        place = start + tl.arange(0, BLOCK)
        mask = place < COUNT
        if not IS_SCATTERED:
            row = tl.load(data_ptr + place, mask=mask)
        for other in tl.static_range(RANKS):
            if IS_SCATTERED:
                row = tl.load(data_ptr + other * COUNT + place, mask=mask)
            if other == rank:
                tl.store(out_ptr + rank * COUNT + place, row, mask=mask)
            else:
                word = row.to(bits, bitcast=True).to(tl.int64) & 0xFFFFFFFF | 1 << 32
                away = peers[other].to(tl.int64) * 2  # words
                tl.store(mail_ptr + away + rank * length + place, word)
    for start in range(program * BLOCK, COUNT, PROGRAMS * BLOCK):
        place = start + tl.arange(0, BLOCK)
        for other in tl.static_range(RANKS):
            if other != rank:
                mail = mail_ptr + other * length + place
                word = tl.load(mail, volatile=True)
                looks = tl.where(status == 0, LIMIT, 1)
                while (tl.min(word >> 32) == 0) & (looks > 0):
                    word = tl.load(mail, volatile=True)
                    looks -= 1
                has_come = tl.min(word >> 32) != 0
                status = tl.where((status == 0) & (has_come == 0), other + 1, status)
                row = word.to(bits).to(kind, bitcast=True)
                tl.store(out_ptr + other * COUNT + place, row, mask=place < COUNT)
                tl.store(mail, tl.zeros_like(word))
    return status


@triton.jit
def _by_flags(
    out_ptr, data_ptr, flags_ptr, peers, rank, status, COUNT,
    RANKS: tl.constexpr, IS_SCATTERED: tl.constexpr, PROGRAMS: tl.constexpr,
    UNIT: tl.constexpr, BLOCK: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Exchange elements, then flags, those of all ranks at once; returns the status."""
    program = tl.program_id(0)
    for start in range(program * BLOCK, COUNT, PROGRAMS * BLOCK):
        place = start + tl.arange(0, BLOCK)
        mask = place < COUNT
        if not IS_SCATTERED:
            row = tl.load(data_ptr + place, mask=mask)
        for other in tl.static_range(RANKS):
            if IS_SCATTERED:
                row = tl.load(data_ptr + other * COUNT + place, mask=mask)
            target = out_ptr + peers[other].to(tl.int64) * UNIT + rank * COUNT
            tl.store(target + place, row, mask=mask)
    LANES: tl.constexpr = triton.next_power_of_2(RANKS)
    lane = tl.arange(0, LANES)
    is_missing = (lane < RANKS) & (lane != rank)
    distance = tl.zeros([LANES], tl.int64)
    for other in tl.static_range(RANKS):
        distance = tl.where(lane == other, peers[other], distance)
    tl.debug_barrier()  # all stores of the program are behind it, as its release says
    flag = flags_ptr + distance * 4 + (program * RANKS + rank)
    tl.atomic_xchg(flag, 1, mask=is_missing, sem="release", scope="sys")
    own = flags_ptr + program * RANKS + tl.where(is_missing, lane, rank)  # nobody sets a rank's own
    ones = tl.full([LANES], 1, tl.int32)
    looks = tl.where(status == 0, LIMIT, 1)
    while (tl.max(is_missing.to(tl.int32)) != 0) & (looks > 0):
        is_missing &= tl.atomic_cas(own, ones, ones * 0, sem="acquire", scope="sys") == 0
        looks -= 1
    silent = tl.min(tl.where(is_missing, lane + 1, RANKS + 1))
    return tl.where((status == 0) & (silent <= RANKS), silent, status)


@triton.jit
def exchange(
    out_ptr,
    status_out_ptr,
    data_ptr,
    status_ptr,
    arrivals_ptr,  # i64: `[PROGRAMS, RANKS]` flags of 4 bytes in FLAGS words, then `mail`
    peers,  # for each rank how far its arena lies from this one's, in units of 16 bytes; 0: own
    COUNT,
    RANKS: tl.constexpr,
    IS_SCATTERED: tl.constexpr,  # whether there is a row for each rank, or one for all
    PROGRAMS: tl.constexpr,
    STATUS: tl.constexpr,  # words of the status
    FLAGS: tl.constexpr,
    UNIT: tl.constexpr,  # elements in 16 bytes
    BLOCK: tl.constexpr,  # elements that a program stores at a time
    MOST_WORDS: tl.constexpr,  # a row of more elements travels as it is
    WORDS_BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
):
    program = tl.program_id(0)
    rank = 0
    for other in tl.static_range(RANKS):
        rank += tl.where(peers[other] == 0, other, 0)
    status = tl.load(status_ptr + program)
    flags_ptr, mail_ptr = arrivals_ptr.to(tl.pointer_type(tl.int32)), arrivals_ptr + FLAGS
    if COUNT <= MOST_WORDS:
        status = _by_words(
            out_ptr, data_ptr, mail_ptr, peers, rank, status, COUNT, RANKS, IS_SCATTERED, PROGRAMS,
            WORDS_BLOCK, LIMIT,
        )  # fmt: skip
    else:
        status = _by_flags(
            out_ptr, data_ptr, flags_ptr, peers, rank, status, COUNT, RANKS, IS_SCATTERED, PROGRAMS,
            UNIT, BLOCK, LIMIT,
        )  # fmt: skip
    tl.store(status_out_ptr + program, status)
    if PROGRAMS < STATUS:
        rest = tl.arange(0, STATUS)
        is_rest = (rest >= PROGRAMS) & (program == 0)
        tl.store(status_out_ptr + rest, tl.load(status_ptr + rest, mask=is_rest), mask=is_rest)

"""What the ranks of a program that is split over GPUs give each other, by stores to their memory.

Rank r's result is `[RANKS, COUNT]`, and every rank writes its own row of it on every other one. So
that nobody reads what has not come, each program sets a flag on each rank behind its stores, and
waits for those of the others: a release and an acquire of the whole system. Program p of one rank
waits for program p of another alone, so that no two need be on a device at once. Flags are zero
before and after; two exchanges in a row use different ones, since a rank may be one ahead.

A rank waits LIMIT looks at a flag and then goes on: 1 + the number of the silent rank is its
status, with which no exchange behind this one waits any more.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exchange(
    out_ptr,
    status_out_ptr,
    data_ptr,
    status_ptr,
    flags_ptr,
    peers,  # for each rank how far its arena lies from this one's, in units of 16 bytes; 0: own
    COUNT,
    RANKS: tl.constexpr,
    IS_SCATTERED: tl.constexpr,  # whether there is a row for each rank, or one for all
    PROGRAMS: tl.constexpr,
    STATUS: tl.constexpr,  # words of the status
    UNIT: tl.constexpr,  # elements in 16 bytes
    BLOCK: tl.constexpr,
    LIMIT: tl.constexpr,
):
    program = tl.program_id(0)
    rank = 0
    for other in tl.static_range(RANKS):
        rank += tl.where(peers[other] == 0, other, 0)
    status = tl.load(status_ptr + program)
    for start in range(program * BLOCK, COUNT, PROGRAMS * BLOCK):
        place = start + tl.arange(0, BLOCK)
        mask = place < COUNT
        if not IS_SCATTERED:
            row = tl.load(data_ptr + place, mask=mask)
        for other in tl.static_range(RANKS):
            if IS_SCATTERED:
                row = tl.load(data_ptr + other * COUNT + place, mask=mask)
            target = out_ptr + peers[other] * UNIT + rank * COUNT
            tl.store(target + place, row, mask=mask)
    tl.debug_barrier()  # all stores of the program are behind it, as its one release says
    for other in tl.static_range(RANKS):
        if other != rank:
            flag = flags_ptr + peers[other] * 4 + (program * RANKS + rank)
            tl.atomic_xchg(flag, 1, sem="release", scope="sys")
    for other in tl.static_range(RANKS):
        if other != rank:
            flag = flags_ptr + program * RANKS + other
            has_come = tl.atomic_cas(flag, 1, 0, sem="acquire", scope="sys")
            looks = tl.where(status == 0, LIMIT, 1)
            while (has_come == 0) & (looks > 0):
                has_come = tl.atomic_cas(flag, 1, 0, sem="acquire", scope="sys")
                looks -= 1
            status = tl.where((has_come == 0) & (status == 0), other + 1, status)
    tl.store(status_out_ptr + program, status)
    if PROGRAMS < STATUS:
        rest = tl.arange(0, STATUS)
        is_rest = (rest >= PROGRAMS) & (program == 0)
        tl.store(status_out_ptr + rest, tl.load(status_ptr + rest, mask=is_rest), mask=is_rest)

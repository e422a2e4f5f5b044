"""Products in groups: rows by a matrix of each group, and the rows of each group by each other.

Group g has the rows from ENDS[g - 1] to ENDS[g], which never falls; the first one begins at 0. Rows
past the last end are in no group. Operands are read where they lie, by the steps of their dims.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def grouped_rows(
    out_ptr, a_ptr, b_ptr, ends_ptr,
    ROWS, N: tl.constexpr, K: tl.constexpr, GROUPS: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, ACCUMULATOR: tl.constexpr, SPAN: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out [ROWS, N]: row r of a [ROWS, K] by the matrix of its group in b [GROUPS, K, N]; zeros in
    no group. A tile of rows reads the matrices of the groups that it has rows of."""
    first = tl.program_id(1) * BM
    rows = first + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    groups = tl.arange(0, SPAN)
    ends = tl.load(ends_ptr + groups, mask=groups < GROUPS, other=ROWS).to(tl.int32)
    is_before = (groups < GROUPS) & (ends <= first)
    begins = (groups < GROUPS) & (ends < tl.minimum(first + BM, ROWS))
    lowest = tl.sum(is_before.to(tl.int32), 0)
    highest = tl.minimum(tl.sum(begins.to(tl.int32), 0) + 1, GROUPS)
    found = tl.zeros((BM, BN), ACCUMULATOR)
    for group in range(lowest, highest):
        end = tl.load(ends_ptr + group).to(tl.int32)
        start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0).to(tl.int32)
        is_in = (rows >= start) & (rows < end) & (rows < ROWS)
        of_group = b_ptr + group.to(tl.int64) * B[0]
        for k in range(0, K, BK):
            depth = k + steps
            at = a_ptr + rows[:, None].to(tl.int64) * A[0] + depth[None, :] * A[1]
            a = tl.load(at, mask=is_in[:, None] & (depth < K)[None, :], other=0.0)
            at = of_group + depth[:, None].to(tl.int64) * B[1] + columns[None, :] * B[2]
            b = tl.load(at, mask=(depth < K)[:, None] & (columns < N)[None, :], other=0.0)
            found = tl.dot(a, b, found, input_precision="ieee", out_dtype=ACCUMULATOR)
    at = out_ptr + rows[:, None].to(tl.int64) * N + columns[None, :]
    tl.store(at, found, mask=(rows < ROWS)[:, None] & (columns < N)[None, :])


@triton.jit
def grouped_depth(
    out_ptr, a_ptr, b_ptr, ends_ptr,
    ROWS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    A: tl.constexpr, B: tl.constexpr, ACCUMULATOR: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out [GROUPS, M, N]: a [M, ROWS] by b [ROWS, N] over the rows of each group alone; zeros for a
    group without rows."""
    group = tl.program_id(2)
    lines = tl.program_id(1) * BM + tl.arange(0, BM)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    steps = tl.arange(0, BK)
    end = tl.minimum(tl.load(ends_ptr + group).to(tl.int32), ROWS)
    start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0).to(tl.int32)
    found = tl.zeros((BM, BN), ACCUMULATOR)
    for first in range(start, end, BK):
        rows = first + steps
        at = a_ptr + lines[:, None].to(tl.int64) * A[0] + rows[None, :] * A[1]
        a = tl.load(at, mask=(lines < M)[:, None] & (rows < end)[None, :], other=0.0)
        at = b_ptr + rows[:, None].to(tl.int64) * B[0] + columns[None, :] * B[1]
        b = tl.load(at, mask=(rows < end)[:, None] & (columns < N)[None, :], other=0.0)
        found = tl.dot(a, b, found, input_precision="ieee", out_dtype=ACCUMULATOR)
    at = out_ptr + group.to(tl.int64) * (M * N) + lines[:, None] * N + columns[None, :]
    tl.store(at, found, mask=(lines < M)[:, None] & (columns < N)[None, :])

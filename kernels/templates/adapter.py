"""A product of low rank added to a weight where it lies: what an adapter changes."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add_product(weight_ptr, left_ptr, right_ptr, LEFT_SCALE, RIGHT_SCALE, START, M, N, R,
                WEIGHT_ROW, LEFT_ROW, LEFT_RANK, RIGHT_RANK, RIGHT_COLUMN,
                ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr):  # fmt: skip
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    columns = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    numbers = tl.arange(0, RANK)
    lefts = left_ptr + rows[:, None] * LEFT_ROW + numbers[None, :] * LEFT_RANK
    rights = right_ptr + columns[None, :] * RIGHT_COLUMN + numbers[:, None] * RIGHT_RANK
    # Products are added one after the other, each sum rounded once: as on other targets.
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for done in range(0, R, RANK):
        is_rank = numbers < R - done
        left = tl.load(lefts, mask=(rows < M)[:, None] & is_rank[None, :], other=0.0)
        right = tl.load(rights, mask=(columns < N)[None, :] & is_rank[:, None], other=0.0)
        left, right = left.to(tl.float32) * LEFT_SCALE, right.to(tl.float32) * RIGHT_SCALE
        total = tl.dot(left, right, total, input_precision="ieee")
        lefts += RANK * LEFT_RANK
        rights += RANK * RIGHT_RANK
    places = weight_ptr + START + rows[:, None] * WEIGHT_ROW + columns[None, :]
    mask = (rows < M)[:, None] & (columns < N)[None, :]
    weight = tl.load(places, mask=mask, other=0.0)
    tl.store(places, (weight.to(tl.float32) + total).to(weight.dtype), mask=mask)

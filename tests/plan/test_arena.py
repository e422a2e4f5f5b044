"""The arena: buffers that live together never share a byte, and gaps are used again."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from aotc.aot.plan.arena import Lifetime, _Assigned, aligned, assign_offsets
from aotc.runtime.bundle.plan import ALIGNMENT_BYTES

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime("buffer", size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 20),
        st.integers(0, 6),
    ),
    max_size=24,
)


@settings(max_examples=200, deadline=None)
@given(lifetimes)
def test_buffers_that_live_together_never_overlap(rows: list[Lifetime]) -> None:
    offsets, arena_bytes = assign_offsets(rows)
    spans = list(zip(offsets, rows, strict=True))
    for offset, row in spans:
        assert offset % ALIGNMENT_BYTES == 0
        assert 0 <= offset <= offset + row.nbytes <= arena_bytes
    for (left, first), (right, second) in combinations(spans, 2):
        if first.meets(second):
            assert left + first.nbytes <= right or right + second.nbytes <= left
            assert left != right


@settings(max_examples=100, deadline=None)
@given(lifetimes)
def test_buffers_that_meet_are_found(rows: list[Lifetime]) -> None:
    placed = _Assigned(rows)
    for at, row in enumerate(rows):
        assert placed.met(at) == {other for other in range(at) if row.meets(rows[other])}
        placed.add(at)


def test_a_dead_buffer_is_used_again() -> None:
    chain = [Lifetime(f"b{at}", 1000, at, at + 1) for at in range(10)]
    _, arena_bytes = assign_offsets(chain)
    assert arena_bytes == 2 * aligned(1000)


def test_the_smallest_gap_that_fits_is_taken() -> None:
    rows = [
        Lifetime("low", 640, 0, 0),
        Lifetime("wall", 6400, 0, 9),
        Lifetime("small", 64, 1, 2),
    ]
    offsets, arena_bytes = assign_offsets(rows)
    assert offsets[2] == offsets[0]
    assert arena_bytes == 6400 + 640


def test_nothing_needs_no_arena() -> None:
    assert assign_offsets([]) == ([], 0)

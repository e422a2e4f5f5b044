"""The search for a small part that still fails: bisect the end, then the start, then drop chunks.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002), whose last
pass makes the result minimal: no single operation can be left out of it. The bisections before cost
a logarithm and do most of the work, since operations stand in the order of their dependence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[int]], bool]


class OutOfTries(Exception):
    """The search was cut off; what it had found by then stays the answer."""


def shrink(count: int, fails: Fails, tries: int, progress: Callable[[int, int], None]) -> list[int]:
    """The places, of 0 … count - 1, of a small part for which `fails` holds.

    The whole is known to fail, and is the answer at worst. `fails` is called at most `tries` times;
    `progress` gets how often it was and how many places are left.
    """
    search = _Search(fails, tries, progress, list(range(count)))
    try:
        search.bisect(from_end=True)
        search.bisect(from_end=False)
        search.drop_chunks()
    except OutOfTries:
        pass
    return search.kept


class _Search:
    def __init__(
        self, fails: Fails, tries: int, progress: Callable[[int, int], None], kept: list[int]
    ) -> None:
        self.fails, self.tries, self.progress, self.kept = fails, tries, progress, kept
        self.tried = 0

    def accepts(self, part: list[int]) -> bool:
        """Whether the part fails too; it is then what is left."""
        if self.tried >= self.tries:
            raise OutOfTries
        self.tried += 1
        does_fail = bool(part) and self.fails(part)
        if does_fail:
            self.kept = part
        self.progress(self.tried, len(self.kept))
        return does_fail

    def bisect(self, from_end: bool) -> None:
        """Drop as much as can be dropped at once from one end."""
        whole = self.kept
        low, high = 0, len(whole)  # dropping `low` is known to keep the failure, `high` to lose it
        while high - low > 1:
            middle = (low + high) // 2
            part = whole[: len(whole) - middle] if from_end else whole[middle:]
            if self.accepts(part):
                low = middle
            else:
                high = middle

    def drop_chunks(self) -> None:
        """Drop chunks from anywhere, ever smaller, until no single place can go."""
        size = max(len(self.kept) // 2, 1)
        while True:
            has_dropped = self._drop_of(size)
            if size == 1 and not has_dropped:
                return
            size = max(size // 2, 1)

    def _drop_of(self, size: int) -> bool:
        has_dropped = False
        start = 0
        while start < len(self.kept) > 1:
            if self.accepts(self.kept[:start] + self.kept[start + size :]):
                has_dropped = True
            else:
                start += size
        return has_dropped

"""Seeds of programs that draw random numbers: i64[2], a seed and an offset.

A call that is given none takes the process's seed, and the number of such calls so far as offset.
"""

from __future__ import annotations

import itertools
import os

from ..settings import ArgumentInvalid

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RANGE = 1 << 64

_GIVEN = -1  # in place of a process's number: the seed is the user's
_source = (0, 0, itertools.count())  # whose the seed is, the seed, the offsets to come


def manual_seed(seed: int) -> None:
    """Make the draws of all later calls in this process reproducible, as `torch.manual_seed` does.

    seed: any integer; its lowest 64 bits count.
    """
    global _source
    try:
        number = int(seed)
    except (TypeError, ValueError, OverflowError):
        found, remedy = type(seed).__name__, "give a number, as to `torch.manual_seed`"
        expected = "an integer"
        raise ArgumentInvalid(name="seed", found=found, expected=expected, remedy=remedy) from None
    _source = (_GIVEN, number, itertools.count())


def next_seed() -> memoryview:
    """The seed and offset of a call that is given none; no two calls get the same.

    A process that was forked has a seed of its own, unless `manual_seed` gave one.
    """
    global _source
    owner, seed, offsets = _source
    if owner not in (_GIVEN, os.getpid()):
        seed, offsets = int.from_bytes(os.urandom(8), "little"), itertools.count()
        _source = (os.getpid(), seed, offsets)
    return _array(seed, next(offsets))  # `next` of a count is one atomic step


def seed_array(value: Any) -> Any:
    """What a caller gave: an integer as a seed with offset 0, an array as it is."""
    return _array(value, 0) if type(value) is int else value


def _array(seed: int, offset: int) -> memoryview:
    words = (seed % RANGE).to_bytes(8, "little") + offset.to_bytes(8, "little")
    return memoryview(words).cast("q")

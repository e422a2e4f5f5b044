"""Offsets that the lanes of a vector add to an index, where they are the same for every vector.

The lanes of `2 * (y // 2)` add 0, 0, 2, 2, 4 … wherever a vector begins. A processor loads such
elements as a few vectors, and permutes them.
"""

from __future__ import annotations

from math import gcd

from aotc.aot.ir.index import Bound, Index, Symbol
from aotc.aot.ir.size import Quotient

Steps = tuple[int, ...]


def lane_steps(index: Index, lanes: Symbol, width: int) -> Steps | None:
    """The numbers that `width` lanes add, from a multiple of `width` on; None where they differ
    from one vector to the next, or are not known."""
    parted = _parted(index, lanes, width)
    return None if parted is None else parted[1]


def has_plain_answers(condition: Bound, lanes: Symbol, width: int) -> bool:
    """Whether vectors of lanes need no mask that is computed for each: the condition changes its
    answer at a place along the lanes, where their loop is cut, or all lanes of a vector have the
    same one, or those of every vector have the same."""
    condition = condition.undivided
    if condition.index.stride(lanes) is not None:
        return True
    ends = [each for each in (condition.low, condition.high) if each is not None]
    constant, parted = (
        condition.index.constant,
        _parted(Index(condition.index.terms, 0), lanes, width),
    )
    if parted is None or not all(isinstance(each, int) for each in (constant, *ends)):
        return False
    common, steps = parted
    return common == 0 or all(
        len({(step + constant - end) // common for step in steps}) == 1 for end in ends
    )


def _parted(index: Index, lanes: Symbol, width: int) -> tuple[int, Steps] | None:
    """A number that divides what the lanes have in common (0 where that is 0), and their steps."""
    if not isinstance(index.constant, int):
        return None
    common, steps = index.constant, (0,) * width
    for atom, coefficient in index.terms:
        if lanes not in Index(((atom, 1),), 0).symbols():
            common = gcd(common, coefficient if isinstance(coefficient, int) else 1)
            continue
        if not isinstance(coefficient, int):
            return None
        if atom == lanes:
            multiple, own = width, tuple(range(width))
        elif isinstance(atom, Symbol):
            return None
        else:
            divided = _parted(atom.dividend, lanes, width)
            found = divided and _divided(*divided, atom.divisor, isinstance(atom, Quotient))
            if not found:
                return None
            multiple, own = found
        common = gcd(common, coefficient * multiple)
        steps = tuple(step + coefficient * more for step, more in zip(steps, own, strict=True))
    return common, steps


def _divided(
    common: int, steps: Steps, divisor: object, is_quotient: bool
) -> tuple[int, Steps] | None:
    """The same of (c + s) // d or … % d: where no vector straddles a multiple of d, and where d
    divides c."""
    if not isinstance(divisor, int) or min(steps) < 0:
        return None
    together = gcd(common, divisor)
    if max(steps) < together:
        return (1, (0,) * len(steps)) if is_quotient else (together, steps)
    if common % divisor:
        return None
    if is_quotient:
        return common // divisor, tuple(step // divisor for step in steps)
    return 0, tuple(step % divisor for step in steps)

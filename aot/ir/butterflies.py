"""The butterfly passes of a fast Fourier transform for small factors.

Stockham's order (Van Loan, "Computational Frameworks for the Fast Fourier Transform", 1992, 1.7):
a pass makes of transforms of `done` elements transforms of `radix` times as many. With W = n /
radix and G = W / done, its place p < W takes elements p // G * radix * G + p % G + k * G for k <
radix, times the root number k * (p // G) of order radix * done, and makes results p + k * W.
"""

from __future__ import annotations

from typing import NamedTuple

BESIDE = 16  # rows or columns that a program of a processor transforms at once


class Pass(NamedTuple):
    """radix: elements of a butterfly; done: of the transforms before the pass."""

    radix: int
    done: int


def factors(length: int) -> tuple[int, int, int, int] | None:
    """How often 2, 3, 5 and 7 divide a length; None where anything else does."""
    counts = []
    for prime in (2, 3, 5, 7):
        counts.append(0)
        while length % prime == 0:
            length, counts[-1] = length // prime, counts[-1] + 1
    two, three, five, seven = counts
    return (two, three, five, seven) if length == 1 else None


def passes(length: int, *, are_beside: bool = False) -> tuple[Pass, ...]:
    """Passes of a length of small factors, powers of two last: then elements that are less than a
    vector apart are so by a power of two, and lie in few vectors. For that the last radix is 4, but
    where several transforms lie beside each other, so that a vector has an element of each."""
    found = factors(length)
    assert found is not None
    two, three, five, seven = found
    last = [] if are_beside else [4] if two >= 2 else [2] * two
    two = two if are_beside else max(0, two - 2)
    fours = {0: 0, 1: 2, 2: 1}[two % 3] if two > 1 else 0
    eights, rest = divmod(two - 2 * fours, 3)
    order = [7] * seven + [5] * five + [3] * three + [8] * eights + [4] * fours + [2] * rest + last
    result, done = [], 1
    for radix in order:
        result.append(Pass(radix, done))
        done *= radix
    return tuple(result)


def form_of(length: int, given: int, keep: int, is_real: bool) -> str:
    """How rows are transformed. `whole`: as complex numbers. `reals`: as half as many of them,
    whose parts are the even and the odd elements. `spectrum`: `given` elements are half of a
    spectrum of reals, and come of half as many complex numbers too."""
    if given != length:
        return "spectrum"
    is_half = is_real and length % 2 == 0 and keep <= length // 2 + 1
    return "reals" if is_half else "whole"

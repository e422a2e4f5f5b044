"""The text of an index in a kernel, where `//` and `%` truncate toward zero.

Only strings are put together here; `ir/index.py` says what is known of their values.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.ir.size import Extent, kernel_text


def sum_text(terms: Sequence[tuple[str, Extent]], constant: Extent) -> str:
    """Text of constant + sum of atom * factor, the terms that are subtracted last."""
    positive = [_term_text(atom, count) for atom, count in terms if not _is_negative(count)]
    negative = [_term_text(atom, -count) for atom, count in terms if _is_negative(count)]
    if _is_negative(constant) and positive:
        negative.append(kernel_text(-constant))
    elif constant != 0 or not positive:
        positive.append(kernel_text(constant))
    return " - ".join([" + ".join(positive), *negative])


def division_text(dividend: str, sign: str, divisor: Extent, is_floored: bool) -> str:
    """Text of the floor quotient (`//`) or the floor remainder (`%`) by a divisor of at least 1.

    `is_floored` says that the dividend is never negative, so that truncation is the floor. Else
    floor(a / b) is trunc((a - (b - 1)) / b) for negative a, and a mod b is (a rem b + b) rem b.
    """
    inner = dividend if dividend.isidentifier() else f"({dividend})"
    count = kernel_text(divisor)
    if is_floored:
        return f"{inner} {sign} {count}"
    if sign == "%":
        return f"({inner} % {count} + {count}) % {count}"
    return f"tl.where({inner} < 0, {inner} - {kernel_text(divisor - 1)}, {inner}) // {count}"


def _is_negative(count: Extent) -> bool:
    return isinstance(count, int) and count < 0


def _term_text(atom: str, factor: Extent) -> str:
    if factor == 1:
        return atom
    name = atom if atom.isidentifier() else f"({atom})"
    return f"{name}*{kernel_text(factor)}"

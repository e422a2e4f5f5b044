"""Numbers as people read them: bytes, durations, counts."""

from __future__ import annotations

from collections.abc import Sequence


def bytes_text(count: float) -> str:
    """`412 B`, `3.4 MB`."""
    return _scaled(count, ("B", "kB", "MB", "GB", "TB"))


def count_text(count: float) -> str:
    """`412`, `3.4 M`."""
    return _scaled(count, ("", "k", "M", "G", "T", "P"))


def time_text(time_us: float) -> str:
    """`0.8 µs`, `3.1 ms`."""
    return _scaled(time_us, ("µs", "ms", "s"))


def _scaled(value: float, units: Sequence[str]) -> str:
    place = 0
    while value >= 999.5 and place < len(units) - 1:
        value, place = value / 1000, place + 1
    digits = f"{value:.0f}" if value == round(value) or value >= 100 else f"{value:.3g}"
    return f"{digits} {units[place]}".strip()

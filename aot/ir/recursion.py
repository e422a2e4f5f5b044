"""A higher recursion limit for code that recurses as deep as a graph is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deep_recursion(frames: int) -> Iterator[None]:
    """Let calls of Python be this deep inside the block."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, frames))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)

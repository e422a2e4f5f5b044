"""The rewrites that users registered in this process, and their digest. Imports nothing of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aotc.aot.ir.match import Pattern


@dataclass(frozen=True, slots=True)
class UserRewrite:
    """One rewrite of the user's."""

    name: str
    source: str  # `my_rules.py:12`
    digest: str  # SHA-256 of the file that holds it: all that it may call is there
    function: Callable[..., Any]  # the right side, or the function over the graph
    pattern: Pattern | None = None  # the left side; None for a function over the graph
    when: Callable[..., bool] | None = None  # asked with the nodes of the names it takes
    with_torch: bool = False  # the right side takes and gives torch's tensors
    literals: frozenset[str] = frozenset()  # the names that stand for numbers


_REGISTERED: list[UserRewrite] = []


def register(own: UserRewrite) -> None:
    """Add a rewrite; one of the same name and line takes the place of that."""
    kept = [each for each in _REGISTERED if (each.name, each.source) != (own.name, own.source)]
    _REGISTERED[:] = [*kept, own]


def registered() -> tuple[UserRewrite, ...]:
    """The rewrites of this process, first registered first."""
    return tuple(_REGISTERED)


@contextmanager
def only(*rewrites: UserRewrite) -> Iterator[None]:
    """Inside, these are the registered rewrites and no others."""
    before = list(_REGISTERED)
    _REGISTERED[:] = rewrites
    try:
        yield
    finally:
        _REGISTERED[:] = before


def digest_of(rewrites: Sequence[UserRewrite]) -> str:
    """SHA-256 of all of them in order; of nothing for none."""
    text = "".join(f"{each.name} {each.digest}\n" for each in rewrites)
    return hashlib.sha256(text.encode()).hexdigest()

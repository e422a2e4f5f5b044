"""Immutable records without dataclasses, whose import alone would cost half of the runtime's time.

A subclass lists its fields in `__slots__`, annotates them and fills them once with `_set`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Record:
    """Base of the runtime's values: equality, hash and repr over the fields; no assignment."""

    __slots__: tuple[str, ...] = ()

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`{type(self).__name__}` is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"`{type(self).__name__}` is immutable")

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in type(self).__slots__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in type(self).__slots__)
        return f"{type(self).__name__}({fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Records pickle by field name, for worker processes of the compiler."""
        fields = {name: getattr(self, name) for name in type(self).__slots__}
        return _rebuild, (type(self), fields)


def _rebuild(kind: type[Record], fields: dict[str, Any]) -> Record:
    record = kind.__new__(kind)
    record._set(**fields)
    return record

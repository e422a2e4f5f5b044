"""Immutable records, each field declared once: its type, and beside it what it is in a file.

    class Buffer(Record):
        name: str = field(Text(256))
        offset: int = field(Number(0, LIMIT))
        purpose: str = ""                        no part of a file

`bundle/schema.py` reads, writes and checks a file by these declarations. The standard library's
dataclasses do the first half of that; importing them alone would cost half of the runtime's time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """What tells type checkers of `__init__`; nothing here."""
        return lambda kind: kind


class Field:
    """A declaration: schema (None: the field is in no file), default (`...`: there is none), and
    the feature of the file that the field comes with (empty: it is always there)."""

    __slots__ = ("default", "feature", "schema")

    def __init__(self, schema: Any, default: Any, feature: str) -> None:
        self.schema, self.default, self.feature = schema, default, feature


def field(schema: Any = None, *, default: Any = ..., feature: str = "") -> Any:
    """The declaration of a field, in the place of its default: see `Field`."""
    return Field(schema, default, feature)


class RecordType(type):
    """Makes slots of annotations, and keeps what was declared beside them in `_fields`.

    A name that begins with `_` is a slot and no field, empty at first: what a record makes later.
    """

    _fields: dict[str, Field]
    _puts: tuple[Any, ...]

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> RecordType:
        """The class, with slots."""
        fields = {}
        slots = tuple(namespace.get("__annotations__", ()))
        for each in slots:
            declared = namespace.pop(each, ...)
            if each[0] == "_":
                continue
            fields[each] = declared if type(declared) is Field else Field(None, declared, "")
        namespace["__slots__"] = slots
        kind = super().__new__(cls, name, bases, namespace)
        kind._fields = fields
        kind._puts = tuple([getattr(kind, each).__set__ for each in fields])
        return kind


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(metaclass=RecordType):
    """Base of the runtime's values: equality, hash and repr over the fields; no assignment.

    A list that is given for a field becomes a tuple.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        kind = type(self)
        if named or len(values) != len(kind._puts):
            values = tuple(_bound(kind, values, named))
        for put, value in zip(kind._puts, values, strict=True):
            put(self, tuple(value) if type(value) is list else value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`{type(self).__name__}` is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"`{type(self).__name__}` is immutable")

    def _put(self, name: str, value: Any) -> None:
        """Fill a slot: what a record makes of itself later, and never what it was made of."""
        object.__setattr__(self, name, value)

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in type(self)._fields])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), self._values()))

    def __repr__(self) -> str:
        fields = zip(type(self)._fields, self._values(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values()

    def replace(self, **changes: Any) -> Self:
        """The record with other values in some fields."""
        return type(self)(**{**self.as_map(), **changes})

    def as_map(self) -> dict[str, Any]:
        """Its values by field."""
        return dict(zip(type(self)._fields, self._values(), strict=True))


def _bound(kind: RecordType, values: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """A value for each field, by place, by name or its default; raises `TypeError`."""
    names = list(kind._fields)
    given = dict(zip(names, values, strict=False))
    wrong = [name for name in named if name in given or name not in kind._fields]
    if wrong or len(values) > len(names):
        raise TypeError(f"`{kind.__name__}` takes {', '.join(names)}, each once")
    found = []
    for name, declared in kind._fields.items():
        value = given[name] if name in given else named.get(name, declared.default)
        if value is ...:
            raise TypeError(f"`{kind.__name__}` needs `{name}`")
        found.append(value)
    return found

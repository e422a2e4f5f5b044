"""Table-driven schemas: what a decoded value must look like, field by field.

A schema is a tree of the classes below. `check(value, schema, path)` returns nothing or raises
`BundleMalformed` or `BundleLimit` with the field written as a path: `targets[0].plan`.
"""

from __future__ import annotations

from ..errors import BundleLimit, BundleMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = frozenset("0123456789")
NAME_ALPHABET = LETTERS | DIGITS | frozenset("._-")
SYMBOL_ALPHABET = LETTERS | DIGITS | frozenset("_")
NAME_LENGTH = 128
DIGEST_BYTES = 32


class Schema:
    """Base of the schema classes; `expected` is the wording of a refusal."""

    __slots__ = ("expected",)
    expected: str

    def check(self, value: Any, field: str, path: str) -> None:
        """Raise unless `value` fits."""
        raise NotImplementedError

    def refuse(self, value: Any, field: str, path: str) -> None:
        """Raise `BundleMalformed` for `value` at `field`."""
        raise BundleMalformed(path=path, field=field, found=describe(value), expected=self.expected)


class Integer(Schema):
    """A whole number from `low` to `high`, both included."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.expected = f"a whole number from {low} to {high}"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not int or not self.low <= value <= self.high:
            self.refuse(value, field, path)


class Multiple(Schema):
    """A whole multiple of `step`, from `step` to `high`."""

    __slots__ = ("high", "step")

    def __init__(self, step: int, high: int) -> None:
        self.step = step
        self.high = high
        self.expected = f"a multiple of {step} from {step} to {high}"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not int or not self.step <= value <= self.high or value % self.step:
            self.refuse(value, field, path)


class Choice(Schema):
    """One of a fixed set of texts."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.expected = "one of " + ", ".join(f"`{choice}`" for choice in choices)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not str or value not in self.choices:
            self.refuse(value, field, path)


class Text(Schema):
    """Printable text of `least` to `length` characters, such as the name of an input."""

    __slots__ = ("least", "length")

    def __init__(self, length: int = NAME_LENGTH, least: int = 1) -> None:
        self.length = length
        self.least = least
        self.expected = f"printable text of {least} to {length} characters"

    def check(self, value: Any, field: str, path: str) -> None:
        fits = type(value) is str and self.least <= len(value) <= self.length
        if not fits or not value.isprintable():
            self.refuse(value, field, path)


class Name(Schema):
    """A name of the fixed alphabet `[A-Za-z0-9._-]` that does not start with a dot."""

    __slots__ = ()
    expected = f"1 to {NAME_LENGTH} of [A-Za-z0-9._-], not starting with a dot"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not str or not is_name(value):
            self.refuse(value, field, path)


class Symbol(Schema):
    """A symbol of a shared object: `[A-Za-z_][A-Za-z0-9_]*`."""

    __slots__ = ()
    expected = f"1 to {NAME_LENGTH} of [A-Za-z0-9_], not starting with a digit"

    def check(self, value: Any, field: str, path: str) -> None:
        fits = type(value) is str and 0 < len(value) <= NAME_LENGTH
        if not fits or not SYMBOL_ALPHABET.issuperset(value) or value[0] in DIGITS:
            self.refuse(value, field, path)


class FileName(Schema):
    """A file inside the bundle: up to eight names with slashes between them."""

    __slots__ = ()
    expected = "names of [A-Za-z0-9._-] with `/` between them, none starting with a dot"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not str or not is_file_name(value):
            self.refuse(value, field, path)


class Digest(Schema):
    """The 32 bytes of a SHA-256."""

    __slots__ = ()
    expected = f"{DIGEST_BYTES} bytes of a sha256"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not bytes or len(value) != DIGEST_BYTES:
            self.refuse(value, field, path)


class Optional(Schema):
    """Nil, or what `item` describes."""

    __slots__ = ("item",)

    def __init__(self, item: Schema) -> None:
        self.item = item
        self.expected = f"nil or {item.expected}"

    def check(self, value: Any, field: str, path: str) -> None:
        if value is not None:
            self.item.check(value, field, path)


class List(Schema):
    """From `least` to `limit` items of one schema."""

    __slots__ = ("item", "least", "limit")

    def __init__(self, item: Schema, limit: int, least: int = 0) -> None:
        self.item = item
        self.limit = limit
        self.least = least
        self.expected = f"a list of {least} to {limit} items"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) < self.least:
            self.refuse(value, field, path)
        if len(value) > self.limit:
            raise BundleLimit(path=path, what=f"`{field}`", found=len(value), limit=self.limit)
        for index, item in enumerate(value):
            self.item.check(item, f"{field}[{index}]", path)


class Fields(Schema):
    """A map with these fields, of which some may be absent; any other is refused by name."""

    __slots__ = ("absent", "fields")

    def __init__(self, fields: Mapping[str, Schema], absent: Collection[str] = ()) -> None:
        self.fields = fields
        self.absent = frozenset(absent)
        self.expected = "a map with " + ", ".join(f"`{name}`" for name in fields)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not dict:
            self.refuse(value, field, path)
        prefix = f"{field}." if field else ""
        for name in value:
            if name not in self.fields:
                raise BundleMalformed(
                    path=path, field=prefix + str(name), found="there", expected="no such field"
                )
        for name, schema in self.fields.items():
            if name not in value:
                if name in self.absent:
                    continue
                raise BundleMalformed(
                    path=path, field=prefix + name, found="missing", expected=schema.expected
                )
            schema.check(value[name], prefix + name, path)


class Union(Schema):
    """A map whose field `kind` says which of several schemas its other fields have."""

    __slots__ = ("_kind", "kinds")

    def __init__(self, kinds: Mapping[str, Fields]) -> None:
        self._kind = Choice(*kinds)
        self.kinds = {
            kind: Fields({"kind": self._kind, **each.fields}, each.absent)
            for kind, each in kinds.items()
        }
        self.expected = "a map whose `kind` is " + self._kind.expected

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not dict or "kind" not in value:
            self.refuse(value, field, path)
        self._kind.check(value["kind"], f"{field}.kind", path)
        self.kinds[value["kind"]].check(value, field, path)


def keep_known(value: Any, schema: Schema) -> Any:
    """`value` without the map fields that `schema` does not list, at any depth."""
    if isinstance(schema, Optional):
        return keep_known(value, schema.item)
    if isinstance(schema, List) and type(value) is list:
        return [keep_known(item, schema.item) for item in value]
    if isinstance(schema, Fields) and type(value) is dict:
        known = schema.fields
        return {name: keep_known(value[name], known[name]) for name in value if name in known}
    return value


def is_name(text: str) -> bool:
    """Whether `text` is one path component of the fixed alphabet."""
    return 0 < len(text) <= NAME_LENGTH and text[0] != "." and NAME_ALPHABET.issuperset(text)


def is_file_name(text: str) -> bool:
    """Whether `text` names a file inside a bundle: names with slashes between, no way out."""
    if len(text) > 1024:
        return False
    parts = text.split("/")
    return len(parts) <= 8 and all(is_name(part) for part in parts)


def describe(value: Any) -> str:
    """A value as a message shows it: short, on one line, containers by size."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'map'} of {len(value)}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = "nil" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

"""Schemas: what a decoded value must look like, and the typed value that it stands for.

A schema is a tree of the classes below; a class of records is one too, by what its fields declare.
From it follow

    read(schema, value, path)    plain values → typed ones: lists become tuples, maps records
    write(schema, value)         typed values → plain ones
    schema.at(value, number)     a typed value with `number(formula)` in the place of each formula,
                                 the limits of its numbers checked again

What does not fit is refused by `BundleMalformed` or `BundleLimit` with the field written as a path:
`targets[0].plan`.
"""

from __future__ import annotations

from ..errors import BundleLimit, BundleMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, NoReturn

    Numbering = Callable[[Any], Any]
    Broken = Iterable[tuple[str, object, str]]  # field, found, expected

LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
DIGITS = frozenset("0123456789")
NAME_ALPHABET = LETTERS | DIGITS | frozenset("._-")
SYMBOL_ALPHABET = LETTERS | DIGITS | frozenset("_")
NAME_LENGTH = 128
DIGEST_BYTES = 32


class Refused(Exception):
    """A value that does not fit its schema; `where` grows on the way out of the tree."""

    def __init__(self, found: Any, expected: str, where: str = "", limit: int = -1) -> None:
        super().__init__(found, expected, where)
        self.found, self.expected, self.where, self.limit = found, expected, where, limit

    def inside(self, part: str) -> Refused:
        """The same error for a value inside `part`: the name of a field, or `[index]`."""
        is_joined = not self.where or self.where[0] == "["
        self.where = part + self.where if is_joined else f"{part}.{self.where}"
        return self

    def error(self, path: str) -> BundleMalformed | BundleLimit:
        """The error that the caller sees."""
        if self.limit >= 0:
            what = f"`{self.where}`"
            return BundleLimit(path=path, what=what, found=self.found, limit=self.limit)
        return BundleMalformed(
            path=path, field=self.where, found=self.found, expected=self.expected
        )


def read(schema: Any, value: Any, path: str, count: int = 0) -> Any:
    """The typed value, whose formulas are values below `count`; raises `BundleMalformed` and
    `BundleLimit`."""
    try:
        return as_schema(schema).read(value, count)
    except Refused as error:
        raise error.error(path) from None


def write(schema: Any, value: Any) -> Any:
    """The plain value of a typed one."""
    return as_schema(schema).write(value)


def refuse(broken: Broken, path: str) -> None:
    """Raise `BundleMalformed` for the first of what is broken."""
    for field, found, expected in broken:
        raise BundleMalformed(path=path, field=field, found=found, expected=expected)


def twins(names: Iterable[str], field: str) -> Broken:
    """Names that occur twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield field, f"`{name}` twice", "each name once"
        seen.add(name)


class Schema:
    """Base of the schema classes; `expected` is the wording of a refusal."""

    __slots__ = ()
    has_numbers = False  # whether a formula may stand somewhere inside
    expected: str

    def read(self, value: Any, count: int = 0) -> Any:
        """The typed value, whose formulas are values below `count`; raises `Refused`."""
        raise NotImplementedError

    def write(self, value: Any) -> Any:
        """The plain value of a typed one."""
        return value

    def at(self, value: Any, number: Numbering) -> Any:
        """The typed value with numbers in place of formulas; raises `Refused`."""
        return value

    def refuse(self, value: Any) -> NoReturn:
        """Raise `Refused` for a value."""
        raise Refused(describe(value), self.expected)


class Integer(Schema):
    """A whole number from `low` to `high`, both included; with `step`, a multiple of it."""

    __slots__ = ("high", "low", "step")

    def __init__(self, low: int, high: int, step: int = 1) -> None:
        self.low, self.high, self.step = low, high, step

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Such as `a whole number from 0 to 3`."""
        kind = "whole number" if self.step == 1 else f"multiple of {self.step}"
        return f"a {kind} from {self.low} to {self.high}"

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not int or not self.low <= value <= self.high or value % self.step:
            self.refuse(value)
        return value


class Choice(Schema):
    """One of a fixed set of texts."""

    __slots__ = ("choices",)

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    @property
    def expected(self) -> str:  # type: ignore[override]
        """The texts."""
        return "one of " + ", ".join(f"`{choice}`" for choice in self.choices)

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not str or value not in self.choices:
            self.refuse(value)
        return value


class Text(Schema):
    """Printable text of `least` to `length` characters, such as the name of an input."""

    __slots__ = ("least", "length")

    def __init__(self, length: int = NAME_LENGTH, least: int = 1) -> None:
        self.least, self.length = least, length

    @property
    def expected(self) -> str:  # type: ignore[override]
        """With the limits of its length."""
        return f"printable text of {self.least} to {self.length} characters"

    def read(self, value: Any, count: int = 0) -> Any:
        fits = type(value) is str and self.least <= len(value) <= self.length
        if not fits or not value.isprintable():
            self.refuse(value)
        return value


class Matching(Schema):
    """A value of one type that passes a test."""

    __slots__ = ("expected", "fits", "kind")

    def __init__(self, kind: type, fits: Callable[[Any], bool], expected: str) -> None:
        self.kind, self.fits, self.expected = kind, fits, expected

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not self.kind or not self.fits(value):
            self.refuse(value)
        return value


class Flag(Schema):
    """0 or 1 in a file, a bool in the program."""

    __slots__ = ()
    expected = "a whole number from 0 to 1"

    def read(self, value: Any, count: int = 0) -> bool:
        if type(value) is not int or value not in (0, 1):
            self.refuse(value)
        return bool(value)

    def write(self, value: Any) -> int:
        return int(value)


class Optional(Schema):
    """Nil, or what `item` describes."""

    __slots__ = ("has_numbers", "item")

    def __init__(self, item: Any) -> None:
        self.item: Schema = as_schema(item)
        self.has_numbers = self.item.has_numbers

    @property
    def expected(self) -> str:  # type: ignore[override]
        """Either of the two."""
        return f"nil or {self.item.expected}"

    def read(self, value: Any, count: int = 0) -> Any:
        return None if value is None else self.item.read(value, count)

    def write(self, value: Any) -> Any:
        return None if value is None else self.item.write(value)

    def at(self, value: Any, number: Numbering) -> Any:
        return None if value is None else self.item.at(value, number)


class List(Schema):
    """From `least` to `limit` items of one schema; in the program a tuple."""

    __slots__ = ("has_numbers", "item", "least", "limit")

    def __init__(self, item: Any, limit: int, least: int = 0) -> None:
        self.item: Schema = as_schema(item)
        self.limit, self.least = limit, least
        self.has_numbers = self.item.has_numbers

    @property
    def expected(self) -> str:  # type: ignore[override]
        """How many items."""
        return f"a list of {self.least} to {self.limit} items"

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not list or len(value) < self.least:
            self.refuse(value)
        if len(value) > self.limit:
            raise Refused(len(value), "", limit=self.limit)
        return _each(self.item.read, value, count)

    def write(self, value: Any) -> Any:
        return list(map(self.item.write, value))

    def at(self, value: Any, number: Numbering) -> Any:
        if not self.has_numbers:
            return value
        found = _each(self.item.at, value, number)
        for new, old in zip(found, value, strict=True):
            if new is not old:
                return found
        return value  # so that what has no formulas is one object at all sizes


def _each(verb: Callable[[Any, Any], Any], items: Any, context: Any) -> tuple[Any, ...]:
    """The result of a verb for each item."""
    try:
        return tuple([verb(item, context) for item in items])
    except Refused:
        for index, item in enumerate(items):
            try:
                verb(item, context)
            except Refused as error:
                raise error.inside(f"[{index}]") from None
        raise


class Row(Schema):
    """A list with a schema for each of its places; in the program a tuple, or an object of a class
    whose fields they are."""

    __slots__ = ("columns", "has_numbers", "type")

    def __init__(self, *columns: Any, type: Any = None) -> None:
        self.columns: tuple[Schema, ...] = tuple(map(as_schema, columns))
        self.type = type
        self.has_numbers = any(each.has_numbers for each in self.columns)

    @property
    def expected(self) -> str:  # type: ignore[override]
        """The schema of each place."""
        rows = ", ".join(each.expected for each in self.columns)
        return f"a list of {len(self.columns)}: {rows}"

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not list or len(value) != len(self.columns):
            self.refuse(value)
        return self._of(along([each.read for each in self.columns], value, count))

    def write(self, value: Any) -> Any:
        return along([each.write for each in self.columns], self._items(value))

    def at(self, value: Any, number: Numbering) -> Any:
        if not self.has_numbers:
            return value
        return self._of(along([each.at for each in self.columns], self._items(value), number))

    def _items(self, value: Any) -> Any:
        if self.type is None:
            return value
        return [getattr(value, name) for name in self.type.__match_args__]

    def _of(self, items: list[Any]) -> Any:
        return tuple(items) if self.type is None else self.type(*items)


class Tagged(Schema):
    """A list whose first item says what the others are: `["weight", name]`; a tuple in the
    program."""

    __slots__ = ("expected", "kinds")
    has_numbers = True

    def __init__(self, expected: str, kinds: Mapping[str, tuple[Schema, ...]]) -> None:
        """kinds: first item → schemas of the others."""
        self.expected, self.kinds = expected, kinds

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not list or not value:
            self.refuse(value)
        kind = value[0]
        if type(kind) is not str or kind not in self.kinds:
            raise Refused(describe(kind), self.expected, "[0]")
        columns = self.kinds[kind]
        if len(value) != 1 + len(columns):
            self.refuse(value)
        if len(columns) > 1:
            return kind, *along([each.read for each in columns], value[1:], count, start=1)
        try:
            return kind, columns[0].read(value[1], count)
        except Refused as error:
            raise error.inside("[1]") from None

    def write(self, value: Any) -> Any:
        kind, *items = value
        return [kind, *along([each.write for each in self.kinds[kind]], items)]

    def at(self, value: Any, number: Numbering) -> Any:
        if len(value) == 2:  # nearly all
            kind, item = value
            if type(item) is int or type(item) is str:
                return value
            try:
                return kind, self.kinds[kind][0].at(item, number)
            except Refused as error:
                raise error.inside("[1]") from None
        kind, *items = value
        return kind, *along([each.at for each in self.kinds[kind]], items, number, start=1)


def along(verbs: list[Any], items: Any, *more: Any, start: int = 0) -> list[Any]:
    """The result of each verb for its item; the first item has place `start`."""
    found: list[Any] = []
    try:
        for verb, item in zip(verbs, items, strict=True):
            found.append(verb(item, *more))  # its length says where
    except Refused as error:
        raise error.inside(f"[{start + len(found)}]") from None
    return found


class Fields(Schema):
    """A map with the fields that a class of records declares, or with given ones, of any class.

    Any other field raises an error that names it. A field that comes with a feature is there where
    the map's `features` have it, and only there; elsewhere it has its default.
    """

    __slots__ = (
        "_ats",
        "_featured",
        "_is_named",
        "_names",
        "_reads",
        "_tag",
        "fields",
        "has_numbers",
        "type",
    )

    def __init__(self, kind: Any, fields: Mapping[str, Any] | None = None, tag: str = "") -> None:
        """tag: the name of one more field, which says that the map is of this kind."""
        declared: dict[str, Any] = {} if fields else kind._fields
        rows = fields or {name: row.schema for name, row in declared.items() if row.schema}
        self.type = kind
        self.fields: dict[str, Schema] = {name: as_schema(row) for name, row in rows.items()}
        self._featured = {name: row for name, row in declared.items() if row.feature}
        self._reads = [(name, row.read) for name, row in self.fields.items()]
        self._names = {*self.fields, tag} - {""}
        numbered = enumerate(self.fields.values())
        self._ats = [(place, row.at) for place, row in numbered if row.has_numbers]
        self._tag = tag
        self._is_named = bool(fields or self._featured)
        self.has_numbers = bool(self._ats)

    @property
    def expected(self) -> str:  # type: ignore[override]
        """The names of the fields."""
        return "a map with " + ", ".join(f"`{name}`" for name in self.fields)

    @property
    def features(self) -> frozenset[str]:
        """Those that some field comes with."""
        return frozenset(row.feature for row in self._featured.values())

    def known(self, value: dict[str, Any]) -> dict[str, Any]:
        """A map without the fields that are not declared, at any depth."""
        rows = self.fields
        return {name: keep_known(value[name], rows[name]) for name in value if name in rows}

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not dict:
            self.refuse(value)
        if value.keys() != self._names:
            self._check_names(value)
        found: dict[str, Any] = {}
        name = ""
        try:
            for name, verb in self._reads:
                if name in value:
                    found[name] = verb(value[name], count)
        except Refused as error:
            raise error.inside(name) from None
        if self._featured:
            self._check_features(value)
        return self._of(found)

    def _of(self, found: dict[str, Any]) -> Any:
        return self.type(**found) if self._is_named else self.type(*found.values())

    def _check_names(self, value: Mapping[str, Any]) -> None:
        for name in value:
            if name not in self._names:
                raise Refused("there", "no such field", str(name))
        for name, schema in self.fields.items():
            if name not in value and name not in self._featured:
                raise Refused("missing", schema.expected, name)

    def _check_features(self, value: Mapping[str, Any]) -> None:
        for name, row in self._featured.items():
            if (name in value) != (row.feature in value["features"]):
                expected = f"this field where `features` has `{row.feature}`, and only there"
                raise Refused("there" if name in value else "missing", expected, name)

    def write(self, value: Any) -> Any:
        tree = {self._tag: value.kind} if self._tag else {}
        for name, schema in self.fields.items():
            item, row = getattr(value, name), self._featured.get(name)
            if row is None or row.feature in value.features or item != row.default:
                tree[name] = schema.write(item)
        return tree

    def at(self, value: Any, number: Numbering) -> Any:
        if not self._ats:
            return value
        values = [getattr(value, name) for name in self.fields]
        is_same, place = True, 0
        try:
            for place, verb in self._ats:
                old = values[place]
                values[place] = new = verb(old, number)
                is_same = is_same and new is old
        except Refused as error:
            raise error.inside(list(self.fields)[place]) from None
        if is_same:
            return value
        if self._is_named:
            return self.type(**dict(zip(self.fields, values, strict=True)))
        return self.type(*values)


class Union(Schema):
    """A map whose field `kind` says of which class it is; each class says its own as `kind`."""

    __slots__ = ("_kind", "kinds")
    has_numbers = True

    def __init__(self, *classes: Any) -> None:
        self.kinds = {each.kind: Fields(each, tag="kind") for each in classes}
        self._kind = Choice(*self.kinds)

    @property
    def expected(self) -> str:  # type: ignore[override]
        """The kinds."""
        return "a map whose `kind` is " + self._kind.expected

    def read(self, value: Any, count: int = 0) -> Any:
        if type(value) is not dict or "kind" not in value:
            self.refuse(value)
        kind = value["kind"]
        if type(kind) is not str or kind not in self.kinds:
            raise Refused(describe(kind), self._kind.expected, "kind")
        return self.kinds[kind].read(value, count)

    def write(self, value: Any) -> Any:
        return self.kinds[value.kind].write(value)

    def at(self, value: Any, number: Numbering) -> Any:
        return self.kinds[value.kind].at(value, number)


def as_schema(schema: Any) -> Schema:
    """The schema itself, or that of a class of records."""
    return schema if isinstance(schema, Schema) else Fields(schema)


def keep_known(value: Any, schema: Schema) -> Any:
    """`value` without the map fields that `schema` does not list, at any depth."""
    if isinstance(schema, Optional):
        return keep_known(value, schema.item)
    if isinstance(schema, List) and type(value) is list:
        return [keep_known(item, schema.item) for item in value]
    if isinstance(schema, Fields) and type(value) is dict:
        return schema.known(value)
    return value


def is_name(text: str) -> bool:
    """Whether `text` is one path component of the fixed alphabet."""
    return 0 < len(text) <= NAME_LENGTH and text[0] != "." and NAME_ALPHABET.issuperset(text)


def is_symbol(text: str) -> bool:
    """Whether `text` may be the name of a symbol in a shared object."""
    fits = 0 < len(text) <= NAME_LENGTH and SYMBOL_ALPHABET.issuperset(text)
    return fits and text[0] not in DIGITS


def is_file_name(text: str) -> bool:
    """Whether `text` names a file inside a bundle: names with slashes between, no way out."""
    if len(text) > 1024:
        return False
    parts = text.split("/")
    return len(parts) <= 8 and all(is_name(part) for part in parts)


def is_float(text: str) -> bool:
    """Whether `text` is what `float.hex` writes."""
    try:
        return float.fromhex(text).hex() == text
    except (ValueError, OverflowError):
        return False


_OF = f"1 to {NAME_LENGTH} of "
NAME = Matching(str, is_name, _OF + "[A-Za-z0-9._-], not starting with a dot")
IDENTIFIER = Matching(str, is_symbol, _OF + "[A-Za-z0-9_], not starting with a digit")
FILE_NAME = Matching(
    str, is_file_name, "names of [A-Za-z0-9._-] with `/` between them, none starting with a dot"
)
FLOAT = Matching(str, is_float, "a float in hexadecimal")
DIGEST = Matching(
    bytes, lambda value: len(value) == DIGEST_BYTES, f"{DIGEST_BYTES} bytes of a sha256"
)
BOOL = Matching(bool, lambda value: True, "true or false")
NIL = Matching(type(None), lambda value: True, "nil")


def describe(value: Any) -> str:
    """A value as a message shows it: short, on one line, containers by size."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'map'} of {len(value)}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = "nil" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."

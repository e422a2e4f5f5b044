"""Structure: how a program's arrays nest in what it takes and gives, as plain data.

A bundle's inputs and outputs are flat lists of arrays. Where the model took or gave more than that
(a dict, nested tuples, a record with names, a number that was fixed at build time, nothing at all),
the manifest holds a structure, and a call takes and gives what the model did:

    Arguments(structure.inputs, specs).arrange(…)   arguments of a call → arrays in order
    giver(structure.outputs)(values)                arrays in order → the model's result

In the manifest a tree is the list of its parts in pre-order; a part with n keys, or of size n where
it is a tuple or a list, is followed by the n trees below it. Types of libraries are rebuilt as
`Named`, so that nothing is imported.
"""

from __future__ import annotations

from operator import itemgetter

from ..arrays.complexes import joined
from ..record import Record, field
from .schema import Choice, Integer, List, Refused, Schema, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .schema import Broken
    from .signature import TensorSpec

PARTS_LIMIT = 16384
DEPTH_LIMIT = 32
# A seed is an array that the caller may leave out, a complex one has its parts along a last dim.
LEAVES = ("array", "seed", "complex")
SEQUENCES = ("tuple", "list", "named_tuple")
KEYED = ("dict", "record", "named_tuple")
# Kind of a fixed value → how its text is read.
READERS: dict[str, Callable[[str], Any]] = {
    "none": lambda text: None,
    "bool": lambda text: text == "True",
    "int": int,
    "float": float.fromhex,
    "text": str,
}


class Part(Record):
    """One node of a structure.

    kind: `array`, `seed` (the array i64[2] of a seed and an offset, drawn anew where a call gives
    none), `complex` (an array whose last dim has the two parts of each number), a fixed value (a
    key of READERS), or a container; value: the place of an array, a fixed value itself, the name of
    a record's type, else None; keys: names of the parts of a keyed container; parts: what is in a
    container.
    """

    kind: str
    value: Any = None
    keys: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether it is a value of build time."""
        return self.kind in READERS

    def leaves(self) -> Iterator[Part]:
        """Its arrays in order, itself included."""
        if self.kind in LEAVES:
            yield self
        for part in self.parts:
            yield from part.leaves()


class PartRow(Record):
    """A part as it is written, without those below it."""

    keys: tuple[str, ...] = field(List(Text(), limit=4096))
    kind: str = field(Choice(*LEAVES, "tuple", "list", *KEYED, *READERS))
    size: int = field(Integer(0, 4096))
    value: str = field(Text(1024, least=0))


class _Tree(Schema):
    """A part with all below it as the list of its rows in pre-order; None as an empty one."""

    __slots__ = ()
    rows = List(PartRow, limit=PARTS_LIMIT)
    expected = rows.expected

    def read(self, value: Any, count: int = 0) -> Part | None:
        rows = self.rows.read(value)
        left = iter(rows)
        root = _next(left, len(rows), 0) if rows else None
        unread = sum(1 for _ in left)
        if unread:
            raise Refused(f"{len(rows)} parts", f"{len(rows) - unread}, those of one tree")
        return root

    def write(self, value: Part | None) -> Any:
        return self.rows.write([] if value is None else _flat(value))


def _next(rows: Iterator[PartRow], count: int, depth: int) -> Part:
    """The tree that begins at the next row."""
    row = next(rows, None)
    if depth > DEPTH_LIMIT or row is None:
        raise Refused(f"{count} parts", f"trees that end, at most {DEPTH_LIMIT} deep")
    kind, keys = row.kind, row.keys
    if kind in LEAVES:
        return Part(kind, row.size)
    if kind in READERS:
        try:
            return Part(kind, READERS[kind](row.value))
        except (ValueError, OverflowError):
            raise Refused(f"{kind} `{row.value[:40]}`", f"the text of a {kind}") from None
    if len(set(keys)) != len(keys) or (keys and kind not in KEYED):
        raise Refused(f"keys {list(keys)}", "each key once, in a keyed part")
    below = [_next(rows, count, depth + 1) for _ in range(len(keys) if kind in KEYED else row.size)]
    return Part(kind, row.value if kind in ("record", "named_tuple") else None, keys, tuple(below))


def _flat(part: Part) -> Iterator[PartRow]:
    value = part.value if part.kind in ("record", "named_tuple", "text") else ""
    if part.kind == "float":
        value = float.hex(part.value)
    elif part.kind in ("bool", "int"):
        value = str(part.value)
    size = part.value if part.kind in LEAVES else 0 if part.keys else len(part.parts)
    yield PartRow(part.keys, part.kind, size, value)
    for below in part.parts:
        yield from _flat(below)


class Structure(Record):
    """The trees of a program's arguments (a dict by parameter) and of its result.

    None stands for a plain signature: each parameter one array; one array or a tuple of several.
    """

    inputs: Part | None = field(_Tree(), default=None)
    outputs: Part | None = field(_Tree(), default=None)

    def broken(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Broken:
        """Trees that do not name each array once, or that join what are no parts of numbers."""
        rows = ("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)
        for name, tree, specs in rows:
            leaves = [] if tree is None else list(tree.leaves())
            places = sorted(leaf.value for leaf in leaves)
            if tree is not None and places != list(range(len(specs))):
                expected = f"each of {len(specs)} arrays once"
                yield f"structure.{name}", f"arrays {places}", expected
                continue
            for leaf in leaves:
                spec = specs[leaf.value]
                is_right = spec.dtype in ("f32", "f64") and spec.shape[-1:] == (2,)
                if leaf.kind == "complex" and not is_right:
                    expected = "f32 or f64 with a last dim of 2"
                    yield f"structure.{name}", f"a complex array of {spec}", expected


PLAIN = Structure()


class Named(dict):  # type: ignore[type-arg]
    """What a model's output type or dataclass becomes: values by key, by attribute, by place.

    As a dict it has the fields in order; `record.logits`, `record["logits"]` and `record[0]` are
    the same value.
    """

    __slots__ = ("type_name",)
    type_name: str

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, slice)):
            return self.to_tuple()[key]
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getitem__(name)
        except KeyError:
            kind = super().__getattribute__("type_name")
            raise AttributeError(f"`{kind}` has no field `{name}`") from None

    def to_tuple(self) -> tuple[Any, ...]:
        """The values in order."""
        return tuple(self.values())

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self.items())
        return f"{self.type_name}({fields})"


def giver(part: Part) -> Callable[[Sequence[Any]], Any]:
    """A function from the outputs in order to what stands at `part` of the model's result."""
    if part.kind == "complex":
        place = part.value
        return lambda values: joined(values[place])
    if part.kind in LEAVES:
        return itemgetter(part.value)
    if part.is_fixed:
        fixed = part.value
        return lambda values: fixed
    below = tuple(giver(each) for each in part.parts)
    keys = part.keys
    if part.kind == "dict":
        return lambda values: {key: each(values) for key, each in zip(keys, below, strict=True)}
    if part.kind == "record":
        return lambda values: _named(part, [each(values) for each in below])
    if part.kind == "list":
        return lambda values: [each(values) for each in below]
    if part.kind == "named_tuple":
        kind = _tuple_type(part)
        return lambda values: kind(each(values) for each in below)
    return lambda values: tuple(each(values) for each in below)


def _named(part: Part, values: list[Any]) -> Named:
    record = Named(zip(part.keys, values, strict=True))
    record.type_name = part.value
    return record


def _tuple_type(part: Part) -> type:
    """A tuple with names; `collections.namedtuple` would evaluate text of the bundle."""
    fields: dict[str, Any] = {
        key: property(itemgetter(place)) for place, key in enumerate(part.keys)
    }
    return type(str(part.value), (tuple,), {**fields, "__slots__": (), "_fields": part.keys})

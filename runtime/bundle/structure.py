"""Structure: how a program's arrays nest in what it takes and gives, as plain data.

A bundle's inputs and outputs are flat lists of arrays. Where the model took or gave more than that
(a dict, nested tuples, a record with names, a number that was fixed at build time, nothing at all),
the manifest holds a structure, and a call takes and gives what the model did:

    unfold(structure.inputs, specs, arrays, named)   arguments of a call → arrays in order
    giver(structure.outputs)(values)                 arrays in order → the model's result

In the manifest a tree is the list of its parts in pre-order; a part with n keys, or of size n where
it is a tuple or a list, is followed by the n trees below it. Types of libraries are rebuilt as
`Named`, so that nothing is imported.
"""

from __future__ import annotations

from operator import itemgetter

from ..errors import BundleMalformed
from ..record import Record
from .schema import Choice, Fields, Integer, List, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

FEATURE = "structure"  # a runtime that does not know it would give a flat tuple instead
PARTS_LIMIT = 16384
DEPTH_LIMIT = 32
LEAVES = ("array", "seed")  # a seed is an array that the caller may leave out
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
PART_SCHEMA = Fields(
    {
        "keys": List(Text(), limit=4096),
        "kind": Choice(*LEAVES, "tuple", "list", *KEYED, *READERS),
        "size": Integer(0, 4096),
        "value": Text(1024, least=0),
    }
)
TREE_SCHEMA = List(PART_SCHEMA, limit=PARTS_LIMIT)
STRUCTURE_SCHEMA = Fields({"inputs": TREE_SCHEMA, "outputs": TREE_SCHEMA})


class Part(Record):
    """One node of a structure.

    kind: `array`, `seed` (the array i64[2] of a seed and an offset, drawn anew where a call gives
    none), a fixed value (a key of READERS), or a container; value: the place of an array,
    a fixed value itself, the name of a record's type, else None; keys: names of the parts of a
    keyed container; parts: what is in a container.
    """

    __slots__ = ("keys", "kind", "parts", "value")
    kind: str
    value: Any
    keys: tuple[str, ...]
    parts: tuple[Part, ...]

    def __init__(
        self, kind: str, value: Any = None, keys: Sequence[str] = (), parts: Sequence[Part] = ()
    ) -> None:
        self._set(kind=kind, value=value, keys=tuple(keys), parts=tuple(parts))

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


class Structure(Record):
    """The trees of a program's arguments (a dict by parameter) and of its result.

    None stands for a plain signature: each parameter one array; one array or a tuple of several.
    """

    __slots__ = ("inputs", "outputs")
    inputs: Part | None
    outputs: Part | None

    def __init__(self, inputs: Part | None = None, outputs: Part | None = None) -> None:
        self._set(inputs=inputs, outputs=outputs)

    def to_map(self) -> dict[str, Any]:
        """The structure as the plain values that the manifest encodes."""
        trees = {"inputs": self.inputs, "outputs": self.outputs}
        return {name: [] if tree is None else list(_encoded(tree)) for name, tree in trees.items()}

    @classmethod
    def from_map(cls, tree: Any, counts: tuple[int, int], path: str) -> Structure:
        """Read what `to_map` gave, checked against the schema; counts: of inputs and outputs.

        Raises `BundleMalformed` for what is no tree, or does not name each array once.
        """
        readers = (
            _Reader(tree[name], count, f"structure.{name}", path)
            for name, count in zip(("inputs", "outputs"), counts, strict=True)
        )
        return cls(*(reader.tree() for reader in readers))


PLAIN = Structure()


def _encoded(part: Part) -> Iterator[dict[str, Any]]:
    is_array = part.kind in LEAVES
    value = part.value if part.kind in ("record", "named_tuple", "text") else ""
    if part.kind == "float":
        value = float.hex(part.value)
    elif part.kind in ("bool", "int"):
        value = str(part.value)
    size = part.value if is_array else 0 if part.keys else len(part.parts)
    yield {"keys": list(part.keys), "kind": part.kind, "size": size, "value": value}
    for below in part.parts:
        yield from _encoded(below)


class _Reader:
    """Builds the tree of a list of parts, which may say anything."""

    def __init__(self, parts: list[dict[str, Any]], count: int, field: str, path: str) -> None:
        self.parts, self.count, self.field, self.path = parts, count, field, path
        self.place = 0

    def tree(self) -> Part | None:
        """The whole tree; None where the list is empty."""
        if not self.parts:
            return None
        root = self._next(0)
        if self.place != len(self.parts):
            raise self._malformed(f"{len(self.parts)} parts", f"{self.place}, those of one tree")
        places = sorted(leaf.value for leaf in root.leaves())
        if places != list(range(self.count)):
            raise self._malformed(f"arrays {places}", f"each of {self.count} arrays once")
        return root

    def _next(self, depth: int) -> Part:
        if depth > DEPTH_LIMIT or self.place == len(self.parts):
            raise self._malformed(
                f"{len(self.parts)} parts", f"trees that end, at most {DEPTH_LIMIT} deep"
            )
        row = self.parts[self.place]
        self.place += 1
        kind, keys = row["kind"], row["keys"]
        if kind in LEAVES:
            return Part(kind, row["size"])
        if kind in READERS:
            return Part(kind, self._fixed(kind, row["value"]))
        if len(set(keys)) != len(keys) or (keys and kind not in KEYED):
            raise self._malformed(f"keys {keys}", "each key once, in a keyed part")
        count = len(keys) if kind in KEYED else row["size"]
        below = [self._next(depth + 1) for _ in range(count)]
        return Part(kind, row["value"] if kind in ("record", "named_tuple") else None, keys, below)

    def _fixed(self, kind: str, text: str) -> Any:
        try:
            return READERS[kind](text)
        except (ValueError, OverflowError):
            raise self._malformed(f"{kind} `{text[:40]}`", f"the text of a {kind}") from None

    def _malformed(self, found: str, expected: str) -> BundleMalformed:
        return BundleMalformed(path=self.path, field=self.field, found=found, expected=expected)


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

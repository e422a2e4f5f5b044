"""Arguments of a call: positional, named and nested ones → arrays in the order of the inputs."""

from __future__ import annotations

from ..arrays.complexes import apart, apart_in_place
from ..bundle.structure import LEAVES, SEQUENCES
from ..errors import (
    InputCount,
    InputDtype,
    InputError,
    InputFixed,
    InputMissing,
    InputStructure,
    InputUnknown,
    OutputCount,
    OutputStructure,
    OutputUnusable,
)
from .seeds import next_seed, seed_array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from ..bundle.manifest import TensorSpec
    from ..bundle.structure import Part

    Take = Callable[[Any, list[Any]], None]

ABSENT = object()  # no argument at all, which is something other than None


def arrange(
    specs: tuple[TensorSpec, ...], arrays: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """Positional and named arguments in the order of `specs`.

    Raises `InputCount`, `InputUnknown` or `InputMissing`.
    """
    names = [spec.name for spec in specs]
    found = _by_name(names, arrays, named)
    for spec in specs:
        if spec.name not in found:
            raise InputMissing(name=spec.name, expected=str(spec))
    return [found[name] for name in names]


def _by_name(
    names: Sequence[str], arrays: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name; raises for one too many and for a name that is not there."""
    listing = ", ".join(f"`{name}`" for name in names) or "none"
    if len(arrays) > len(names):
        raise InputCount(found=len(arrays), expected=len(names), names=listing)
    rest = names[len(arrays) :]
    for name in named:
        if name not in rest:
            detail = "was given by position too" if name in names else "is not known"
            raise InputUnknown(name=name, detail=detail, names=listing)
    return {**dict(zip(names, arrays, strict=False)), **named}


class Arguments:
    """The arguments that calls of an entry point take, looked at once.

    A call with the containers that the model was built with is read by functions made for them;
    any other one, such as a flat list of arrays or a wrong one, is held against the tree, which
    knows the names for errors.
    """

    __slots__ = ("_complexes", "_names", "_order", "_root", "_seeds", "_specs", "_takers")

    def __init__(self, root: Part | None, specs: tuple[TensorSpec, ...]) -> None:
        """root: how the arguments nest, None where each is an array of `specs`."""
        self._root = root
        self._specs = specs
        leaves = [] if root is None else list(root.leaves())
        names = tuple([spec.name for spec in specs])
        self._names: tuple[str, ...] = names if root is None else root.keys
        self._seeds = {leaf.value: names[leaf.value] for leaf in leaves if leaf.kind == "seed"}
        self._complexes = [leaf.value for leaf in leaves if leaf.kind == "complex"]
        # Place of each input in the order of the tree; None where that is the order of inputs.
        order = {leaf.value: place for place, leaf in enumerate(leaves)}
        is_ordered = list(order) == list(range(len(leaves)))
        self._order = None if is_ordered else [order[place] for place in sorted(order)]
        self._takers = [] if root is None else [_root_taker(part, specs) for part in root.parts]

    def arrange(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arrays of the inputs in order, from arguments by place, by name or nested.

        Raises `InputCount`, `InputUnknown`, `InputMissing`, `InputStructure` where a container is
        another one, and `InputFixed` for a value that differs from the build's.
        """
        if self._root is None:
            return arrange(self._specs, arrays, named)
        found = self._taken(arrays, named)
        return self._unfold(self._root, arrays, named) if found is None else found

    def _taken(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any] | None:
        """The arrays in order where the arguments nest as the model's; else None."""
        values: list[Any] = [*arrays]
        if len(values) < len(self._names):
            rest = self._names[len(values) :]
            values += [named.get(name, ABSENT) for name in rest]
            named = {name: value for name, value in named.items() if name not in rest}
        if named or len(values) > len(self._names):
            return None
        found: list[Any] = []
        try:
            for take, value in zip(self._takers, values, strict=True):
                take(value, found)
        except _Otherwise:
            return None
        if self._order is not None:
            found = [found[place] for place in self._order]
        for place in self._seeds:
            found[place] = next_seed() if found[place] is ABSENT else seed_array(found[place])
        return found

    def _unfold(self, root: Part, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The same from the tree; a flat list, with a seed or without, is taken too."""
        specs, seeds = self._specs, self._seeds
        others = {name: value for name, value in named.items() if name not in seeds.values()}
        values, taken = (*arrays, *others.values()), specs
        if len(values) == len(specs) - len(seeds):  # the seed is named, or left out
            taken = tuple([spec for at, spec in enumerate(specs) if at not in seeds])
        is_flat = len(values) == len(taken) and not any(map(_is_container, values))
        is_flat = is_flat and not _gives_record(root, arrays, others)
        if is_flat and all(any(spec.name == name for spec in taken) for name in others):
            flat = arrange(taken, arrays, others)
            for place, name in seeds.items() if taken is not specs else ():
                flat.insert(place, seed_array(named[name]) if name in named else next_seed())
            for place in self._complexes:
                flat[place] = _parts(flat[place], specs[place])
            return flat
        found: list[Any] = [ABSENT] * len(specs)
        arguments = _by_name(root.keys, arrays, named)
        for key, part in zip(root.keys, root.parts, strict=True):
            _collect(part, arguments.get(key, ABSENT), key, specs, found)
        return found


class _Otherwise(Exception):
    """A value that does not nest as the model's did."""


def _root_taker(part: Part, specs: tuple[TensorSpec, ...]) -> Take:
    """A taker of a whole argument, which may be absent."""
    take = _taker(part, specs)
    if part.kind != "array":
        return take

    def take_array(value: Any, found: list[Any]) -> None:
        if value is ABSENT:
            raise _Otherwise
        found.append(value)

    return take_array


def _taker(part: Part, specs: tuple[TensorSpec, ...]) -> Take:
    """A function that appends the arrays of one value in the order of the tree; it raises
    `_Otherwise` for a value whose containers, keys or fixed values are others."""
    if part.kind == "complex":
        return _complex_taker(specs[part.value])
    if part.kind in LEAVES:
        return _take
    if part.is_fixed:
        return _fixed_taker(part.value)
    below = tuple([_taker(each, specs) for each in part.parts])
    items = _record_items(part.keys) if part.kind == "record" else _items(part)
    if all(each is _take for each in below):
        return lambda value, found: found.extend(items(value))

    def take_each(value: Any, found: list[Any]) -> None:
        for take, item in zip(below, items(value), strict=True):
            take(item, found)

    return take_each


def _take(value: Any, found: list[Any]) -> None:
    found.append(value)


def _complex_taker(spec: TensorSpec) -> Take:
    def take(value: Any, found: list[Any]) -> None:
        if value is ABSENT:
            raise _Otherwise
        found.append(_parts(value, spec))

    return take


def _parts(value: Any, spec: TensorSpec) -> Any:
    """The parts of a complex array; raises `InputDtype` where they are of another width."""
    parts = apart(value)
    bits = 2 * int(spec.dtype[1:])
    if parts is not value and 8 * value.itemsize != bits:
        found, expected = f"complex{8 * value.itemsize}", f"complex{bits}"
        raise InputDtype(role="input", name=spec.name, found=found, expected=expected)
    return parts


def _fixed_taker(fixed: Any) -> Take:
    def take(value: Any, found: list[Any]) -> None:
        if value is not ABSENT and not _is_same(value, fixed):
            raise _Otherwise

    return take


def _items(part: Part) -> Callable[[Any], Sequence[Any]]:
    """What a tuple, a list or a dict holds, in order."""
    count, keys, is_sequence = len(part.parts), part.keys, part.kind in SEQUENCES

    def of_sequence(value: Any) -> Sequence[Any]:
        if not isinstance(value, (tuple, list)) or len(value) != count:
            raise _Otherwise
        return value

    def of_dict(value: Any) -> Sequence[Any]:
        if type(value) is not dict or len(value) != count:
            raise _Otherwise
        try:
            return [value[key] for key in keys]
        except KeyError:
            raise _Otherwise from None

    return of_sequence if is_sequence else of_dict


def _record_items(keys: tuple[str, ...]) -> Callable[[Any], Sequence[Any]]:
    """The fields of a dataclass or of a library's type, in order."""

    def of_record(value: Any) -> Sequence[Any]:
        if isinstance(value, dict) or not _has_fields(value, keys):
            raise _Otherwise
        return [getattr(value, key) for key in keys]

    return of_record


def _gives_record(root: Part, arrays: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether an argument that is a record, a dataclass of the model's say, is given as one."""
    given = {**dict(zip(root.keys, arrays, strict=False)), **named}
    rows = [row for row in zip(root.keys, root.parts, strict=True) if row[1].kind == "record"]
    return any(key in given and _has_fields(given[key], part.keys) for key, part in rows)


def _has_fields(value: Any, keys: tuple[str, ...]) -> bool:
    is_array = hasattr(value, "__dlpack__") or hasattr(value, "__array__")
    return not is_array and all(hasattr(value, key) for key in keys)


def _is_container(value: Any) -> bool:
    return value is None or isinstance(value, (tuple, list, dict, bool, int, float, str))


def _collect(
    part: Part, value: Any, name: str, specs: tuple[TensorSpec, ...], found: list[Any],
    is_written: bool = False,
) -> None:  # fmt: skip
    """Put the arrays of one argument to their places; is_written: they are for outputs."""
    if part.is_fixed:
        if value is not ABSENT and not _is_same(value, part.value):
            raise InputFixed(name=name, found=_shown(value), expected=_shown(part.value))
        return
    if part.kind == "array":
        if value is ABSENT:
            raise InputMissing(name=name, expected=str(specs[part.value]))
        found[part.value] = value
        return
    if part.kind == "complex":
        if value is ABSENT:
            raise InputMissing(name=name, expected=f"complex, as {specs[part.value]}")
        at = part.value
        spec = specs[at]
        found[at] = apart_in_place(value, spec.name) if is_written else _parts(value, spec)
        return
    if part.kind == "seed":
        found[part.value] = next_seed() if value is ABSENT else seed_array(value)
        return
    if value is ABSENT and all(False for _ in part.leaves()):
        return  # it holds fixed values only
    for key, below in _members(part, value, name).items():
        label, place = key
        _collect(part.parts[place], below, f"{name}.{label}", specs, found, is_written)


def _members(part: Part, value: Any, name: str) -> dict[tuple[str, int], Any]:
    """(label, place) → what the container holds there, for each place."""
    count = len(part.parts)
    if value is ABSENT:
        raise InputMissing(name=name, expected=_expected(part))
    if part.kind in SEQUENCES:
        if not isinstance(value, (tuple, list)) or len(value) != count:
            raise InputStructure(name=name, found=_shown(value), expected=_expected(part))
        return {(str(place), place): item for place, item in enumerate(value)}
    if isinstance(value, dict):
        for key in value:
            if key not in part.keys:
                names = ", ".join(f"`{each}`" for each in part.keys)
                raise InputUnknown(name=f"{name}.{key}", detail="is not known", names=names)
        return {(key, place): value.get(key, ABSENT) for place, key in enumerate(part.keys)}
    if part.kind == "record" and all(hasattr(value, key) for key in part.keys):
        return {(key, place): getattr(value, key) for place, key in enumerate(part.keys)}
    raise InputStructure(name=name, found=_shown(value), expected=_expected(part))


def _is_same(value: Any, fixed: Any) -> bool:
    if isinstance(value, (bool, int, float, str)) and isinstance(fixed, (bool, int, float, str)):
        return value == fixed or (value != value and fixed != fixed)
    return value is None and fixed is None


def _shown(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    return f"of type `{type(value).__name__}`"


def _expected(part: Part) -> str:
    if part.kind in SEQUENCES:
        return f"a tuple or list of {len(part.parts)}"
    return f"a dict with {', '.join(f'`{key}`' for key in part.keys) or 'nothing'}"


def places(
    root: Part | None, specs: tuple[TensorSpec, ...], out: Any, is_written: bool = False
) -> Sequence[Any]:
    """The caller's arrays for outputs in order: flat, or nested as the result is.

    Raises `OutputCount` and `OutputStructure`; with is_written, for arrays that a call writes to,
    `OutputUnusable` for a complex one that its parts cannot be written to.
    """
    count = len(specs)
    is_sequence = type(out) is tuple or type(out) is list
    values: Sequence[Any] = out if is_sequence else (out,)
    if root is None or (len(values) == count and not any(map(_is_container, values))):
        if len(values) != count:
            raise OutputCount(found=len(values), expected=count)
        if root is None:
            return values
        flat = list(values)
        for leaf in root.leaves():
            if leaf.kind == "complex":
                _collect(leaf, flat[leaf.value], "out", specs, flat, is_written)
        return flat
    found: list[Any] = [ABSENT] * count
    try:
        _collect(root, out, "out", specs, found, is_written)
    except OutputUnusable:
        raise
    except InputError as error:
        raise OutputStructure(
            name=error.name,
            found=error.fields.get("found", "missing or not known"),
            expected=error.fields.get("expected", "what the program gave"),
        ) from error
    return found

"""Arguments of a call: positional, named and nested ones → arrays in the order of the inputs."""

from __future__ import annotations

from ..arrays.complexes import apart, apart_in_place
from ..bundle.structure import SEQUENCES
from ..errors import (
    InputCount,
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
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..bundle.manifest import TensorSpec
    from ..bundle.structure import Part

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


def unfold(
    root: Part, specs: tuple[TensorSpec, ...], arrays: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """The arrays inside the arguments, which nest as the model's did; a flat list, with a seed or
    without, is taken too.

    Raises what `arrange` does, `InputStructure` where a container is another one, and `InputFixed`
    for a value that differs from the build's.
    """
    seeds = {leaf.value: specs[leaf.value].name for leaf in root.leaves() if leaf.kind == "seed"}
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
        for leaf in root.leaves():
            if leaf.kind == "complex":
                flat[leaf.value] = apart(flat[leaf.value])
        return flat
    found: list[Any] = [ABSENT] * len(specs)
    arguments = _by_name(root.keys, arrays, named)
    for key, part in zip(root.keys, root.parts, strict=True):
        _collect(part, arguments.get(key, ABSENT), key, specs, found)
    return found


def _gives_record(root: Part, arrays: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether an argument that is a record, a dataclass of the model's say, is given as one."""
    given = {**dict(zip(root.keys, arrays, strict=False)), **named}
    rows = [row for row in zip(root.keys, root.parts, strict=True) if row[1].kind == "record"]
    return any(key in given and _is_record(given[key], part) for key, part in rows)


def _is_record(value: Any, part: Part) -> bool:
    is_array = hasattr(value, "__dlpack__") or hasattr(value, "__array__")
    return not is_array and all(hasattr(value, key) for key in part.keys)


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
        found[at] = apart_in_place(value, specs[at].name) if is_written else apart(value)
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

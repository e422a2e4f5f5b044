"""Arguments that nest: what is read by functions made beforehand is what the tree says."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from aotc.runtime.bundle.signature import TensorSpec
from aotc.runtime.bundle.structure import Part
from aotc.runtime.errors import InputError
from aotc.runtime.programs import arguments
from aotc.runtime.programs.arguments import ABSENT, Arguments

KINDS = ("array", "array", "array", "tuple", "list", "dict", "record", "none", "int", "complex")


class Named:
    """A value that only its name tells from others, in place of an array."""

    __array__ = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def _drawn(draw: random.Random, depth: int, arrays: list[int]) -> Part:
    kind = draw.choice(KINDS if depth else KINDS[:3])
    if kind in ("array", "complex"):
        arrays.append(len(arrays))
        return Part(kind, arrays[-1])
    if kind == "none":
        return Part("none")
    if kind == "int":
        return Part("int", draw.randrange(9))
    parts = tuple(_drawn(draw, depth - 1, arrays) for _ in range(draw.randrange(4)))
    keys = tuple(f"k{place}" for place in range(len(parts)))
    is_keyed = kind in ("dict", "record")
    return Part(kind, "R" if kind == "record" else None, keys if is_keyed else (), parts)


def _value(part: Part) -> Any:
    if part.kind in ("array", "complex"):
        return Named(f"x{part.value}")
    if part.is_fixed:
        return part.value
    values = [_value(each) for each in part.parts]
    if part.kind == "dict":
        return dict(zip(part.keys, values, strict=True))
    if part.kind == "record":
        return SimpleNamespace(**dict(zip(part.keys, values, strict=True)))
    return tuple(values) if part.kind == "tuple" else values


def _changed(draw: random.Random, value: Any) -> Any:
    """The value with something in it that is wrong, or not."""
    what = draw.randrange(6)
    if isinstance(value, dict) and value and what < 4:
        key = draw.choice(list(value))
        if what == 0:
            return {name: each for name, each in value.items() if name != key}
        if what == 1:
            return {**value, "other": Named("o")}
        return {**value, key: _changed(draw, value[key])}
    if isinstance(value, list | tuple) and value and what < 4:
        place = draw.randrange(len(value))
        items = list(value)
        items[place : place + 1] = [] if what == 0 else [_changed(draw, value[place])]
        return items if draw.randrange(2) else tuple(items)
    return draw.choice([None, 3, Named("o"), [Named("o")], {}, "text", value, value])


def _moved(draw: random.Random, part: Part, to: list[int]) -> Part:
    if part.kind in ("array", "complex", "seed"):
        return Part(part.kind, to[part.value])
    parts = tuple(_moved(draw, each, to) for each in part.parts)
    return Part(part.kind, part.value, part.keys, parts)


def _outcome(call: Any, *given: Any) -> Any:
    try:
        return [getattr(each, "name", each) for each in call(*given)]
    except InputError as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_at_once_is_what_the_tree_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    monkeypatch.setattr(arguments, "next_seed", lambda: Named("drawn"))
    quick = 0
    for _ in range(150):
        arrays: list[int] = []
        parts = tuple(_drawn(draw, draw.randrange(3), arrays) for _ in range(draw.randrange(1, 5)))
        if draw.randrange(3) == 0:
            arrays.append(len(arrays))
            parts += (Part("seed", arrays[-1]),)
        to = arrays[:]
        if draw.randrange(2) and any(list(part.leaves()) not in ([], [part]) for part in parts):
            draw.shuffle(to)  # arrays by themselves are in the order of the inputs
        keys = tuple(f"a{place}" for place in range(len(parts)))
        root = _moved(draw, Part("dict", None, keys, parts), to)
        names = {to[each]: f"x{each}" for each in arrays}
        for key, part in zip(keys, root.parts, strict=True):
            if part.kind in ("array", "complex", "seed"):
                names[part.value] = key
        specs = tuple(TensorSpec(names[place], "f32", (2,)) for place in range(len(arrays)))
        taken = Arguments(root, specs)
        for _ in range(8):
            given = [_value(part) for part in root.parts if part.kind != "seed"]
            if root.parts[-1].kind == "seed" and draw.randrange(2):
                given.append(draw.choice([7, Named("s")]))
            if draw.randrange(2) and given:
                place = draw.randrange(len(given))
                given[place] = _changed(draw, given[place])
            if draw.randrange(5) == 0:
                given = [Named(f"y{place}") for place in range(len(specs))]
            count = draw.randrange(len(given) + 1) if draw.randrange(2) else len(given)
            named = dict(zip(keys[count:], given[count:], strict=False))
            if draw.randrange(12) == 0:
                named.pop(draw.choice([*named, ""]), None)
            if draw.randrange(12) == 0:
                named["unknown"] = Named("o")
            positional = tuple(given[:count])
            expected = _outcome(taken._unfold, root, positional, named)
            assert _outcome(taken.arrange, positional, named) == expected
            quick += taken._taken(positional, named) is not None
    assert quick > 150


def test_a_tensor_is_never_compared(tmp_path: Any) -> None:
    class Loud:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = None  # type: ignore[assignment]

    root = Part(
        "dict", None, ("a", "b"), (Part("array", 0), Part("list", parts=(Part("array", 1),)))
    )
    specs = TensorSpec("a", "f32", (2,)), TensorSpec("b.0", "f32", (2,))
    first, second = Loud(), Loud()
    found = Arguments(root, specs).arrange((first,), {"b": [second]})
    assert found[0] is first
    assert found[1] is second
    assert ABSENT not in [id(each) for each in found]

"""A Python module that gives a bundle's entry points real signatures, from its manifest alone.

    class Program:                      what `load(path)` returns; the same entries in `Session`
        def __call__(self, x: Array, *, out: Array | None = None) -> Array: ...

`Array` is the caller's own array type: outputs are arrays of the kind of the inputs. Names, dtypes
and shapes stand in the docstrings. Arguments nest as the model's did: a tuple as a tuple, a dict as
a TypedDict, a record as a class of attributes, a value of build time as a parameter of its type.

A bundle is anybody's and the module is code: what the manifest says stands in it as names that were
made or checked here, as literals, and in docstrings by `_quoted`.
"""

from __future__ import annotations

import keyword
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aotc.aot.printable import printable
from aotc.runtime.bundle.manifest import MAIN, Entry, Manifest, main_entry
from aotc.runtime.bundle.structure import LEAVES, Part

FIXED_TYPES = {"none": "None", "bool": "bool", "int": "int", "float": "float", "text": "str"}
IMPORTED = ("Any", "Generic", "Protocol", "Self", "TypedDict")
KEPT = {"self", "out", "stream"}  # names that calls have a use for
METHODS = {"untyped", "close", "session"}  # of both classes, whatever the entries are called
GLOBALS = {"Array", "PathLike", "Program", "Session", "TypeVar", "annotations", "load", "runtime"}
SESSION = ("runtime.Session", "A sequence of calls with an arena and states of its own.")
PROGRAM = ("runtime.Program", "The bundle, loaded; see `aotc.runtime.Program`.")


class Parameter(NamedTuple):
    """One of a method: its name, type, default as text or empty, and whether it is a seed."""

    name: str
    type: str
    default: str = ""
    is_seed: bool = False


class Writer:
    """The text of one module; classes of nested arguments are collected as they are met."""

    def __init__(self, manifest: Manifest, name: str, digest: str, is_stub: bool) -> None:
        self.manifest = manifest
        self.name = name
        self.digest = digest
        self.is_stub = is_stub
        self.classes: dict[str, str] = {}  # name → bases and body

    def text(self) -> str:
        """The module."""
        main = main_entry(self.manifest.entries)
        body = [
            *self._wrapper("Session", *SESSION, main),
            "",
            "",
            *self._wrapper("Program", *PROGRAM, main),
            "",
            "",
            *self._load(),
        ]
        classes = (f"class {name}{rest}\n\n" for name, rest in self.classes.items())
        text = "\n".join([*classes, *body])
        names = [name for name in IMPORTED if re.search(rf"\b{name}\b", text)]
        head = [
            f'"""Entry points of the bundle `{_quoted(self.name)}`, written by `aotc stubs`; '
            "do not edit.",
            "",
            f"sha256:{self.digest}",
            '"""',
            "",
            "from __future__ import annotations",
            "",
            "from os import PathLike",
            f"from typing import {', '.join([*names, 'TypeVar'])}",
            "",
            "from aotc import runtime",
            "",
            'Array = TypeVar("Array")',
            "",
            "",
        ]
        return "\n".join([*head, text])

    def _wrapper(self, name: str, wrapped: str, what: str, main: Entry | None) -> Iterator[str]:
        """The class of a program or a session."""
        yield f"class {name}:"
        yield f'    """{what}"""'
        yield ""
        yield f"    def __init__(self, called: {wrapped}) -> None:"
        yield from self._body("self._called = called")
        yield ""
        yield "    @property"
        yield f"    def untyped(self) -> {wrapped}:"
        yield f'        """The `{wrapped}` itself, for all else that it does."""'
        yield from self._body("return self._called")
        yield ""
        yield "    def close(self) -> None:"
        yield '        """Give the memory back."""'
        yield from self._body("self._called.close()")
        yield ""
        yield "    def __enter__(self) -> Self:"
        yield from self._body("return self")
        yield ""
        yield "    def __exit__(self, *_: object) -> None:"
        yield from self._body("self.close()")
        if name == "Program":
            yield ""
            yield "    def session(self, **sizes: Any) -> Session:"
            yield f'        """{SESSION[1]}"""'
            yield from self._body("return Session(self._called.session(**sizes))")
        taken = set(METHODS)
        for entry in self.manifest.entries:
            if len(self.manifest.entries) > 1 or entry.name != MAIN:
                method = _distinct(entry.name, taken)
                yield from self._method(method, entry, f'self._called["{entry.name}"]')
        if main is not None:
            yield from self._method("__call__", main, "self._called")

    def _method(self, name: str, entry: Entry, called: str) -> Iterator[str]:
        """A method that runs an entry."""
        prefix = "".join(part.capitalize() for part in entry.name.split("_"))
        parameters = list(self._parameters(entry, prefix))
        result = self._result(entry, prefix)
        separator = ["/"] if any(each.name.endswith("_") for each in parameters) else []
        seeds = [each for each in parameters if each.is_seed]
        plain = [each for each in parameters if not each.is_seed]
        words = [_declared(each) for each in plain]
        options = [*map(_declared, seeds), f"out: {result} | None = None"]
        if not _reads_arrays(entry):
            options[-1] = "out: Any = None"
        yield ""
        yield f"    def {name}("
        yield from (f"        {word}," for word in ["self", *words, *separator, "*", *options])
        yield f"    ) -> {result}:"
        yield f'        """{entry.name}({", ".join(each.name for each in plain)})'
        yield ""
        yield from (f"        {line}" for line in _described(entry))
        yield '        """'
        given = ", ".join(each.name for each in plain)
        lines = ["given_: dict[str, Any] = {}"] if seeds else []
        for each in seeds:
            lines += [f"if {each.name} is not None:", f'    given_["{each.name}"] = {each.name}']
        more = ", **given_" if seeds else ""
        arguments = ", ".join(filter(None, [given, "out=out"])) + more
        lines += [f"result_: {result} = {called}({arguments})", "return result_"]
        yield from self._body(*lines)

    def _body(self, *lines: str) -> Iterator[str]:
        yield from (["        ..."] if self.is_stub else [f"        {line}" for line in lines])

    def _parameters(self, entry: Entry, prefix: str) -> Iterator[Parameter]:
        """The parameters of an entry in order; the last ones have defaults where they are values of
        build time."""
        root, taken = entry.structure.inputs, set(KEPT)
        if root is None:
            yield from (Parameter(_distinct(spec.name, taken), "Array") for spec in entry.inputs)
            return
        pairs = list(zip(root.keys, root.parts, strict=True))
        given = [place for place, (_, part) in enumerate(pairs) if _is_given(part)]
        last = max(given, default=-1)
        for place, (key, part) in enumerate(pairs):
            name = _distinct(key, taken)
            if part.kind == "seed":
                yield Parameter(name, "Any", "None", is_seed=True)
                continue
            kind = self._type(part, prefix + _camel(key))
            yield Parameter(name, kind, _literal(part.value) if place > last else "")

    def _result(self, entry: Entry, prefix: str) -> str:
        root = entry.structure.outputs
        if root is not None:
            found = self._type(root, f"{prefix}Result")
            return found if _reads_arrays(entry) or "Array" not in found else "Any"
        if not _reads_arrays(entry):
            return "Any"
        count = len(entry.outputs)
        return "Array" if count == 1 else f"tuple[{', '.join(['Array'] * count)}]"

    def _type(self, part: Part, name: str) -> str:
        """The type of a part; writes a class where it is a dict or a record."""
        if part.kind in LEAVES:
            return "Array"
        if part.is_fixed:
            return FIXED_TYPES[part.kind]
        labels = part.keys or tuple(map(str, range(len(part.parts))))
        below = [
            self._type(each, name + _camel(label))
            for label, each in zip(labels, part.parts, strict=True)
        ]
        if part.kind == "list":
            return f"list[{below[0]}]" if len(set(below)) == 1 else "list[Any]"
        if part.kind in ("tuple", "named_tuple"):
            return f"tuple[{', '.join(below) or '()'}]"
        return self._class(part, name, below)

    def _class(self, part: Part, name: str, below: Sequence[str]) -> str:
        """A class for a dict or a record; a plain dict where keys are not names."""
        if not part.keys or not all(map(_is_name, part.keys)):
            return f"dict[str, {below[0] if len(set(below)) == 1 else 'Any'}]"
        is_generic = any("Array" in each for each in below)
        kind = "TypedDict" if part.kind == "dict" else "Protocol"
        generic = "[Array]" if is_generic else ""
        bases = f"{kind}{generic}" if kind == "Protocol" else kind
        if is_generic and kind == "TypedDict":
            bases += ", Generic[Array]"
        rows = [f"    {key}: {each}" for key, each in zip(part.keys, below, strict=True)]
        body = "\n".join([f"({bases}):", '    """Nests as the model\'s."""', "", *rows])
        return self._named(name, body) + generic

    def _named(self, name: str, body: str) -> str:
        """The name of a class of this body, which is written once."""
        first = name if _is_name(name) else f"Entry{name}"
        chosen, number = first, 1
        while chosen in {*GLOBALS, *IMPORTED} or self.classes.get(chosen, body) != body:
            number += 1
            chosen = f"{first}{number}"
        self.classes[chosen] = body
        return chosen

    def _load(self) -> Iterator[str]:
        yield "def load("
        yield "    path: str | PathLike[str],"
        yield "    device: str | None = None,"
        yield "    digest: str | None = None,"
        yield "    threads: int | None = None,"
        yield "    **options: Any,"
        yield ") -> Program:"
        yield '    """Load the bundle at `path`; see `aotc.runtime.load` for the options."""'
        if self.is_stub:
            yield "    ..."
        else:
            yield "    return Program("
            yield "        runtime.load(path, device, digest, threads, **options),"
            yield "    )"
        yield ""


def typed_module(manifest: Manifest, name: str, digest: str, is_stub: bool) -> str:
    """The text of the module, or of its `.pyi`. digest: hex SHA-256 of the bundle."""
    return Writer(manifest, name, digest, is_stub).text()


def _described(entry: Entry) -> Iterator[str]:
    yield from (_row(f"{spec.name}: {spec}") for spec in entry.inputs)
    root = entry.structure.inputs
    for key, part in () if root is None else zip(root.keys, root.parts, strict=True):
        if part.is_fixed:
            yield _row(f"{key} = {part.value!r}, fixed at build time")
    yield "returns:"
    yield from (_row(f"{spec.name}: {spec}") for spec in entry.outputs)
    for dim in entry.dims:
        if dim.input is not None:
            yield _row(f"where {dim}").lstrip()


def _row(text: str) -> str:
    return f"    {_quoted(text)}"


def _quoted(text: str) -> str:
    """Text as it stands inside of a docstring, not at its end."""
    return printable(text, kept="").replace("\\", "\\\\").replace('"""', "'''")


def _literal(value: object) -> str:
    """The text of a value of build time, as Python code."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _declared(parameter: Parameter) -> str:
    default = f" = {parameter.default}" if parameter.default else ""
    return f"{parameter.name}: {parameter.type}{default}"


def _reads_arrays(entry: Entry) -> bool:
    """Whether a call has an array whose kind the outputs have."""
    root = entry.structure.inputs
    return bool(entry.inputs) if root is None else _holds(root)


def _is_given(part: Part) -> bool:
    """Whether a call has to give it: all but values of build time and seeds."""
    return not part.is_fixed and part.kind != "seed"


def _holds(part: Part) -> bool:
    return any(leaf.kind == "array" for leaf in part.leaves())


def _distinct(text: str, taken: set[str]) -> str:
    """A name like the text that is not taken, which it is from then on; one that is another ends
    with `_`, and as a parameter is given by its place only."""
    name = text
    if not _is_name(text) or text in taken or text.endswith("_"):
        name = f"{_letters(text)}_"
        name = name if _is_name(name) else f"_{name.lstrip('_')}"
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _camel(text: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in _letters(text).split("_"))


def _letters(text: str) -> str:
    """The text with `_` in place of all that can be in no name."""
    return "".join(each if _is_name(f"x{each}") else "_" for each in text)


def _is_name(text: str) -> bool:
    """Whether it is a name that a program may choose, and Python reads as it stands."""
    is_plain = unicodedata.normalize("NFKC", text) == text and not text.startswith("__")
    return is_plain and text.isidentifier() and not keyword.iskeyword(text)

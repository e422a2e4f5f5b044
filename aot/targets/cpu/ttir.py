"""Parser of Triton IR printed in MLIR's generic form.

The generic form has one syntax for every operation,

    %3:2 = "tt.reduce"(%1, %2#1)[^bb1] <{axis = 1 : i32}> ({ ^bb0(%a: f32): ... }) {x = 1}
        : (T, T) -> (T, T)

so that a small recursive-descent parser reads all of Triton's dialects.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu.linear import EIGHT_BITS

Attribute: TypeAlias = "bool | int | float | str | list[int] | list[float] | Dense"


class Type(NamedTuple):
    """Type of a value: `element` is `f32`, `i1`, … or `ptr`; `shape` is None for scalars."""

    element: str
    shape: tuple[int, ...] | None = None
    pointee: str = ""
    """Element type behind a pointer, empty otherwise."""

    @property
    def is_tensor(self) -> bool:
        return self.shape is not None

    @property
    def is_pointer(self) -> bool:
        return self.element == "ptr"


class Dense(NamedTuple):
    """A tensor constant; one value when it is the same everywhere."""

    values: tuple[float | int, ...]


def unsupported(what: str, more: str = "") -> CompileError:
    """The error for what the CPU target does not compile."""
    return CompileError(message=f"{what} is not supported by the cpu target{more}")


@contextmanager
def located(operation: Operation) -> Iterator[None]:
    """Errors name the operation's line, where it is known and they do not yet."""
    try:
        yield
    except CompileError as error:
        if not operation.line or hasattr(error, "line") or type(error) is not CompileError:
            raise
        message = f"{error.message} (at {operation.line})"
        raise CompileError(message=message, line=operation.line) from error


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value: result `index` of `owner`, or an argument of a block when `owner` is None."""

    type: Type
    owner: Operation | None = None
    index: int = 0
    uses: list[Operation] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Block:
    arguments: list[Value]
    operations: list[Operation]
    label: str = ""


@dataclass(eq=False, slots=True)
class Operation:
    name: str
    operands: list[Value]
    attributes: dict[str, Attribute]
    regions: list[list[Block]]
    results: list[Value]
    successors: list[str]
    parent: Operation | None = None
    position: int = 0
    """Place in program order, counted over the whole function."""
    line: str = ""
    """`file:line` of the kernel's source, where the text has locations."""

    def integer(self, name: str, default: int = 0) -> int:
        found = self.attributes.get(name, default)
        if not isinstance(found, int):
            raise CompileError(
                message=f"attribute `{name}` of `{self.name}` is {found!r}, expected an integer"
            )
        return found

    def integers(self, name: str) -> list[int]:
        found = self.attributes.get(name, [])
        if not isinstance(found, list):
            raise CompileError(
                message=f"attribute `{name}` of `{self.name}` is {found!r}, expected a list"
            )
        return [int(x) for x in found]

    @property
    def body(self) -> Block:
        """The only block of the first region."""
        return self.regions[0][0]

    def walk(self) -> Iterator[Operation]:
        yield self
        for region in self.regions:
            for block in region:
                for operation in block.operations:
                    yield from operation.walk()


@dataclass(eq=False, slots=True)
class Function:
    arguments: list[Value]
    blocks: list[Block]
    labels: list[str]
    functions: Mapping[str, Function] = field(default_factory=dict)
    """What it may call, by symbol."""

    def walk(self) -> Iterator[Operation]:
        for block in self.blocks:
            for operation in block.operations:
                yield from operation.walk()


_COMMENT = re.compile(r"//[^\n]*")
_ALIAS_NAME = re.compile(r"#\w+")
_ALIAS = re.compile(r"^(#\w+) = (.*)$", re.M)
_PLACE = re.compile(r'"([^"]*)":(\d+):\d+')
_SPACE = re.compile(r"\s+")
_NAME = re.compile(r'%[\w$.-]+(#\d+)?|\^\w+|"[^"]*"|[\w.$]+')
_TENSOR = re.compile(r"tensor<((?:\d+x)+)(.*)>$", re.S)
_OPEN, _CLOSE = "<([{", ">)]}"


def parse_type(text: str) -> Type:
    """`tensor<64x!tt.ptr<f32>>` → Type("ptr", (64,), "f32"); encodings are ignored."""
    text = text.strip()
    if text.startswith("tensor<"):
        found = _TENSOR.match(text)
        if found is None:
            raise CompileError(message=f"tensor type `{text}` is not understood")
        element = parse_type(found[2].split(", #")[0])
        shape = tuple(int(x) for x in found[1].split("x")[:-1])
        return Type(element.element, shape, element.pointee)
    if text.startswith("!tt.ptr<"):
        return Type("ptr", None, text[len("!tt.ptr<") : text.rindex(">")].split(",")[0].strip())
    if text == "index":
        return Type("i64")
    return Type(text)


class _Parser:
    def __init__(self, text: str) -> None:
        self.aliases = dict(_ALIAS.findall(text))
        self.text = _COMMENT.sub("", _ALIAS.sub("", text)).replace(" loc(", "\nloc(")
        self.position = 0
        self.values: dict[str, Value] = {}
        self.count = 0

    # ------------------------------------------------------------------ tokens

    def skip_space(self) -> None:
        found = _SPACE.match(self.text, self.position)
        if found:
            self.position = found.end()

    def peek(self, token: str) -> bool:
        self.skip_space()
        return self.text.startswith(token, self.position)

    def accept(self, token: str) -> bool:
        if self.peek(token):
            self.position += len(token)
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            near = self.text[self.position : self.position + 60]
            raise CompileError(message=f"triton ir has `{near}`, expected `{token}`")

    def word(self) -> str:
        self.skip_space()
        found = _NAME.match(self.text, self.position)
        if found is None:
            near = self.text[self.position : self.position + 40]
            raise CompileError(message=f"triton ir has `{near}`, expected a name")
        self.position = found.end()
        return found[0]

    def balanced(self, stops: str) -> str:
        """Text up to one of `stops` outside of any bracket or string; `->` is no bracket."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            char = self.text[self.position]
            if char == '"':
                self.position = self.text.index('"', self.position + 1)
            elif char == "-" and self.text.startswith("->", self.position):
                if depth == 0 and "-" in stops:
                    break
                self.position += 1
            elif depth == 0 and char in stops:
                break
            elif char in _OPEN:
                depth += 1
            elif char in _CLOSE:
                depth -= 1
            self.position += 1
        return self.text[start : self.position].strip()

    def _without_aliases(self, text: str) -> str:
        """An attribute that is given by an alias as what that stands for, others as they are."""
        for _ in self.aliases if text.startswith("#") else ():
            text = _ALIAS_NAME.sub(lambda found: self.aliases.get(found[0], found[0]), text)
        return text

    # -------------------------------------------------------------- structure

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise CompileError(message=f"triton ir uses `{name}` before its definition")
        return self.values[name]

    def attributes(self, close: str) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        while not self.accept(close):
            name = self.word().strip('"')
            found[name] = True
            if self.accept("="):
                self.skip_space()
                found[name] = parse_attribute(self._without_aliases(self.balanced(",}")))
            self.accept(",")
        return found

    def types(self) -> list[Type]:
        self.skip_space()
        if not self.accept("("):
            return [parse_type(self.balanced("\n-"))]
        found = []
        while not self.accept(")"):
            self.skip_space()
            found.append(parse_type(self.balanced(",)")))
            self.accept(",")
        return found

    def operation(self, parent: Operation | None) -> Operation:
        names: list[tuple[str, int]] = []
        while self.peek("%"):
            name = self.word()
            names.append((name, int(self.word()) if self.accept(":") else 1))
            self.accept(",")
        if names:
            self.expect("=")
        made = Operation(self.word().strip('"'), [], {}, [], [], [], parent, self.count)
        self.count += 1
        self.expect("(")
        while not self.accept(")"):
            made.operands.append(self.value(self.word()))
            self.accept(",")
        if self.accept("["):
            made.successors = [x.strip() for x in self.balanced("]").split(",")]
            self.expect("]")
        if self.accept("<{"):
            made.attributes = self.attributes("}>")
        if self.peek("({"):
            self.expect("(")
            while not self.accept(")"):
                made.regions.append([block for _, block in self.region(made)])
                self.accept(",")
        if self.accept("{"):
            made.attributes |= self.attributes("}")
        self.expect(":")
        self.types()
        self.expect("->")
        made.results = [Value(t, made, i) for i, t in enumerate(self.types())]
        made.line = self.line()
        for operand in made.operands:
            operand.uses.append(made)
        for name, count in names:
            for i in range(count):
                self.values[name if count == 1 else f"{name}#{i}"] = made.results[i]
        return made

    def line(self) -> str:
        """`file:line` of the location that follows, of the innermost call; empty without one."""
        if not self.accept("loc("):
            return ""
        location = self.balanced(")")
        self.expect(")")
        for _ in range(len(self.aliases) + 1):
            found = _PLACE.search(location)
            if found is not None:
                return f"{found[1]}:{found[2]}"
            alias = re.search(r"#\w+", location)
            if alias is None:
                break
            location = self.aliases.get(alias[0], "")
        return ""

    def region(self, parent: Operation | None) -> list[tuple[str, Block]]:
        self.expect("{")
        blocks = [("", Block([], []))]
        while not self.accept("}"):
            if self.peek("^"):
                label = self.word()
                block = Block([], [], label)
                if self.accept("("):
                    while not self.accept(")"):
                        name = self.word()
                        self.expect(":")
                        self.skip_space()
                        kind = self.balanced(",)").partition("\nloc(")[0]
                        argument = Value(parse_type(kind))
                        self.values[name] = argument
                        block.arguments.append(argument)
                        self.accept(",")
                self.expect(":")
                if not blocks[-1][1].operations and not blocks[-1][0]:
                    blocks.pop()
                blocks.append((label, block))
            else:
                blocks[-1][1].operations.append(self.operation(parent))
        return blocks

    def module(self) -> Function:
        """The public function, which may call the others."""
        self.expect('"builtin.module"')
        self.expect("()")
        if self.accept("<{"):
            self.attributes("}>")
        self.expect("({")
        functions: dict[str, Function] = {}
        entry = self.function(functions)
        while self.peek('"tt.func"'):
            self.function(functions)
        return entry

    def function(self, functions: dict[str, Function]) -> Function:
        """The next function; its symbol, if it has one, is noted in `functions`."""
        self.expect('"tt.func"()')
        attributes = self.attributes("}>") if self.accept("<{") else {}
        self.expect("(")
        self.values = {}
        blocks = self.region(None)
        self.expect(")")
        if self.accept("{"):
            self.attributes("}")
        self.expect(":")
        self.types()
        self.expect("->")
        self.types()
        self.line()
        made = Function(
            blocks[0][1].arguments,
            [b for _, b in blocks],
            [label for label, _ in blocks],
            functions,
        )
        symbol = attributes.get("sym_name")
        if isinstance(symbol, str):
            functions[symbol] = made
        return made


def _number(text: str, element: str) -> float | int:
    text = text.strip()
    if text in ("true", "false"):
        return int(text == "true")
    if element.startswith("f") or element == "bf16":
        if text.startswith("0x"):
            return _float_of_bits(int(text, 16), element)
        return float(text)
    return int(text, 0)


def _float_of_bits(bits: int, element: str) -> float:
    if element in EIGHT_BITS:
        return EIGHT_BITS[element].decoded(bits)
    code = {"f64": "<Qd", "f32": "<If", "f16": "<He"}.get(element)
    if code is None:  # bf16 is the upper half of an f32
        bits, code = bits << 16, "<If"
    value: float = struct.unpack("<" + code[2], struct.pack("<" + code[1], bits))[0]
    return value


def parse_attribute(text: str) -> Attribute:
    """Reads the attribute forms that Triton prints; unknown ones stay text."""
    if text.startswith('"'):
        return text[1 : text.rindex('"')]
    if text.startswith("dense<"):
        body, kind = text[6:].rsplit(">", 1)[0], text
        depth = 1
        for end in range(6, len(text)):
            depth += (text[end] in "<") - (text[end] == ">")
            if depth == 0:
                body, kind = text[6:end], text[end + 1 :]
                break
        element = parse_type(kind.split(":", 1)[1]).element
        if body.startswith('"0x'):
            return Dense(_hex_values(body.strip('"')[2:], element))
        items = [x for x in re.split(r"[\[\],\s]+", body) if x]
        return Dense(tuple(_number(x, element) for x in items))
    if text.startswith("array<"):
        _, _, items_text = text[6:-1].partition(":")
        return [int(x) for x in items_text.split(",") if x.strip()]
    value, _, element = text.partition(" : ")
    if value in ("true", "false"):
        return value == "true"
    try:
        return _number(value, element.strip() or "i64")
    except ValueError:
        return text


def _hex_values(digits: str, element: str) -> tuple[float | int, ...]:
    data = bytes.fromhex(digits)
    if element in EIGHT_BITS:
        return tuple(EIGHT_BITS[element].decoded(bits) for bits in data)
    if element == "bf16":
        return tuple(_float_of_bits(bits, element) for (bits,) in struct.iter_unpack("<H", data))
    code = {"f64": "d", "f32": "f", "f16": "e", "i64": "q", "i32": "i", "i16": "h", "i8": "b"}.get(
        element
    )
    if code is None:
        raise unsupported(f"dense constant of `{element}`")
    return tuple(x for (x,) in struct.iter_unpack("<" + code, data))


def parse(text: str) -> Function:
    """Parses a module in generic form: its first function, and those that this one calls.

    Raises CompileError with the place when the text is not understood.
    """
    return _Parser(text).module()

"""Sizes of an exported program: torch's symbols as named dims, its guards as conditions on them.

A dim takes the name that the user's `dynamic_shapes` gives it, otherwise that of the first input
that has it: `x_0`. While tracing, torch assumes that sizes are not 0 or 1, and says so by guards
like `x.size()[0] != 1`. Kernels are valid for a size of 1 as well, so these guards are dropped, and
a lower bound of 2 that nobody asked for becomes 1 if shapes are right there (`size_of_one.py`).
Tensors without elements are not compiled.

torch's sympy expressions over symbols are converted to `Extent`s here too.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import reduce
from math import prod
from operator import add, floordiv, mod, mul, sub
from types import MappingProxyType
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from aotc.aot.capture.argument_names import argument_paths, identifier, input_names
from aotc.aot.capture.data_shapes import MASKED, OF_DATA
from aotc.aot.capture.size_of_one import example_numbers, untrue_at_one
from aotc.aot.errors import GuardUnsupported
from aotc.aot.ir.size import (
    Dim,
    Extent,
    Guard,
    Size,
    UndecidedSize,
    bounds,
    largest,
    proves_at_most,
    size_of,
    smallest,
)

LARGEST_EXTENT = (1 << 31) - 1  # kernels address elements with 32 bits
LAYOUT = "_prims_common"  # where torch asks whether tensors are dense
_TRACED_LOW = 2  # torch's own lower bound of a size that it does not specialise
_CURRENT: ContextVar[Mapping[Any, Extent]] = ContextVar("symbols", default=MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Sizes:
    """The dynamic sizes: each symbol's size, and what must hold beside the dims' ranges."""

    symbols: Mapping[Any, Extent]
    guards: tuple[Guard, ...]
    specialised: tuple[str, ...]  # dims that were asked for and turned out to be fixed
    # Guards by which torch only chose how to look at memory: that two sizes differ, so that a part
    # of a tensor is not all of it. Whether numbers depend on them shows where they do not hold.
    of_layout: tuple[Guard, ...] = ()

    @property
    def dims(self) -> tuple[Dim, ...]:
        """All dims by name."""
        found = {dim for size in self.symbols.values() if isinstance(size, Size)
                 for dim in size.dims()}  # fmt: skip
        return tuple(sorted(found, key=lambda dim: dim.name))


@contextmanager
def reading(sizes: Sizes) -> Iterator[None]:
    """`extent_of` knows the symbols inside the block."""
    token = _CURRENT.set(sizes.symbols)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def extent_of(value: Any) -> Extent:
    """A torch size as ours; raises `UndecidedSize` for one that depends on data."""
    if isinstance(value, int):
        return value
    return converted(value.node.expr, _CURRENT.get())


def sizes_of(
    program: ExportedProgram,
    shapes: Any,
    arguments: Any,
    states: Sequence[Any] = (),
    never_one: Collection[str] = (),
) -> Sizes:
    """The dims, guards and specialised dims of an exported program.

    `shapes` is the spec's `dynamic_shapes`, `arguments` the example's (positional, by name);
    `states` are the dims of the buffers that are the program's last inputs; `never_one` names dims
    that begin at 2, as torch took for granted.
    Raises `GuardUnsupported` for a guard that cannot be checked at a call.
    """
    inputs = _inputs(program)
    asked = _asked(shapes, arguments)
    asked += [{}] * (len(inputs) - len(states) - len(asked))
    asked += [_by_axis(row) for row in states]
    names = _names(inputs, asked)
    symbols: dict[Any, Extent] = {}
    asked_ends = _ends_by_user(inputs, asked)
    bounded = _bounded_by_user(inputs, asked)
    bounded |= {symbol for symbol, name in names.items() if name in never_one}
    bounded |= untrue_at_one(program, _widened(program, names, bounded))
    for symbol, name in names.items():
        least = _TRACED_LOW if symbol in bounded else 1
        dim = _dim(name, symbol, least, program, inputs)
        most = asked_ends.get(symbol, dim.high)
        if most < dim.high:
            dim = Dim(name, dim.low, most, min(dim.typical, most))
        symbols[symbol] = size_of(dim)
    sizes = Sizes(symbols, (), _specialised(inputs, asked))
    with reading(sizes):
        guards = tuple(_guards(program))
        apart = set(_apart_for_layout(inputs))
    of_layout = tuple(guard for guard in guards if (guard.size, guard.low) in apart)
    rest = tuple(guard for guard in guards if guard not in of_layout)
    return Sizes(symbols, rest, sizes.specialised, of_layout)


def spread(shapes: Any, signature: inspect.Signature) -> Any:
    """`dynamic_shapes` with a row an argument: torch.export has all of `*arguments` in one row, and
    all of `**named`."""
    parameters = list(signature.parameters.values())
    kinds = [each.kind for each in parameters]
    if isinstance(shapes, Mapping) and inspect.Parameter.VAR_KEYWORD in kinds:
        inner = shapes.get(parameters[-1].name)
        if isinstance(inner, Mapping) and all(isinstance(each, str) for each in inner):
            others = {name: row for name, row in shapes.items() if name != parameters[-1].name}
            shapes = {**others, **inner}
    if not shapes or inspect.Parameter.VAR_POSITIONAL not in kinds:
        return shapes
    place = kinds.index(inspect.Parameter.VAR_POSITIONAL)
    name = parameters[place].name
    if isinstance(shapes, Mapping):
        rows = {f"{name}.{number}": row for number, row in enumerate(shapes.get(name) or ())}
        named = {each: row for each, row in shapes.items() if each != name}
        before = {each.name: named.pop(each.name, None) for each in parameters[:place]}
        return {**before, **rows, **named}
    return (*shapes[:place], *(row for each in shapes[place : place + 1] for row in each or ()))


def with_open_ends(shapes: Any) -> Any:
    """`dynamic_shapes` for torch, in which dims of at most 2 may be 3: torch takes it for granted
    that no dim is 1, so such a dim would be 2 in some places and a size in others."""
    derived: set[Any] = set()
    _each_dim(shapes, lambda dim: derived.add(getattr(dim, "root", None)) or dim)
    opened: dict[str, Any] = {}

    def change(dim: Any) -> Any:
        name = getattr(dim, "__name__", "")
        if getattr(dim, "max", None) != _TRACED_LOW or hasattr(dim, "root") or dim in derived:
            return dim
        return opened.setdefault(name, torch.export.Dim(name, min=dim.min, max=_TRACED_LOW + 1))

    return _each_dim(shapes, change)


def _each_dim(shapes: Any, change: Callable[[Any], Any]) -> Any:
    """The same with each entry of an axis exchanged."""
    if isinstance(shapes, Mapping):
        return {key: _each_dim(row, change) for key, row in shapes.items()}
    if isinstance(shapes, list | tuple):
        rows = [_each_dim(row, change) for row in shapes]
        return type(shapes)(*rows) if hasattr(shapes, "_fields") else type(shapes)(rows)
    return change(shapes)


def _inputs(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Name and example value of each tensor input, in order."""
    names, values = input_names(program), _values(program)
    return [(names[placeholder], value) for placeholder, value in values.items()]


def _values(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The example value of each tensor input by its placeholder, in order."""
    names = input_names(program)
    placeholders = program.graph.find_nodes(op="placeholder")
    pairs = [(node.name, node.meta.get("val")) for node in placeholders if node.name in names]
    return {name: value for name, value in pairs if isinstance(value, torch.Tensor)}


# -- names -----------------------------------------------------------------------------------------


def _asked(shapes: Any, arguments: Any) -> list[Mapping[int, Any]]:
    """What the user asked for each tensor of the arguments, by axis."""
    positional, named = arguments
    if not shapes:
        return []
    if isinstance(shapes, Mapping):
        order = list(shapes.values())
        values = [*positional, *named.values()]
        by_name = [shapes.get(name) for name in named]
        rows = by_name if not positional else [*order[: len(positional)], *by_name]
    else:
        values, rows = [*positional, *named.values()], list(shapes)
    found: list[Mapping[int, Any]] = []
    for value, row in zip(values, rows, strict=False):
        found += _asked_of(value, row)
    return found


def _asked_of(value: Any, row: Any) -> Iterator[Mapping[int, Any]]:
    """The rows of the tensors in one argument, however nested."""
    if isinstance(value, torch.Tensor):
        yield _by_axis(row)
        return
    keys = value if isinstance(value, Mapping) else range(len(value)) if _is_row(value) else ()
    for key in keys:
        inner = row.get(key) if isinstance(row, Mapping) else row[key] if _is_row(row) else None
        yield from _asked_of(value[key], inner)


def _by_axis(row: Any) -> dict[int, Any]:
    pairs = row.items() if isinstance(row, Mapping) else enumerate(row or ())
    return {axis: entry for axis, entry in pairs if entry is not None}


def _is_row(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _names(inputs: Sequence[tuple[str, Any]], asked: Sequence[Mapping[int, Any]]) -> dict[Any, str]:
    """Symbol → name: the user's, else input and axis."""
    found: dict[Any, str] = {}
    spare: dict[Any, str] = {}
    for place, (name, value) in enumerate(inputs):
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                continue
            entry = asked[place].get(axis) if place < len(asked) else None
            root = getattr(entry, "root", entry)
            given = getattr(root, "__name__", "")
            for symbol in sorted(size.node.expr.free_symbols, key=str):
                spare.setdefault(symbol, f"{name}_{axis}")
                if given:
                    found.setdefault(symbol, given)
    chosen = spare | found
    return {symbol: identifier(name) for symbol, name in chosen.items()}


def _bounded_by_user(
    inputs: Sequence[tuple[str, Any]], asked: Sequence[Mapping[int, Any]]
) -> set[Any]:
    """Symbols for which the user asked for the lower bound that torch takes by itself."""
    return {
        size.node.expr
        for (_, value), row in zip(inputs, asked, strict=False)
        for axis, size in enumerate(value.shape)
        if not isinstance(size, int) and getattr(row.get(axis), "min", None) == _TRACED_LOW
    }


def _ends_by_user(
    inputs: Sequence[tuple[str, Any]], asked: Sequence[Mapping[int, Any]]
) -> dict[Any, int]:
    """The largest sizes that the user asked for, where torch was given more."""
    return {
        size.node.expr: _TRACED_LOW
        for (_, value), row in zip(inputs, asked, strict=False)
        for axis, size in enumerate(value.shape)
        if not isinstance(size, int) and getattr(row.get(axis), "max", None) == _TRACED_LOW
    }


def _widened(program: ExportedProgram, names: Mapping[Any, str], bounded: set[Any]) -> list[Any]:
    """Symbols that may be 1 for us, whatever torch takes for granted."""
    lows = {each: ends_of(row, 0)[0] for each, row in program.range_constraints.items()}
    return [each for each in names if each not in bounded and lows.get(each, 0) <= _TRACED_LOW]


def _specialised(
    inputs: Sequence[tuple[str, Any]], asked: Sequence[Mapping[int, Any]]
) -> tuple[str, ...]:
    """Dims that the user asked to vary and that are fixed all the same."""
    found = []
    for (name, value), row in zip(inputs, asked, strict=False):
        for axis in sorted(row):
            is_wanted = not isinstance(row[axis], int) and row[axis] is not torch.export.Dim.STATIC
            if is_wanted and axis < value.dim() and _is_fixed(value.shape[axis]):
                found.append(f"input `{name}` dim {axis} is {value.shape[axis]}")
    return tuple(found)


def _is_fixed(size: Any) -> bool:
    """Whether a size is a number, as it is or because torch found that it can be no other."""
    return isinstance(size, int) or bool(size.node.expr.is_Integer)


def _dim(
    name: str, symbol: Any, least: int, program: ExportedProgram, inputs: Sequence[tuple[str, Any]]
) -> Dim:
    """The dim of a symbol: torch's range within what 32 bits address, and the example's size.

    `least` stands for the lower bound that torch takes by itself.
    """
    allowed = program.range_constraints.get(symbol)
    low, high = least, LARGEST_EXTENT
    if allowed is not None:
        found, high = ends_of(allowed, high)
        low = least if found == _TRACED_LOW else max(least, found)
    fixed_numel = 1
    for _, value in inputs:
        if any(getattr(size, "node", None) and symbol in size.node.expr.free_symbols
               for size in value.shape):  # fmt: skip
            fixed_numel = prod(s for s in value.shape if isinstance(s, int))
    high = min(high, LARGEST_EXTENT // max(1, fixed_numel))  # 0: it has no elements at any size
    example = example_numbers(value for _, value in inputs).get(symbol) or low
    return Dim(name, low, max(low, high), min(max(example, low), max(low, high)))


def ends_of(allowed: Any, high: int) -> tuple[int, int]:
    """The ends of a range of torch's, up to `high`; either may be infinite."""
    low = int(allowed.lower) if getattr(allowed.lower, "is_Integer", False) else 1
    has_end = getattr(allowed.upper, "is_Integer", False)
    return low, min(high, int(allowed.upper)) if has_end else high


# -- guards ----------------------------------------------------------------------------------------


def _guards(program: ExportedProgram) -> Iterator[Guard]:
    """What must hold at a call beside ranges and shapes, in the words of torch's guards."""
    known: set[Guard] = set()
    paths, values = argument_paths(program), _values(program)
    inputs = {paths[placeholder]: value for placeholder, value in values.items()}
    given = [
        paths.get(getattr(spec.arg, "name", ""), "")
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    for code in getattr(program, "_guards_code", None) or ():
        text = _FLAT.sub(lambda match: f"L['{given[int(match[1])]}']", code)
        for comparison in _comparisons(text):
            guard = _guard(comparison, text, inputs)
            if guard is not None and guard not in known:
                known.add(guard)
                yield guard


def _apart_for_layout(inputs: Sequence[tuple[str, Any]]) -> Iterator[tuple[Extent, int]]:
    """What torch took for unequal while it asked whether a tensor is dense: squared, and 1."""
    modes = [value.fake_mode for _, value in inputs if hasattr(value, "fake_mode")]
    environment = modes[0].shape_env if modes else None
    for guard in getattr(environment, "guards", ()):
        place = str(getattr(getattr(guard, "sloc", None), "framework_loc", ""))
        expression = environment.replace(guard.expr)
        if type(expression).__name__ == "Unequality" and LAYOUT in place:
            try:
                left, right = (converted(side, _CURRENT.get()) for side in expression.args)
            except UndecidedSize:
                continue
            yield (left - right) * (left - right), 1


def _comparisons(text: str) -> Iterator[tuple[ast.expr, ast.cmpop, ast.expr]]:
    """The comparisons that a guard is made of; of two equalities one holds where the product of
    their distances is 0."""
    stack = [ast.parse(text, mode="eval").body]
    while stack:
        expression = stack.pop()
        if isinstance(expression, ast.BoolOp) and isinstance(expression.op, ast.And):
            stack += expression.values
        elif isinstance(expression, ast.Compare):
            sides = [expression.left, *expression.comparators]
            yield from zip(sides, expression.ops, sides[1:], strict=False)
        elif isinstance(expression, ast.BoolOp) and all(map(_is_equality, expression.values)):
            yield reduce(_product, map(_distance, expression.values)), ast.Eq(), ast.Constant(0)
        else:
            raise GuardUnsupported(guard=text)


def _is_equality(expression: ast.expr) -> bool:
    return (
        isinstance(expression, ast.Compare)
        and len(expression.ops) == 1
        and isinstance(expression.ops[0], ast.Eq)
    )


def _distance(equality: Any) -> ast.expr:
    return ast.BinOp(equality.left, ast.Sub(), equality.comparators[0])


def _product(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.BinOp(left, ast.Mult(), right)


def _guard(
    comparison: tuple[ast.expr, ast.cmpop, ast.expr], text: str, inputs: Mapping[str, Any]
) -> Guard | None:
    """The guard of one comparison; None where every call meets it, or only 0 and 1 do not."""
    first, operator, second = comparison
    read: Reader = lambda part: _of_text(part, inputs)  # noqa: E731
    try:
        left, right = (_sized(side, read) for side in (first, second))
    except (UndecidedSize, LookupError) as error:
        raise GuardUnsupported(guard=text) from error
    if isinstance(operator, ast.NotEq):
        # Two sizes differ where the square of their distance is at least 1.
        apart = left - right
        is_traced = bool({left, right} & {0, 1})
        return None if is_traced else _bounded(apart * apart, ast.Gt, _plain(text))
    return _bounded(left - right, type(operator), _plain(text))


def _bounded(distance: Extent, operator: type[ast.cmpop], text: str) -> Guard | None:
    """The guard that left - right has the sign that the operator asks for."""
    ends = _ENDS.get(operator)
    low, high = bounds(distance)
    if ends and (ends[0] is None or ends[0] <= low) and (ends[1] is None or high <= ends[1]):
        return None
    if ends is None or not isinstance(distance, Size):
        raise GuardUnsupported(guard=text)
    return Guard(text, distance, *ends)


# Operator → smallest and largest legal value of left - right.
_ENDS: dict[type[ast.cmpop], tuple[int | None, int | None]] = {
    ast.Eq: (0, 0),
    ast.LtE: (None, 0),
    ast.Lt: (None, -1),
    ast.GtE: (0, None),
    ast.Gt: (1, None),
}
_RELATIONS: dict[str, type[ast.cmpop]] = {
    "Equality": ast.Eq,
    "LessThan": ast.LtE,
    "StrictLessThan": ast.Lt,
    "GreaterThan": ast.GtE,
    "StrictGreaterThan": ast.Gt,
}


def asserted(value: torch.SymBool) -> Guard | None:
    """The guard of an assertion inside the program; None where every call meets it.

    What depends on data is left to the data.
    """
    expression = value.node.expr
    operator = _RELATIONS.get(type(expression).__name__)
    if operator is None or not expression.free_symbols <= set(_CURRENT.get()):
        return None
    left, right = (converted(side, _CURRENT.get()) for side in expression.args)
    return _bounded(left - right, operator, str(expression))


_FLAT = re.compile(r"L\['flat_args'\]\[(\d+)\]")  # an input where torch read the model's code
# A place in the arguments: `L['rows']['left'].size()[0]`, `L['pair'].left.size()[0]` of an object.
_SIZE = re.compile(r"L((?:\[[^\]]+\]|\.\w+)+)\.size\(\)\[(\d+)\]")
_KEY = re.compile(r"\[([^\]]+)\]|\.(\w+)")


def _of_text(expression: Any, inputs: Mapping[str, Any]) -> Reading:
    """A part of a guard's text: `L['x'].size()[0]`, a number, an operation or a call."""
    if isinstance(expression, ast.Constant) and type(expression.value) in (int, float):
        return expression.value  # type: ignore[return-value]
    if isinstance(expression, ast.UnaryOp) and isinstance(expression.op, ast.USub):
        return "Sub", (ast.Constant(0), expression.operand)
    if isinstance(expression, ast.BinOp):
        return type(expression.op).__name__, (expression.left, expression.right)
    text = ast.unparse(expression)
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) in _CALLS:
        return _CALLS[ast.unparse(expression.func)], expression.args
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UndecidedSize(f"`{text}`")
    name = "_".join(map(identifier, _keys(match[1])))
    return extent_of(inputs[name].shape[int(match[2])])


# Functions of guards' texts under the names of torch's expressions.
_CALLS = {
    "min": "Min",
    "max": "Max",
    "math.trunc": "TruncToInt",
    "math.floor": "FloorToInt",
    "torch.sym_float": "ToFloat",
}


def _plain(text: str) -> str:
    """A guard as people write it: `x.shape[1] % 4 == 0`."""
    return _SIZE.sub(lambda match: f"{_joined(match[1])}.shape[{match[2]}]", text)


def _joined(place: str) -> str:
    return ".".join(_keys(place))


def _keys(place: str) -> list[str]:
    """The keys and attributes by which a place in the arguments is reached."""
    return [key.strip("'\"") or attribute for key, attribute in _KEY.findall(place)]


# -- torch's expressions ---------------------------------------------------------------------------


SHAPE_OF_DATA = f"{OF_DATA}: {MASKED}"
# Denominators of factors whose products with sizes are exact in floats.
LARGEST_FRACTION = 1 << 10

# What one level of an expression is: a size, a float, or an operation with its parts.
Reading = Extent | float | tuple[str, Sequence[Any]]
Reader = Callable[[Any], Reading]


def converted(expression: Any, known: Mapping[Any, Extent]) -> Extent:
    """A sympy expression as a size; `known` holds the symbols' sizes.

    Raises `UndecidedSize` for one that depends on data, or that is not a size of ours.
    """
    return _sized(expression, lambda part: _of_sympy(part, known))


def _of_sympy(expression: Any, known: Mapping[Any, Extent]) -> Reading:
    if expression.is_Integer:
        return int(expression)
    if expression.is_Float:
        return float(expression)
    if expression.is_Symbol:
        if expression not in known:
            raise UndecidedSize(SHAPE_OF_DATA)
        return known[expression]
    name = type(expression).__name__
    if name not in _OPERATIONS:
        values = {symbol: known.get(symbol) for symbol in expression.free_symbols}
        if values and all(isinstance(value, int) for value in values.values()):
            return int(expression.subs(values))
    return name, expression.args


def _sized(expression: Any, read: Reader) -> Extent:
    """The size that an expression is; one cut off to a size where that is exact: for sums of whole
    halves, quarters, eighths … that are not negative, where truncation and floor agree."""
    found = read(expression)
    if isinstance(found, int | Size):
        return found
    if isinstance(found, tuple):
        name, parts = found
        if name in _OPERATIONS:
            return reduce(_OPERATIONS[name], (_sized(part, read) for part in parts))
        if name in ("TruncToInt", "FloorToInt"):
            above, below = _fraction(parts[0], read)
            if below <= LARGEST_FRACTION and proves_at_most(0, above):
                return above // below
    raise UndecidedSize(f"a size of the form `{expression}`")


def _fraction(expression: Any, read: Reader) -> tuple[Extent, int]:
    """(a, b) with the value of a product of floats and sizes as a / b."""
    found = read(expression)
    if isinstance(found, float):
        return found.as_integer_ratio()
    name, parts = found if isinstance(found, tuple) else ("", ())
    if name in ("Mul", "Mult"):
        pairs = [_fraction(part, read) for part in parts]
        return prod(above for above, _ in pairs), prod(below for _, below in pairs)
    return _sized(parts[0] if name == "ToFloat" else expression, read), 1


def _power(base: Extent, exponent: Extent) -> Extent:
    if not isinstance(exponent, int) or exponent < 0:
        raise UndecidedSize(f"a size to the power of `{exponent}`")
    return prod([base] * exponent)


# By the names of sympy's and torch's expressions, and of Python's syntax.
_OPERATIONS: Mapping[str, Callable[[Any, Any], Extent]] = {
    "Add": add,
    "Sub": sub,
    **dict.fromkeys(("Mul", "Mult"), mul),
    "Pow": _power,
    **dict.fromkeys(("FloorDiv", "CleanDiv"), floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), mod),
    "Max": largest,
    "Min": smallest,
}

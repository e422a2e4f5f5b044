"""Steps of a plan that torch runs: ops of its registry, between kernels.

Grammar, beside that of `plan.py`:

    step     = {"arguments": [argument], "kind": "torch", "op", "operands": [tensor],
                "results": [tensor | nil]}         nil: a result that nothing reads
    tensor   = {"dtype", "memory": [space, value], "shape": [number]}       contiguous
    argument = [name, kind, value]                 name: of a keyword, "" for one by position
    kind     = "tensor"           value: number of an operand
             | "none" | "device"  value: nil; the device is the one the program runs on
             | "bool"             value: 0 or 1
             | "int"              value: a number
             | "float"            value: hexadecimal text, "nan", "inf" or "-inf"
             | "text"             value: text
             | "dtype" | "layout" | "memory_format"        value: a name
             | "list"             value: [[kind, value]]

`op` is a name of torch's registry, `aten::sort.stable`; the manifest lists those of all targets.
Each tensor lies inside one buffer of the arena, one weight, one input, one output or one state, and
results in the arena, in outputs or in states.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..record import Record
from .extent import ExtentSchema, placed
from .schema import LETTERS, SYMBOL_ALPHABET, Choice, Fields, Integer, List, Optional, Schema, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .plan_parts import Spans

    Number = Callable[[Any], Any]

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected
    Value = tuple[str, Any]  # (kind, value), the value of "list" a tuple of these
    Argument = tuple[str, str, Any]  # (name, kind, value)

LAYOUTS = ("strided",)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
BYTES_LIMIT = 1 << 40
WRITTEN_SPACES = ("arena", "output", "state")
OPERANDS_LIMIT, RESULTS_LIMIT, ITEMS_LIMIT = 256, 64, 4096


def as_it_is(number: Any) -> Any:
    """The number itself."""
    return number


class OpName(Schema):
    """The name of an op in torch's registry: `aten::sort.stable`, `mylib::scale`."""

    __slots__ = ()
    expected = "the name of an op, `library::op` or `library::op.overload`"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not str or len(value) > 256 or not _is_op_name(value):
            self.refuse(value, field, path)


class _Nil(Schema):
    """Nil and nothing else."""

    __slots__ = ()
    expected = "nil"

    def check(self, value: Any, field: str, path: str) -> None:
        if value is not None:
            self.refuse(value, field, path)


class _Float(Schema):
    """A float as text, exactly: what `float.hex` writes."""

    __slots__ = ()
    expected = "a float in hexadecimal"

    def check(self, value: Any, field: str, path: str) -> None:
        try:
            if type(value) is str and float.fromhex(value).hex() == value:
                return
        except (ValueError, OverflowError):
            pass
        self.refuse(value, field, path)


class _Tagged(Schema):
    """`[kind, value]`, the value's type by its kind; with `is_named` a name before them."""

    __slots__ = ("is_named",)
    expected = "[kind, value] of a known kind"

    def __init__(self, is_named: bool) -> None:
        self.is_named = is_named

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2 + self.is_named:
            self.refuse(value, field, path)
        if self.is_named and value[0] != "":
            _WORD.check(value[0], f"{field}[0]", path)
        kind, what = value[-2:]
        if type(kind) is not str or kind not in KINDS:
            self.refuse(value, field, path)
        KINDS[kind].check(what, f"{field}.{kind}", path)


_WORD = Text(128)
KINDS: dict[str, Schema] = {
    "tensor": Integer(0, OPERANDS_LIMIT - 1),
    "none": _Nil(),
    "device": _Nil(),
    "bool": Integer(0, 1),
    "int": ExtentSchema(-(1 << 63), (1 << 63) - 1),
    "float": _Float(),
    "text": Text(4096, least=0),
    "dtype": Choice(*DTYPES),
    "layout": Choice(*LAYOUTS),
    "memory_format": Choice(*MEMORY_FORMATS),
    "list": List(_Tagged(is_named=False), limit=ITEMS_LIMIT),
}


def call_schema(memory: Schema) -> Fields:
    """The schema of a call; `memory` is that of `[space, value]`."""
    tensor = Fields(
        {
            "dtype": Choice(*DTYPES),
            "memory": memory,
            "shape": List(ExtentSchema(0, BYTES_LIMIT), limit=64),
        }
    )
    return Fields(
        {
            "arguments": List(_Tagged(is_named=True), limit=256),
            "op": OpName(),
            "operands": List(tensor, limit=OPERANDS_LIMIT),
            "results": List(Optional(tensor), limit=RESULTS_LIMIT, least=1),
        }
    )


class CallTensor(Record):
    """A contiguous tensor of a call: element type, shape, and (space, value) of its memory."""

    __slots__ = ("dtype", "memory", "shape")
    dtype: str
    memory: tuple[str, int | str]
    shape: tuple[int, ...]

    def __init__(self, dtype: str, memory: Sequence[int | str], shape: Sequence[int]) -> None:
        self._set(dtype=dtype, memory=tuple(memory), shape=tuple(shape))

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.numel * DTYPES[self.dtype].itemsize_bytes

    def to_map(self, number: Number = as_it_is) -> dict[str, Any]:
        """The tensor as plain values; `number` gives what stands for a number."""
        memory = [self.memory[0], number(self.memory[1])]
        return {"dtype": self.dtype, "memory": memory, "shape": list(map(number, self.shape))}


class TorchCall(Record):
    """One call: the op, its operands, results and arguments."""

    __slots__ = ("arguments", "op", "operands", "results")
    op: str
    operands: tuple[CallTensor, ...]
    results: tuple[CallTensor | None, ...]
    arguments: tuple[Argument, ...]

    def __init__(
        self,
        op: str,
        operands: Sequence[CallTensor],
        results: Sequence[CallTensor | None],
        arguments: Sequence[Argument],
    ) -> None:
        self._set(
            op=op,
            operands=tuple(operands),
            results=tuple(results),
            arguments=_as_tuples(arguments),
        )

    def tensors(self) -> Iterator[CallTensor]:
        """Operands, then the results that have memory."""
        yield from self.operands
        yield from (each for each in self.results if each is not None)

    def to_map(self, number: Number = as_it_is) -> dict[str, Any]:
        """The call as a step of a plan; `number` gives what stands for a number."""
        arguments = (
            (name, *_argument_at(kind, value, number)) for name, kind, value in self.arguments
        )
        return {
            "kind": "torch",
            "arguments": _as_lists(tuple(arguments)),
            "op": self.op,
            "operands": [each.to_map(number) for each in self.operands],
            "results": [each and each.to_map(number) for each in self.results],
        }

    def moved(self, place: Callable[[str, int | str], tuple[str, Any]]) -> TorchCall:
        """The call on the memory that `place` gives for each tensor's."""

        def tensor(each: CallTensor) -> CallTensor:
            return CallTensor(each.dtype, place(*each.memory), each.shape)

        results = [each and tensor(each) for each in self.results]
        return TorchCall(self.op, list(map(tensor, self.operands)), results, self.arguments)

    @classmethod
    def from_map(cls, tree: dict[str, Any], at: Number = as_it_is) -> TorchCall:
        """The call of a step that was checked; `at` gives the values of its numbers."""

        def tensor(row: dict[str, Any]) -> CallTensor:
            shape = list(map(at, row["shape"]))
            return CallTensor(row["dtype"], placed(row["memory"], at), shape)

        return cls(
            tree["op"],
            [tensor(row) for row in tree["operands"]],
            [row and tensor(row) for row in tree["results"]],
            [(name, *_argument_at(kind, what, at)) for name, kind, what in tree["arguments"]],
        )


def _argument_at(kind: str, value: Any, at: Number) -> tuple[str, Any]:
    if kind == "list":
        return kind, [_argument_at(item[0], item[1], at) for item in value]
    return kind, at(value) if kind == "int" else value


def call_numbers(row: dict[str, Any]) -> Iterator[Any]:
    """Each number of a step that may be a formula."""
    for tensor in (*row["operands"], *filter(None, row["results"])):
        yield tensor["memory"][1]
        yield from tensor["shape"]
    yield from _argument_numbers([item[1:] for item in row["arguments"]])


def _argument_numbers(rows: Sequence[Sequence[Any]]) -> Iterator[Any]:
    for kind, what in rows:
        if kind == "int":
            yield what
        elif kind == "list":
            yield from _argument_numbers(what)


def broken_call(call: TorchCall, field: str, buffers: Spans) -> Broken:
    """Every relation inside a call that does not hold."""
    count = len(call.operands)
    for number in _operand_numbers([item[1:] for item in call.arguments]):
        if number >= count:
            yield f"{field}.arguments", f"operand {number}", f"one of {count} operands"
    for tensor in call.tensors():
        space, value = tensor.memory
        if space in ("int", "check"):
            yield field, f"`{space}`", "memory"
        if space == "arena" and not buffers.holds(int(value), tensor.nbytes):
            found = f"{tensor.nbytes} bytes at {value}"
            yield field, found, "bytes inside one buffer of the arena"
    for result in call.results:
        if result is not None and result.memory[0] not in WRITTEN_SPACES:
            yield f"{field}.results", f"`{result.memory[0]}`", "`arena`, `output` or `state`"


def _operand_numbers(values: Sequence[Any]) -> Iterator[int]:
    for kind, what in values:
        if kind == "tensor":
            yield what
        elif kind == "list":
            yield from _operand_numbers(what)


def _is_op_name(text: str) -> bool:
    library, colons, rest = text.partition("::")
    op, dot, overload = rest.partition(".")
    words = [library, op, overload] if dot else [library, op]
    first = LETTERS | {"_"}
    return bool(colons) and all(
        word and word[0] in first and SYMBOL_ALPHABET.issuperset(word) for word in words
    )


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, (list, tuple)) else value

"""Calls of torch in a launch plan, abi 5: ops that torch runs between the plan's launches.

Grammar, beside that of `plan.py`:

    plan     = {…, "abi": 5, "calls": [call]}      in the order in which they run
    call     = {"after": count, "arguments": [argument], "op", "operands": [tensor],
                "results": [tensor | nil]}         nil: a result that nothing reads
    tensor   = {"dtype", "memory": [space, value], "shape": [n]}       contiguous
    argument = [name, kind, value]                 name: of a keyword, "" for one by position
    kind     = "tensor"           value: number of an operand
             | "none" | "device"  value: nil; the device is the one the program runs on
             | "bool" | "int"     value: 0 or 1 | a signed 64-bit number
             | "float"            value: hexadecimal text, "nan", "inf" or "-inf"
             | "text"             value: text
             | "dtype" | "layout" | "memory_format"        value: a name
             | "list"             value: [[kind, value]]

`after` launches of the plan run before the call. `op` is a name of torch's registry,
`aten::sort.stable`; the manifest lists those of all targets. Each tensor lies inside one buffer of
the arena, one weight, one input or one output, and results in the arena or in outputs.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES
from ..errors import BundleMalformed
from ..record import Record
from .schema import LETTERS, SYMBOL_ALPHABET, Choice, Fields, Integer, List, Optional, Schema, Text
from .whole import check_whole, whole_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .signature import TensorSpec

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected
    Value = tuple[str, Any]  # (kind, value), the value of "list" a tuple of these
    Argument = tuple[str, str, Any]  # (name, kind, value)

LAYOUTS = ("strided",)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
BYTES_LIMIT = 1 << 40
OPERANDS_LIMIT, RESULTS_LIMIT, ITEMS_LIMIT = 256, 64, 4096


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
    "int": Integer(-(1 << 63), (1 << 63) - 1),
    "float": _Float(),
    "text": Text(4096, least=0),
    "dtype": Choice(*DTYPES),
    "layout": Choice(*LAYOUTS),
    "memory_format": Choice(*MEMORY_FORMATS),
    "list": List(_Tagged(is_named=False), limit=ITEMS_LIMIT),
}


def call_schema(memory: Schema) -> Schema:
    """The schema of a call; `memory` is that of `[space, value]`."""
    tensor = Fields(
        {
            "dtype": Choice(*DTYPES),
            "memory": memory,
            "shape": List(Integer(0, BYTES_LIMIT), limit=64),
        }
    )
    return Fields(
        {
            "after": Integer(0, 1 << 16),
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

    def to_map(self) -> dict[str, Any]:
        """The tensor as plain values."""
        return {"dtype": self.dtype, "memory": list(self.memory), "shape": list(self.shape)}


class TorchCall(Record):
    """One call: the op, the launches before it, operands, results and arguments."""

    __slots__ = ("after", "arguments", "op", "operands", "results")
    op: str
    after: int
    operands: tuple[CallTensor, ...]
    results: tuple[CallTensor | None, ...]
    arguments: tuple[Argument, ...]

    def __init__(
        self,
        op: str,
        after: int,
        operands: Sequence[CallTensor],
        results: Sequence[CallTensor | None],
        arguments: Sequence[Argument],
    ) -> None:
        self._set(
            op=op,
            after=after,
            operands=tuple(operands),
            results=tuple(results),
            arguments=_as_tuples(arguments),
        )

    def tensors(self) -> Iterator[CallTensor]:
        """Operands, then the results that have memory."""
        yield from self.operands
        yield from (each for each in self.results if each is not None)

    def to_map(self) -> dict[str, Any]:
        """The call as plain values."""
        return {
            "after": self.after,
            "arguments": _as_lists(self.arguments),
            "op": self.op,
            "operands": [each.to_map() for each in self.operands],
            "results": [each and each.to_map() for each in self.results],
        }

    @classmethod
    def from_map(cls, tree: dict[str, Any]) -> TorchCall:
        """The call of a tree that was checked."""
        return cls(
            tree["op"],
            tree["after"],
            [CallTensor(**row) for row in tree["operands"]],
            [row and CallTensor(**row) for row in tree["results"]],
            tree["arguments"],
        )


def broken_calls(tree: dict[str, Any]) -> Broken:
    """Every relation inside a plan's calls that does not hold."""
    launches, last = len(tree["launches"]), 0
    for index, row in enumerate(tree.get("calls", ())):
        field = f"calls[{index}]"
        if not last <= row["after"] <= launches:
            yield f"{field}.after", row["after"], f"from {last} to {launches}, in ascending order"
        last = max(last, row["after"])
        count = len(row["operands"])
        for number in _operand_numbers([item[1:] for item in row["arguments"]]):
            if number >= count:
                yield f"{field}.arguments", f"operand {number}", f"one of {count} operands"
        call = TorchCall.from_map(row)
        for tensor in call.tensors():
            if tensor.memory[0] == "int":
                yield field, "`int`", "memory"
            if tensor.memory[0] == "arena" and not _fits(tensor, tree["buffers"]):
                found = f"{tensor.nbytes} bytes at {tensor.memory[1]}"
                yield field, found, "bytes inside one buffer of the arena"
        for result in call.results:
            if result is not None and result.memory[0] not in ("arena", "output"):
                yield f"{field}.results", f"`{result.memory[0]}`", "`arena` or `output`"


def check_calls(
    calls: Sequence[TorchCall],
    ops: Collection[str],
    signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    weights: Mapping[str, int],
    path: str,
) -> None:
    """Check calls against their bundle: the ops that its manifest lists, its inputs and outputs,
    and the bytes of each weight. Raises `BundleMalformed`."""
    sizes = whole_bytes(signature, weights)
    for index, call in enumerate(calls):
        field = f"calls[{index}]"
        if call.op not in ops:
            expected = "an op that the manifest lists"
            raise BundleMalformed(path=path, field=field, found=f"`{call.op}`", expected=expected)
        for tensor in call.tensors():
            check_whole(tensor.memory, tensor.nbytes, sizes, field, path)


def _fits(tensor: CallTensor, buffers: Sequence[dict[str, Any]]) -> bool:
    start = int(tensor.memory[1])
    return any(
        row["offset"] <= start and start + tensor.nbytes <= row["offset"] + row["nbytes"]
        for row in buffers
    )


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
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value

"""Steps of a plan that torch runs: ops of its registry, between kernels.

`op` is a name of torch's registry, `aten::sort.stable`; the manifest lists those of all targets.
Each tensor lies inside one buffer of the arena, one weight, one input, one output or one state, and
results in the arena, in outputs or in states.
"""

from __future__ import annotations

from ..arrays.dtypes import DTYPES, bytes_of
from ..record import Record, field
from .extent import WORD, Number
from .plan_parts import MEMORY
from .schema import (
    FLOAT,
    LETTERS,
    NIL,
    SYMBOL_ALPHABET,
    Choice,
    Integer,
    List,
    Matching,
    Optional,
    Schema,
    Tagged,
    Text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .plan_parts import Spans
    from .schema import Broken, Numbering

    Value = tuple[str, Any]  # (kind, value), the value of "list" a tuple of these
    Argument = tuple[str, str, Any]  # (name, kind, value)

LAYOUTS = ("strided",)
MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
BYTES_LIMIT = 1 << 40
WRITTEN_SPACES = ("arena", "output", "state")
OPERANDS_LIMIT, RESULTS_LIMIT, ITEMS_LIMIT = 256, 64, 4096


def _is_op_name(text: str) -> bool:
    library, colons, rest = text.partition("::")
    op, dot, overload = rest.partition(".")
    words = [library, op, overload] if dot else [library, op]
    first = LETTERS | {"_"}
    return (
        bool(colons)
        and len(text) <= 256
        and all(word and word[0] in first and SYMBOL_ALPHABET.issuperset(word) for word in words)
    )


class _Argument(Schema):
    """`[name, kind, value]`, the value's type by its kind; the name of one by position is empty."""

    __slots__ = ()
    has_numbers = True
    expected = "[name, kind, value]"

    def read(self, value: Any, count: int = 0) -> Argument:
        if type(value) is not list or not value:
            self.refuse(value)
        return _WORD.read(value[0]), *VALUE.read(value[1:], count)

    def write(self, value: Any) -> list[Any]:
        return [value[0], *VALUE.write(value[1:])]

    def at(self, value: Any, number: Numbering) -> Argument:
        return value[0], *VALUE.at(value[1:], number)


OP_NAME = Matching(str, _is_op_name, "the name of an op, `library::op` or `library::op.overload`")
_WORD = Text(128, least=0)
KINDS: dict[str, tuple[Schema, ...]] = {
    "tensor": (Integer(0, OPERANDS_LIMIT - 1),),
    "none": (NIL,),
    "device": (NIL,),
    "bool": (Integer(0, 1),),
    "int": (WORD,),
    "float": (FLOAT,),
    "text": (Text(4096, least=0),),
    "dtype": (Choice(*DTYPES),),
    "layout": (Choice(*LAYOUTS),),
    "memory_format": (Choice(*MEMORY_FORMATS),),
}
VALUE = Tagged("[kind, value] of a known kind", KINDS)
KINDS["list"] = (List(VALUE, limit=ITEMS_LIMIT),)
SHAPE = List(Number(0, BYTES_LIMIT), limit=64)


class CallTensor(Record):
    """A contiguous tensor of a call: element type, shape, and (space, value) of its memory."""

    dtype: str = field(Choice(*DTYPES))
    memory: tuple[str, int | str] = field(MEMORY)
    shape: tuple[int, ...] = field(SHAPE)

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return bytes_of(self.dtype, self.shape)


class TorchCall(Record):
    """One call: the op, its operands, results and arguments."""

    kind = "torch"
    op: str = field(OP_NAME)
    operands: tuple[CallTensor, ...] = field(List(CallTensor, limit=OPERANDS_LIMIT))
    results: tuple[CallTensor | None, ...] = field(
        List(Optional(CallTensor), limit=RESULTS_LIMIT, least=1)
    )
    arguments: tuple[Argument, ...] = field(List(_Argument(), limit=256))

    def tensors(self) -> Iterator[CallTensor]:
        """Operands, then the results that have memory."""
        yield from self.operands
        yield from (each for each in self.results if each is not None)

    @property
    def memory(self) -> tuple[tuple[str, int | str], ...]:
        """(space, value) of all that it names."""
        return tuple(each.memory for each in self.tensors())

    def moved(self, to: Callable[[str, int | str], tuple[str, Any]]) -> TorchCall:
        """The call on the memory that `to` gives for each tensor's."""

        def tensor(each: CallTensor) -> CallTensor:
            return CallTensor(each.dtype, to(*each.memory), each.shape)

        results = tuple(each and tensor(each) for each in self.results)
        return TorchCall(self.op, tuple(map(tensor, self.operands)), results, self.arguments)


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

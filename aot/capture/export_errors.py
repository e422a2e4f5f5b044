"""What torch.export's refusals become: its reason, the user's line, and the usual remedy."""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aotc.aot.capture.decompositions.composites import MANY_CLASSES
from aotc.aot.capture.user_code import Source, users_innermost
from aotc.aot.errors import ExportFailed


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about refusals whose reason holds `sign`; `meaning` is the reason in our words."""

    sign: str
    meaning: str
    remedy: str
    is_of_data: bool = False  # whether what torch stopped at is a place that reads data
    is_of_recurrence: bool = False  # whether it is of models with recurrent layers only


SIZES_SHOWN = 3  # conditions of sizes in a message

# The first row whose sign is in torch's reason; the last one fits all.
REMEDIES = (
    Remedy(
        "specialized integer from data-dependent",
        "a size or an index is the value of a tensor",
        "keep the full size and mask what lies beyond, or pass the number as an argument, which "
        "is fixed at build time",
        is_of_data=True,
    ),
    Remedy(
        "expression Eq(u0, u1)",
        "two sizes that depend on data have to be equal",
        "select by one mask that is computed once, as in `mask = x > 0`, `x[mask] - y[mask]`",
        is_of_data=True,
    ),
    Remedy(
        "data-dependent",
        "control flow depends on the value of a tensor",
        "write an `if` as `torch.where` of both results, and a loop with a fixed number of turns "
        "and a mask of those that count",
        is_of_data=True,
    ),
    Remedy(
        ".numpy()",
        "the model leaves torch",
        "compute with torch's ops: what numpy does inside the model is not in the graph",
        is_of_data=True,
    ),
    Remedy(
        "not a known type",
        "an argument or the result holds an object that torch cannot take apart",
        "leave it out of the result (`use_cache=False` in transformers), or register its type with "
        "`torch.utils._pytree.register_pytree_node`",
    ),
    Remedy(
        "specialized",
        "the model does not hold for all sizes that `dynamic_shapes` allows",
        "torch.export repeats a recurrent layer for each step of the example's length: leave the "
        "length out of `dynamic_shapes` and pad to it, or build one step and keep the layer's "
        "state in a buffer (docs/how-to/recurrent-models.md)",
        is_of_recurrence=True,
    ),
    Remedy(
        "Constraints violated",
        "the model does not hold for all sizes that `dynamic_shapes` allows",
        "say so in `dynamic_shapes` (another range, `2 * length`, one `Dim` twice, or none), or "
        "give `Dim.AUTO`, with which torch finds out",
    ),
    Remedy(
        "Expected op to be",
        "torch cannot solve a condition that the model sets on the sizes of `dynamic_shapes`",
        "give `Dim.DYNAMIC(min=…, max=…)` or `Dim.AUTO`, for which torch solves nothing",
    ),
    Remedy(
        "dynamic_shapes",
        "`dynamic_shapes` do not fit the example inputs",
        "give one entry for each argument: a dict of its dims, or None for one of fixed shape",
    ),
    Remedy(
        "Unsupported input type",
        "an argument is neither a tensor nor plain data",
        "pass tensors, numbers, text and containers of them; make the rest a setting of the module",
    ),
    Remedy(
        "ScriptModule",
        "the model is TorchScript",
        "give the module that it was made of: TorchScript cannot be exported",
    ),
    Remedy(
        "fake impl",
        "an op of the model's own does not say what it gives",
        "register it: `@OP.register_fake`, a function that returns an empty tensor of that shape",
    ),
    Remedy(
        "quantized",
        "the model holds torch's quantized tensors",
        "quantize weights to plain integer tensors with scales, and multiply in the model",
    ),
    Remedy(
        "fake tensor in the exported",
        "a tensor is changed behind torch's back, such as by `.data`",
        "change the tensor itself under `torch.no_grad()`, and make it a buffer",
    ),
    Remedy(
        MANY_CLASSES,
        "",
        "give `num_classes`: how many classes there are is part of the result's shape",
    ),
    Remedy("", "", "control flow may depend on shapes and settings, not on the values of tensors"),
)
AT_ONE = (
    "where the example's size is 1, torch.export takes it for a number: give an example of 2 or "
    "more there"
)
# Ops that give a bool of Python, and any other one of which torch knows no result before it runs.
COMPARED = Remedy(
    "", "control flow depends on the values of tensors",
    "compare by `torch.where`, or by ops that give a tensor, such as `(x == y).all()`",
    is_of_data=True,
)  # fmt: skip
UNKNOWN = Remedy(
    "", "torch knows of no result of an op before it runs",
    "write it with other ops, or do it outside of the model",
)  # fmt: skip


def export_refusal(
    error: BaseException,
    path: str,
    data_reads: Collection[str] = (),
    module: torch.nn.Module | None = None,
) -> ExportFailed:
    """The error for what torch.export raised; `path` stands in for an unknown line.

    `data_reads` are all places where the model reads its data: where one of them is what torch
    stopped at, the others are named with it. `module`: the model, where there is one.
    """
    reason = _reason(error)
    recurrent = _recurrent(module)
    signs = re.sub(r"Eq\(u\d+, u\d+\)", "Eq(u0, u1)", reason)  # torch numbers them as they come
    row = next(
        row for row in REMEDIES if row.sign in signs and (recurrent or not row.is_of_recurrence)
    )
    op = re.fullmatch(r"aten\.(\w+)\.\w+", reason)
    if op is not None:
        row = COMPARED if op[1] in ("allclose", "equal", "is_nonzero") else UNKNOWN
    reason = _of_sizes(reason)
    named = f"{reason}; {recurrent}" if row.is_of_recurrence else reason
    detail = f"{row.meaning} ({named})" if row.meaning else reason
    place = _source_of(error, path)
    if row.is_of_data:
        others = (line for line in data_reads if line != place)
        place = "".join((place, *(f"\n  and at {line}" for line in others)))
    is_of_one = row.sign == "Constraints violated" and re.search(r"`\w+ = 1`", reason)
    return ExportFailed(detail=detail, source=place, remedy=AT_ONE if is_of_one else row.remedy)


def is_of_data(refused: Exception) -> bool:
    """Whether a refusal is of data that decides, which no mode of torch.export takes."""
    return isinstance(refused, ExportFailed) and "data-dependent" in refused.detail


def _reason(error: BaseException) -> str:
    """torch's own reason as one paragraph: its message up to the first advice or trace."""
    text = re.split(r"\n\s*\n|\n\s*(?:Hint|Developer|User stack|To fix)", str(error).strip())[0]
    text = re.sub(r" *\((?:unhinted|Size-like symbols): [^)]*\)\)?\.?", "", text)
    return " ".join(text.split()).rstrip(".")


# What torch says of a size, in the order in which it is worth saying.
OF_SIZES = (
    (
        r"You marked (.+?) as dynamic but your code specialized it to be a constant \((\d+)\)",
        "{} = {}",
    ),
    (r"generated for (\w+) = its size resulted in a specialized value of (\d+)", "{} = {}"),
    (r"The values of (\w+) = .+? and (\w+) = .+? must always be equal", "{} = {}"),
    (r"Not all values of (\w+) = .+? the generated guard (.+?)\.?(?= - |$|Spec)", "{1}"),
)


def _of_sizes(reason: str) -> str:
    """What a model asks of its sizes, by the dims' names; the reason itself where that is unknown.

    torch repeats a condition in many forms: where it says what a size has to be, that is enough.
    """
    if not reason.startswith("Constraints violated"):
        return reason
    for name, size in set(re.findall(r"(\w+) = (L\[.+?\]\.size\(\)\[\d+\])", reason)):
        reason = reason.replace(f"{name} = {size}", f"{name} = \0").replace(size, name)
    reason, _, suggested = reason.replace("\0", "its size").partition("Suggested fixes: ")
    known: list[str] = []
    for pattern, form in OF_SIZES:
        known = [form.format(*found) for found in re.findall(pattern, reason)]
        if known:
            break
    fixes = [each for each in re.split(r" (?=\w+ = )", suggested) if each]
    if pattern == OF_SIZES[-1][0] and fixes:
        return f"torch suggests {_quoted(fixes)}"
    return f"it needs {_quoted(known[:SIZES_SHOWN])}" if known else reason


def _quoted(texts: Collection[str]) -> str:
    return " and ".join(f"`{each.strip()}`" for each in dict.fromkeys(texts))


def _recurrent(module: torch.nn.Module | None) -> str:
    """The recurrent layers of a model: ``"`encoder.rnn` is of class GRU"``, or nothing."""
    layers = module.named_modules() if module is not None else ()
    found = (
        f"`{name or 'the model'}` is of class {type(each).__name__}"
        for name, each in layers
        if isinstance(each, torch.nn.RNNBase)
    )
    return ", ".join(found)


def _source_of(error: BaseException, path: str) -> str:
    """`model.py:31 in forward: if x.sum() > 0:`."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    source = users_innermost(f"{trace}{_own_trace(str(error))}")
    if source is None:
        return path
    return _with_text(source)


def _with_text(source: Source) -> str:
    line = linecache.getline(source.path, source.line_number).strip()
    return f"{source}: {line}" if line else str(source)


def _own_trace(message: str) -> str:
    # torch prints the user's stack in the message of data-dependent errors.
    _, found, tail = message.partition("User Stack")
    return tail if found else ""


# Methods of a tensor whose result is Python's.
READS = frozenset({
    "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__",
    "item", "numpy", "tolist",
})  # fmt: skip


class DataReads(TorchFunctionMode):
    """Runs calls as they are, and keeps the user's lines that read a tensor's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, None] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") in READS and isinstance(args[0], torch.Tensor):
            source = users_innermost("".join(traceback.format_stack()))
            if source is not None:
                self.lines.setdefault(_with_text(source))
        return function(*args, **(kwargs or {}))

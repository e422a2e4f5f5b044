"""Example inputs of a model: those that the user describes, or those that it is found to take.

A model's shapes follow from its layers: a Linear of 64 features takes [2, 64], an Embedding of 1000
rows integers below 1000. Arrays of the layers' sizes are tried in order, and the first that the
model runs on are taken.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from aotc.aot.capture.user_code import user_line
from aotc.aot.init.errors import (
    InitArgumentInvalid,
    InitInputsUnknown,
    InitModelRaised,
)

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
BATCH, LENGTH = 2, 16
IMAGE_SIZES = (32, 64, 224)
INTEGERS_BELOW = 16  # where no layer says how many rows there are
TRIES = 200
ANONYMOUS = "args"  # the one argument of a forward that takes `*args` alone
KINDS_TRIED = 12  # of arrays, for each parameter
INDEX_NAME = re.compile(r"(^|_)(ids?|idx|index|indices|tokens?|labels?)($|_)|^input_ids")
MASK_NAME = re.compile(r"mask")
ARRAY = re.compile(r"([a-z][a-z0-9_]*)\[([0-9, ]*)\](?:<([0-9]+))?")
# No number or text of a model begins like this: a name before a bracket, or a dtype.
MEANT_AS_ARRAY = re.compile(rf"(?i:[a-z][\w.]*\s*\[|(torch\.)?(int|float|{'|'.join(DTYPES)})\d*\b)")


def _images(channels: int) -> list[tuple[int, ...]]:
    return [(BATCH, channels, size, size) for size in IMAGE_SIZES]


def _sequences(module: Any, width: int) -> list[tuple[int, ...]]:
    return [(BATCH, LENGTH, width) if module.batch_first else (LENGTH, BATCH, width)]


# Kind of layer → shapes that one takes, the likeliest first.
SHAPES: dict[Any, Callable[[Any], Sequence[tuple[int, ...]]]] = {
    nn.Embedding: lambda layer: [(BATCH, LENGTH), (BATCH,)],
    nn.EmbeddingBag: lambda layer: [(BATCH, LENGTH)],
    nn.Conv1d: lambda layer: [(BATCH, layer.in_channels, size) for size in (64, 1024)],
    nn.Conv2d: lambda layer: _images(layer.in_channels),
    nn.Conv3d: lambda layer: [(BATCH, layer.in_channels, 16, 32, 32)],
    nn.ConvTranspose1d: lambda layer: [(BATCH, layer.in_channels, 16)],
    nn.ConvTranspose2d: lambda layer: [(BATCH, layer.in_channels, 8, 8)],
    nn.ConvTranspose3d: lambda layer: [(BATCH, layer.in_channels, 4, 8, 8)],
    nn.RNNBase: lambda layer: _sequences(layer, layer.input_size),
    nn.RNNCellBase: lambda layer: [(BATCH, layer.input_size), (BATCH, layer.hidden_size)],
    nn.MultiheadAttention: lambda layer: _sequences(layer, layer.embed_dim),
    nn.Linear: lambda layer: [(BATCH, layer.in_features), (BATCH, LENGTH, layer.in_features)],
    nn.Bilinear: lambda layer: [(BATCH, layer.in1_features), (BATCH, layer.in2_features)],
    nn.BatchNorm1d: lambda layer: [(BATCH, layer.num_features), (BATCH, layer.num_features, 64)],
    nn.BatchNorm2d: lambda layer: _images(layer.num_features),
    nn.InstanceNorm2d: lambda layer: _images(layer.num_features),
    nn.GroupNorm: lambda layer: _images(layer.num_channels),
    nn.LayerNorm: lambda layer: [(BATCH, *layer.normalized_shape),
                                 (BATCH, LENGTH, *layer.normalized_shape)],
    nn.RMSNorm: lambda layer: [(BATCH, *layer.normalized_shape),
                               (BATCH, LENGTH, *layer.normalized_shape)],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Example:
    """One argument: an array of a dtype and shape, or a plain value of Python.

    below: integers are drawn from 0 up to it. source: the layer that it was taken from.
    """

    dtype: torch.dtype | None = None
    shape: tuple[int, ...] = ()
    below: int = INTEGERS_BELOW
    value: Any = None
    source: str = ""

    def make(self) -> Any:
        """The argument, drawn by torch's generator."""
        return eval(self.text(), {"torch": torch}) if self.dtype is not None else self.value

    def text(self) -> str:
        """Python that makes it."""
        if self.dtype is None:
            return repr(self.value)
        shape = ", ".join(map(str, self.shape)) if self.shape else "()"
        if self.dtype == torch.bool:
            return f"torch.ones({shape}, dtype=torch.bool)"
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            kind = "" if self.dtype == torch.int64 else f", dtype={self.dtype}"
            sizes = f"({', '.join(map(str, self.shape))}{',' * (len(self.shape) == 1)})"
            return f"torch.randint(0, {self.below}, {sizes}{kind})"
        if self.dtype == torch.float32:
            return f"torch.randn({shape})"
        return f"torch.randn({shape}, dtype={self.dtype})"

    def __str__(self) -> str:
        if self.dtype is None:
            return repr(self.value)
        sizes = ",".join(map(str, self.shape))
        return f"{NAMES.get(self.dtype, self.dtype)}[{sizes}]"


# What is tried where no layer's sizes fit.
OTHERS = tuple(
    Example(dtype, shape)
    for dtype in (torch.float32, torch.int64)
    for shape in ((BATCH, LENGTH), (BATCH,))
)


def parse_input(text: str) -> tuple[str, Example]:
    """`NAME=DTYPE[SIZES]`, with `<LIMIT` behind it for integers, or `NAME=VALUE`.

    Raises `InitArgumentInvalid`.
    """
    name, value = parse_pair("--input", text)
    found = ARRAY.fullmatch(value)
    if found is None:
        if MEANT_AS_ARRAY.match(value):
            detail = f"`{value}` is not of the form `DTYPE[SIZES]`"
            raise InitArgumentInvalid(option="--input", text=text, detail=detail)
        return name, Example(value=_literal(value))
    if found[1] not in DTYPES:
        known = ", ".join(DTYPES)
        detail = f"the dtype is `{found[1]}`, expected one of {known}"
        raise InitArgumentInvalid(option="--input", text=text, detail=detail)
    words = found[2].replace(" ", "").split(",") if found[2].strip() else []
    if "" in words or "0" in {word.lstrip("0") or "0" for word in words}:
        detail = f"the sizes are `{found[2]}`, expected numbers from 1 on with commas between them"
        raise InitArgumentInvalid(option="--input", text=text, detail=detail)
    dtype = DTYPES[found[1]]
    is_integer = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    if found[3] and not is_integer:
        detail = f"a limit of {found[1]}, expected integers"
        raise InitArgumentInvalid(option="--input", text=text, detail=detail)
    below = int(found[3] or INTEGERS_BELOW)
    if is_integer and not 1 <= below <= torch.iinfo(dtype).max:
        detail = f"the limit is {below}, expected 1 to {torch.iinfo(dtype).max}"
        raise InitArgumentInvalid(option="--input", text=text, detail=detail)
    return name, Example(dtype, tuple(map(int, words)), below)


def parse_argument(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, a literal of Python or else text. Raises `InitArgumentInvalid`."""
    name, value = parse_pair("--argument", text)
    return name, _literal(value)


def parse_pair(option: str, text: str) -> tuple[str, str]:
    """Name and value of `NAME=VALUE`; raises `InitArgumentInvalid`."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value:
        raise InitArgumentInvalid(option=option, text=text, detail="expected `NAME=VALUE`")
    return name, value


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def inputs_of(model: nn.Module, name: str, given: dict[str, Example]) -> dict[str, Example]:
    """An example of every parameter of the model's forward that has no default, by name.

    Those in `given` are taken as they are. A parameter `*` before the name is one of `*args`.
    Raises `InitArgumentInvalid`, `InitInputsUnknown` and `InitModelRaised`.
    """
    try:
        signature = inspect.signature(model.forward)
    except ValueError:
        signature = inspect.Signature()
    rows = list(signature.parameters.values())
    takes_any = any(row.kind is row.VAR_KEYWORD for row in rows)
    named = [row for row in rows if row.kind not in (row.VAR_POSITIONAL, row.VAR_KEYWORD)]
    known = [row.name for row in named if row.kind is not row.POSITIONAL_ONLY]
    for each in given:
        if each not in [row.name for row in named] and not takes_any:
            detail = f"`{name}{signature}` has no such parameter, expected one of: "
            raise InitArgumentInvalid(
                option="--input", text=each, detail=detail + (", ".join(known) or "none")
            )
    wanted = [row for row in named if row.default is row.empty and row.name not in given]
    if not named and not given and any(row.kind is row.VAR_POSITIONAL for row in rows):
        wanted = [inspect.Parameter(ANONYMOUS, inspect.Parameter.POSITIONAL_ONLY)]
    order = [row.name for row in (named or wanted) if row in wanted or row.name in given]
    order += [each for each in given if each not in order]
    if not wanted:
        found = {each: given[each] for each in order}
        if failed := _raised(model, signature, found):
            kind, detail, source = failed
            raise InitModelRaised(name=name, kind=kind, detail=detail, source=source)
        return found
    return _searched(model, name, signature, order, wanted, given)


def arguments_of(
    signature: inspect.Signature, examples: dict[str, Example]
) -> tuple[list[str], list[str]]:
    """Which examples a call gives by place, and which by name."""
    rows = signature.parameters
    placed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    by_place = [
        each
        for each in examples
        if (each == ANONYMOUS if each not in rows else rows[each].kind in placed)
    ]
    return by_place, [each for each in examples if each not in by_place]


def _searched(
    model: nn.Module,
    name: str,
    signature: inspect.Signature,
    order: Sequence[str],
    wanted: Sequence[inspect.Parameter],
    given: dict[str, Example],
) -> dict[str, Example]:
    tables = [list(_candidates(model, row))[:KINDS_TRIED] for row in wanted]
    tried, last = 0, ""
    for places in sorted(itertools.product(*(range(len(table)) for table in tables)), key=sum):
        if tried == TRIES:
            break
        pairs = zip(wanted, tables, places, strict=True)
        chosen = {**given, **{row.name: table[place] for row, table, place in pairs}}
        examples = {each: chosen[each] for each in order}
        tried += 1
        failed = _raised(model, signature, examples)
        if failed is None:
            return examples
        last = f", the last raised {failed[0]}: {failed[1].splitlines()[0]}"
    raise InitInputsUnknown(name=name, signature=signature, tried=tried, detail=last)


def _raised(
    model: nn.Module, signature: inspect.Signature, examples: dict[str, Example]
) -> tuple[str, str, str] | None:
    """What the model raises on the examples: its kind, text and line; None where it runs."""
    by_place, by_name = arguments_of(signature, examples)
    try:
        with torch.no_grad():
            model(
                *(examples[each].make() for each in by_place),
                **{each: examples[each].make() for each in by_name},
            )
    except (Exception, SystemExit) as error:
        return what_raised(error, type(model))
    return None


def what_raised(error: BaseException, model: type) -> tuple[str, str, str]:
    """Kind and text of what a model's code raised, and the line of the file of its class."""
    path = inspect.getsourcefile(model) or ""
    return type(error).__name__, str(error).strip() or "no text", user_line(error, path)


def _candidates(model: nn.Module, row: inspect.Parameter) -> Iterator[Example]:
    """What a parameter may take, the likeliest first, each once."""
    plain = {int: 1, float: 1.0, bool: False, str: ""}
    kind = row.annotation if not isinstance(row.annotation, str) else {
        "int": int, "float": float, "bool": bool, "str": str
    }.get(row.annotation)  # fmt: skip
    if kind in plain:
        yield Example(value=plain[kind])
        return
    layers = [*_by_layers(model)]
    integers = [each for each in layers if each.dtype == torch.int64]
    floats = [each for each in layers if each.dtype != torch.int64]
    if MASK_NAME.search(row.name):
        shapes = dict.fromkeys(each.shape for each in layers)
        pairs = dict.fromkeys(shape[:2] for shape in shapes if len(shape) > 1)
        for shape in [*pairs, (BATCH, LENGTH)]:
            yield Example(torch.bool, shape)
            yield Example(torch.int64, shape, 2)
            yield Example(torch.float32, shape)
        return
    is_index = INDEX_NAME.search(row.name) is not None
    first = [*integers, *floats] if is_index else layers
    seen: set[tuple[Any, ...]] = set()
    for each in (*first, *OTHERS):
        key = (each.dtype, each.shape, each.below)
        if key not in seen:
            seen.add(key)
            yield each


def _by_layers(model: nn.Module) -> Iterator[Example]:
    """Arrays of the sizes that the model's layers take, in their order."""
    for path, module in model.named_modules():
        label = f"{path or 'the model'}, {type(module).__name__}"
        for shape, below in _shapes_of(module):
            dtype = torch.int64 if below else torch.float32
            weight = getattr(module, "weight", None)
            if not below and isinstance(weight, torch.Tensor) and weight.is_floating_point():
                dtype = weight.dtype
            yield Example(dtype, shape, below or INTEGERS_BELOW, source=label)


def _shapes_of(module: nn.Module) -> Iterator[tuple[tuple[int, ...], int]]:
    """Shapes that a layer takes, each with the number of rows where it takes integers."""
    kind = next((kind for kind in SHAPES if isinstance(module, kind)), None)
    if kind is not None:
        rows = getattr(module, "num_embeddings", 0)
        yield from ((shape, rows) for shape in SHAPES[kind](module))

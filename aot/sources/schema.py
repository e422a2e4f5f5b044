"""The grammar of a bundle's `sources/`, which is checked before anything of it is used.

Grammar of `sources/TARGET.json`; version 3 is that of bundles whose sizes a call decides:

    sources   = {"version": 2, "target", "dot_precision", "kernels": [kernel], **variant}
              | {"version": 3, "target", "dot_precision", "kernels": [kernel],
                 "dims": [[name, low, high, typical]], "sizes": [row], "limits": [extent],
                 "variants": [variant with "ranges": [[low, high, typical]]]}
    variant   = {"buffers": [buffer], "launches": [launch], "calls"?: [call], "states"?: [state],
                 "checks"?: [check]}
    kernel    = {"name", "digest", "forms": [form], "params": [[name, type]],
                 "candidates": [candidate], "bytes", "operations"}
              | and, in version 3, {"variant": number, "sizes": [number of a dim]}
    form      = [name, function, file below sources/]
    candidate = {"form", "config": [[name, number]], "grid": [x, y, z],
                 "scratch": [[name, type, bytes, 0 | 1 for zeroed]],
                 "maps": [{"name", "param", "dtype", "start", "shape": [extent],
                           "strides": [extent], "block": [number]}]}
    buffer    = {"name", "nbytes", "first", "last"}     the steps that need it: launches and calls
    launch    = {"kernel": digest, "operands": [operand], "stored": count}
    operand   = [space, value, bytes] | ["buffer", value, bytes, first byte that is read]
    state     = {"initial": name | null, "nbytes"}
    check     = as in a plan, its ends extents
    space     = "buffer" | "input" | "output" | "state" | "check"  value: its number
              | "weight"                                 value: its name
    call      = [launches before it, a step that torch runs, as in a plan but for `kind`
                 (`runtime/bundle/torch_calls.py`) and with memory in these spaces]
    extent    = number | [number of a value]     as bytes, x, y and z are too; values and rows: see
                                                 `runtime/bundle/extent.py`

The ranges of a variant have a row for each of `dims`; a kernel's extents are those of the variant
that it names, the first one that launches it.
"""

from __future__ import annotations

from typing import Any

from aotc.aot.plan.buffer_assignment import SPACES
from aotc.runtime.bundle.extent import DIMS_LIMIT, ExtentSchema, RowsSchema
from aotc.runtime.bundle.plan_rules import CHECK_SCHEMA
from aotc.runtime.bundle.schema import (
    Choice,
    Fields,
    FileName,
    Integer,
    List,
    Optional,
    Schema,
    Text,
)
from aotc.runtime.bundle.torch_calls import call_schema

FIXED_VERSION = 2
VERSION = 3  # of sources whose sizes a call decides
FOLDER = "sources"
COUNT_LIMIT = 1 << 16
SIZE_LIMIT_BYTES = 1 << 48


class _Row(Schema):
    """A list with one schema for each of its places."""

    __slots__ = ("columns",)

    def __init__(self, *columns: Schema) -> None:
        self.columns = columns
        self.expected = f"a list of {len(columns)}: " + ", ".join(row.expected for row in columns)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != len(self.columns):
            self.refuse(value, field, path)
        for place, (item, schema) in enumerate(zip(value, self.columns, strict=True)):
            schema.check(item, f"{field}[{place}]", path)


class _Operand(Schema):
    """`[space, value, bytes]` and where in a buffer it begins; the value's type by its space."""

    __slots__ = ()
    expected = "[space, value, bytes] with a space of " + ", ".join(SPACES)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) not in (3, 4):
            self.refuse(value, field, path)
        is_weight = value[0] == "weight"
        start = [BYTES] if len(value) == 4 else []
        row = _Row(Choice(*SPACES), Text(256) if is_weight else COUNT, SIZE, *start)
        row.check(value, field, path)


class _Word(Schema):
    """Printable text that may be empty: the name of a spec's plain form."""

    __slots__ = ()
    expected = "printable text of at most 64 characters"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not str or len(value) > 64 or not value.isprintable():
            self.refuse(value, field, path)


class _Memory(Schema):
    """`[space, value]`, the value's type by its space."""

    __slots__ = ()
    expected = "[space, value] with a space of " + ", ".join(SPACES)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2:
            self.refuse(value, field, path)
        is_weight = value[0] == "weight"
        _Row(Choice(*SPACES), Text(256) if is_weight else COUNT).check(value, field, path)


COUNT = Integer(0, COUNT_LIMIT)
BYTES = Integer(0, SIZE_LIMIT_BYTES)
SIZE = ExtentSchema(0, SIZE_LIMIT_BYTES)
END = ExtentSchema(-(1 << 63), (1 << 63) - 1)  # of the range of a check
PROGRAMS = ExtentSchema(1, (1 << 31) - 1)
DIM = Integer(1, (1 << 31) - 1)
MAP = Fields(
    {
        "name": Text(),
        "param": Integer(0, 255),
        "dtype": Text(16),
        "start": SIZE,
        "shape": List(SIZE, 5, 1),
        "strides": List(SIZE, 5, 1),
        "block": List(BYTES, 5, 1),
    }
)
CANDIDATE = Fields(
    {
        "form": _Word(),
        "config": List(_Row(Text(), Integer(-(1 << 31), 1 << 31)), 64),
        "grid": List(PROGRAMS, 3, 3),
        "scratch": List(_Row(Text(), Text(16), SIZE, Integer(0, 1)), 16),
        "maps": List(MAP, 16),
    }
)
KERNEL: dict[str, Schema] = {
    "name": Text(256),
    "digest": Text(64),
    "forms": List(_Row(_Word(), Text(), FileName()), 64, 1),
    "params": List(_Row(Text(), Text(16)), 256),
    "candidates": List(CANDIDATE, 4096, 1),
    "bytes": BYTES,
    "operations": Integer(0, 1 << 62),
}
SIZED_KERNEL: dict[str, Schema] = {
    **KERNEL,
    "variant": COUNT,
    "sizes": List(Integer(0, DIMS_LIMIT - 1), DIMS_LIMIT),
}
VARIANT: dict[str, Schema] = {
    "buffers": List(
        Fields({"name": Text(256), "nbytes": SIZE, "first": COUNT, "last": COUNT}), COUNT_LIMIT
    ),
    "launches": List(
        Fields({"kernel": Text(64), "operands": List(_Operand(), 256), "stored": COUNT}),
        COUNT_LIMIT,
    ),
    "calls": List(_Row(COUNT, Fields(call_schema(_Memory()).fields)), COUNT_LIMIT),
    "states": List(Fields({"initial": Optional(Text(256)), "nbytes": BYTES}), 4096, 1),
    "checks": List(Fields({**CHECK_SCHEMA.fields, "low": END, "high": END}), COUNT_LIMIT, 1),
}
RANGES = List(_Row(DIM, DIM, DIM), DIMS_LIMIT)
SOMETIMES = ("calls", "checks", "states")
TOP: dict[str, Schema] = {"target": Text(), "dot_precision": Choice("ieee", "tf32")}
SCHEMAS: dict[int, Schema] = {
    FIXED_VERSION: Fields(
        {
            "version": Integer(FIXED_VERSION, FIXED_VERSION),
            **TOP,
            "kernels": List(Fields(KERNEL), COUNT_LIMIT),
            **VARIANT,
        },
        absent=SOMETIMES,
    ),
    VERSION: Fields(
        {
            "version": Integer(VERSION, VERSION),
            **TOP,
            "kernels": List(Fields(SIZED_KERNEL), COUNT_LIMIT),
            "dims": List(_Row(Text(), DIM, DIM, DIM), DIMS_LIMIT, 1),
            "sizes": RowsSchema(),
            "limits": List(ExtentSchema(0, 1 << 62), 1 << 12),
            "variants": List(Fields({**VARIANT, "ranges": RANGES}, absent=SOMETIMES), 64, 1),
        }
    ),
}


def check(record: Any, path: str) -> None:
    """Raise `BundleMalformed` unless the record has the grammar of its version."""
    version = record.get("version") if isinstance(record, dict) else None
    SCHEMAS[VERSION if version == VERSION else FIXED_VERSION].check(record, "", path)

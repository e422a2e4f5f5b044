"""Sources of a bundle: each kernel's Triton source and spec, and the wiring of the launches.

What `aotc tune` needs to choose and plan anew where the model is not. Data that is read strictly;
the Triton sources are run by `aotc tune` alone, never by the runtime.

Grammar of `sources/TARGET.json` (version 2; times have no place in it):

    sources   = {"version": 2, "target", "dot_precision", "kernels": [kernel],
                 "buffers": [buffer], "launches": [launch], "calls"?: [call],
                 "states"?: [state]}
    kernel    = {"name", "digest", "forms": [form], "params": [[name, type]],
                 "candidates": [candidate], "bytes", "operations"}
    form      = [name, function, file below sources/]
    candidate = {"form", "config": [[name, number]], "grid": [x, y, z],
                 "scratch": [[name, type, bytes, 0 | 1 for zeroed]],
                 "maps": [{"name", "param", "dtype", "start", "shape": [number],
                           "strides": [number], "block": [number]}]}
    buffer    = {"name", "nbytes", "first", "last"}     the steps that need it: launches and calls
    launch    = {"kernel": digest, "operands": [operand], "stored": count}
    operand   = [space, value, bytes] | ["buffer", value, bytes, first byte that is read]
    state     = {"initial": name | null, "nbytes"}
    space     = "buffer" | "input" | "output" | "state"  value: its number
              | "weight"                                 value: its name
    call      = as in a plan (`runtime/bundle/torch_calls.py`), its memory in these spaces
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.errors import SourcesInvalid
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param, Scratch, TensorMap
from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.wiring import SPACES, LaunchWiring, Operand, Wiring
from aotc.runtime.bundle.directory import Directory
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.plan import StateSlot
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
from aotc.runtime.bundle.torch_calls import TorchCall, call_schema
from aotc.runtime.extras import read_extra

VERSION = 2
FOLDER = "sources"
COUNT_LIMIT = 1 << 16
SIZE_LIMIT_BYTES = 1 << 48


@dataclass(frozen=True, slots=True)
class Sources:
    """What one target of a bundle was compiled from. `specs`: the kernel of each launch."""

    target: str
    dot_precision: str
    specs: tuple[KernelSpec, ...]
    wiring: Wiring


def print_sources(parts: Sequence[Sources]) -> dict[str, bytes]:
    """The files by name. A Triton source is named by its content, so that targets share it."""
    files: dict[str, bytes] = {}
    for part in parts:
        for spec in part.specs:
            for form in spec.forms:
                files[f"{FOLDER}/{_file_name(spec, form)}"] = form.source.encode()
        text = json.dumps(_record(part), indent=1, sort_keys=True)
        files[f"{FOLDER}/{part.target}.json"] = text.encode() + b"\n"
    return files


def read_sources(directory: Directory, target: str) -> Sources | None:
    """The sources of a target of an open bundle; None where they were deleted.

    Raises `BundleError`s for damage, `SourcesInvalid` for what breaks the grammar.
    """
    name = f"{FOLDER}/{target}.json"
    data = read_extra(directory, name)
    if data is None:
        return None
    path = directory.where(name)
    try:
        record = json.loads(data)
    except ValueError as error:
        raise SourcesInvalid(path=path, detail=str(error)) from None
    SCHEMA.check(record, "", path)
    texts: dict[str, str] = {}
    for kernel in record["kernels"]:
        for _, _, file in kernel["forms"]:
            source = read_extra(directory, f"{FOLDER}/{file}")
            if source is None:
                raise SourcesInvalid(path=path, detail=f"`{file}` is missing")
            texts[file] = source.decode("utf-8", "replace")
    return _parse(record, texts, path)


def _record(part: Sources) -> dict[str, Any]:
    distinct = {spec.digest: spec for spec in part.specs}
    calls = [call.to_map() for call in part.wiring.calls]
    states = [{"initial": row.initial, "nbytes": row.nbytes} for row in part.wiring.states]
    return {
        **({"calls": calls} if calls else {}),
        "version": VERSION,
        "target": part.target,
        "dot_precision": part.dot_precision,
        "kernels": [_kernel_record(spec) for spec in distinct.values()],
        "buffers": [
            {"name": row.name, "nbytes": row.nbytes, "first": row.first, "last": row.last}
            for row in part.wiring.buffers
        ],
        "launches": [
            {
                "kernel": spec.digest,
                "operands": list(map(_operand_record, launch.operands)),
                "stored": launch.stored,
            }
            for spec, launch in zip(part.specs, part.wiring.launches, strict=True)
        ],
        **({"states": states} if states else {}),
    }


def _operand_record(row: Operand) -> list[Any]:
    start = [row.start_bytes] if row.start_bytes else []
    return [row.space, row.value, row.nbytes, *start]


def _kernel_record(spec: KernelSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "digest": spec.digest,
        "forms": [[form.name, form.function, _file_name(spec, form)] for form in spec.forms],
        "params": [[param.name, param.type] for param in spec.params],
        "candidates": [
            {
                "form": row.form,
                "config": [list(pair) for pair in row.config],
                "grid": list(row.grid),
                "scratch": [
                    [each.name, each.type, each.nbytes, int(each.is_zeroed)] for each in row.scratch
                ],
                "maps": [_map_record(each) for each in row.maps],
            }
            for row in spec.candidates
        ],
        "bytes": spec.bytes,
        "operations": spec.operations,
    }


def _map_record(row: TensorMap) -> dict[str, Any]:
    found = asdict(row)
    return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}


def _file_name(spec: KernelSpec, form: Form) -> str:
    suffix = "json" if form.function == SYMBOL else "py"  # a native function's call is no Triton
    return f"{spec.name[:64]}-{hashlib.sha256(form.source.encode()).hexdigest()[:12]}.{suffix}"


def _parse(record: dict[str, Any], texts: Mapping[str, str], path: str) -> Sources:
    specs = {row["digest"]: _parse_kernel(row, texts) for row in record["kernels"]}
    for digest, spec in specs.items():
        if spec.digest != digest:
            raise SourcesInvalid(path=path, detail=f"kernel `{spec.name}` has another digest")
    buffers = tuple(Lifetime(**row) for row in record["buffers"])
    launches = tuple(
        LaunchWiring(tuple(Operand(*row) for row in launch["operands"]), launch["stored"])
        for launch in record["launches"]
    )
    states = tuple(StateSlot(row["nbytes"], row["initial"]) for row in record.get("states", ()))
    for number, launch in enumerate(record["launches"]):
        kernel = specs.get(launch["kernel"])
        if kernel is None or len(kernel.params) != len(launch["operands"]):
            detail = f"launches[{number}] names no kernel with its number of operands"
            raise SourcesInvalid(path=path, detail=detail)
        counts = {"buffer": len(buffers), "state": len(states)}
        for space, value, *_ in launch["operands"]:
            if space in counts and value >= counts[space]:
                detail = f"launches[{number}] names {space} {value} of {counts[space]}"
                raise SourcesInvalid(path=path, detail=detail)
    calls = tuple(map(TorchCall.from_map, record.get("calls", ())))
    for call in calls:
        for space, value in (tensor.memory for tensor in call.tensors()):
            if space == "buffer" and int(value) >= len(buffers):
                detail = f"a call of `{call.op}` names buffer {value} of {len(buffers)}"
                raise SourcesInvalid(path=path, detail=detail)
    return Sources(
        record["target"],
        record["dot_precision"],
        tuple(specs[launch["kernel"]] for launch in record["launches"]),
        Wiring(buffers, launches, calls, states),
    )


def _parse_kernel(row: dict[str, Any], texts: Mapping[str, str]) -> KernelSpec:
    candidates = tuple(
        Candidate(
            tuple((name, value) for name, value in each["config"]),
            tuple(each["grid"]),
            each["form"],
            tuple(
                Scratch(name, kind, nbytes, bool(zeroed))
                for name, kind, nbytes, zeroed in each["scratch"]
            ),
            tuple(_parse_map(row) for row in each["maps"]),
        )
        for each in row["candidates"]
    )
    return KernelSpec(
        row["name"],
        tuple(Form(name, texts[file], function) for name, function, file in row["forms"]),
        tuple(Param(name, kind) for name, kind in row["params"]),
        candidates,
        row["bytes"],
        row["operations"],
    )


def _parse_map(row: dict[str, Any]) -> TensorMap:
    parts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
    }
    return TensorMap(**parts)


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
        start = [SIZE] if len(value) == 4 else []
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
SIZE = Integer(0, SIZE_LIMIT_BYTES)
MAP = Fields(
    {
        "name": Text(),
        "param": Integer(0, 255),
        "dtype": Text(16),
        "start": SIZE,
        "shape": List(SIZE, 5, 1),
        "strides": List(SIZE, 5, 1),
        "block": List(SIZE, 5, 1),
    }
)
SCHEMA = Fields(
    {
        "version": Integer(VERSION, VERSION),
        "target": Text(),
        "dot_precision": Choice("ieee", "tf32"),
        "kernels": List(
            Fields(
                {
                    "name": Text(256),
                    "digest": Text(64),
                    "forms": List(_Row(_Word(), Text(), FileName()), 64, 1),
                    "params": List(_Row(Text(), Text(16)), 256),
                    "candidates": List(
                        Fields(
                            {
                                "form": _Word(),
                                "config": List(_Row(Text(), Integer(-(1 << 31), 1 << 31)), 64),
                                "grid": List(Integer(1, (1 << 31) - 1), 3, 3),
                                "scratch": List(_Row(Text(), Text(16), SIZE, Integer(0, 1)), 16),
                                "maps": List(MAP, 16),
                            }
                        ),
                        4096,
                        1,
                    ),
                    "bytes": SIZE,
                    "operations": Integer(0, 1 << 62),
                }
            ),
            COUNT_LIMIT,
        ),
        "buffers": List(
            Fields({"name": Text(256), "nbytes": SIZE, "first": COUNT, "last": COUNT}), COUNT_LIMIT
        ),
        "launches": List(
            Fields({"kernel": Text(64), "operands": List(_Operand(), 256), "stored": COUNT}),
            COUNT_LIMIT,
        ),
        "calls": List(call_schema(_Memory()), COUNT_LIMIT),
        "states": List(Fields({"initial": Optional(Text(256)), "nbytes": SIZE}), 4096, 1),
    },
    absent=("calls", "states"),
)

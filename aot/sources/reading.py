"""The files of a bundle's `sources/` → Sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.errors import SourcesInvalid
from aotc.aot.ir.size import Dim, Extent, UndecidedSize, size_of
from aotc.aot.ir.size_table import OPERATIONS
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param, Scratch, TensorMap
from aotc.aot.plan import BufferAssignment
from aotc.aot.plan.arena import Lifetime
from aotc.aot.plan.buffer_assignment import CheckRow, LaunchBuffers, Operand
from aotc.aot.sources.lowered import Lowered, Sources
from aotc.aot.sources.schema import FOLDER, check
from aotc.runtime.bundle.directory import Directory
from aotc.runtime.bundle.extent import NUMBER, broken_rows
from aotc.runtime.bundle.plan import StateSlot
from aotc.runtime.bundle.torch_calls import TorchCall
from aotc.runtime.extras import read_extra


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
    check(record, path)
    texts: dict[str, str] = {}
    for kernel in record["kernels"]:
        for _, _, file in kernel["forms"]:
            source = read_extra(directory, f"{FOLDER}/{file}")
            if source is None:
                raise SourcesInvalid(path=path, detail=f"`{file}` is missing")
            texts[file] = source.decode("utf-8", "replace")
    try:
        return _Reader(record, texts, path).sources()
    except (UndecidedSize, ZeroDivisionError) as error:
        raise SourcesInvalid(path=path, detail=str(error)) from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """A record that has passed the schema, the texts of its forms, and where it lies."""

    record: Mapping[str, Any]
    texts: Mapping[str, str]
    path: str

    def sources(self) -> Sources:
        """All of it; raises `SourcesInvalid`."""
        record = self.record
        dims = tuple(Dim(*row) for row in record.get("dims", ()))
        for field, found, expected in broken_rows(record.get("sizes", ()), len(dims)):
            raise self._invalid(f"{field} names value {found}, expected {expected}")
        rows = record["variants"] if dims else [record]
        ranges = [self._ranges(row, dims) for row in rows]
        values = [_Values(self, narrow) for narrow in ranges]
        specs = {
            row["digest"]: self._kernel(row, values[self._below(row, len(rows))])
            for row in record["kernels"]
        }
        for digest, spec in specs.items():
            if spec.digest != digest:
                raise self._invalid(f"kernel `{spec.name}` has another digest")
        variants = zip(rows, values, strict=True)
        return Sources(
            record["target"],
            record["dot_precision"],
            tuple(self._variant(row, specs, own) for row, own in variants),
            dims,
            tuple(map(_Values(self, dims).extent, record.get("limits", ()))),
        )

    def _invalid(self, detail: str) -> SourcesInvalid:
        return SourcesInvalid(path=self.path, detail=detail)

    def _ranges(self, row: Mapping[str, Any], dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """The dims in the range of a variant."""
        ranges = row.get("ranges", ())
        if len(ranges) != len(dims):
            raise self._invalid(f"a variant has {len(ranges)} ranges of {len(dims)} dims")
        return tuple(Dim(dim.name, *own) for dim, own in zip(dims, ranges, strict=True))

    def _below(self, row: Mapping[str, Any], count: int) -> int:
        """The number of the variant whose extents a kernel has."""
        number: int = row.get("variant", 0)
        if number >= count:
            raise self._invalid(f"kernel `{row['name']}` is of variant {number} of {count}")
        return number

    def _kernel(self, row: Mapping[str, Any], values: _Values) -> KernelSpec:
        places = row.get("sizes", ())
        if any(place >= len(values.dims) for place in places):
            raise self._invalid(f"kernel `{row['name']}` reads a dim that is not there")
        return KernelSpec(
            row["name"],
            tuple(Form(name, self.texts[file], function) for name, function, file in row["forms"]),
            tuple(Param(name, kind) for name, kind in row["params"]),
            tuple(_candidate(each, values.extent) for each in row["candidates"]),
            row["bytes"],
            row["operations"],
            tuple(values.dims[place] for place in places),
        )

    def _variant(
        self, row: Mapping[str, Any], specs: Mapping[str, KernelSpec], values: _Values
    ) -> Lowered:
        extent = values.extent
        buffers = tuple(
            Lifetime(each["name"], extent(each["nbytes"]), each["first"], each["last"])
            for each in row["buffers"]
        )
        launches = tuple(
            LaunchBuffers(
                tuple(
                    Operand(space, value, extent(nbytes), *start)
                    for space, value, nbytes, *start in launch["operands"]
                ),
                launch["stored"],
            )
            for launch in row["launches"]
        )
        states = tuple(StateSlot(each["nbytes"], each["initial"]) for each in row.get("states", ()))
        calls = tuple(
            (
                after,
                TorchCall.from_map(call, lambda each: each if type(each) is str else extent(each)),
            )
            for after, call in row.get("calls", ())
        )
        checks = tuple(
            CheckRow(**{**each, "low": extent(each["low"]), "high": extent(each["high"])})
            for each in row.get("checks", ())
        )
        counts = {"buffer": len(buffers), "state": len(states), "check": len(checks)}
        self._check_launches(row, specs, counts)
        for _, call in calls:
            for space, value in (tensor.memory for tensor in call.tensors()):
                if space == "buffer" and int(value) >= len(buffers):
                    detail = f"a call of `{call.op}` names buffer {value} of {len(buffers)}"
                    raise self._invalid(detail)
        chosen = tuple(specs[launch["kernel"]] for launch in row["launches"])
        return Lowered(
            chosen, BufferAssignment(buffers, launches, calls, states, checks), values.dims
        )

    def _check_launches(
        self, row: Mapping[str, Any], specs: Mapping[str, KernelSpec], counts: Mapping[str, int]
    ) -> None:
        for number, launch in enumerate(row["launches"]):
            kernel = specs.get(launch["kernel"])
            if kernel is None or len(kernel.params) != len(launch["operands"]):
                detail = f"launches[{number}] names no kernel with its number of operands"
                raise self._invalid(detail)
            for space, value, *_ in launch["operands"]:
                if space in counts and value >= counts[space]:
                    detail = f"launches[{number}] names {space} {value} of {counts[space]}"
                    raise self._invalid(detail)


class _Values:
    """The extents of a variant: the record's rows, worked out for its dims when asked for."""

    __slots__ = ("_known", "_reader", "dims")

    def __init__(self, reader: _Reader, dims: tuple[Dim, ...]) -> None:
        self._reader = reader
        self.dims = dims
        self._known: dict[int, Extent] = dict(enumerate(map(size_of, dims)))

    def extent(self, written: Any) -> Extent:
        """A number, or the size behind the number of a value; raises `SourcesInvalid`."""
        if isinstance(written, int):
            return written
        (index,) = written
        rows = self._reader.record.get("sizes", ())
        if index >= len(self.dims) + len(rows):
            raise SourcesInvalid(path=self._reader.path, detail=f"there is no value {index}")
        waiting = [index]
        while waiting:
            index = waiting[-1]
            missing = [] if index in self._known else self._missing(rows[index - len(self.dims)])
            waiting += missing
            if missing:
                continue
            if index not in self._known:
                self._known[index] = self._value(rows[index - len(self.dims)])
            waiting.pop()
        return self._known[index]

    def _missing(self, row: Sequence[Any]) -> list[int]:
        return [] if row[0] == NUMBER else [at for at in row[1:] if at not in self._known]

    def _value(self, row: Sequence[Any]) -> Extent:
        operation, left, right = row
        if operation == NUMBER:
            return int(left)
        return OPERATIONS[operation](self._known[left], self._known[right])


def _candidate(row: Mapping[str, Any], extent: Callable[[Any], Extent]) -> Candidate:
    x, y, z = map(extent, row["grid"])
    return Candidate(
        tuple((name, value) for name, value in row["config"]),
        (x, y, z),
        row["form"],
        tuple(
            Scratch(name, kind, extent(nbytes), bool(zeroed))
            for name, kind, nbytes, zeroed in row["scratch"]
        ),
        tuple(
            TensorMap(
                each["name"],
                each["param"],
                each["dtype"],
                extent(each["start"]),
                tuple(map(extent, each["shape"])),
                tuple(map(extent, each["strides"])),
                tuple(each["block"]),
            )
            for each in row["maps"]
        ),
    )

"""The files of a bundle's `sources/` → Sources, and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotc.aot.errors import SourcesInvalid
from aotc.aot.ir.size import Dim, Extent, UndecidedSize, size_of
from aotc.aot.ir.size_table import OPERATIONS, SizeTable
from aotc.aot.lower.spec import Form, KernelSpec
from aotc.aot.plan import BufferAssignment
from aotc.aot.plan.buffer_assignment import LaunchBuffers, Operand
from aotc.aot.sources.schema import (
    FOLDER,
    KERNEL,
    SOURCES,
    VARIANT,
    VERSION,
    KernelRow,
    LaunchRow,
    Lowered,
    Sources,
    SourcesRow,
    VariantRow,
)
from aotc.runtime.bundle.control_steps import ControlStep
from aotc.runtime.bundle.extent import NUMBER, broken_rows, count_of
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import STATE_SLOT
from aotc.runtime.bundle.schema import Refused, read


def read_sources(bundle: Bundle, target: str) -> Sources | None:
    """The sources of a target of an open bundle; None where they were deleted.

    Raises `BundleError`s for damage, `SourcesInvalid` for what breaks the grammar.
    """
    name = f"{FOLDER}/{target}.json"
    data = bundle.read_extra(name)
    if data is None:
        return None
    path = bundle.where(name)
    try:
        record = json.loads(data)
    except ValueError as error:
        raise SourcesInvalid(path=path, detail=str(error)) from None
    row: SourcesRow = read(SOURCES, record, path, count_of(record))
    texts: dict[str, str] = {}
    for kernel in row.kernels:
        for _, _, file, _ in kernel.forms:
            source = bundle.read_extra(f"{FOLDER}/{file}")
            if source is None:
                raise SourcesInvalid(path=path, detail=f"`{file}` is missing")
            texts[file] = source.decode("utf-8", "replace")
    try:
        return _Reader(row, texts, path).sources()
    except Refused as error:
        raise error.error(path) from None
    except (UndecidedSize, ZeroDivisionError) as error:
        raise SourcesInvalid(path=path, detail=str(error)) from None


@dataclass(frozen=True, slots=True)
class _Reader:
    """A file that has the grammar, the texts of its forms, and where it lies."""

    row: SourcesRow
    texts: Mapping[str, str]
    path: str

    def sources(self) -> Sources:
        """All of it; raises `SourcesInvalid`."""
        row = self.row
        dims = tuple(Dim(*each) for each in row.dims)
        for field, found, expected in broken_rows(row.sizes, len(dims)):
            raise self._invalid(f"{field} names value {found}, expected {expected}")
        entries = {each.entry for each in row.variants}
        if entries != set(range(len(entries))):
            raise self._invalid(f"variants of entries {sorted(entries)}, expected all from 0 on")
        if not dims and len(row.variants) != len(entries):
            raise self._invalid(f"{len(row.variants)} variants, expected 1 an entry without dims")
        values = [_Values(self, self._ranges(each, dims)) for each in row.variants]
        specs = {}
        for kernel in row.kernels:
            if kernel.variant >= len(values):
                detail = f"kernel `{kernel.name}` is of variant {kernel.variant} of {len(values)}"
                raise self._invalid(detail)
            specs[kernel.digest] = self._kernel(kernel, values[kernel.variant])
        for digest, spec in specs.items():
            if spec.digest != digest:
                raise self._invalid(f"kernel `{spec.name}` has another digest")
        variants, whole = zip(row.variants, values, strict=True), _Values(self, dims)
        return Sources(
            row.target,
            row.dot_precision,
            tuple(self._variant(each, specs, own, whole) for each, own in variants),
            dims,
            tuple(map(whole.extent, row.limits)),
        )

    def _invalid(self, detail: str) -> SourcesInvalid:
        return SourcesInvalid(path=self.path, detail=detail)

    def _ranges(self, row: VariantRow, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """The dims in the range of a variant."""
        if len(row.ranges) != len(dims):
            raise self._invalid(f"a variant has {len(row.ranges)} ranges of {len(dims)} dims")
        return tuple(Dim(dim.name, *own) for dim, own in zip(dims, row.ranges, strict=True))

    def _kernel(self, row: KernelRow, values: _Values) -> KernelSpec:
        if any(place >= len(values.dims) for place in row.sizes):
            raise self._invalid(f"kernel `{row.name}` reads a dim that is not there")
        return KernelSpec(
            row.name,
            tuple(
                Form(name, self.texts[file], function, waits)
                for name, function, file, waits in row.forms
            ),
            row.params,
            KERNEL.at(row, values.extent).candidates,
            row.bytes,
            row.operations,
            tuple(values.dims[place] for place in row.sizes),
        )

    def _variant(
        self, row: VariantRow, specs: Mapping[str, KernelSpec], values: _Values, whole: _Values
    ) -> Lowered:
        self._check_memory(row, specs)
        states = tuple(STATE_SLOT.at(each, whole.extent) for each in row.states)
        row = VARIANT.at(row, values.extent)
        launches = tuple(
            LaunchBuffers(tuple(Operand(*each) for each in launch.operands), launch.stored)
            for launch in row.launches
        )
        chosen = tuple(specs[launch.kernel] for launch in row.launches)
        between: list[Any] = list(row.calls)
        for place, launch_count, mark in row.marks:
            between.insert(place, (launch_count, mark))
        assignment = BufferAssignment(row.buffers, launches, tuple(between), states, row.checks)
        return Lowered(chosen, assignment, values.dims, row.entry)

    def _check_memory(self, row: VariantRow, specs: Mapping[str, KernelSpec]) -> None:
        """Raises `SourcesInvalid` for a launch or a call that names what is not there."""
        counts = {"buffer": len(row.buffers), "state": len(row.states), "check": len(row.checks)}
        for number, launch in enumerate(row.launches):
            kernel = specs.get(launch.kernel)
            if kernel is None or len(kernel.params) != len(launch.operands):
                detail = f"launches[{number}] names no kernel with its number of operands"
                raise self._invalid(detail)
        rows = [(f"launches[{at}]", each.operands) for at, each in enumerate(row.launches)]
        rows += [(f"a call of `{call.op}`", call.memory) for _, call in row.calls]
        rows += [(f"a mark `{mark.word}`", mark.memory) for _, _, mark in row.marks]
        for what, memory in rows:
            for space, value, *_ in memory:
                if space in counts and int(value) >= counts[space]:
                    raise self._invalid(f"{what} names {space} {value} of {counts[space]}")


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
        index = written.index
        rows = self._reader.row.sizes
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


def print_sources(parts: Sequence[Sources]) -> dict[str, bytes]:
    """The files by name. A Triton source is named by its content, so that targets share it."""
    files: dict[str, bytes] = {}
    for part in parts:
        for spec in part.specs:
            for form in spec.forms:
                files[f"{FOLDER}/{_file_name(spec, form)}"] = form.source.encode()
        table = SizeTable(part.dims)
        row = SOURCES.at(_sources(part), table.numbered).replace(sizes=tuple(table.rows))
        text = json.dumps(SOURCES.write(row), indent=1, sort_keys=True)
        files[f"{FOLDER}/{part.target}.json"] = text.encode() + b"\n"
    return files


def _sources(part: Sources) -> SourcesRow:
    kernels: dict[str, KernelRow] = {}
    for number, variant in enumerate(part.variants):
        for spec in variant.specs:
            kernels.setdefault(spec.digest, _kernel(spec, number, variant))
    return SourcesRow(
        version=VERSION,
        target=part.target,
        dot_precision=part.dot_precision,
        kernels=tuple(kernels.values()),
        dims=tuple((dim.name, dim.low, dim.high, dim.typical) for dim in part.dims),
        sizes=(),
        limits=part.limits,
        variants=tuple(map(_variant, part.variants)),
    )


def _kernel(spec: KernelSpec, number: int, variant: Lowered) -> KernelRow:
    names = [each.name for each in variant.dims]
    return KernelRow(
        spec.name,
        spec.digest,
        tuple(
            (form.name, form.function, _file_name(spec, form), form.waits) for form in spec.forms
        ),
        spec.params,
        spec.candidates,
        spec.bytes,
        spec.operations,
        number,
        tuple(names.index(dim.name) for dim in spec.sizes),
    )


def _variant(variant: Lowered) -> VariantRow:
    assignment = variant.assignment
    launches = (
        LaunchRow(
            spec.digest,
            tuple((row.space, row.value, row.nbytes, row.start_bytes) for row in launch.operands),
            launch.stored,
        )
        for spec, launch in zip(variant.specs, assignment.launches, strict=True)
    )
    ranges = tuple((dim.low, dim.high, dim.typical) for dim in variant.dims)
    between = list(enumerate(assignment.calls))
    calls = tuple((at, step) for _, (at, step) in between if not isinstance(step, ControlStep))
    marks = tuple(
        (place, at, step) for place, (at, step) in between if isinstance(step, ControlStep)
    )
    parts = (assignment.buffers, tuple(launches), calls, assignment.states, assignment.checks)
    return VariantRow(*parts, ranges, variant.entry, marks)


def _file_name(spec: KernelSpec, form: Form) -> str:
    suffix = "json" if form.function == SYMBOL else "py"  # a native function's call is no Triton
    return f"{spec.name[:64]}-{hashlib.sha256(form.source.encode()).hexdigest()[:12]}.{suffix}"

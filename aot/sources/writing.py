"""Sources → the files of a bundle's `sources/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from aotc.aot.ir.size_table import SizeTable
from aotc.aot.lower.spec import Form, KernelSpec
from aotc.aot.sources.lowered import Lowered, Sources
from aotc.aot.sources.schema import (
    FOLDER,
    SOURCES,
    VERSION,
    KernelRow,
    LaunchRow,
    SourcesRow,
    VariantRow,
)
from aotc.runtime.bundle.native_plan import SYMBOL


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
        tuple((form.name, form.function, _file_name(spec, form)) for form in spec.forms),
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
    parts = (assignment.calls, assignment.states, assignment.checks)
    return VariantRow(assignment.buffers, tuple(launches), *parts, ranges)


def _file_name(spec: KernelSpec, form: Form) -> str:
    suffix = "json" if form.function == SYMBOL else "py"  # a native function's call is no Triton
    return f"{spec.name[:64]}-{hashlib.sha256(form.source.encode()).hexdigest()[:12]}.{suffix}"

"""Sources → the files of a bundle's `sources/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotc.aot.ir.size import Dim
from aotc.aot.lower.spec import Form, KernelSpec, TensorMap
from aotc.aot.plan import SizeTable
from aotc.aot.plan.buffer_assignment import CheckRow, Operand
from aotc.aot.sources.lowered import Lowered, Sources
from aotc.aot.sources.schema import FIXED_VERSION, FOLDER, VERSION
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.torch_calls import TorchCall


def print_sources(parts: Sequence[Sources]) -> dict[str, bytes]:
    """The files by name. A Triton source is named by its content, so that targets share it."""
    files: dict[str, bytes] = {}
    for part in parts:
        for spec in part.specs:
            for form in spec.forms:
                files[f"{FOLDER}/{_file_name(spec, form)}"] = form.source.encode()
        record = _Writer(SizeTable(part.dims)).record(part)
        text = json.dumps(record, indent=1, sort_keys=True)
        files[f"{FOLDER}/{part.target}.json"] = text.encode() + b"\n"
    return files


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes one target's record; the table gets a row for each size that is no number."""

    table: SizeTable

    def record(self, part: Sources) -> dict[str, Any]:
        """The whole record."""
        top = {"target": part.target, "dot_precision": part.dot_precision}
        rows = [self._variant(each) for each in part.variants]
        if not part.dims:
            (row,) = rows
            kernels = [self._kernel(spec) for spec in _distinct(part.specs)]
            return {"version": FIXED_VERSION, **top, "kernels": kernels, **row}
        for row, variant in zip(rows, part.variants, strict=True):
            row["ranges"] = [[dim.low, dim.high, dim.typical] for dim in variant.dims]
        return {
            "version": VERSION,
            **top,
            "kernels": self._sized_kernels(part.variants),
            "variants": rows,
            "dims": [[dim.name, dim.low, dim.high, dim.typical] for dim in part.dims],
            "limits": [self.table.reference(limit) for limit in part.limits],
            "sizes": [list(row) for row in self.table.rows],
        }

    def _sized_kernels(self, variants: Sequence[Lowered]) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for number, variant in enumerate(variants):
            for spec in _distinct(variant.specs):
                if spec.digest not in found:
                    sizes = [_place(dim, variant.dims) for dim in spec.sizes]
                    own = {"variant": number, "sizes": sizes}
                    found[spec.digest] = {**self._kernel(spec), **own}
        return list(found.values())

    def _variant(self, variant: Lowered) -> dict[str, Any]:
        assignment = variant.assignment
        calls = [self._call(*row) for row in assignment.calls]
        checks = list(map(self._check, assignment.checks))
        states = [{"initial": row.initial, "nbytes": row.nbytes} for row in assignment.states]
        return {
            **({"calls": calls} if calls else {}),
            "buffers": [
                {
                    "name": row.name,
                    "nbytes": self.table.reference(row.nbytes),
                    "first": row.first,
                    "last": row.last,
                }
                for row in assignment.buffers
            ],
            "launches": [
                {
                    "kernel": spec.digest,
                    "operands": list(map(self._operand, launch.operands)),
                    "stored": launch.stored,
                }
                for spec, launch in zip(variant.specs, assignment.launches, strict=True)
            ],
            **({"states": states} if states else {}),
            **({"checks": checks} if checks else {}),
        }

    def _call(self, after: int, call: TorchCall) -> list[Any]:
        def number(value: Any) -> Any:
            return value if isinstance(value, str) else self.table.reference(value)

        record = call.to_map(number)
        record.pop("kind")
        return [after, record]

    def _check(self, row: CheckRow) -> dict[str, Any]:
        ends = {"low": self.table.reference(row.low), "high": self.table.reference(row.high)}
        return {**asdict(row), **ends}

    def _operand(self, row: Operand) -> list[Any]:
        start = [row.start_bytes] if row.start_bytes else []
        return [row.space, row.value, self.table.reference(row.nbytes), *start]

    def _kernel(self, spec: KernelSpec) -> dict[str, Any]:
        number = self.table.reference
        return {
            "name": spec.name,
            "digest": spec.digest,
            "forms": [[form.name, form.function, _file_name(spec, form)] for form in spec.forms],
            "params": [[param.name, param.type] for param in spec.params],
            "candidates": [
                {
                    "form": row.form,
                    "config": [list(pair) for pair in row.config],
                    "grid": list(map(number, row.grid)),
                    "scratch": [
                        [each.name, each.type, number(each.nbytes), int(each.is_zeroed)]
                        for each in row.scratch
                    ],
                    "maps": [self._map(each) for each in row.maps],
                }
                for row in spec.candidates
            ],
            "bytes": spec.bytes,
            "operations": spec.operations,
        }

    def _map(self, row: TensorMap) -> dict[str, Any]:
        number = self.table.reference
        return {
            "name": row.name,
            "param": row.param,
            "dtype": row.dtype,
            "start": number(row.start),
            "shape": list(map(number, row.shape)),
            "strides": list(map(number, row.strides)),
            "block": list(row.block),
        }


def _distinct(specs: Sequence[KernelSpec]) -> list[KernelSpec]:
    return list({spec.digest: spec for spec in specs}.values())


def _place(dim: Dim, dims: Sequence[Dim]) -> int:
    return [each.name for each in dims].index(dim.name)


def _file_name(spec: KernelSpec, form: Form) -> str:
    suffix = "json" if form.function == SYMBOL else "py"  # a native function's call is no Triton
    return f"{spec.name[:64]}-{hashlib.sha256(form.source.encode()).hexdigest()[:12]}.{suffix}"

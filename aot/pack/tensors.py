"""Writer of safetensors files in the one form that `runtime/bundle/weights.py` reads.

The header is padded with spaces and each tensor is followed by a `_pad.N` tensor, so that every
tensor starts at a multiple of 64 bytes of the file, as vector loads like it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from aotc.aot.pack.contents import Golden, TensorData
from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.manifest import Entry
from aotc.runtime.bundle.weights import ALIGNMENT_BYTES, PADDING_PREFIX


def tensor_file(tensors: Mapping[str, TensorData]) -> Iterator[bytes | memoryview]:
    """The parts of the file, in order; the same tensors in the same order give the same bytes."""
    rows: list[str] = []
    parts: list[bytes | memoryview] = []
    offset = 0
    for name, tensor in tensors.items():
        if '"' in name or "\\" in name or not name.isprintable() or not 0 < len(name) <= 256:
            raise ValueError(f"tensor name {name!r} cannot be written")
        rows.append(_row(name, DTYPES[tensor.dtype].safetensors, tensor.shape, offset))
        parts.append(memoryview(tensor.data).cast("B") if tensor.nbytes else b"")
        offset += tensor.nbytes
        padding = -offset % ALIGNMENT_BYTES
        if padding:
            rows.append(_row(f"{PADDING_PREFIX}{len(rows)}", "U8", (padding,), offset))
            parts.append(bytes(padding))
            offset += padding
    header = ("{" + ",".join(rows) + "}").encode("utf-8")
    header += b" " * (-(8 + len(header)) % ALIGNMENT_BYTES)
    yield struct.pack("<Q", len(header)) + header
    yield from parts


def _row(name: str, dtype: str, shape: tuple[int, ...], offset: int) -> str:
    nbytes = next(each.itemsize_bytes for each in DTYPES.values() if each.safetensors == dtype)
    for extent in shape:
        nbytes *= extent
    extents = ",".join(map(str, shape))
    span = f"{offset},{offset + nbytes}"
    return f'"{name}":{{"dtype":"{dtype}","shape":[{extents}],"data_offsets":[{span}]}}'


def golden_tensors(golden: Golden, entry: Entry) -> dict[str, TensorData]:
    """The golden file's tensors of an entry: `ENTRY.input.NAME`, `ENTRY.output.NAME`, and
    `ENTRY.tolerance.NAME` as f64."""
    tensors: dict[str, TensorData] = {}
    for role, specs, values in (
        ("input", entry.inputs, golden.inputs),
        ("output", entry.outputs, golden.outputs),
    ):
        for spec, value in zip(specs, values, strict=True):
            if spec.dtype != value.dtype or not spec.admits(value.shape):
                found = f"{value.dtype}{list(value.shape)}"
                raise ValueError(f"golden {role} `{spec.name}` is {found}, expected {spec}")
            tensors[f"{entry.name}.{role}.{spec.name}"] = value
    for spec, tolerance in zip(entry.outputs, golden.tolerances, strict=True):
        data = struct.pack("<d", tolerance)
        tensors[f"{entry.name}.tolerance.{spec.name}"] = TensorData("f64", (), data)
    return tensors

"""A captured model as files of a cache entry, and back from them with the model at hand.

An entry holds the graph's text and what the model itself does not hold; weights come from the
model. What comes back was checked: the model, run on its example, gives the very bits that it gave
then, so that a switch which no fingerprint sees is met here. (The exported model's own numbers may
differ from the model's by roundings, where an op of torch is fused: they are kept.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy
import torch

from aotc.aot.capture.capture import Captured, example_arrays, trials_of, warn_of_weights
from aotc.aot.capture.exporting import run
from aotc.aot.capture.golden import golden_tensors, quiet_settings
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.libraries import register_types
from aotc.aot.capture.rounding_sensitivity import undecided_of
from aotc.aot.capture.spec import Spec
from aotc.aot.ir.graph import Constant, Graph
from aotc.aot.ir.storage import Array
from aotc.aot.ir.text import GraphTextError, parse_graph, parse_type, print_graph
from aotc.aot.ir.types import DTYPES
from aotc.runtime.bundle.schema import read, write
from aotc.runtime.bundle.structure import Structure

Files = dict[str, bytes]
LARGEST_BYTES = 64 << 20  # of an entry's own arrays; a model with more is captured each time
GRAPH, FACTS = "graph.txt", "facts.json"
# What an entry holds of a capture; one that has more than this is not cached.
STORED = frozenset({
    "name", "graph", "golden_inputs", "golden_outputs", "structure", "golden_roundings",
    "dot_precision", "held",
})  # fmt: skip

ANEW = ("trials", "undecided")  # asked of the model itself, as an entry is read


def to_files(captured: Captured, spec: Spec) -> Files | None:
    """The files of an entry; None for a capture that they cannot hold whole."""
    if captured.graph.states:  # the model's own call would change what it holds
        return None
    for row in fields(captured):
        if row.name not in (*STORED, *ANEW) and getattr(captured, row.name) != row.default:
            return None
    held, files, rows = _held(spec), {}, []
    for name, constant in captured.graph.constants.items():
        row = {"name": name, "type": str(constant.type), "file": "", "names": constant.names}
        if not _is_same(held.get(name), constant.array):
            row["file"] = f"constant-{len(files)}.bin"
            files[row["file"]] = constant.array.tobytes()
        rows.append(row)
    golden = []
    for array in captured.golden_outputs:
        golden.append({"dtype": str(array.dtype), "shape": list(array.shape)})
        files[f"output-{len(golden)}.bin"] = array.tobytes()
    text = print_graph(captured.graph, with_sources=True)
    if sum(map(len, files.values())) > LARGEST_BYTES or not _reads_back(text, captured.graph):
        return None
    facts = {
        "constants": rows,
        "dot_precision": captured.dot_precision,
        "name": captured.name,
        "golden": golden,
        "numbers": list(map(_bits, _run(spec))),
        "roundings": [float.hex(each) for each in captured.golden_roundings],
        "structure": write(Structure, captured.structure),
        "held": captured.held,
    }
    return {**files, GRAPH: text.encode(), FACTS: json.dumps(facts, sort_keys=True).encode()}


def from_files(files: Mapping[str, bytes], spec: Spec) -> Captured | None:
    """The capture that an entry holds; None when the model's numbers are not those of then."""
    facts = json.loads(files[FACTS])
    if list(map(_bits, _run(spec))) != facts["numbers"]:
        return None
    module, held = spec.module, _held(spec)
    assert module is not None
    constants = {row["name"]: _constant(row, held, files) for row in facts["constants"]}
    graph = parse_graph(files[GRAPH].decode(), constants)
    _warn(spec)
    golden_outputs = tuple(
        numpy.frombuffer(files[f"output-{number}.bin"], row["dtype"]).reshape(row["shape"])
        for number, row in enumerate(facts["golden"], 1)
    )
    return Captured(
        name=facts["name"],
        graph=graph,
        golden_inputs=example_arrays(spec),
        golden_outputs=golden_outputs,
        structure=read(Structure, facts["structure"], spec.path),
        golden_roundings=tuple(map(float.fromhex, facts["roundings"])),
        dot_precision=facts["dot_precision"],
        held=tuple((name, digest) for name, digest in facts["held"]),
        trials=trials_of(spec, module, graph, golden_outputs),
        undecided=undecided_of(lambda: run(spec, module), golden_outputs),
    )


def _held(spec: Spec) -> dict[str, torch.Tensor]:
    """What the model holds, by the names that an export gives to weights."""
    assert spec.module is not None
    parameters = spec.module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(spec.module.named_buffers(remove_duplicate=False))}


def _is_same(tensor: torch.Tensor | None, array: Array) -> bool:
    if tensor is None:
        return False
    found = to_array(tensor)
    same_type = (found.dtype, found.shape) == (array.dtype, array.shape)
    return same_type and found.tobytes() == array.tobytes()


def _constant(
    row: Mapping[str, Any], held: Mapping[str, torch.Tensor], files: Mapping[str, bytes]
) -> Constant:
    kind, names = parse_type(row["type"]), tuple(row["names"])
    if not row["file"]:
        return Constant(row["name"], kind, to_array(held[row["name"]]), names)
    array = numpy.frombuffer(files[row["file"]], DTYPES[kind.dtype].numpy).reshape(kind.shape)
    return Constant(row["name"], kind, array, names)


def _reads_back(text: str, graph: Graph) -> bool:
    """Whether the text means the very same nodes."""
    try:
        read = parse_graph(text, graph.constants)
    except GraphTextError:
        return False
    return (read.inputs, read.outputs) == (graph.inputs, graph.outputs)


def _run(spec: Spec) -> tuple[Array, ...]:
    """The model's own numbers on its example."""
    assert spec.module is not None
    for module in spec.module.modules():
        register_types(module)
    with torch.no_grad(), quiet_settings():
        found = golden_tensors(lambda: spec.module(*spec.arguments, **spec.keyword_arguments))
        return tuple(map(to_array, found))


def _bits(array: Array) -> list[Any]:
    data = numpy.ascontiguousarray(array)
    return [str(data.dtype), list(data.shape), hashlib.sha256(data.tobytes()).hexdigest()]


def _warn(spec: Spec) -> None:
    assert spec.module is not None
    parameters = {name for name, _ in spec.module.named_parameters(remove_duplicate=False)}
    warn_of_weights(spec.module.state_dict(), parameters)

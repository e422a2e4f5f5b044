"""A captured model as files of a cache entry, and back from them with the model at hand.

An entry holds the graph's text and what the model itself does not hold; weights come from the
model. What comes back was checked: the model, run on its example, gives the very bits that it gave
then, so that a switch which no fingerprint sees is met here. (The exported model's own numbers may
differ from the model's by roundings, where an op of torch is fused: they are kept.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

import numpy
import torch

from aotc.aot.capture.capture import Captured, example_arrays, trials_of, warn_of_weights
from aotc.aot.capture.exported import STATE_PREFIX
from aotc.aot.capture.exporting import run
from aotc.aot.capture.golden import golden_tensors, quiet_settings
from aotc.aot.capture.importer import to_array
from aotc.aot.capture.imports.rng import GOLDEN_SEED, seeded
from aotc.aot.capture.libraries import register_types
from aotc.aot.capture.op_modes import endless_loops
from aotc.aot.capture.other_sizes import Models, Probe, probe_again
from aotc.aot.capture.own_model import OwnModel, own_model
from aotc.aot.capture.rounding_sensitivity import undecided_of
from aotc.aot.capture.spec import Spec, with_distinct_inputs
from aotc.aot.capture.tf32 import tf32_roundings_of
from aotc.aot.ir.graph import Constant, Graph, State
from aotc.aot.ir.memory_order import Orders
from aotc.aot.ir.size import Dim, Guard, Size
from aotc.aot.ir.storage import Array
from aotc.aot.ir.text import GraphTextError, parse_extent, parse_graph, parse_type, print_graph
from aotc.aot.ir.types import DTYPES
from aotc.runtime.bundle.schema import read, write
from aotc.runtime.bundle.structure import Structure

Files = dict[str, bytes]
LARGEST_BYTES = 64 << 20  # of an entry's own arrays; a model with more is captured each time
GRAPH, FACTS = "graph.txt", "facts.json"
# What an entry holds of a capture; one that has more than this is not cached.
STORED = frozenset({
    "name", "graph", "golden_inputs", "golden_outputs", "structure", "golden_roundings",
    "dot_precision", "convolution_precision", "held", "dims", "guards", "specialised", "probes",
    "is_strict", "entry", "orders",
})  # fmt: skip

ANEW = ("trials", "undecided", "tf32_roundings")  # asked of the model itself, as an entry is read


def to_files(captured: Captured, spec: Spec) -> Files | None:
    """The files of an entry; None for a capture that they cannot hold whole."""
    spec, graph = with_distinct_inputs(spec), captured.graph
    for row in fields(captured):
        if row.name not in (*STORED, *ANEW) and getattr(captured, row.name) != row.default:
            return None
    own = own_model(spec, [state.name for state in graph.states])
    if own is None or len(graph.given) != len(spec.tensors()):  # one more is a seed of draws
        return None
    files: Files = {}
    initial = {state.initial.name: state.initial for state in graph.states if state.initial}
    rows = _constants({**graph.constants, **initial}, _held(spec), files)
    numbers = _numbers(spec, own)
    golden: list[dict[str, Any]] = []
    if len(numbers) != len(captured.golden_outputs):
        return None
    for array, now in zip(captured.golden_outputs, numbers, strict=True):
        is_own = _is_equal(array, now)
        file = "" if is_own else f"output-{len(golden) + 1}.bin"
        golden.append({"dtype": str(array.dtype), "shape": list(array.shape), "file": file})
        files |= {} if is_own else {file: array.tobytes()}
    text = print_graph(graph, with_sources=True)
    is_whole = _reads_back(text, graph, captured.dims)
    if not is_whole or sum(map(len, files.values())) > LARGEST_BYTES:
        return None
    facts = {
        "constants": rows,
        "convolution_precision": captured.convolution_precision,
        "dims": [astuple(dim) for dim in captured.dims],
        "dot_precision": captured.dot_precision,
        "golden": golden,
        "guards": [(each.text, str(each.size), each.low, each.high) for each in captured.guards],
        "held": captured.held,
        "inputs": graph.input_names,
        "is_strict": captured.is_strict,
        "name": captured.name,
        "numbers": list(map(_bits, numbers)),
        "orders": astuple(captured.orders),
        "probes": [(each.sizes, list(map(float.hex, each.roundings))) for each in captured.probes],
        "roundings": [float.hex(each) for each in captured.golden_roundings],
        "specialised": captured.specialised,
        "states": [(each.name, each.initial.name if each.initial else "") for each in graph.states],
        "structure": write(Structure, captured.structure),
    }
    return {**files, GRAPH: text.encode(), FACTS: json.dumps(facts, sort_keys=True).encode()}


def from_files(files: Mapping[str, bytes], spec: Spec) -> Captured | None:
    """The capture that an entry holds; None when the model's numbers are not those of then."""
    facts, spec = json.loads(files[FACTS]), with_distinct_inputs(spec)
    own = own_model(spec, [name for name, _ in facts["states"]])
    numbers = () if own is None else _numbers(spec, own)
    if own is None or list(map(_bits, numbers)) != facts["numbers"]:
        return None
    held = _held(spec)
    dims = tuple(Dim(*row) for row in facts["dims"])
    graph = _graph(files, facts, held, dims)
    _warn(spec)
    golden_outputs = tuple(
        numpy.frombuffer(files[row["file"]], row["dtype"]).reshape(row["shape"])
        if row["file"]
        else array
        for row, array in zip(facts["golden"], numbers, strict=True)
    )
    probes = _probes(spec, own, graph, dims, facts["probes"])
    if len(probes) < len(facts["probes"]):
        return None
    again = own.lifted.bound(own.functional)
    return Captured(
        name=facts["name"],
        graph=graph,
        golden_inputs=example_arrays(spec),
        golden_outputs=golden_outputs,
        structure=read(Structure, facts["structure"], spec.path),
        golden_roundings=tuple(map(float.fromhex, facts["roundings"])),
        dot_precision=facts["dot_precision"],
        convolution_precision=facts["convolution_precision"],
        tf32_roundings=tf32_roundings_of(lambda: run(spec, again)),
        dims=dims,
        guards=tuple(_guard(row, dims) for row in facts["guards"]),
        specialised=tuple(facts["specialised"]),
        probes=probes,
        is_strict=facts["is_strict"],
        trials=trials_of(spec, own.bound(), graph, golden_outputs, own.tensors),
        undecided=undecided_of(lambda: run(spec, again), golden_outputs),
        held=tuple((name, digest) for name, digest in facts["held"]),
        entry=spec.entry,
        orders=Orders(*(tuple(map(tuple, row)) for row in facts["orders"])),
    )


def _constants(
    constants: Mapping[str, Constant], held: Mapping[str, torch.Tensor], files: Files
) -> list[dict[str, Any]]:
    """What an entry says of constants; files get what the model does not hold."""
    rows = []
    for name, constant in constants.items():
        source = name.removeprefix(STATE_PREFIX)
        row = {"name": name, "type": str(constant.type), "file": "", "names": constant.names}
        if not _is_same(held.get(source), constant.array):
            file = f"constant-{len(files)}.bin"
            row["file"], files[file] = file, constant.array.tobytes()
        rows.append(row)
    return rows


def _graph(
    files: Mapping[str, bytes],
    facts: Mapping[str, Any],
    held: Mapping[str, torch.Tensor],
    dims: Sequence[Dim],
) -> Graph:
    constants = {row["name"]: _constant(row, held, files) for row in facts["constants"]}
    states = tuple(State(name, constants.get(initial)) for name, initial in facts["states"])
    graph = parse_graph(files[GRAPH].decode(), constants, dims=dims)
    graph = replace(graph, input_names=tuple(facts["inputs"]), states=states)
    return graph.with_outputs(graph.outputs)


def _guard(row: Sequence[Any], dims: Sequence[Dim]) -> Guard:
    text, size, low, high = row
    found = parse_extent(size, dims)
    assert isinstance(found, Size)
    return Guard(text, found, low, high)


def _probes(
    spec: Spec, own: OwnModel, graph: Graph, dims: Sequence[Dim], rows: Sequence[Any]
) -> tuple[Probe, ...]:
    """The model at the sizes of then; fewer where it raises now."""
    models = Models(own.call, own.functional, own.lifted)
    named = {dim.name: dim for dim in dims}
    found = []
    with torch.no_grad(), quiet_settings(), seeded(GOLDEN_SEED):
        for sizes, known in rows:
            at = {named[name]: size for name, size in sizes}
            roundings = tuple(map(float.fromhex, known))
            found.append(probe_again(spec, models, own.tensors, graph, at, roundings))
    return tuple(each for each in found if each is not None)


def _held(spec: Spec) -> dict[str, torch.Tensor]:
    """What the model holds, by the names that an export gives to weights."""
    assert spec.module is not None
    parameters = spec.module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(spec.module.named_buffers(remove_duplicate=False))}


def _is_same(tensor: torch.Tensor | None, array: Array) -> bool:
    if tensor is None:
        return False
    return _is_equal(to_array(tensor), array)


def _constant(
    row: Mapping[str, Any], held: Mapping[str, torch.Tensor], files: Mapping[str, bytes]
) -> Constant:
    kind, names = parse_type(row["type"]), tuple(row["names"])
    if not row["file"]:
        array = to_array(held[row["name"].removeprefix(STATE_PREFIX)])
        is_initial = row["name"].startswith(STATE_PREFIX)  # calls change what it is of
        return Constant(row["name"], kind, array.copy() if is_initial else array, names)
    array = numpy.frombuffer(files[row["file"]], DTYPES[kind.dtype].numpy).reshape(kind.shape)
    return Constant(row["name"], kind, array, names)


def _reads_back(text: str, graph: Graph, dims: Sequence[Dim]) -> bool:
    """Whether the text means the very same nodes."""
    try:
        read = parse_graph(text, graph.constants, dims=dims)
    except GraphTextError:
        return False
    ends = (read.inputs, read.outputs, read.output_names)
    return ends == (graph.inputs, graph.outputs, graph.output_names)


def _numbers(spec: Spec, own: OwnModel) -> tuple[Array, ...]:
    """The model's own numbers on its example, then its states after the call."""
    assert spec.module is not None
    for module in spec.module.modules():
        register_types(module)
    call = own.lifted.bound(own.functional)
    with torch.no_grad(), quiet_settings(), endless_loops():
        found = golden_tensors(lambda: run(spec, call))
        return tuple(to_array(each).copy() for each in found)


def _is_equal(one: Array, other: Array) -> bool:
    same_type = (one.dtype, one.shape) == (other.dtype, other.shape)
    return same_type and one.tobytes() == other.tobytes()


def _bits(array: Array) -> list[Any]:
    data = numpy.ascontiguousarray(array)
    return [str(data.dtype), list(data.shape), hashlib.sha256(data.tobytes()).hexdigest()]


def _warn(spec: Spec) -> None:
    assert spec.module is not None
    parameters = {name for name, _ in spec.module.named_parameters(remove_duplicate=False)}
    warn_of_weights(spec.module.state_dict(), parameters)

"""The weights program of a bundle: from the model's parameters to the tensors that it stores.

What folding, packing and joining did to parameters is in each constant's expression. Those
expressions are one graph, compiled for the CPU's baseline whatever the bundle's targets are. The
build itself runs it to make the tensors, so that the runtime, which runs the same code on other
parameters, makes those that a build with them would have stored.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy

from aotc.aot import contents as content
from aotc.aot import validation
from aotc.aot.compile import Compiled, Resources, compile_for
from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make, walk
from aotc.aot.ir.size import Dim, size_of
from aotc.aot.ir.storage import Array
from aotc.aot.ir.text import print_graph
from aotc.aot.ir.types import DTYPES
from aotc.aot.options import BuildOptions
from aotc.aot.pack import BundleContents
from aotc.aot.pack.tensors import tensor_file
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.stages import Clock
from aotc.aot.targets.families import find_target
from aotc.runtime.bundle.manifest import HEAD_NAME, REFIT_FOLDER, TABLES_NAME
from aotc.runtime.bundle.parameters import (
    PARAMETERS_NAME,
    AdapterCode,
    FixedTensor,
    Parameter,
    Parameters,
    RecoverCode,
    WeightsCode,
)
from aotc.runtime.bundle.plan import files_of

if TYPE_CHECKING:
    from aotc.aot.capture.capture import Captured

MOST_FEATURES, MOST_RANK = 1 << 18, 1 << 12  # of a weight that an adapter changes
BASELINE = "cpu-x86-64-v3"  # of all CPUs that programs run on


@dataclass(frozen=True, slots=True)
class WeightsProgram:
    """The compiled program. inputs: the constants of the model that it reads, in order; outputs:
    names of the tensors that it makes, with what they are."""

    inputs: tuple[Constant, ...]
    outputs: tuple[Constant, ...]
    compiled: Compiled

    def run(self) -> dict[str, Array]:
        """The tensors that it makes of the model's own parameters, by name."""
        compiled = self.compiled
        assert compiled.plan.fixed is not None
        results = [
            validation.aligned(numpy.zeros(each.type.shape, DTYPES[each.type.dtype].numpy))
            for each in self.outputs
        ]
        weights = {
            name: validation.aligned(each.array) for name, each in compiled.constants.items()
        }
        given = [validation.aligned(each.array) for each in self.inputs]
        code = (compiled.target, compiled.library, compiled.plan.fixed)
        validation.run(*code, weights, given, results)
        names = (each.name for each in self.outputs)
        return dict(zip(names, results, strict=True))


def weights_program(
    targets: Sequence[Compiled],
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
) -> tuple[WeightsProgram | None, dict[str, Array]]:
    """The weights program of what these targets store, and what it makes of the model's own
    parameters; None where nothing is computed."""
    made = {
        name: constant
        for each in targets
        for name, constant in _stored(each).items()
        if constant.expression is not None
    }
    if not made:
        return None, {}
    with clock.stage("weights"):
        graph, inputs = weights_graph(made)
        clock.dump("weights", print_graph(graph))
        target = find_target(BASELINE)
        rewritten, _ = rewrite(graph, target.traits)
        frozen = options.frozen and options.record is None
        plain = replace(options, tune="off", record=None, frozen=frozen)
        compiled = compile_for(target, [rewritten], plain, resources, Clock())
        program = WeightsProgram(inputs, tuple(made.values()), compiled)
        tensors = program.run()
        kernels = len(compiled.tuning.kernels)
        clock.detail = f"{len(tensors)} tensors of {len(inputs)} parameters, {kernels} kernels"
    return program, tensors


def weights_graph(made: Mapping[str, Constant]) -> tuple[Graph, tuple[Constant, ...]]:
    """The function from replaceable constants to those that were made of them; its inputs."""
    expressions = tuple(each.expression for each in made.values() if each.expression is not None)
    nodes = list(walk(expressions))
    raw = {leaf.name: leaf for each in made.values() for leaf in each.leaves}
    read = {node: raw[node.attr("name")] for node in nodes if node.op == "constant"}
    inputs: dict[Node, Node] = {}
    for node, constant in read.items():
        if constant.is_replaceable:
            name = f"parameter_{len(inputs)}"
            attrs = {"name": name, "dtype": node.dtype, "shape": node.shape}
            inputs[node] = make("input", (), attrs)
    new: dict[Node, Node] = {}
    for node in nodes:
        new[node] = inputs.get(node) or node.on(tuple(new[operand] for operand in node.inputs))
    fixed = {each.name: each for each in read.values() if not each.is_replaceable}
    outputs = tuple(new[each] for each in expressions)
    names = tuple(node.attr("name") for node in inputs.values())
    graph = Graph(tuple(inputs.values()), outputs, names, tuple(made), fixed)
    return graph.with_outputs(outputs), tuple(read[node] for node in inputs)


@dataclass(frozen=True, slots=True)
class AdapterPrograms:
    """What adds an adapter to weights. recover: from stored tensors, by these names, to parameters
    of these names; additions: by element type of the weights."""

    recover: tuple[Compiled, tuple[str, ...], tuple[str, ...]] | None
    additions: Mapping[str, Compiled]


def adapter_programs(
    targets: Sequence[Compiled],
    program: WeightsProgram | None,
    options: BuildOptions,
    resources: Resources,
    clock: Clock,
) -> AdapterPrograms:
    """The programs for adapters to what these targets store."""
    rows = {name: row for each in targets for name, row in _stored(each).items()}
    plain = [row for row in rows.values() if row.names]
    leaves = [leaf for row in rows.values() for leaf in row.leaves if leaf.is_replaceable]
    dtypes = {row.type.dtype for row in (*plain, *leaves) if row.type.rank == 2}
    with clock.stage("weights"):

        def compiled(graph: Graph) -> Compiled:
            target = find_target(BASELINE)
            rewritten, _ = rewrite(graph, target.traits)
            frozen = options.frozen and options.record is None
            choices = replace(options, tune="off", record=None, frozen=frozen)
            return compile_for(target, [rewritten], choices, resources, Clock())

        recover = None
        if program is not None:
            graph, names, found = recovering_graph(program.outputs)
            recover = (compiled(graph), names, found) if found else None
        additions = {
            dtype: compiled(_addition(dtype)) for dtype in sorted(dtypes & {"f16", "bf16", "f32"})
        }
        clock.detail = f"adapters of {', '.join(additions)}"
    return AdapterPrograms(recover, additions)


def _addition(dtype: str) -> Graph:
    """W + s · B · A at any sizes."""
    n, k = (size_of(Dim(name, 1, MOST_FEATURES, 2048)) for name in ("n", "k"))
    r = size_of(Dim("r", 1, MOST_RANK, 64))
    shapes = {"weight": (n, k), "a": (r, k), "b": (n, r), "s": ()}
    inputs = tuple(
        make(
            "input",
            (),
            {"name": name, "dtype": dtype if name == "weight" else "f32", "shape": shape},
        )
        for name, shape in shapes.items()
    )
    weight, a, b, scale = inputs
    product = make("matmul", (b, a))
    total = build.cast(weight, "f32") + product * build.expand(scale, product.shape)
    return Graph(inputs, (build.cast(total, dtype),), tuple(shapes), ("sum",), {})


def recovering_graph(
    made: Sequence[Constant],
) -> tuple[Graph, tuple[str, ...], tuple[str, ...]]:
    """The function from stored tensors to the parameters that lie in them as they are; its inputs
    and its outputs by name."""
    inputs: dict[str, Node] = {}
    found: dict[str, Node] = {}
    for row in made:
        assert row.expression is not None
        attrs = {"name": f"stored_{len(inputs)}", "dtype": row.type.dtype, "shape": row.type.shape}
        inputs[row.name] = make("input", (), attrs)
        names = {leaf.name for leaf in row.leaves if leaf.is_replaceable}
        _recover(row.expression, inputs[row.name], names, found)
    used = {node for node in walk(tuple(found.values())) if node.op == "input"}
    kept = {name: node for name, node in inputs.items() if node in used}
    ends = tuple(kept.values()), tuple(found.values())
    graph = Graph(*ends, tuple(node.attr("name") for node in ends[0]), tuple(found), {})
    return graph, tuple(kept), tuple(found)


def _recover(node: Node, value: Node, names: Container[str], found: dict[str, Node]) -> None:
    """Add the parameters that `value`, which is `node`, holds as they are."""
    if node.op == "constant":
        if node.attr("name") in names:
            found.setdefault(node.attr("name"), value)
        return
    if not node.inputs:
        return
    (inner, *_), rank = node.inputs, node.type.rank
    if node.op == "permute":
        dims = node.attr("dims")
        back = tuple(sorted(range(rank), key=lambda axis: dims[axis]))
        _recover(inner, build.permute(value, back), names, found)
    elif node.op == "reshape":
        _recover(inner, build.reshape(value, inner.shape), names, found)
    elif node.op == "pad":
        low, high = node.attr("low"), node.attr("high")
        for axis in range(rank):
            if low[axis] < 0 or high[axis] < 0:
                return
            end = low[axis] + inner.shape[axis]
            value = build.slice_axis(value, axis, low[axis], end)
        _recover(inner, value, names, found)
    elif node.op == "concat":
        axis, start = node.attr("axis"), 0
        for operand in node.inputs:
            end = start + operand.shape[axis]
            _recover(operand, build.slice_axis(value, axis, start, end), names, found)
            start = end


def _held(captured: Sequence[Captured]) -> dict[str, str]:
    """Parameters and buffers of all entries with their digests: one may read what another does
    not."""
    found: dict[str, str] = {}
    for each in captured:
        found |= {name: digest for name, digest in each.held if digest or name not in found}
    return found


def with_weights_program(
    contents: BundleContents,
    captured: Sequence[Captured],
    targets: Sequence[Compiled],
    program: WeightsProgram | None,
    adapter_codes: AdapterPrograms | None = None,
    has_weights: bool = True,
) -> BundleContents:
    """What goes into a bundle, with the list of the model's parameters and the weights program;
    without the weights themselves unless it `has_weights`."""
    raw: dict[str, Constant] = {}
    for each in targets:
        raw |= {name: row for name, row in _stored(each).items() if row.names}
    kept = dict.fromkeys(raw)
    inputs = () if program is None else program.inputs
    rows = list({**raw, **{each.name: each for each in inputs}}.values())
    parameters = tuple(
        Parameter(row.names, row.type.dtype, row.type.shape, row.name if row.name in kept else "")
        for row in rows
    )
    known = {name for row in parameters for name in row.names}
    rest = [(name, digest) for name, digest in _held(captured).items() if name not in known]
    fixed = tuple(FixedTensor(name, bytes.fromhex(digest)) for name, digest in rest if digest)
    unread = tuple(name for name, digest in rest if not digest)
    files: dict[str, bytes] = {}
    numbers = {row.name: number for number, row in enumerate(rows)}
    weights, code = dict(contents.weights), None
    if program is not None:
        compiled = program.compiled
        weights |= content.weights(compiled.constants, compiled.plan)
        files = _files("weights", compiled)
        code = WeightsCode(
            *_names("weights"),
            tuple(sorted(compiled.target.needs)),
            tuple(numbers[each.name] for each in program.inputs),
            tuple(each.name for each in program.outputs),
            tuple(
                tuple(numbers[leaf.name] for leaf in each.leaves if leaf.is_replaceable)
                for each in program.outputs
            ),
        )
    recover, adapters = None, []
    if adapter_codes is not None:
        if adapter_codes.recover is not None:
            compiled, names, leaves = adapter_codes.recover
            files |= _files("recover", compiled)
            recovered = tuple(numbers[name] for name in leaves)
            recover = RecoverCode(*_names("recover"), names, recovered)
        for dtype, compiled in adapter_codes.additions.items():
            files |= _files(f"adapter-{dtype}", compiled)
            adapters.append(AdapterCode(dtype, *_names(f"adapter-{dtype}")))
    listing = Parameters(parameters, fixed, unread, code, recover, tuple(adapters))
    files[PARAMETERS_NAME] = listing.to_bytes()
    if not has_weights and weights:
        made = {row.stored for row in parameters} | set(() if code is None else code.outputs)
        tables = [bytes(tensor.data) for name, tensor in weights.items() if name not in made]
        files[HEAD_NAME] = bytes(next(tensor_file(weights)))
        files[TABLES_NAME] = b"".join(tables)
    return replace(contents, weights=weights, refit=files, has_weights=has_weights)


def _names(stem: str) -> tuple[str, str]:
    """The files of plan and library of one program."""
    return f"{REFIT_FOLDER}{stem}.plan.msgpack", f"{REFIT_FOLDER}{stem}.so"


def _files(stem: str, compiled: Compiled) -> dict[str, bytes]:
    return dict(zip(_names(stem), files_of(compiled.plan, compiled.library), strict=True))


def _stored(compiled: Compiled) -> dict[str, Constant]:
    """The constants of a target that its bundle stores."""
    constants = compiled.constants
    names = (str(value) for space, value in compiled.plan.arguments() if space == "weight")
    return {name: constants[name] for name in dict.fromkeys(names)}

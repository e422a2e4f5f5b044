"""The weights program of a bundle: from the model's parameters to the tensors that it stores.

What folding, packing and joining did to parameters is in each constant's expression. Those
expressions are one graph, compiled for the CPU's baseline whatever the bundle's targets are. The
build itself runs it to make the tensors, so that the runtime, which runs the same code on other
parameters, makes those that a build with them would have stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy

from aotc.aot import contents as content
from aotc.aot import validation
from aotc.aot.compile import Compiled, Resources, compile_for
from aotc.aot.ir import build
from aotc.aot.ir.graph import Constant, Graph, Node, make, walk
from aotc.aot.ir.placement import contiguous_strides, places
from aotc.aot.ir.recovered import recovered
from aotc.aot.ir.size import Dim, fixed, size_of
from aotc.aot.ir.storage import Array
from aotc.aot.ir.text import print_graph
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower.spec import Candidate, Form, KernelSpec, Param
from aotc.aot.options import BuildOptions
from aotc.aot.pack import BundleContents
from aotc.aot.pack.tensors import tensor_file
from aotc.aot.rewrites.rewrite import rewrite
from aotc.aot.sharding.split import is_of_a_rank, of_rank
from aotc.aot.stages import Clock
from aotc.aot.targets.binary import KernelBinary
from aotc.aot.targets.families import find_target
from aotc.aot.targets.target import Target
from aotc.aot.tune.compiling import Task, compile_each
from aotc.kernels.templates.registry import ADAPTER, kernel_text
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
from aotc.runtime.bundle.placement import PLACEMENT_NAME, Placement, SumCode, View, as_rows
from aotc.runtime.bundle.plan import files_of
from aotc.runtime.bundle.plan_parts import name_of_rank
from aotc.runtime.errors import AotcError

if TYPE_CHECKING:
    from aotc.aot.capture.capture import Captured

MOST_FEATURES, MOST_RANK = 1 << 18, 1 << 12  # of a weight that an adapter changes
FLOATS = ("bf16", "f16", "f32")  # of weights that devices add to, and of adapters
ADAPTED = (*FLOATS, "f64")  # of weights that the host adds to
SUM_FUNCTION = "add_product"
SUM_SIZES = ("M", "N", "R", "WEIGHT_ROW", "LEFT_ROW", "LEFT_RANK", "RIGHT_RANK", "RIGHT_COLUMN")
SUM_CONFIG = (("ROWS", 64), ("COLUMNS", 128), ("RANK", 16), ("num_warps", 8))
BASELINE = "cpu-x86-64-v3"  # of all CPUs that programs run on


@dataclass(frozen=True, slots=True)
class WeightsProgram:
    """The compiled program. inputs: the constants of the model that it reads, in order; outputs:
    names of the tensors that it makes, with what they are; rest: the program of those that are more
    than rows of parameters, for devices."""

    inputs: tuple[Constant, ...]
    outputs: tuple[Constant, ...]
    compiled: Compiled
    rest: WeightsProgram | None = None

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
    made: dict[str, Constant] = {}
    for each in targets:
        made |= _of_ranks(_stored(each), options.ranks)
    if not made:
        return None, {}
    with clock.stage("weights"):
        graph, inputs = weights_graph(made)
        clock.dump("weights", print_graph(graph))
        compiled = _compiled(graph, options, resources)
        rest = None
        others = {name: row for name, row in made.items() if not _is_moved(row)}
        if others and any(each.target.traits.is_gpu for each in targets):
            part, read = weights_graph(others)
            code = _compiled(part, options, resources) if len(others) < len(made) else compiled
            rest = WeightsProgram(read, tuple(others.values()), code)
        program = WeightsProgram(inputs, tuple(made.values()), compiled, rest)
        tensors = program.run()
        kernels = len(compiled.tuning.kernels)
        clock.detail = f"{len(tensors)} tensors of {len(inputs)} parameters, {kernels} kernels"
    return program, tensors


def _of_ranks(stored: Mapping[str, Constant], ranks: int) -> dict[str, Constant]:
    """Those that are computed; of one that is a part of weights also what the other ranks of a
    split program have, by their names."""
    found: dict[str, Constant] = {}
    for name, row in stored.items():
        expression = row.expression
        if expression is None:
            continue
        found[name] = replace(row, expression=of_rank(expression, 0))
        if is_of_a_rank(expression):
            for rank in range(1, ranks):
                own, label = of_rank(expression, rank), name_of_rank(name, rank)
                found[label] = replace(row, name=label, expression=own)
    return found


def _compiled(
    graph: Graph, options: BuildOptions, resources: Resources, has_example: bool = True
) -> Compiled:
    """A graph as code for every CPU that programs run on."""
    target = find_target(BASELINE)
    rewritten, _ = rewrite(graph, target.traits)
    frozen = options.frozen and options.record is None
    plain = replace(options, tune="off", record=None, frozen=frozen)
    return compile_for(target, [rewritten], plain, resources, Clock(), has_example)


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
    constants = {each.name: each for each in read.values() if not each.is_replaceable}
    outputs = tuple(new[each] for each in expressions)
    names = tuple(node.attr("name") for node in inputs.values())
    graph = Graph(tuple(inputs.values()), outputs, names, tuple(made), constants)
    return graph.with_outputs(outputs), tuple(read[node] for node in inputs)


@dataclass(frozen=True, slots=True)
class AdapterPrograms:
    """What adds an adapter to weights. recover: from stored tensors, by these names, to parameters
    of these names; additions: by element type of the weights; sums: kernels of devices, by target
    and element types of weights and adapters."""

    recover: tuple[Compiled, tuple[str, ...], tuple[str, ...]] | None
    additions: Mapping[str, Compiled]
    sums: Mapping[tuple[str, str, str], tuple[Target, KernelBinary]]


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
        recover = None
        if program is not None:
            graph, names, found = recovering_graph(program.outputs)
            code = _compiled(graph, options, resources) if found else None
            recover = None if code is None else (code, names, found)
        additions = {
            dtype: addition_program(dtype, options, resources)
            for dtype in sorted(dtypes & set(ADAPTED))
        }
        devices = [each.target for each in targets if each.target.traits.is_gpu]
        sums = sum_kernels(devices, tuple(additions), options, resources)
        clock.detail = f"adapters of {', '.join(additions)}"
    return AdapterPrograms(recover, additions, sums)


def addition_program(dtype: str, options: BuildOptions, resources: Resources) -> Compiled:
    """W + s · B · A on the CPU, for weights of one element type: products in the order of the rank.

    No rank has a kernel of its own: of a product that a loop makes in one turn, Triton makes
    dot(B, A, W) of W + dot(B, A, 0), sums that begin with W.
    """
    return _compiled(_addition(dtype), options, resources, has_example=False)


def sum_kernels(
    targets: Sequence[Target],
    dtypes: Sequence[str],
    options: BuildOptions,
    resources: Resources,
) -> dict[tuple[str, str, str], tuple[Target, KernelBinary]]:
    """The kernels that add adapters to weights of these types on devices."""
    tasks = {
        (target.name, dtype, factors): _sum_task(target, dtype, factors)
        for target in targets
        for dtype in dtypes
        if dtype in FLOATS
        for factors in FLOATS
    }
    made = compile_each(list(tasks.values()), resources, lambda _: not options.frozen)
    found = {}
    for key, task in tasks.items():
        binary = made[task]
        if isinstance(binary, AotcError):
            raise binary
        found[key] = task.target, binary
    return found


def _sum_task(target: Target, dtype: str, factors: str) -> Task:
    kinds = {"weight_ptr": dtype, "left_ptr": factors, "right_ptr": factors}
    params = [Param(name, f"*{DTYPES[kind].triton}") for name, kind in kinds.items()]
    params += [Param(name, "fp32") for name in ("LEFT_SCALE", "RIGHT_SCALE")]
    params += [Param("START", "i64"), *(Param(name, "i32") for name in SUM_SIZES)]
    form = Form("", kernel_text(ADAPTER), SUM_FUNCTION)
    candidate = Candidate(SUM_CONFIG, (1, 1, 1))
    name = f"sum of {dtype} and products of {factors}"
    return Task(KernelSpec(name, (form,), tuple(params), (candidate,), 0, 0), candidate, target)


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
    product = make("matmul_in_order", (b * build.expand(scale, b.shape), a))
    wide = "f64" if dtype == "f64" else "f32"
    total = build.cast(weight, wide) + build.cast(product, wide)
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
        for node, value in recovered(row.expression, inputs[row.name]):
            if node.op == "constant" and node.attr("name") in names:
                found.setdefault(node.attr("name"), value)
    used = {node for node in walk(tuple(found.values())) if node.op == "input"}
    kept = {name: node for name, node in inputs.items() if node in used}
    ends = tuple(kept.values()), tuple(found.values())
    graph = Graph(*ends, tuple(node.attr("name") for node in ends[0]), tuple(found), {})
    return graph, tuple(kept), tuple(found)


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
    parameters = tuple(_parameter(row, row.name in kept) for row in rows)
    known = {name for row in parameters for name in row.names}
    others = [(name, digest) for name, digest in _held(captured).items() if name not in known]
    unchanged = tuple(FixedTensor(name, bytes.fromhex(digest)) for name, digest in others if digest)
    unread = tuple(name for name, digest in others if not digest)
    files: dict[str, bytes] = {}
    numbers = {row.name: number for number, row in enumerate(rows)}
    weights, code = dict(contents.weights), None
    if program is not None:
        compiled = program.compiled
        weights |= content.weights(compiled.constants, compiled.plan)
        files = _files("weights", compiled)
        code = _code("weights", program, numbers)
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
    listing = Parameters(parameters, unchanged, unread, code, recover, tuple(adapters))
    files[PARAMETERS_NAME] = listing.to_bytes()
    made = () if program is None else program.outputs
    views, moved = _views([row for row in rows if row.name in kept], made, numbers)
    sums, codes = _sum_files(adapter_codes)
    rest = None if program is None else program.rest
    rest_code = None
    if rest is not None:
        weights |= content.weights(rest.compiled.constants, rest.compiled.plan)
        codes |= _files("rest", rest.compiled)
        rest_code = _code("rest", rest, numbers)
    files |= {**codes, PLACEMENT_NAME: Placement(views, moved, sums, rest_code).to_bytes()}
    if not has_weights and weights:
        given = {row.stored for row in parameters} | set(() if code is None else code.outputs)
        tables = [bytes(tensor.data) for name, tensor in weights.items() if name not in given]
        files[HEAD_NAME] = bytes(next(tensor_file(weights)))
        files[TABLES_NAME] = b"".join(tables)
    return replace(contents, weights=weights, refit=files, has_weights=has_weights)


def _parameter(row: Constant, is_kept: bool) -> Parameter:
    shape = tuple(map(fixed, row.type.shape))
    return Parameter(row.names, row.type.dtype, shape, row.name if is_kept else "")


def _views(
    kept: Sequence[Constant], made: Sequence[Constant], numbers: Mapping[str, int]
) -> tuple[tuple[View, ...], tuple[str, ...]]:
    """Where stored tensors hold parameters as they are, and those that hold nothing else."""
    views, moved = [], []
    for row in kept:
        shape = tuple(map(fixed, row.type.shape))
        views.append(View(numbers[row.name], row.name, 0, contiguous_strides(shape)))
    for row in made:
        names = {leaf.name for leaf in row.leaves if leaf.is_replaceable}
        assert row.expression is not None
        found = places(row.expression, names)
        if found is not None:
            moved += [row.name] * _is_moved(row)
            views += [View(numbers[each.name], row.name, each.start, each.strides)
                      for each in found]  # fmt: skip
    return tuple(views), tuple(moved)


def _is_moved(row: Constant) -> bool:
    """Whether rows of parameters make up a stored tensor, beside what does not depend on any."""
    raw = {leaf.name: leaf for leaf in row.leaves if leaf.is_replaceable}
    found = None if row.expression is None else places(row.expression, raw)
    shapes = {name: tuple(map(fixed, leaf.type.shape)) for name, leaf in raw.items()}
    return found is not None and all(as_rows(shapes[row.name], row.strides) for row in found)


def _code(stem: str, program: WeightsProgram, numbers: Mapping[str, int]) -> WeightsCode:
    """What the runtime is to know of a weights program; numbers: of the parameters by name."""
    return WeightsCode(
        *_names(stem),
        tuple(sorted(program.compiled.needs)),
        tuple(numbers[each.name] for each in program.inputs),
        tuple(each.name for each in program.outputs),
        tuple(
            tuple(numbers[leaf.name] for leaf in each.leaves if leaf.is_replaceable)
            for each in program.outputs
        ),
    )


def _sum_files(
    programs: AdapterPrograms | None,
) -> tuple[tuple[SumCode, ...], dict[str, bytes]]:
    """The kernels of devices that add adapters, and their files."""
    codes, files, config = [], {}, dict(SUM_CONFIG)
    rows = () if programs is None else programs.sums.items()
    for (_, dtype, factors), (target, binary) in rows:
        name = f"{REFIT_FOLDER}sum-{target.name}-{dtype}-{factors}.cubin"
        sizes = (binary.threads, binary.shared_bytes, config["ROWS"], config["COLUMNS"])
        needs = tuple(sorted(target.needs))
        codes.append(SumCode(target.device, needs, dtype, factors, name, binary.symbol, *sizes))
        files[name] = binary.code
    return tuple(codes), files


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

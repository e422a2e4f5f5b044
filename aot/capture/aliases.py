"""Buffers that share memory: one of them represents all where the model writes to them.

torch.export gives a name to each tensor that a model reaches, and two names may belong to one
tensor, or to a tensor and a part of it (`self.keys = cache.keys`, `self.window = self.ring[2:6]`).
Decompositions see values, not memory, so a write through one name would not reach the other. Here
such tensors become views of the one that contains them all, and torch handles these views like any
others. A tensor that is written but is not a buffer of its module becomes one.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, TensorArgument

from aotc.aot.capture.aten_signature import reach
from aotc.aot.errors import StateUnsupported

HELD = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
STORAGE = "_storage"  # ends the name of a buffer that stands for the memory of several


@dataclass(frozen=True, slots=True)
class _Held:
    """A tensor that the program holds: its placeholder, its row of the signature, itself."""

    node: torch.fx.Node
    spec: InputSpec
    tensor: torch.Tensor

    @property
    def span(self) -> tuple[int, int]:
        """Its first byte in the storage, and the one behind its last."""
        size = self.tensor.element_size()
        start = self.tensor.storage_offset() * size
        if not self.tensor.numel():
            return start, start
        return start, start + reach(self.tensor.shape, self.tensor.stride()) * size


def without_aliases(program: ExportedProgram) -> ExportedProgram:
    """`program`, or an equivalent one in which no written buffer shares its memory. Raises
    `StateUnsupported` where two of them see the same memory as different element types."""
    roots = aliased_placeholders(program.graph)
    written = {node for call in program.graph.nodes for node in written_by(call, roots)}
    groups = [group for group in _overlapping(_held(program)) if _is_at_stake(group, written)]
    if not groups:
        return program
    module = copy.deepcopy(program.graph_module)
    by_name = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    constants, state = dict(program.constants), dict(program.state_dict)
    for group in groups:
        members = [replace(each, node=by_name[each.node.name]) for each in group]
        holder = _holder(members)
        if holder is None:
            holder = _storage_of(members, module.graph, set(constants) | set(state))
            constants[str(holder.spec.target)] = holder.tensor
            specs = {holder.spec.arg.name: holder.spec, **specs}
        for each in members:
            if each.node is not holder.node:
                _replace(each, holder, module.graph)
                del specs[each.spec.arg.name]
        if holder.spec.kind is not InputKind.PARAMETER:
            specs[holder.spec.arg.name] = _as_buffer(holder.spec)
    module.recompile()
    placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
    signature = ExportGraphSignature(
        [specs[name] for name in placeholders], program.graph_signature.output_specs
    )
    return program._update(module, signature, state_dict=state, constants=constants)


def aliased_placeholders(graph: torch.fx.Graph) -> Mapping[torch.fx.Node, frozenset[torch.fx.Node]]:
    """For each node the placeholders whose memory it may lie in, by the schemas of the calls."""
    found: dict[torch.fx.Node, frozenset[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            found[node] = frozenset((node,))
        elif node.op == "call_function":
            given: Iterable[torch.fx.Node] = ()
            if node.target is operator.getitem:
                given = node.all_input_nodes
            elif isinstance(node.target, torch._ops.OpOverload):
                given = _aliased_arguments(node)
            found[node] = frozenset().union(*(found.get(each, frozenset()) for each in given))
    return found


def written_by(
    node: torch.fx.Node, roots: Mapping[torch.fx.Node, frozenset[torch.fx.Node]]
) -> Iterator[torch.fx.Node]:
    """The placeholders whose memory a call writes to."""
    for each in arguments_written(node):
        yield from roots.get(each, ())


def arguments_written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """The arguments of a call whose memory it writes to."""
    if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        for argument, value in _given(node):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from _nodes_in(value)


def _aliased_arguments(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    if any(each.alias_info is not None for each in node.target._schema.returns):
        for argument, value in _given(node):
            if argument.alias_info is not None:
                yield from _nodes_in(value)


def _given(node: torch.fx.Node) -> Iterator[tuple[torch._C.Argument, object]]:
    for place, argument in enumerate(node.target._schema.arguments):
        if place < len(node.args):
            yield argument, node.args[place]
        elif argument.name in node.kwargs:
            yield argument, node.kwargs[argument.name]


def _nodes_in(value: object) -> Iterator[torch.fx.Node]:
    values = value if isinstance(value, list | tuple) else (value,)
    return (each for each in values if isinstance(each, torch.fx.Node))


def has_plain_memory(tensor: object) -> bool:
    """Whether this is a tensor whose elements lie in one storage by strides."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return False
    assert isinstance(tensor, torch.Tensor)
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return tensor.layout is torch.strided and not is_wrapped and not tensor.is_meta


def _held(program: ExportedProgram) -> Iterator[_Held]:
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for spec in program.graph_signature.input_specs:
        if spec.kind in HELD:
            name = str(spec.target)
            tensor = program.state_dict.get(name, program.constants.get(name))
            if has_plain_memory(tensor):
                yield _Held(nodes[spec.arg.name], spec, tensor)


def _overlapping(held: Iterable[_Held]) -> Iterator[list[_Held]]:
    """Tensors whose spans of one storage touch, in the program's order."""
    by_storage: dict[int, list[_Held]] = {}
    for each in held:
        by_storage.setdefault(each.tensor.untyped_storage()._cdata, []).append(each)
    for members in by_storage.values():
        group: list[_Held] = []
        end = 0
        for each in sorted(members, key=lambda item: item.span):
            if group and each.span[0] >= end:
                yield group
                group = []
            group.append(each)
            end = max(end, each.span[1])
        yield group


def _is_at_stake(group: Sequence[_Held], written: set[torch.fx.Node]) -> bool:
    """Whether a tensor is written, and also has another name or is not a buffer."""
    hit = [each for each in group if each.node in written]
    return bool(hit) and (len(group) > 1 or hit[0].spec.kind is InputKind.CONSTANT_TENSOR)


def _holder(members: Sequence[_Held]) -> _Held | None:
    """The dense member whose memory contains all others; buffers come before other tensors."""
    end = max(each.span[1] for each in members)
    start = min(each.span[0] for each in members)
    fitting = [
        each for each in members if each.span == (start, end) and each.tensor.is_contiguous()
    ]
    return min(fitting, key=lambda each: HELD.index(each.spec.kind), default=None)


def _storage_of(members: Sequence[_Held], graph: torch.fx.Graph, taken: set[str]) -> _Held:
    """A buffer of rank 1 over all memory of the members, before them in the graph."""
    _check_types(members)
    first = members[0]
    start, end = min(each.span[0] for each in members), max(each.span[1] for each in members)
    size = first.tensor.element_size()
    flat = torch.as_strided(first.tensor.detach(), ((end - start) // size,), (1,), start // size)
    name = str(first.spec.target).replace(".", "_") + STORAGE
    while name in taken:
        name += "_"
    with graph.inserting_before(next(iter(graph.nodes))):
        node = graph.placeholder(f"b_{name}")
    node.meta["val"] = first.node.meta["val"].new_empty(flat.shape)
    spec = InputSpec(InputKind.BUFFER, TensorArgument(name=node.name), name, persistent=False)
    return _Held(node, spec, flat)


def _check_types(members: Sequence[_Held]) -> None:
    if len({each.tensor.dtype for each in members}) > 1:
        names = ", ".join(f"`{each.spec.target}`" for each in members)
        raise StateUnsupported(names=names, other="other element types that see the same memory")


def _as_buffer(spec: InputSpec) -> InputSpec:
    if spec.kind is InputKind.BUFFER:
        return spec
    return InputSpec(InputKind.BUFFER, spec.arg, spec.target, persistent=False)


def _replace(member: _Held, holder: _Held, graph: torch.fx.Graph) -> None:
    """A view of the holder in place of a placeholder."""
    _check_types((member, holder))
    tensor, whole = member.tensor, holder.tensor
    with graph.inserting_before(_first_call(graph)):
        if (tensor.shape, tensor.stride()) == (whole.shape, whole.stride()):
            view = holder.node
        else:
            offset = tensor.storage_offset() - whole.storage_offset()
            view = _view(graph, holder.node, whole.numel(), tensor, offset)
    member.node.replace_all_uses_with(view)
    graph.erase_node(member.node)


def _first_call(graph: torch.fx.Graph) -> torch.fx.Node:
    return next(node for node in graph.nodes if node.op != "placeholder")


def _view(
    graph: torch.fx.Graph, whole: torch.fx.Node, numel: int, tensor: torch.Tensor, offset: int
) -> torch.fx.Node:
    """`tensor` as a view of a contiguous tensor of `numel` elements, from its element `offset` on.

    By slices of a view with a dim for each stride, and where the strides do not divide each other
    by the strides themselves.
    """

    def call(op: torch._ops.OpOverload, node: torch.fx.Node, *arguments: object) -> torch.fx.Node:
        made = graph.call_function(op, (node, *arguments))
        made.meta["val"] = op(node.meta["val"], *arguments)
        return made

    aten = torch.ops.aten
    axes = sorted(
        (axis for axis in range(tensor.dim()) if tensor.shape[axis] != 1),
        key=lambda axis: -tensor.stride(axis),
    )
    steps = [tensor.stride(axis) for axis in axes]
    shape, starts, rest = [], [], offset
    for above, step in zip([numel, *steps], [*steps, 1], strict=True):
        if not step or above % step:
            break
        shape.append(above // step)
        starts.append(rest // step)
        rest %= step
    counts = [*(tensor.shape[axis] for axis in axes), 1]
    is_nested = len(shape) == len(counts) and all(
        start + count <= extent for start, count, extent in zip(starts, counts, shape, strict=True)
    )
    if not is_nested:
        flat = call(aten.view.default, whole, [numel])
        return call(
            aten.as_strided.default, flat, list(tensor.shape), list(tensor.stride()), offset
        )
    node = call(aten.view.default, whole, shape)
    for axis, (start, count) in enumerate(zip(starts, counts, strict=True)):
        if (start, count) != (0, shape[axis]):
            node = call(aten.slice.Tensor, node, axis, start, start + count)
    node = call(aten.squeeze.dim, node, len(shape) - 1)
    node = call(aten.permute.default, node, [axes.index(axis) for axis in sorted(axes)])
    for axis in range(tensor.dim()):
        if tensor.shape[axis] == 1:
            node = call(aten.unsqueeze.default, node, axis)
    return node

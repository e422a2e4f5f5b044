"""Imports calls of Triton kernels that the user wrote: `torch.library.wrap_triton` in a model.

torch.export keeps a `triton_op` whole; decomposing it gives a call of
`triton_kernel_wrapper_functional`, which names the kernel, its arguments, its grids and the tensors
that it stores to. Each of those becomes a `call` node. A kernel sees memory, not tensors: an
operand is given as the elements in the order in which they lie, or as the whole of the tensor that
it is a view of and the place where the view begins.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from aotc.aot.capture.custom_ops import base_name
from aotc.aot.capture.imports.call import NotSupported, type_of
from aotc.aot.capture.sizes import UndecidedSize, extent_of
from aotc.aot.capture.triton_source import kernel_text, python_text
from aotc.aot.ir import build
from aotc.aot.ir.call import CallArgument, CallCandidate
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.size import Extent, Shape, typical

KERNEL_CALL = "triton_kernel_wrapper_functional"
# What Triton launches a kernel with that says nothing else.
DEFAULT_OPTIONS = {"num_warps": 4, "num_stages": 3}
OF_DATA = "depends on data, expected numbers of the shapes that a call has"
OPEN_CONSTANT = "is a `tl.constexpr` and depends on a dynamic size: make it an ordinary parameter"
LARGEST_I32, LARGEST_I64 = 2**31 - 1, 2**63 - 1
# Triton's short names of the types that a parameter may be annotated with, in its language.
_TYPES = {
    **{f"{sign[0]}{bits}": f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)},
    "i1": "int1",
    "u1": "int1",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
}


def kernel_call(node: torch.fx.Node, values: Mapping[torch.fx.Node, Any]) -> dict[str, Node] | None:
    """The call's results by parameter name; None where an operand was refused, and is listed.

    `values` are the nodes imported so far. Raises `NotSupported` with the reason.
    """
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    written = node.kwargs
    kernel = kernel_side_table.get_kernel(written["kernel_idx"])
    constants = kernel_side_table.get_constant_args(written["constant_args_idx"])
    if written["tma_descriptor_metadata"]:
        raise NotSupported("it is given tensor descriptors: make them inside the kernel")
    arguments = {**written["kwargs"], **constants}
    _refuse_sizes_of_data(arguments)
    tensors = [item for item in arguments.values() if _is_tensor(item)]
    if any(values.get(item) is None for item in tensors):
        return None
    configs = getattr(kernel, "configs", None)
    function = kernel.fn if configs is not None else kernel
    importer = _Importer(node, values, function)
    names = [name for name in function.arg_names if name in written["tensors_to_clone"]]
    importer.store(names, arguments)
    candidates, tuned = _candidates(configs, written["grid"])
    for param in function.params:
        if param.name in tuned:
            importer.arguments.append((param.name, "config", tuned[param.name]))
        elif param.name in arguments:
            importer.argument(param.name, arguments[param.name])
        elif not param.is_constexpr:  # a launch gives a default its type, a call would not
            importer.argument(param.name, param.default)
    return importer.results(names, candidates)


def _refuse_sizes_of_data(arguments: Mapping[str, Any]) -> None:
    """Numbers and shapes are those of the call's inputs, or known before."""
    for name, item in arguments.items():
        if isinstance(item, torch.fx.Node):
            value = item.meta.get("val")
            try:
                for each in value.shape if isinstance(value, torch.Tensor) else (value,):
                    extent_of(each)
            except (UndecidedSize, AttributeError):
                raise NotSupported(f"`{name}` {OF_DATA}") from None


def _is_tensor(item: Any) -> bool:
    return isinstance(item, torch.fx.Node) and isinstance(item.meta.get("val"), torch.Tensor)


@contextmanager
def defaults_known() -> Iterator[None]:
    """Inside, torch finds what a kernel stores to also where parameters are left to their defaults.

    By itself it gives up there, and takes every tensor for one that is stored to.
    """
    from torch._higher_order_ops import triton_kernel_wrap

    generate = triton_kernel_wrap.generate_ttir

    def with_defaults(kernel: Any, arguments: dict[str, Any], *others: Any) -> Any:
        function = kernel.fn if hasattr(kernel, "configs") else kernel
        defaults = {each.name: each.default for each in function.params if each.has_default}
        return generate(kernel, {**defaults, **arguments}, *others)

    triton_kernel_wrap.generate_ttir = with_defaults
    try:
        yield
    finally:
        triton_kernel_wrap.generate_ttir = generate


@dataclass
class _Importer:
    """The parts of one call node."""

    node: torch.fx.Node
    values: Mapping[torch.fx.Node, Any]
    function: Any  # triton.JITFunction
    operands: list[Node] = field(default_factory=list)
    arguments: list[CallArgument] = field(default_factory=list)
    types: list[tuple[str, Shape]] = field(default_factory=list)  # of each result
    orders: list[tuple[int, ...]] = field(default_factory=list)  # of its dims in memory
    updates: list[tuple[int, int]] = field(default_factory=list)  # (result, operand before it)
    stored: dict[torch.fx.Node, int] = field(default_factory=dict)  # tensor → number of its result

    def store(self, names: Sequence[str], arguments: Mapping[str, Any]) -> None:
        """Note the tensors that are stored to, and what is in them before."""
        for name in names:
            item = arguments[name]
            if item in self.stored:
                continue
            value = item.meta["val"]
            order = _memory_order(value)
            if order is None:
                raise NotSupported(
                    f"`{name}` is stored to and has gaps between its elements: store to a "
                    "contiguous tensor"
                )
            self.stored[item] = number = len(self.types)
            kind = type_of(value)
            self.types.append((kind.dtype, tuple(kind.shape[dim] for dim in order)))
            self.orders.append(order)
            if not _is_empty(item):
                data = build.permute(self.values[item], order)
                before = make("copy", (data,), {"tag": f"{self.node.name}.{name}"})
                self.updates.append((number, self._operand(before)))

    def argument(self, name: str, item: Any) -> None:
        """Note what the parameter called `name` is given."""
        if not isinstance(item, torch.fx.Node):
            self.arguments.append((name, "value", self._number(name, item)))
        elif not _is_tensor(item):
            self.arguments.append((name, "size", self._size(name, extent_of(item.meta["val"]))))
        elif item in self.stored:
            self.arguments.append((name, "stored", self.stored[item]))
        else:
            whole, start = self._memory(name, item)
            self.arguments.append((name, "read", (self._operand(whole), start)))

    def results(
        self, names: Sequence[str], candidates: tuple[CallCandidate, ...]
    ) -> dict[str, Node]:
        """The results by the names of the parameters that they are stored through."""
        shared = {
            "source": kernel_text(self.function),
            "function": self.function.__name__,
            "arguments": tuple(self.arguments),
            "candidates": candidates,
            "results": tuple(self.types),
            "updates": tuple(self.updates),
        }
        found = []
        for number, order in enumerate(self.orders):
            made = make("call", tuple(self.operands), {**shared, "result": number})
            found.append(build.permute(made, [order.index(dim) for dim in range(len(order))]))
        tensors = self.node.kwargs["kwargs"]
        return {name: found[self.stored[tensors[name]]] for name in names}

    def _operand(self, node: Node) -> int:
        self.operands.append(node)
        return len(self.operands) - 1

    def _memory(self, name: str, item: torch.fx.Node) -> tuple[Node, Extent]:
        """The elements in the order in which they lie, and the place of the first one read."""
        source = item
        while (order := _memory_order(source.meta["val"])) is None:
            viewed = _viewed(source)
            if viewed is None or self.values.get(viewed) is None:
                raise NotSupported(f"`{name}` has gaps between its elements: give `.contiguous()`")
            source = viewed
        begins = (extent_of(each.meta["val"].storage_offset()) for each in (item, source))
        start = next(begins) - next(begins)
        return build.permute(self.values[source], order), start

    def _number(self, name: str, value: Any) -> str:
        """A number as a kernel launched by Triton sees it: 1 is known to it, others have a type."""
        param = next(each for each in self.function.params if each.name == name)
        is_known = type(value) is int and value == 1 and not param.do_not_specialize
        if param.is_constexpr or is_known or not isinstance(value, bool | int | float):
            try:
                return python_text(value)
            except NotSupported as refused:
                raise NotSupported(f"`{name}` is {refused}") from None
        dtype = _TYPES.get(param.annotation_type) or _type_of(value)
        return f"tl.full((), {python_text(value)}, tl.{dtype})"

    def _size(self, name: str, extent: Extent) -> tuple[Extent, str]:
        """A number that depends on dynamic sizes, and its type in the kernel."""
        param = next(each for each in self.function.params if each.name == name)
        if param.is_constexpr and not isinstance(extent, int):
            raise NotSupported(f"`{name}` {OPEN_CONSTANT}")
        return extent, "" if param.is_constexpr else _TYPES.get(param.annotation_type, "int32")


def _type_of(value: float) -> str:
    """The type that Triton gives a number at a launch."""
    if isinstance(value, bool):
        return "int1"
    if isinstance(value, float):
        return "float32"
    if -LARGEST_I32 - 1 <= value <= LARGEST_I32:
        return "int32"
    return "int64" if value <= LARGEST_I64 else "uint64"


def _candidates(
    configs: Sequence[Any] | None, grids: Sequence[Sequence[Any]]
) -> tuple[tuple[CallCandidate, ...], dict[str, str]]:
    """Configs with their grids, and how each compile-time parameter of theirs is written."""
    found: list[CallCandidate] = []
    tuned: dict[str, str] = {}
    for number, grid in enumerate(grids):
        config = configs[number] if configs else None
        if config is not None and (config.pre_hook is not None or config.num_ctas != 1):
            raise NotSupported("its config has a hook or clusters, expected neither")
        rows: list[tuple[str, int]] = []
        for name, value in (config.kwargs if config is not None else {}).items():
            if not isinstance(value, int):
                raise NotSupported(f"its config gives `{name}` {value!r}, expected a whole number")
            given = f"{name}_value" if name in (*DEFAULT_OPTIONS, "maxnreg") else name
            tuned[name] = f"{given} != 0" if isinstance(value, bool) else given
            rows.append((given, int(value)))
        for name, default in DEFAULT_OPTIONS.items():
            rows.append((name, default if config is None else getattr(config, name)))
        if config is not None and config.maxnreg is not None:
            rows.append(("maxnreg", config.maxnreg))
        try:
            x, y, z = map(_extent, grid)
        except UndecidedSize:
            raise NotSupported(f"its grid {OF_DATA}") from None
        found.append((tuple(rows), (x, y, z)))
    return tuple(dict.fromkeys(found)), tuned


def _extent(item: Any) -> Extent:
    """A number of a grid."""
    return extent_of(item.meta["val"] if isinstance(item, torch.fx.Node) else item)


def _memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """Dims from the widest stride to the narrowest; None where elements have gaps between them."""
    strides, shape = (tuple(map(extent_of, each)) for each in (value.stride(), value.shape))
    order = tuple(range(len(shape)))
    if _is_dense(order, strides, shape):
        return order
    # A dim of one element lies anywhere: behind the last, where its stride counts for nothing.
    by_stride = sorted(order, key=lambda dim: (shape[dim] == 1, -typical(strides[dim]), dim))
    return tuple(by_stride) if _is_dense(by_stride, strides, shape) else None


def _is_dense(order: Sequence[int], strides: Shape, shape: Shape) -> bool:
    """Whether dims in this order, outermost first, have no gaps between their elements."""
    expected: Extent = 1
    for dim in reversed(order):
        if shape[dim] != 1 and strides[dim] != expected:
            return False
        expected = expected * shape[dim]
    return True


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The tensor that `node` is a view of, if it is one."""
    parts = node.all_input_nodes
    if node.target is operator.getitem:
        parts = parts[0].all_input_nodes
    memory = _memory_of(node)
    return next((each for each in parts if _memory_of(each) == memory), None)


def _memory_of(node: torch.fx.Node) -> int | None:
    value = node.meta.get("val")
    return value.untyped_storage()._cdata if isinstance(value, torch.Tensor) else None


def _is_empty(node: torch.fx.Node) -> bool:
    """Whether the tensor was made without contents."""
    while (viewed := _viewed(node)) is not None:
        node = viewed
    return base_name(node.target).startswith(("empty", "new_empty"))

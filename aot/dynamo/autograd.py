"""AOTAutograd: from one of Dynamo's graphs to functional ATen graphs, forward and backward.

This file and `graph_key.py` call what changes between versions of torch. A compiled graph is an
`OutputCode` that holds a recipe, so that torch's own cache of AOTAutograd's results keeps it: on a
hit torch traces nothing, and the recipe finds its programs in our artifact cache.

It also finds the user's ops without a backward, before torch takes them for constants. An op of
`torch.library.custom_op` without a formula raises an error by itself. One that only has kernels
(`library.impl(…, "CPU")`) is differentiated as if its result did not depend on its operands.
"""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch._dynamo.utils import flatten_graph_inputs
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, FXGraphCacheMiss
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler, aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.output_code import OutputCode
from torch.fx import GraphModule, Node
from torch.utils._sympy.symbol import SymT, symbol_is_type

from aotc.aot.capture.custom_ops import MEANINGS, in_process_meaning
from aotc.aot.capture.torch_repairs import repair_shapes
from aotc.aot.dynamo.calling import Boxed
from aotc.aot.dynamo.devices import facts
from aotc.aot.dynamo.errors import GradientMissing
from aotc.aot.dynamo.graph_key import EXAMPLE, TEXT, is_users_op, kept, our_keys
from aotc.aot.dynamo.inner_graphs import graphs_of
from aotc.aot.dynamo.joint_graph import Ends, JointGraph
from aotc.aot.dynamo.options import Options
from aotc.aot.dynamo.overlapping_outputs import keep_their_gradients_apart
from aotc.aot.dynamo.programs import counting, toolchain_digest
from aotc.aot.dynamo.recipe import ProgramGone, Recipe
from aotc.aot.rewrites.registry import digest_of, registered

# torch refuses a graph of a loop whose results are one another, as without these they would be.
NEEDED_BY_FLOW = (torch.ops.aten.detach.default,)
Compiler = Callable[..., "CompiledGraph"]  # of a graph, its examples and what it keeps


class CompiledGraph(OutputCode):
    """A graph that torch's cache can keep: the recipe travels, the callable is made anew."""

    def __init__(self, recipe: Recipe, call: Boxed) -> None:
        super().__init__()
        self._boxed_call = True
        self.recipe = recipe
        self.call: Boxed | None = call

    def __call__(self, inputs: Any) -> Any:
        """Run once; `inputs` is a list, which is empty afterwards."""
        return self.call(inputs)  # type: ignore[misc]

    def prepare_for_serialization(self) -> None:
        """Called on a copy; what cannot be kept bypasses the cache."""
        if not self.recipe.is_kept:
            raise BypassAOTAutogradCache("a region's code cannot be stored")
        if _is_guarded_by_floats():
            raise BypassAOTAutogradCache("a float of the call became a number of the graph")
        self.call = None

    def post_compile(self, example_inputs: Any, constants: Any, graph_kwargs: Any) -> None:
        """In another process: the programs from the artifact cache, or a miss that compiles."""
        if self.call is not None:
            return
        try:
            self.call = self.recipe.opened()
        except ProgramGone as error:
            raise FXGraphCacheMiss(f"program {error} is not in the artifact cache") from None
        counting().graphs += 1
        counting().traces_skipped += 1

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing: there are no kernels of torch's."""


def _is_guarded_by_floats() -> bool:
    """Whether the trace holds for some floats of the call only.

    AOTAutograd puts guards on those that it could not make tensors of. An entry of its cache has no
    guards on floats, so that one that is found would be taken for others too.
    """
    context = torch._guards.TracingContext.try_get()
    mode = None if context is None else context.fake_mode
    known = [] if mode is None or mode.shape_env is None else mode.shape_env.guards
    return any(
        symbol_is_type(symbol, SymT.FLOAT) for guard in known for symbol in guard.expr.free_symbols
    )


class _Decompositions(Mapping[Any, Callable[..., Any]]):
    """The table of decompositions, made when a trace first looks into it.

    `whole` are ops to leave out of it.
    """

    def __init__(self, whole: Collection[Any] = ()) -> None:
        self._whole = frozenset(whole)
        self._known: tuple[int, Mapping[Any, Callable[..., Any]]] = (0, {})

    @property
    def _table(self) -> Mapping[Any, Callable[..., Any]]:
        from aotc.aot.dynamo.decompositions import decompositions

        count, table = self._known
        if not table or count != len(MEANINGS):  # libraries define theirs as they are imported
            meanings = {op: in_process_meaning(op) for op in MEANINGS}
            table = ChainMap(meanings, decompositions())
            left = {op: table[op] for op in table if op not in self._whole}
            self._known = len(MEANINGS), left if self._whole else table
        return self._known[1]

    def __getitem__(self, operator: Any) -> Callable[..., Any]:
        return self._table[operator]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def _partitioned(joint: GraphModule, inputs: Any, **named: Any) -> Any:
    """Forward and backward graphs of a joint graph by torch's min cut; random numbers are not drawn
    again, and operands of comparisons are not recomputed."""
    from aotc.aot.dynamo.recomputed_norms import part_recomputed_norms
    from aotc.aot.dynamo.region_blocks import note_storage_reads
    from aotc.aot.dynamo.rng_functionalization import keep_random
    from aotc.aot.dynamo.saved_comparisons import keep_compared

    keep_random(joint)
    keep_compared(joint)
    part_recomputed_norms(joint)
    forward, backward = min_cut_rematerialization_partition(joint, inputs, **named)
    note_storage_reads(forward, backward)
    return forward, backward


def differentiated(module: Any, inputs: Sequence[Any], options: Options) -> Callable[..., Any]:
    """The callable of one of Dynamo's graphs, whose forward and backward parts we compile."""
    if torch.autograd.forward_ad._current_level >= 0:
        from aotc.aot.dynamo.fallback import leave_tangents

        return leave_tangents(module, options.fallback)

    def compiled(graph: GraphModule, examples: Sequence[Any], *ends: Ends) -> CompiledGraph:
        from aotc.aot.dynamo.graphs import compile_graph

        with torch._subclasses.fake_tensor.unset_fake_temporarily():
            return CompiledGraph(*compile_graph(graph, examples, options, *ends))

    check_gradients(module)
    setattr(module, TEXT, f"{options} {toolchain_digest()} {digest_of(registered())} {facts()}")
    if any(isinstance(each, list | tuple | dict) for each in inputs):
        return flatten_graph_inputs(  # type: ignore[no-any-return]
            module, inputs, lambda flat, given: _simplified(flat, given, compiled, options)
        )
    return _simplified(module, inputs, compiled, options)


def _simplified(
    module: Any, inputs: Sequence[Any], compiled: Compiler, options: Options
) -> Callable[..., Any]:
    """AOTAutograd as torch's own back ends call it, less what imports Inductor for its logs."""
    joint = JointGraph()

    def forward(graph: GraphModule, examples: Sequence[Any]) -> CompiledGraph:
        from aotc.aot.dynamo.layouts import hide, saved_range

        saved = saved_range()
        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            joint.take_donated(graph, context.fw_metadata, saved[0])
            # Our backward graphs look themselves whether theirs is retained: torch would refuse it.
            context.fw_metadata.bw_donated_idxs = []
        hide(graph, *saved)
        return compiled(graph, examples, joint.forward_ends(saved, options))

    @functools.partial(torch._dynamo.disable, reason="a compiler of backward graphs")
    def backward(graph: GraphModule, examples: Sequence[Any]) -> Any:
        from aotc.aot.dynamo.layouts import hide

        hide(graph)
        call = compiled(graph, examples, joint.backward_ends(examples))
        return torch._dynamo.disable(call, reason="a compiled backward graph")

    from aotc.aot.dynamo.composites import traced_otherwise

    repair_shapes()
    keep_their_gradients_apart()
    # Whole results are kept, and the backward graph is compiled at once so that they are whole.
    # A checkpoint keeps the state of a device's generator as a tensor, as on the CPU.
    patch = {
        "bundled_autograd_cache": True,
        "force_non_lazy_backward_lowering": True,
        "graphsafe_rng_functionalization": False,
    }
    has_flow = any(map(graphs_of, module.graph.nodes))
    with (
        functorch_config.patch(patch),
        our_keys(),
        traced_otherwise(),
        _graphs_inside() if has_flow else nullcontext(),
        _computing_from_the_first_call(),
    ):
        call = kept(module) or aot_module_simplified(
            module,
            inputs,
            fw_compiler=SerializableAOTDispatchCompiler(CompiledGraph, forward),
            bw_compiler=SerializableAOTDispatchCompiler(CompiledGraph, backward),
            inference_compiler=SerializableAOTDispatchCompiler(CompiledGraph, compiled),
            partition_fn=_partitioned,
            decompositions=_Decompositions(NEEDED_BY_FLOW if has_flow else ()),
        )
    return torch._dynamo.disable(call, reason="a compiled graph")  # type: ignore[no-any-return]


@contextmanager
def _computing_from_the_first_call() -> Iterator[None]:
    """Inside the block AOTAutograd makes callables whose first call computes.

    Dynamo cuts the graph of a `DistributedDataParallel` at its buckets and compiles the parts one
    after the other. By a flag it asks for callables whose first call gives fake tensors, since
    Inductor chooses strides of results itself, and makes that call where torch's own class
    `AotAutograd` has counted a compilation, as for regions that are left to Inductor. Here none is
    counted: our results lie as traced, and Dynamo finds their strides by running the part itself. A
    graph out of the cache would not do as the flag says.
    """
    context = torch._guards.TracingContext.try_get()
    if context is None or not context.fakify_first_call:
        yield
        return
    counted = torch._dynamo.utils.counters["aot_autograd"]
    total, context.fakify_first_call = counted["total"], False
    try:
        yield
    finally:
        counted["total"], context.fakify_first_call = total, True


@contextmanager
def _graphs_inside() -> Iterator[None]:
    """Inside the block `flex_attention` on the CPU is traced as arithmetic, and numbers of tensors
    may be sizes of a trace, as of the turns of a loop.

    torch's gradient of `while_loop` asks for these, and Dynamo permits it by a switch of its own
    for what the user's code reads.
    """
    from aotc.aot.capture.flex_attention import flex_attention_traced

    with flex_attention_traced(lambda query: query.is_cpu), _numbers_read():
        yield


@contextmanager
def _numbers_read() -> Iterator[None]:
    mode = torch._guards.detect_fake_mode()
    shapes = None if mode is None else mode.shape_env
    if shapes is None:
        yield
        return
    before = shapes.settings
    shapes.settings = replace(before, allow_scalar_outputs=True)
    try:
        yield
    finally:
        shapes.settings = before


# -- ops without a backward ------------------------------------------------------------------------


DIFFERENTIATED = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
SWITCH = torch._C._set_grad_enabled


def check_gradients(module: GraphModule) -> None:
    """Raise `GradientMissing` for a call of such an op where a gradient goes through it."""
    is_on = torch.is_grad_enabled()
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is SWITCH:
            is_on = bool(node.args[0])
        elif (
            is_on
            and is_users_op(node.target)
            and not _has_backward(node.target)
            and _is_on_path(node)
        ):
            raise GradientMissing(op=str(node.target))


def _has_backward(target: Any) -> bool:
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    return any(known(name, key) for name in _names(target) for key in DIFFERENTIATED)


def _names(target: Any) -> Iterator[str]:
    if isinstance(target, torch._ops.OpOverload):
        yield target.name()
        return
    for overload in target.overloads():
        yield getattr(target, overload).name()


def _is_on_path(node: Node) -> bool:
    """Whether a gradient is taken of an operand, and a result could have one."""
    is_asked = any(
        isinstance(value := each.meta.get(EXAMPLE), torch.Tensor) and value.requires_grad
        for each in node.all_input_nodes
    )
    results = node.meta.get(EXAMPLE)
    rows = results if isinstance(results, tuple | list) else (results,)
    return is_asked and any(
        isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex())
        for each in rows
    )

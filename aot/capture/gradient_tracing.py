"""A model that computes gradients in its forward, such as forces of an energy, for torch.export.

torch.export traces above autograd, where `torch.autograd.grad` and the transforms of `torch.func`
(`grad`, `vmap`, `jvp`, `jacrev`) are not yet the ops that they run: their wrappers of tensors get
into the program, and torch 2.13 ends the process when it decomposes some of these. So the model
is traced once more below autograd, inside of the export and on its sizes, and the export sees the
ops of that trace alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import overrides
from torch._C import _autograd, _functorch
from torch._decomp import get_decompositions
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.export import ExportedProgram
from torch.fx import traceback
from torch.fx.experimental.proxy_tensor import (
    PreDispatchTorchFunctionMode,
    disable_proxy_modes_tracing,
    make_fx,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aotc.aot.capture.aliases import aliased_placeholders, arguments_written
from aotc.aot.capture.source_lines import all_user_frames

NO_LEVEL = -1  # of forward mode differentiation
# Composite ops that have kernels as well, for which torch.export does not ask its table.
COMPOSITES = (torch.ops.aten.mish_backward, torch.ops.aten.silu_backward)


@contextmanager
def traced_below_autograd(module: torch.nn.Module) -> Iterator[None]:
    """Inside the block exports of `module` see the ops that its gradients and transforms run."""
    own = vars(module).get("forward")
    module.forward = _traced(module)
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


@contextmanager
def gradients_on(module: torch.nn.Module) -> Iterator[None]:
    """Inside the block calls of `module` record gradients, whatever the mode, and give tensors
    without them: for models that call `requires_grad_` and leave the mode as torch has it."""
    own, original = vars(module).get("forward"), module.forward

    @functools.wraps(original)
    def forward(*arguments: Any, **keywords: Any) -> Any:
        with torch.enable_grad():
            given = pytree.tree_map_only(torch.Tensor, _apart, (arguments, keywords))
            found = original(*given[0], **given[1])
            return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, found)

    module.forward = forward
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


@contextmanager
def transforms_undone() -> Iterator[None]:
    """A block leaves no transform of `torch.func` behind, whether it raises inside of one or not.

    An export may have entered one and not left it, and all that follows would run in it.
    """
    depth, level = _functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level
    has_hooks = _autograd._saved_tensors_hooks_is_enabled()
    try:
        yield
    except BaseException:
        if level == NO_LEVEL:
            forward_ad._current_level = NO_LEVEL
            with suppress(RuntimeError):  # there is one at most, which nothing asks for
                torch._C._enter_dual_level()
            torch._C._exit_dual_level(level=0)
        raise
    finally:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if has_hooks:  # of saved tensors, which transforms turn off
            _autograd._saved_tensors_hooks_enable()


def check_no_wrappers(program: ExportedProgram) -> None:
    """Raise `RuntimeError` where a constant of the program is a wrapper that a transform made."""
    for name, each in program.constants.items():
        if isinstance(each, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(each):
            raise RuntimeError(f"`{name}` of the program is a tensor inside of `torch.func`")


def _traced(module: torch.nn.Module) -> Callable[..., Any]:
    """The module's forward as the ops that it runs below autograd."""
    original: Callable[..., Any] = module.forward

    @functools.wraps(original)  # for the names of its arguments
    def forward(*arguments: Any, **keywords: Any) -> Any:
        leaves, nesting = pytree.tree_flatten((arguments, keywords))
        places = [at for at, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        held = dict([*module.named_parameters(), *module.named_buffers()])
        given = [*held.values(), *(leaves[at] for at in places)]
        nestings: list[pytree.TreeSpec] = []

        def run(*tensors: torch.Tensor) -> list[Any]:
            for at, tensor in zip(places, tensors[len(held) :], strict=True):
                leaves[at] = tensor
            positional, named = pytree.tree_unflatten(leaves, nesting)
            tensors_by_name = dict(zip(held, tensors, strict=False))
            with (
                _reparametrize_module(module, tensors_by_name, tie_weights=True),
                _on_one_device(tensors),
            ):
                found, nested = pytree.tree_flatten(original(*positional, **named))
            nestings[:] = [nested]
            return [each.detach() if isinstance(each, torch.Tensor) else each for each in found]

        # Attention as arithmetic, of which gradients of gradients are known too.
        with _below_autograd(), all_user_frames(__file__), sdpa_kernel(SDPBackend.MATH):
            trace = make_fx(run, get_decompositions(COMPOSITES), record_stack_traces=True)
            traced = trace(*map(_alike, given))
        _check_weights(traced.graph, len(dict(module.named_parameters())))
        # Among it tangents of what has none, which torch makes without data.
        traced.graph.eliminate_dead_code()
        with traceback.preserve_node_meta():  # the user's lines
            found = torch.fx.Interpreter(traced).run(*given)
        if any(isinstance(each, torch.Tensor) and each.is_meta for each in found):
            raise RuntimeError("torch loses the device of a tangent that is 0")  # 2.13 does
        return pytree.tree_unflatten(found, nestings[0])

    return forward


class _OnDevice(TorchDispatchMode):
    """Has what torch 2.13 asks for on a device without data, for tangents that are 0, be on the
    device of the model."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        named = dict(kwargs or {})
        if getattr(named.get("device"), "type", "") == "meta":
            named["device"] = self.device
        return function(*args, **named)


def _on_one_device(given: Sequence[torch.Tensor]) -> Any:
    """The mode for a model whose tensors are on one device."""
    devices = {each.device for each in given}
    return _OnDevice(*devices) if len(devices) == 1 else nullcontext()


def _check_weights(graph: torch.fx.Graph, count: int) -> None:
    """Raise `RuntimeError` where the graph writes to one of its first inputs, which are weights."""
    roots = aliased_placeholders(graph)
    weights = set([each for each in graph.nodes if each.op == "placeholder"][:count])
    for call in graph.nodes:
        if any(weights & roots.get(each, frozenset()) for each in arguments_written(call)):
            raise RuntimeError(f"`{call}` changes a weight")


@contextmanager
def _below_autograd() -> Iterator[None]:
    """Without the modes of torch.export that have autograd and transforms traced as they stand."""
    modes = [overrides._pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    kept = [each for each in modes if not isinstance(each, PreDispatchTorchFunctionMode)]
    _push(kept)
    try:
        with disable_proxy_modes_tracing():
            yield
    finally:
        for _ in kept:
            overrides._pop_mode()
        _push(modes)


def _push(modes: list[Any]) -> None:
    """Modes in the order in which they were popped."""
    for mode in reversed(modes):
        overrides._push_mode(mode)


def _apart(tensor: torch.Tensor) -> torch.Tensor:
    """The same data in a tensor of its own, whose `requires_grad` is nobody else's."""
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    """One of the same sizes and strides that no trace has seen, of zeros: places that kernels take
    unchecked are within what they are places in."""
    how = {"dtype": tensor.dtype, "device": tensor.device, "requires_grad": tensor.requires_grad}
    made = torch.empty_strided(tensor.size(), tensor.stride(), **how)
    if not isinstance(made, FakeTensor):
        made.untyped_storage().fill_(0)
    return made

"""Keys of torch's AOTAutograd cache for Dynamo's graphs, and a lookup before AOTAutograd begins.

**The key.** torch's own key also covers everything that Inductor depends on, and imports Inductor
for it, which takes longer than the rest of a start. Ours covers what the trace depends on, as
torch's does, and a text that the back end leaves on the module: its options and the toolchain.

**The text of a graph** has all that a trace of it depends on, if its shapes are fixed. torch's way
to a key pickles the graph and tensors made fake anew, which is the longest part of a warm start.
This text is made of Dynamo's graph, and of the fake tensors that Dynamo made.

**The lookup.** torch's own lookup comes after fake tensors of all arguments are made, which costs
more than all that follows. Graphs with dynamic sizes take that way, since the guards of an entry
need them.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import config as inductor_config
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node

TEXT = "_aotc_key"  # attribute of a module that is ours
NAME = "autograd_cache_key"


@contextmanager
def our_keys() -> Iterator[None]:
    """Inside the block torch asks us for the keys of modules that carry our text."""
    original = getattr(autograd_cache, NAME)
    setattr(autograd_cache, NAME, functools.partial(_key, original))
    try:
        yield
    finally:
        setattr(autograd_cache, NAME, original)


def key_of_fixed(module: GraphModule) -> str | None:
    """The key of a graph that carries our text, by nothing but itself; None where that is not all.

    Raises what torch raises for graphs that must not be kept.
    """
    autograd_cache.check_cacheable(module)
    try:
        text = graph_text(module)
    except Unprintable:
        return None
    facts = (getattr(module, TEXT), *_state(), text)
    return f"aotc_{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def _key(
    original: Callable[..., tuple[str, list[str]]],
    module: Any,
    examples: Sequence[Any],
    settings: Any,
    *rest: Any,
    **named: Any,
) -> tuple[str, list[str]]:
    graph = getattr(module, "gm", module)
    if not hasattr(graph, TEXT):
        return original(module, examples, settings, *rest, **named)
    key = key_of_fixed(graph) if graph is module else None
    if key is not None:
        return key, []
    # The code of ops of the user's is in torch's own key, where it can be hashed.
    more = original(module, examples, settings)[0] if has_user_ops(graph) else ""
    with autograd_cache.sanitize_gm_for_cache(graph):
        facts = (getattr(graph, TEXT), graph, list(examples), settings, _state(), more)
        return f"aotc_{autograd_cache.AOTAutogradCachePickler(graph).get_hash(facts)}", []


def _state() -> tuple[Any, ...]:
    """What a trace depends on beside the graph and its inputs."""
    devices = torch._C._autocast_supported_devices()
    autocast = tuple(
        (name, str(torch.get_autocast_dtype(name)))
        for name in devices
        if torch.is_autocast_enabled(name)
    )
    return (
        torch.__version__,
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        str(torch.get_default_dtype()),
        autocast,
        functorch_config.get_hash(),
        inductor_config.get_hash(),
    )


# -- a graph as text -------------------------------------------------------------------------------


EXAMPLE, SOURCE = "example_value", "_dynamo_source"  # where Dynamo notes them
TORCHS_OPERATORS = frozenset({"aten", "prims", "prim"})  # namespaces of ops
SAVED_HOOKS = "saved_tensors_hooks_pack_0"  # attribute of a module with hooks of the user's


class Unprintable(Exception):
    """A graph has what the text cannot say: sizes that vary, modules, ops of the user's."""


def graph_text(module: GraphModule) -> str:
    """The text of a graph; raises `Unprintable`."""
    if hasattr(module, SAVED_HOOKS) or next(module.parameters(), None) is not None:
        raise Unprintable("a module with a state or hooks")
    numbers: dict[Node, int] = {}
    memory: dict[int, int] = {}
    lines = []
    for node in module.graph.nodes:
        lines.append(_LINES.get(node.op, _refused)(node, numbers, memory))
        numbers[node] = len(numbers)
    return "\n".join(lines)


def has_user_ops(module: GraphModule) -> bool:
    """Whether ops of the user's are called, whose code the graph does not show."""
    return any(is_users_op(node.target) for node in module.graph.nodes)


def is_users_op(target: Any) -> bool:
    """Whether a function is an op that torch does not define."""
    is_operator = isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket)
    return is_operator and re.split(r"\.|::", str(target))[0] not in TORCHS_OPERATORS


def _refused(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    raise Unprintable(f"a node of kind {node.op}")


def _placeholder(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    """An argument: its layout, its place in autograd, and its source, which duplicates go by."""
    value = node.meta.get(EXAMPLE)
    if not isinstance(value, FakeTensor) or value.layout != torch.strided:
        raise Unprintable("an argument that is not a plain tensor")
    numbers_of_layout = (*value.shape, *value.stride(), value.storage_offset())
    storage = value.untyped_storage()
    if any(type(each) is not int for each in (*numbers_of_layout, storage.nbytes())):
        raise Unprintable("sizes that vary")
    if memory.setdefault(storage._cdata, len(numbers)) != len(numbers):
        raise Unprintable("arguments that share memory")
    flags = (value.requires_grad, value.is_leaf, value.is_inference())
    lazy = (value.is_conj(), value.is_neg())
    source = getattr(node, SOURCE, None)
    name = "" if source is None else source.name
    layout = f"{value.dtype} {value.device} {numbers_of_layout}"
    return f"argument {name} {layout} {storage.nbytes()} {flags} {lazy}"


def _call(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    if node.meta.get("is_wrapped") or node.meta.get("custom"):
        raise Unprintable("a node with a note of the user's")
    target = node.target if isinstance(node.target, str) else _function(node.target)
    return f"{target} {_value(node.args, numbers)} {_value(node.kwargs, numbers)}"


def _output(node: Node, numbers: Mapping[Node, int], memory: dict[int, int]) -> str:
    return f"output {_value(node.args, numbers)}"


_LINES: Mapping[str, Callable[[Node, Mapping[Node, int], dict[int, int]], str]] = {
    "placeholder": _placeholder,
    "call_function": _call,
    "call_method": _call,
    "output": _output,
}


def _function(target: Any) -> str:
    """A function's name; torch's own check has found by now that torch defines it."""
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        if is_users_op(target):
            raise Unprintable(f"an op of the user's: {target}")
        return f"op {target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        raise Unprintable(f"the operator {target}")
    name = getattr(target, "__qualname__", None)
    if name is None or "<" in name:
        raise Unprintable("a function without a name")
    return f"{type(target).__name__} {getattr(target, '__module__', None)} {name}"


# Types whose values are said by `repr`, in full and always in the same words.
_PLAIN = frozenset(
    {bool, int, float, complex, str, type(None), type(Ellipsis)}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format}
)


def _value(value: Any, numbers: Mapping[Node, int]) -> str:
    kind = type(value)
    if kind is Node:
        return f"%{numbers[value]}"
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, tuple | list):
        return f"{kind.__name__}({', '.join([_value(each, numbers) for each in value])})"
    if isinstance(value, dict):
        pairs = [
            f"{_value(name, numbers)}: {_value(each, numbers)}" for name, each in value.items()
        ]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, slice):
        return f"slice{_value((value.start, value.stop, value.step), numbers)}"
    raise Unprintable(f"an argument of type {kind.__name__}")


# -- what the cache keeps --------------------------------------------------------------------------


log = logging.getLogger("aotc")


def kept(module: GraphModule) -> Callable[..., Any] | None:
    """The callable of a graph that carries our text, where the cache has it and its programs."""
    if not _is_local():
        return None
    try:
        key = key_of_fixed(module)
        cache = autograd_cache.AOTAutogradCache
        found = None if key is None else cache._lookup(key, True, False, [], {}, None)
        if found is None:
            return None
        entry, _ = found
        settings = autograd_cache.create_fx_config()
        call = entry.wrap_post_compile([], entry.sanitized_aot_config, settings)
    except (autograd_cache.BypassAOTAutogradCache, autograd_cache.FXGraphCacheMiss):
        return None
    except Exception as error:  # an entry that torch cannot open; AOTAutograd's own way stays
        log.debug("aotc: AOTAutograd is asked for a kept graph: %s", error)
        return None

    def flat(*arguments: Any) -> Any:
        return call(list(arguments))

    return flat


def _is_local() -> bool:
    """Whether the cache is in use, on this machine alone, and its entries are nobody else's."""
    return (
        autograd_cache.should_use_local_autograd_cache()
        and not autograd_cache.should_use_remote_autograd_cache()
        and not torch._dynamo.config.caching_precompile
    )

"""The key under which torch's AOTAutograd cache keeps what came of one of Dynamo's graphs.

torch's own key also covers all that Inductor depends on, and imports Inductor for it, which takes
longer than the rest of a start. Ours covers what the trace depends on, as torch's does, and a text
that the back end leaves on the module: its options and the toolchain.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import config as inductor_config
from torch.fx import GraphModule

from aotc.aot.dynamo.graph_text import Unprintable, graph_text, has_user_ops

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

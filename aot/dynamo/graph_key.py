"""The key under which torch's AOTAutograd cache keeps what came of one of Dynamo's graphs.

torch's own key also covers all that Inductor depends on, and imports Inductor for it, which takes
longer than the rest of a start. Ours covers what the trace depends on, as torch's does, and a text
that the back end leaves on the module: its options and the toolchain.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import config as inductor_config

TEXT = "_aotc_key"  # attribute of a module that is ours
NAME = "autograd_cache_key"


@contextmanager
def own_keys() -> Iterator[None]:
    """Inside the block torch asks us for the keys of modules that carry our text."""
    original = getattr(autograd_cache, NAME)
    setattr(autograd_cache, NAME, functools.partial(_key, original))
    try:
        yield
    finally:
        setattr(autograd_cache, NAME, original)


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
    with autograd_cache.sanitize_gm_for_cache(graph):
        autograd_cache.check_cacheable(graph)
        facts = (getattr(graph, TEXT), graph, list(examples), settings, _state())
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

"""What torch's AOTAutograd cache keeps of a graph of fixed shapes, found before AOTAutograd begins.

torch's own look-up stands behind the making of fake tensors of all arguments, which costs more than
all that follows. Graphs with sizes that vary go that way, since guards of an entry ask for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch._functorch._aot_autograd import autograd_cache
from torch.fx import GraphModule

from aotc.aot.dynamo.graph_key import key_of_fixed

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

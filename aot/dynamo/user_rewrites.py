"""The rewrites that users registered in this process, on the graphs of torch.compile."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aotc.aot.capture.tracing import traced
from aotc.aot.host_kernels import kernels_of
from aotc.aot.ir.graph import Graph, Node
from aotc.aot.rewrites.apply_user_rewrites import UserRewriteLog, apply_user_rewrites
from aotc.aot.rewrites.registry import registered
from aotc.runtime import settings


def apply_registered(graph: Graph, follow: Sequence[Node] = ()) -> tuple[Graph, UserRewriteLog]:
    """`graph` with the registered rewrites, and what they did; raises their errors."""
    skip = settings.read("AOTC_SKIP").value
    own = tuple(each for each in registered() if each.name not in skip)
    if not own:
        return graph, UserRewriteLog(images=dict(zip(follow, follow, strict=True)))
    # Right sides are traced for themselves, not as a part of what torch.compile is tracing.
    with kernels_of(own), torch._guards.tracing(None):
        return apply_user_rewrites(graph, own, traced, follow)

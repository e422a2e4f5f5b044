"""Runs a model's own Triton kernels on host tensors wherever torch runs the model in a build."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from aotc.aot.capture.spec import Spec, has_host_kernels
from aotc.aot.rewrites.registry import UserRewrite
from aotc.kernels import on_cpu


def host_kernels(spec: Spec) -> AbstractContextManager[None]:
    """The CPU as Triton's driver for a model in host memory, where any op is a Triton kernel."""
    return on_cpu() if has_host_kernels(spec) else nullcontext()


def kernels_of(rewrites: Sequence[UserRewrite]) -> AbstractContextManager[None]:
    """The same for the user's rewrites whose right sides are torch's."""
    return on_cpu() if any(each.with_torch for each in rewrites) else nullcontext()

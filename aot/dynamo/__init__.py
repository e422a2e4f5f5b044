"""Back ends of torch.compile, as torch finds them: the entry points `torch_dynamo_backends`.

Each is `(GraphModule, example inputs, options) → callable`; nothing is imported before its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def aotc(
    module: Any,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: Any = None,
) -> Callable[..., Any]:
    """Forward and backward graphs by our kernels, in this process: `backend="aotc"`.

    Raises `OptionUnknown` and `OptionInvalid`. A start that finds everything in the caches imports
    none of the compiler's stages.
    """
    from aotc.aot.dynamo.autograd import differentiated
    from aotc.aot.dynamo.options import read_options

    return differentiated(module, inputs, read_options(options, mode))


def aotc_rewrite(
    module: Any,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: Any = None,
) -> Callable[..., Any]:
    """The graph with our rewrites, compiled by Inductor: `backend="aotc_rewrite"`."""
    from aotc.aot.dynamo.rewrite_backend import rewritten

    return rewritten(module, inputs, options or {}, mode)


def aotc_debug(
    module: Any,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: Any = None,
) -> Callable[..., Any]:
    """The graph described, and run as it is: `backend="aotc_debug"`."""
    from aotc.aot.dynamo.debug_backend import described

    return described(module, inputs, options or {})

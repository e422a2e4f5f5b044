"""`backend="aotc"`: AOTAutograd's graphs, forward and backward, through our stages.

A start that finds everything in the caches imports none of the compiler, so the stages are imported
where the first graph needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aotc.aot.dynamo.autograd import differentiated
from aotc.aot.dynamo.options import read_options


def compiled(
    module: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None, mode: str | None = None
) -> Callable[..., Any]:
    """The callable of one of Dynamo's graphs; raises `OptionUnknown` and `OptionInvalid`."""
    return differentiated(module, inputs, read_options(options, mode))

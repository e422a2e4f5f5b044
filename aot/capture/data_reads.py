"""Where a model reads its data into Python: all places of a call, since an export ends at one."""

from __future__ import annotations

import linecache
import traceback
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from aotc.aot.capture.user_code import users_innermost

# Methods of a tensor whose result is Python's.
READS = frozenset({
    "__array__", "__bool__", "__complex__", "__contains__", "__float__", "__index__", "__int__",
    "item", "numpy", "tolist",
})  # fmt: skip


class DataReads(TorchFunctionMode):
    """Runs calls as they are, and keeps the user's lines that read a tensor's elements."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, None] = {}

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") in READS and isinstance(args[0], torch.Tensor):
            source = users_innermost("".join(traceback.format_stack()))
            if source is not None:
                line = linecache.getline(source.path, source.line_number).strip()
                self.lines.setdefault(f"{source}: {line}" if line else str(source))
        return function(*args, **(kwargs or {}))

"""Where in the user's model a node comes from, read from torch's stack traces."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH_ROOT = str(Path(torch.__file__).parent)


@dataclass(frozen=True, slots=True)
class Source:
    """One line of the user's model. Prints as `model.py:31 in forward`."""

    path: str
    line_number: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line_number} in {self.function}"


def source_of(node: torch.fx.Node) -> Source | None:
    """The innermost line outside of torch that made `node`; torch's own when there is no other."""
    return innermost(node.meta.get("stack_trace") or "")


def innermost(trace: str) -> Source | None:
    """The innermost frame of a printed traceback that is not torch's, else the innermost."""
    frames = [Source(path, int(line), name) for path, line, name in _FRAME.findall(trace)]
    outside = [frame for frame in frames if not frame.path.startswith(_TORCH_ROOT)]
    return (outside or frames or [None])[-1]

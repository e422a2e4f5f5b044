"""Where in the user's model a node comes from, read from torch's stack traces."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx.proxy import TracerBase

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH_ROOT = str(Path(torch.__file__).parent)
# Not the user's: torch, the code that it generates, and this stage.
_FOREIGN_ROOTS = (_TORCH_ROOT, "<eval_with_key>", str(Path(__file__).parent))


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
    """The innermost frame of a printed traceback that is the user's, else the innermost."""
    frames = [Source(path, int(line), name) for path, line, name in _FRAME.findall(trace)]
    outside = [frame for frame in frames if not frame.path.startswith(_FOREIGN_ROOTS)]
    candidates = outside or frames
    return candidates[-1] if candidates else None


@contextmanager
def all_user_frames(entry: str) -> Iterator[None]:
    """torch.export keeps every line of the user's that runs below the file `entry`.

    torch keeps those of functions named `forward` only, which leaves out plain functions and the
    helpers that a model calls. A torch without this hook falls back to its own choice.
    """
    name = "_filter_traceback_frames"
    original = getattr(TracerBase, name, None)
    if original is None:
        yield
        return

    def keep(tracer: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        starts = [place for place, frame in enumerate(frames) if frame.filename == entry]
        below = frames[starts[-1] + 1 :] if starts else original(tracer, frames)
        kept = [frame for frame in below if not frame.filename.startswith(_TORCH_ROOT)]
        return traceback.StackSummary.from_list(kept)

    setattr(TracerBase, name, keep)
    try:
        yield
    finally:
        setattr(TracerBase, name, original)

"""Where in the user's model a node comes from, read from torch's stack traces."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.fx.proxy import TracerBase

from aotc.aot.capture.user_code import Source, innermost

_TORCH_ROOT = str(Path(torch.__file__).parent)


def source_of(node: torch.fx.Node) -> Source | None:
    """The innermost line outside of torch that made `node`; torch's own when there is no other."""
    return innermost(node.meta.get("stack_trace") or "")


def source_line(node: torch.fx.Node) -> str | None:
    """The same as text: `model.py:31 in forward`."""
    source = source_of(node)
    return str(source) if source else None


@contextmanager
def all_user_frames(entry: str) -> Iterator[None]:
    """torch.export keeps every line of the user's that runs below the file `entry`.

    torch keeps those of functions named `forward` only, which leaves out plain functions and the
    helpers that a model calls. A torch without this hook falls back to its own choice. Modes of
    that file stand between the user's lines and the op.
    """
    name = "_filter_traceback_frames"
    original = getattr(TracerBase, name, None)
    if original is None:
        yield
        return

    def keep(tracer: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        frames = traceback.StackSummary.from_list(
            frame
            for frame in frames
            if (frame.filename, frame.name) != (entry, "__torch_dispatch__")
        )
        starts = [place for place, frame in enumerate(frames) if frame.filename == entry]
        below = frames[starts[-1] + 1 :] if starts else original(tracer, frames)
        kept = [frame for frame in below if not frame.filename.startswith(_TORCH_ROOT)]
        return traceback.StackSummary.from_list(kept)

    setattr(TracerBase, name, keep)
    try:
        yield
    finally:
        setattr(TracerBase, name, original)

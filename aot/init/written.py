"""What `aotc init` writes: a spec's text, and what is said of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Written:
    """A spec's text; the model in words; its example inputs by name; where their sizes are from."""

    text: str
    model: str
    parameters: int
    inputs: Mapping[str, str] = field(default_factory=dict)
    sources: Sequence[str] = ()
    notes: Sequence[str] = ()


def literal(text: str) -> str:
    """A text as Python code, in double quotes: a path may hold any character and byte."""
    quoted = (json.dumps(each) if ord(each) < 0x10000 else f'"{each}"' for each in text)
    return f'"{"".join(each[1:-1] for each in quoted)}"'


def dims_text(shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Lines of comment that show how sizes vary; none without arrays. shapes: by argument."""
    if not shapes:
        return []
    first = {size[0] for size in shapes.values()}
    if len(first) != 1:
        return []
    rows = [f'#     "{name}": {{0: batch}},' for name in shapes]
    return [
        "# One bundle for several sizes, where the model's operations do not fix them:",
        '# batch = torch.export.Dim("batch", min=1, max=64)',
        "# dynamic_shapes = {",
        *rows,
        "# }",
    ]

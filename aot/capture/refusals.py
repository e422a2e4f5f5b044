"""What torch.export's refusals become: its reason, the user's line, and the usual cure."""

from __future__ import annotations

import linecache
import re
import traceback
from dataclasses import dataclass

from aotc.aot.capture.sources import innermost
from aotc.aot.errors import ExportFailed


@dataclass(frozen=True, slots=True)
class Cure:
    """What to do about refusals whose reason holds `sign`; `meaning` is the reason in our words."""

    sign: str
    meaning: str
    cure: str


# The first row whose sign is in torch's reason; the last one fits all.
CURES = (
    Cure(
        "specialized integer from data-dependent",
        "a size or an index is the value of a tensor",
        "keep the full size and mask what lies beyond, or pass the number as an argument, which "
        "is fixed at build time",
    ),
    Cure(
        "data-dependent",
        "control flow depends on the value of a tensor",
        "write an `if` as `torch.where` of both results, and a loop with a fixed number of turns "
        "and a mask of those that count",
    ),
    Cure(
        ".numpy()",
        "the model leaves torch",
        "compute with torch's ops: what numpy does inside the model is not in the graph",
    ),
    Cure(
        "not a known type",
        "an argument or the result holds an object that torch cannot take apart",
        "leave it out of the result (`use_cache=False` in transformers), or register its type with "
        "`torch.utils._pytree.register_pytree_node`",
    ),
    Cure(
        "Constraints violated",
        "the model does not hold for all sizes that `dynamic_shapes` allows",
        "give the dims the ranges that torch suggests, or `Dim.AUTO`, which finds them",
    ),
    Cure("", "", "control flow may depend on shapes and settings, not on the values of tensors"),
)


def export_refusal(error: Exception, path: str) -> ExportFailed:
    """The error for what torch.export raised; `path` stands in for an unknown line."""
    reason = _reason(error)
    row = next(row for row in CURES if row.sign in reason)
    detail = f"{row.meaning} ({reason})" if row.meaning else reason
    return ExportFailed(detail=detail, source=_place(error, path), cure=row.cure)


def is_of_data(refused: Exception) -> bool:
    """Whether a refusal is of data that decides, which no mode of torch.export takes."""
    return isinstance(refused, ExportFailed) and "data-dependent" in refused.detail


def _reason(error: Exception) -> str:
    """torch's own reason as one paragraph: its message up to the first advice or trace."""
    text = re.split(r"\n\s*\n|\n\s*(?:Hint|Developer|User stack|To fix)", str(error).strip())[0]
    text = re.sub(r" *\((?:unhinted|Size-like symbols): [^)]*\)\)?\.?", "", text)
    return " ".join(text.split()).rstrip(".")


def _place(error: Exception, path: str) -> str:
    """`model.py:31 in forward: if x.sum() > 0:`."""
    trace = "".join(traceback.format_tb(error.__traceback__))
    source = innermost(f"{trace}{_own_trace(str(error))}")
    if source is None:
        return path
    line = linecache.getline(source.path, source.line_number).strip()
    return f"{source}: {line}" if line else str(source)


def _own_trace(message: str) -> str:
    # torch prints the user's stack in the message of data-dependent errors.
    _, found, tail = message.partition("User Stack")
    return tail if found else ""

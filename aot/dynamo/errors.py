"""Errors of the back ends of torch.compile."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError, UserError
from aotc.runtime.errors import AotcError


class OptionUnknown(UserError):
    """`torch.compile(…, options={…})` has a name that the back end does not know."""

    code = "dynamo-option-unknown"
    template = "option `{name}` of backend `{backend}` is not known, expected one of: {known}"
    hint = "docs/torch-compile.md lists the options"


class OptionInvalid(UserError):
    """An option of a back end has a value that it does not take."""

    code = "dynamo-option-invalid"
    template = "option `{name}` is {found!r}, expected {expected}"
    hint = "docs/torch-compile.md lists the options"


class GraphRefused(UnsupportedError):
    """A graph of torch.compile has parts that aotc cannot compile, and `fallback` is `error`."""

    code = "dynamo-graph-refused"
    template = "a graph has parts that cannot be compiled:\n{reasons}"
    hint = 'pass `options={{"fallback": "inductor"}}` to leave them to torch'


class GraphDiffers(AotcError):
    """With `check`, the first call of a compiled graph gave other numbers than eager; exit 1."""

    code = "dynamo-graph-differs"
    exit_code = 1
    template = (
        "graph {number} ({kind}) differs from eager: `{name}` has max error {difference:.3g} "
        "relative to max |expected|, expected at most {tolerance:.3g}\n  at {source}"
    )
    hint = "report it with the text of its stages: `AOTC_DUMP=FOLDER`, in `graph-{number}`"


class GradientMissing(UnsupportedError):
    """A gradient goes through an op of the user's that has no backward."""

    code = "dynamo-gradient-missing"
    template = "op `{op}` has no backward, and a gradient of its operands is asked for"
    hint = "register one (`torch.library.register_autograd`), or call the op under `torch.no_grad`"


class CaptureRefused(UnsupportedError):
    """A graph would be compiled while torch records its stream as a CUDA graph."""

    code = "dynamo-capture-refused"
    template = "a graph on a CUDA device is compiled inside of a capture of its stream"
    hint = "call it once with such arguments before `torch.cuda.graph`, forward and backward"

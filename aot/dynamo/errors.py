"""Errors of the back ends of torch.compile."""

from __future__ import annotations

from aotc.aot.errors import UnsupportedError, UserError


class OptionUnknown(UserError):
    """`torch.compile(…, options={…})` has a name that the back end does not know."""

    code = "dynamo-option-unknown"
    template = "option `{name}` of backend `{backend}` is not known, expected one of: {known}"


class OptionInvalid(UserError):
    """An option of a back end has a value that it does not take."""

    code = "dynamo-option-invalid"
    template = "option `{name}` is {found!r}, expected {expected}"


class GraphRefused(UnsupportedError):
    """A graph of torch.compile has parts that aotc cannot compile, and `fallback` is `error`."""

    code = "dynamo-graph-refused"
    template = "a graph has parts that cannot be compiled:\n{reasons}"
    hint = 'pass `options={{"fallback": "inductor"}}` to leave them to torch'


class GradientMissing(UnsupportedError):
    """A gradient goes through an op of the user's that has no backward."""

    code = "dynamo-gradient-missing"
    template = "op `{op}` has no backward, and a gradient of its operands is asked for"
    hint = "register one (`torch.library.register_autograd`), or call the op under `torch.no_grad`"

"""Errors of ops that torch runs for a bundle, beside those of `errors.py`."""

from __future__ import annotations

from .errors import EnvironmentFault, IncompatibleError, InputError


class FallbackUnavailable(IncompatibleError):
    """The bundle has ops that torch runs, and torch or some of them are not here: `ops`."""

    code = "fallback-unavailable"
    template = "`{path}` runs ops through torch, which is {found}, expected {expected}"
    hint = "{advice}, or rebuild the model without `--fallback torch`"


class FallbackFailed(InputError):
    """torch refused to run an op of the bundle on the numbers of this call."""

    code = "fallback-failed"
    template = "`{op}`, which torch runs, raised {kind}: {detail}"
    hint = "the exported model raises the same in torch: look at the inputs of this call"


class FallbackResult(EnvironmentFault):
    """An op gave another type of result than it had when the bundle was built."""

    code = "fallback-result"
    template = "result {index} of `{op}`, which torch runs, is {found}, expected {expected}"
    hint = "the library of the op is another one than at the build: rebuild the bundle with it"

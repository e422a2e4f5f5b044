"""Errors of sizes that a call decides, beside those of `errors.py`."""

from __future__ import annotations

from .errors import InputError


class SizeOutOfRange(InputError):
    """A size that the call decides lies outside of the range that the program was built for."""

    code = "size-range"
    template = "size `{size}` is {found} ({role} `{name}`, dim {axis}), expected {low} to {high}"
    hint = "rebuild with a `Dim` of a wider range, or pad or split the input"


class SizeMismatch(InputError):
    """A dim of an array does not fit the sizes that other dims of the call have."""

    code = "size-mismatch"
    template = "{role} `{name}` has {found} at dim {axis}, expected {expected}"
    hint = "dims that share a name in `dynamic_shapes` have one size in a call"


class SizeGuard(InputError):
    """The sizes of a call break a condition under which the model was exported."""

    code = "size-guard"
    template = "the sizes break `{guard}` ({sizes}), expected sizes for which it holds"
    hint = "the model was exported under this condition: pad the input, or rebuild"


class SizeInvalid(InputError):
    """The sizes of a call are within their ranges, but too large together."""

    code = "size-invalid"
    template = "the sizes of the call lead to {found}, expected {expected}"
    hint = "a tensor may have 2147483647 elements: make the inputs smaller"

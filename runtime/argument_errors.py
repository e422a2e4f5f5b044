"""Errors of nested arguments, fixed values and states, beside those of `errors.py`."""

from __future__ import annotations

from .errors import InputError


class InputStructure(InputError):
    """An argument nests in another way than the model's did."""

    code = "input-structure"
    template = "input `{name}` is {found}, expected {expected}"
    hint = "pass what the model was built with, or all arrays as one flat list"


class InputFixed(InputError):
    """An argument that is no array differs from its value at build time."""

    code = "input-fixed"
    template = "input `{name}` is {found}, expected {expected}: it was fixed at build time"
    hint = "leave it out, or build another bundle with this value in `example_inputs`"


class OutputStructure(InputError):
    """`out=` nests in another way than the program's result."""

    code = "output-structure"
    template = "`{name}` is {found}, expected {expected}"
    hint = "pass an earlier result of the program, or all arrays as one flat list"


class StateUnknown(InputError):
    """A state of a name that the program does not have."""

    code = "state-unknown"
    template = "there is no state `{name}`, expected {expected}"
    hint = "`aotc inspect` lists what a bundle keeps from call to call"


class SessionBusy(InputError):
    """A call of a session while another call of it runs, which works in the same memory."""

    code = "session-busy"
    template = "the session is in a call, expected it to have ended: one thread at a time"
    hint = (
        "give each thread a session of its own, `program.session()`, or call the program itself, "
        "which lends one to each call"
    )


class StateBusy(InputError):
    """A call inside a call of the same thread, which its state cannot serve."""

    code = "state-busy"
    template = "the thread's session is in a call, expected it to have ended"
    hint = "use a session of its own: `program.session()`"


class IndexOutOfRange(InputError, IndexError, RuntimeError):
    """An element of an index lies outside of what it indexes, in the data of a call.

    operation: the op of the model; found: the element; low, high: the range, both ends inside;
    where: the line of the model. torch raises `IndexError` of some ops and `RuntimeError` of
    others; both catch it.
    """

    code = "index-out-of-range"
    template = "index {found} in `{operation}`{where}, expected {low} to {high}"
    hint = "mend the data of the call; its outputs hold nothing of use (docs/data-errors.md)"


class DivisionByZero(InputError, ZeroDivisionError, RuntimeError):
    """An integer is divided by 0 in the data of a call.

    operation: the op of the model; where: its line. torch raises `RuntimeError`.
    """

    code = "division-by-zero"
    template = "divisor 0 in `{operation}`{where}, expected another integer"
    hint = "mend the data of the call; its outputs hold nothing of use (docs/data-errors.md)"


class AssertionFailed(InputError, RuntimeError):
    """What the model asserts of its data does not hold for those of a call.

    asserted: the model's message; where: its line. torch raises `RuntimeError`.
    """

    code = "assertion-failed"
    template = "{asserted}{where}"
    hint = "mend the data of the call; its outputs hold nothing of use (docs/data-errors.md)"

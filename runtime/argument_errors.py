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

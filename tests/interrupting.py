"""Functions ended at each of their steps in turn, as a signal's handler that raises ends them.

Python runs handlers where it enters a function of its own and where a function of C returns. A
profile function is called at the same places, and raises at one of them.
"""

from __future__ import annotations

import sys
import threading

LONGEST_S = 60


class Interrupted(BaseException):
    """What the handler raises."""


def interrupt_at(step, run):
    """Run, and raise at one of its steps; whether it had so many."""
    passed = 0

    def note(frame, event, argument):
        nonlocal passed
        if event in ("call", "c_return"):
            if passed == step:
                sys.setprofile(None)
                raise Interrupted
            passed += 1

    sys.setprofile(note)
    try:
        run()
    except Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def interrupt_everywhere(run, check):
    """Interrupt each step of `run` once, and check after each; the number of steps."""
    step = 0
    while interrupt_at(step, run):
        check()
        step += 1
    return step


def in_another_thread(run):
    """Run in a thread; it must end, and without an error."""
    ended = []
    thread = threading.Thread(target=lambda: ended.append(run()), daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    assert ended

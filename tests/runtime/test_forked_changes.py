"""A fork while another thread changes weights: the child finds them whole, and may change them."""

from __future__ import annotations

import os
import threading
import time

from aotc.runtime.programs.turns import FORKS, holding
from aotc.runtime.programs.weights import Weights

LONGEST_S = 60


def answer_of_child(ask):
    """Whether `ask` is true in a forked process."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if ask() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_waits_for_weights_to_be_put_in_place():
    turn, started, ended = threading.Lock(), threading.Event(), []

    def put():
        started.set()
        time.sleep(0.2)
        ended.append(True)

    def change():
        with FORKS:
            holding([turn], put)

    thread = threading.Thread(target=change)
    thread.start()
    assert started.wait(LONGEST_S)
    assert answer_of_child(lambda: ended and not turn.locked() and FORKS.acquire(False))
    thread.join()


def test_a_child_may_change_weights_that_the_parent_was_computing():
    weights = Weights({}, "bundle")
    started, ended = threading.Event(), threading.Event()

    def compute():
        with weights._turn:
            started.set()
            ended.wait(LONGEST_S)

    thread = threading.Thread(target=compute)
    thread.start()
    assert started.wait(LONGEST_S)
    assert answer_of_child(lambda: weights._turn.acquire(timeout=LONGEST_S))
    assert weights._turn.locked()
    ended.set()
    thread.join()

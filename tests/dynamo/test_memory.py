"""Memory of results: what a step drops serves the next one."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.slow]
WIDTH, STEPS = 1024, 10
GRADIENTS_BYTES = 2 * 4 * WIDTH * WIDTH  # of a step
PROGRAM = """
import ctypes, json, torch
from torch import nn
from aotc.aot.dynamo import aotc

class Held(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Held

def held():  # bytes that glibc has of the system: heaps, and blocks that are mapped by themselves
    found = mallinfo()
    return found.arena + found.hblkhd

torch.manual_seed(0)
module = nn.Sequential(nn.Linear({width}, {width}), nn.GELU(), nn.Linear({width}, {width}))
compiled = torch.compile(module, backend=aotc, options={{"fallback": "error"}})
x = torch.randn(16, {width})
samples = []
for turn in range(5 + {steps}):
    loss = compiled(x).sum()
    samples.append(held())
    loss.backward()
    samples.append(held())
    module.zero_grad()
    samples.append(held())
print(json.dumps(sum(max(0, one - next) for one, next in zip(samples[15:], samples[16:]))))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_the_memory_of_gradients_serves_the_steps_that_follow():
    """Asked of malloc, not of the system: pages come and go with what else the machine does."""
    # A process of its own: what its malloc has learnt is no other test's.
    code = PROGRAM.format(width=WIDTH, steps=STEPS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    given_back_bytes = json.loads(done.stdout)
    assert given_back_bytes < 0.05 * STEPS * GRADIENTS_BYTES

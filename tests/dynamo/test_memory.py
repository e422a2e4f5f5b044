"""Memory of results: what a step drops serves the next one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.triton, pytest.mark.slow]
PAGE_BYTES, WIDTH, STEPS = 4096, 1024, 10
PROGRAM = """
import json, resource, torch
from torch import nn
from aotc.aot.dynamo import aotc

torch.manual_seed(0)
module = nn.Sequential(nn.Linear({width}, {width}), nn.GELU(), nn.Linear({width}, {width}))
compiled = torch.compile(module, backend=aotc, options={{"fallback": "error"}})
x = torch.randn(16, {width})

def step():
    compiled(x).sum().backward()
    module.zero_grad()

for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({steps}):
    step()
after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(json.dumps(after - before))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts pages as Linux does")
def test_gradients_of_later_steps_take_no_fresh_pages():
    # A process of its own: what its malloc has learnt is no other test's.
    code = PROGRAM.format(width=WIDTH, steps=STEPS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    pages_a_step = 2 * 4 * WIDTH * WIDTH / PAGE_BYTES
    assert json.loads(done.stdout) < 0.05 * STEPS * pages_a_step

"""Shapes that a version of torch reports wrongly: with the fault put in, they are eager's."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

# torch 2.11 keeps a dim of extent 1 that is counted from the end.
PROGRAM = """
import itertools
import torch
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from aotc.aot.capture import torch_repairs

NORM = torch.ops.aten.linalg_vector_norm.default
right = torch_repairs.vector_norm

def wrong(data, order=2, dim=None, keepdim=False, *, dtype=None):
    axes = [dim] if isinstance(dim, int) else dim
    if axes and min(axes) < 0 and not keepdim:
        return right(data, order, axes, True, dtype=dtype)
    return right(data, order, dim, keepdim, dtype=dtype)

torch_repairs.vector_norm = decomposition_table[NORM] = NORM.py_kernels[META] = wrong
NORM._dispatch_cache.clear()

def shape(data, *rest):
    return tuple(map(int, torch.linalg.vector_norm(data, 2, *rest).shape))

def shapes():
    found = {}
    for key in itertools.product((False, True), range(-3, 3), (False, True)):
        varies, axis, keeps = key
        data = torch.ones(5, 1, 4)
        with FakeTensorMode(shape_env=ShapeEnv() if varies else None) as mode:
            found[key] = shape(mode.from_tensor(data, static_shapes=not varies), [axis], keeps)
    return found

expected = {key: shape(torch.ones(5, 1, 4), [key[1]], key[2]) for key in shapes()}
before = sum(found != expected[key] for key, found in shapes().items())
torch_repairs.repair_shapes()
after = sum(found != expected[key] for key, found in shapes().items())
print(before > 0, after)
""".replace("META", "torch._C.DispatchKey.Meta")


def test_a_norm_over_one_dim_has_the_shape_that_eager_gives():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "0"], done.stderr


# torch 2.11 takes the wrong dim out of the last states.
OF_LSTM = """
import torch
from torch._decomp import decompositions
from aotc.aot.capture import torch_repairs

right = decompositions.one_layer_lstm

def wrong(data, hidden, *rest, **named):
    found, last = right(data, hidden, *rest, **named)
    return found, tuple(each.unsqueeze(0) if each.shape[0] > 1 else each for each in last)

decompositions.one_layer_lstm = wrong

def shapes(batch):
    states = tuple(torch.zeros(2, batch, 4) for _ in range(2))
    weights = [torch.zeros(16, 3), torch.zeros(16, 4), torch.zeros(16), torch.zeros(16)]
    later = [torch.zeros(16, 4), *weights[1:]]
    rest = (True, 2, 0.0, False, False, True)
    # Data that want gradients: else torch takes oneDNN's layer.
    data = torch.zeros(batch, 5, 3, requires_grad=True)
    found = decompositions.lstm_impl(data, states, [*weights, *later], *rest)
    return [tuple(each.shape) for each in found]

expected = {batch: [(batch, 5, 4), (2, batch, 4), (2, batch, 4)] for batch in (1, 6)}
before = [batch for batch in expected if shapes(batch) != expected[batch]]
torch_repairs.repair_shapes()
after = [batch for batch in expected if shapes(batch) != expected[batch]]
print(before, after)
"""


def test_last_states_of_an_lstm_have_the_shapes_that_eager_gives():
    done = subprocess.run(
        [sys.executable, "-c", OF_LSTM], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["[6]", "[]"], done.stderr

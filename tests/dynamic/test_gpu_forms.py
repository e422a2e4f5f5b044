"""Kernels for GPUs of dynamic size give the models' numbers at every size tried."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch.utils import _pytree as pytree

from aotc.aot.capture.capture import capture
from aotc.aot.capture.spec import load_spec
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.targets.cuda.machines import GPUS
from dynamic.conftest import _case_text
from dynamic.gpu_forms import run_each
from dynamic.models import CASES, made

pytestmark = pytest.mark.triton
TOLERANCE = 2e-4
# A handful with every change: kernels of a GPU's shape take minutes to compile for the CPU.
WITH_EVERY_CHANGE = ("perceptron", "movement")
NAMES = [
    pytest.param(name, marks=() if name in WITH_EVERY_CHANGE else pytest.mark.nightly)
    for name in CASES
]


@pytest.fixture(scope="module")
def graph_of(tmp_path_factory):
    """The rewritten graph of a case, as CUDA targets get it."""
    folder, known = tmp_path_factory.mktemp("specs"), {}

    def make(name):
        if name not in known:
            spec = folder / f"{name}.py"
            spec.write_text(_case_text(name))
            graph = capture(load_spec(str(spec))).graph
            known[name] = rewrite_each(graph, {"cuda": GPUS[90]})["cuda"][0]
        return known[name]

    return make


@pytest.mark.parametrize("name", NAMES)
def test_every_size_gives_the_models_numbers(graph_of, name, tmp_path):
    case, model, graph = CASES[name], made(name), graph_of(name)
    tried = (*case.sizes[:2], case.sizes[-1])
    given = [case.inputs(*values) for values in tried]
    calls = [
        (dict(zip(case.names, values, strict=True)), [each.numpy() for each in inputs])
        for values, inputs in zip(tried, given, strict=True)
    ]
    results = run_each(graph, calls, tmp_path)
    for values, inputs, found in zip(tried, given, results, strict=True):
        with torch.no_grad():
            expected = pytree.tree_leaves(model(*inputs))
        for got, want in zip(found, expected, strict=True):
            wanted = want.numpy()
            assert got.shape == wanted.shape
            scale = max(1.0, float(numpy.abs(wanted).max()))
            assert numpy.abs(got - wanted).max() <= TOLERANCE * scale, (name, values)

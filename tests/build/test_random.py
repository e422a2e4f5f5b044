"""A model that draws random numbers, through a whole build: seeds, and calls without one."""

from __future__ import annotations

import subprocess
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc import runtime  # noqa: E402
from aotc.runtime.errors import InputError  # noqa: E402

MODEL = """
import torch


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)

    def forward(self, x):
        hidden = torch.nn.functional.dropout(self.linear(x).relu(), 0.5, True)
        return hidden, torch.randn(x.shape[0], 3), torch.randint(0, 9, (x.shape[0],))


model = Noisy()
example_inputs = (torch.ones(4, 6),)
"""
SIZES = 'dynamic_shapes = ({0: torch.export.Dim("batch", max=64)},)\n'


@pytest.fixture(scope="module", params=["fixed", "dynamic"])
def program(request, tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("noisy")
    (folder / "noisy.py").write_text(MODEL + SIZES * (request.param == "dynamic"))
    arguments = ["build", folder / "noisy.py", "-o", folder / "b", "--quiet", "--cache-dir", cache]
    assert run([str(argument) for argument in arguments]) == 0
    with runtime.load(folder / "b") as program:
        program.folder = folder / "b"
        yield program


X = torch.linspace(-1, 1, 24).reshape(4, 6)


def same(left, right):
    return all(map(torch.equal, left, right))


def test_each_call_draws_anew_and_a_seed_repeats(program):
    results = [program(X) for _ in range(3)]
    assert not same(results[0][1:2], results[1][1:2])
    assert not same(results[1][1:2], results[2][1:2])
    assert same(program(X, seed=7), program(X, torch.tensor([7, 0])))
    assert same(program(X, seed=7), program(X, seed=numpy.array([7, 0])))
    assert not same(program(X, seed=7)[1:2], program(X, seed=numpy.array([7, 1]))[1:2])


def test_the_seed_of_the_process_repeats(program):
    runtime.manual_seed(3)
    first = [program(X) for _ in range(2)]
    runtime.manual_seed(3)
    again = [program(X) for _ in range(2)]
    assert all(map(same, first, again))
    assert not same(first[0][1:2], first[1][1:2])


def test_dropout_keeps_about_half_and_doubles_it(program):
    kept = program(X, seed=1)[0]
    plain = [program(X, seed=seed)[0] for seed in range(40)]
    largest = torch.stack(plain).max(0).values
    is_active = largest > 0
    assert (kept[is_active] > 0).float().mean().sub(0.5).abs() < 0.35
    assert torch.equal(torch.where(kept > 0, largest, 0), kept)


def test_a_bound_call_draws_by_the_array_that_it_was_given(program):
    seed = numpy.array([5, 0])
    bound = program.bind(X, seed=seed)
    first = [each.clone() for each in bound()]
    assert same(first, program(X, seed=5))
    seed[1] = 1
    assert not same(first[1:2], bound()[1:2])


def test_what_is_no_seed_is_refused_by_name(program):
    for wrong in ("a", torch.ones(2), torch.ones(3, dtype=torch.int64)):
        with pytest.raises(InputError, match="seed"):
            program(X, seed=wrong)


def test_a_forked_process_has_a_seed_of_its_own(program):
    code = (
        "import os, sys; from aotc import runtime; from array import array\n"
        "program = runtime.load(sys.argv[1]); x = array('f', [1.0] * 24)\n"
        "x = memoryview(x).cast('B').cast('f', (4, 6))\n"
        "program(x); read, write = os.pipe(); child = os.fork()\n"
        "drawn = bytes(program(x)[1])\n"
        "if child == 0: os.write(write, drawn); os._exit(0)\n"
        "os.waitpid(child, 0); print(os.read(read, 999) == drawn)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(program.folder)], capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr

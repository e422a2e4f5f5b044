"""Recurrent steps as GPUs get them: the product behind the gates of an LSTM computes them, too."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.ir.storage import widen  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.targets.cuda.machines import GPUS  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from schedule_runner import Job  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.triton]
TRAITS = GPUS[90]
TOLERANCES = {"f32": 2e-5, "bf16": 3e-2, "f16": 4e-3}
STEPS = 3


class Outputs(torch.nn.Module):
    """All that a recurrent network gives."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        out, state = self.network(x)
        return (out, *state) if isinstance(state, tuple) else (out, state)


class Peephole(torch.nn.Module):
    """Steps by hand: gates that also read the state, columns in another order, a residual."""

    def __init__(self):
        super().__init__()
        self.given, self.own = torch.nn.Linear(24, 4 * 32), torch.nn.Linear(32, 4 * 32, bias=False)
        self.peep = torch.nn.Parameter(torch.randn(2, 32))

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 32)
        found = []
        for step in x.unbind(1):
            o, i, g, f = (self.given(step) + self.own(h)).chunk(4, -1)
            c = torch.sigmoid(f + self.peep[0] * c) * c + torch.sigmoid(i) * g.tanh()
            h = torch.sigmoid(o + self.peep[1] * c) * c.tanh() + h
            found.append(h)
        return torch.stack(found, 1), c


def lstm(inputs, hidden, rows, dtype=torch.float32, **how):
    network = torch.nn.LSTM(inputs, hidden, batch_first=True, **how)
    return Outputs(network).to(dtype), torch.randn(rows, STEPS, inputs, dtype=dtype)


# Name → module and input, and whether steps are one kernel each.
CASES = {
    "plain": (lambda: lstm(24, 32, 8), True),
    "one row": (lambda: lstm(24, 32, 1), True),
    "odd": (lambda: lstm(7, 21, 3), True),
    "one unit": (lambda: lstm(5, 1, 17), False),
    "two units": (lambda: lstm(5, 2, 3), True),
    "many rows": (lambda: lstm(24, 32, 70), True),
    "bf16": (lambda: lstm(32, 64, 8, torch.bfloat16), True),
    "f16": (lambda: lstm(32, 64, 16, torch.float16), True),
    "two layers both ways": (lambda: lstm(8, 16, 4, num_layers=2, bidirectional=True), True),
    "projected": (lambda: lstm(16, 32, 4, proj_size=8), True),
    "without biases": (lambda: lstm(16, 32, 4, bias=False), True),
    "peephole": (lambda: (Peephole(), torch.randn(4, STEPS, 24)), True),
    "gru": (lambda: (Outputs(torch.nn.GRU(24, 32, batch_first=True)), torch.randn(4, STEPS, 24)),
            False),
    # Conditions of values that are loaded at different moments of a kernel.
    "rnn": (lambda: (Outputs(torch.nn.RNN(3, 8, num_layers=2, bidirectional=True, bias=False,
                                          batch_first=True)), torch.randn(2, STEPS, 3)), False),
}  # fmt: skip


@functools.cache
def captured(name):
    torch.manual_seed(0)
    module, x = CASES[name][0]()
    return capture(spec_of(module.eval(), (x,)))


FORMS = ("gemv", "swapped_", "plain_")
OF_ALL_FORMS = {"plain", "odd", "bf16"}
RUNS = [
    (name, form) for name in CASES for form in FORMS if form == FORMS[0] or name in OF_ALL_FORMS
]


def of_form(start):
    """Of each kernel the first candidate of such a form, where it has one."""

    def chosen(spec):
        plain = (row for row in spec.candidates if row.form.startswith(start) and not row.maps)
        return next(plain, spec.candidates[0])

    return chosen


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """For each run what its kernels give, all in one process, and what the graph means."""
    job, rows = Job(), {}
    for name in CASES:
        found = captured(name)
        graph = rewrite(found.graph, traits=TRAITS)[0]
        expected = interpret(found.graph, list(found.golden_inputs))
        for form in (each for run, each in RUNS if run == name):
            first = len(job.launches)
            names = job.add(graph, found.golden_inputs, of_form(form), TRAITS)
            launches = range(first, len(job.launches))
            rows[name, form] = names, expected, found.graph, launches
    buffers = job.run(tmp_path_factory.mktemp("gates"))
    return {
        run: (job.error(launches), [buffers[each] for each, _ in names], expected, graph)
        for run, (names, expected, graph, launches) in rows.items()
    }


@pytest.mark.parametrize(("name", "form"), RUNS)
def test_kernels_agree_with_the_reference(name, form, results):
    error, found, expected, graph = results[name, form]
    if error:
        pytest.fail(error)
    for own, other, node in zip(found, expected, graph.returned, strict=True):
        dtype = node.dtype
        own, other = widen(own, dtype).reshape(other.shape), widen(other, dtype)
        limit = TOLERANCES[dtype] * numpy.abs(other).max()
        numpy.testing.assert_allclose(own, other, rtol=0, atol=limit)


@pytest.mark.parametrize("name", [name for name, row in CASES.items() if row[1]])
def test_a_step_is_one_kernel(name):
    groups = schedule(rewrite(captured(name).graph, traits=TRAITS)[0], TRAITS).groups
    steps = [group for group in groups if "tanh" in {node.op for node in group.nodes}]
    products = [group for group in steps if group.kind == "matmul"]
    ways = 4 if "both ways" in name else 1
    assert len(products) >= (STEPS - 1) * ways
    assert len(steps) <= STEPS * ways + ways  # the first steps have no product


def test_parts_that_others_read_whole_keep_their_order():
    """Here the gates are a result, too."""

    class Shown(Peephole):
        def forward(self, x):
            gates = self.given(x[:, 0]) + self.own(x[:, 1, :1].expand(-1, 32))
            o, i, g, f = gates.chunk(4, -1)
            return gates, torch.sigmoid(o) * i + g * f

    found = capture(spec_of(Shown().eval(), (torch.randn(4, STEPS, 24),)))
    graph = rewrite(found.graph, traits=TRAITS)[0]
    assert not any(node.op == "slice" and node.attr("step") == 4 for node in graph.nodes())
    expected = interpret(found.graph, list(found.golden_inputs))
    for own, other in zip(interpret(graph, list(found.golden_inputs)), expected, strict=True):
        numpy.testing.assert_allclose(own.reshape(other.shape), other, atol=1e-6)


class Beside(Peephole):
    """A recurrence beside parts of something else, and beside a product that others read, too."""

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], 32)
        shown = []
        for step in x.unbind(1):
            given = self.given(step)
            shown.append(given.sum(-1))
            o, i, g, f = (given + self.own(h)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * g.tanh()
            h = torch.sigmoid(o) * c.tanh()
        first, second, third, fourth = (x.softmax(-1) + 1).chunk(4, -1)
        return h, torch.stack(shown), first * second + third * fourth


def test_only_what_nothing_else_reads_is_put_in_another_order():
    torch.manual_seed(0)
    found = capture(spec_of(Beside().eval(), (torch.randn(4, STEPS, 24),)))
    graph = rewrite(found.graph, traits=TRAITS)[0]
    products = sum(node.op == "matmul" for node in graph.nodes())
    plain = rewrite(found.graph, TRAITS, frozenset({"gates"}))[0]
    assert products == sum(node.op == "matmul" for node in plain.nodes())
    expected = interpret(found.graph, list(found.golden_inputs))
    for own, other in zip(interpret(graph, list(found.golden_inputs)), expected, strict=True):
        numpy.testing.assert_allclose(own.reshape(other.shape), other, atol=1e-5)

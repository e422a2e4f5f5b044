"""Every combination of what a plan can hold, built for the CPU and compared with eager torch.

{fixed shapes, sizes of a call} × {stateless, a state} × {all kernels, an op of torch's between} ×
{no, a native function}; each on one and two threads, called, bound and with `out=`. Every pair is
in the default suite, the other combinations are among the nightly tests.
"""

from __future__ import annotations

import itertools

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import runtime  # noqa: E402
from aotc.runtime.bundle.plan import Plan  # noqa: E402
from aotc.runtime.verify import verify  # noqa: E402
from tests.backends.conftest import compile_library  # noqa: E402, F401  a fixture

pytestmark = [pytest.mark.torch, pytest.mark.triton]
FEATURES = ("dynamic-shapes", "state", "torch", "native-back-ends")
CASES = [
    tuple(name for name, is_there in zip(FEATURES, row, strict=True) if is_there)
    for row in itertools.product((False, True), repeat=4)
]
# All pairs, each with the others left out where that costs no build more.
ALWAYS = (FEATURES, FEATURES[:2], ("state", "torch"), ("dynamic-shapes", "native-back-ends"))
ROWS = [
    pytest.param(
        row,
        id="-".join(row) or "plain",
        marks=[] if row in ALWAYS else pytest.mark.nightly,
    )
    for row in CASES
]
COLUMNS = 64


@torch.library.custom_op("aotc_pairs::cumulated", mutates_args=())
def cumulated(x: torch.Tensor, rows: int) -> torch.Tensor:
    """Sums of rows up to each, cut to so many: an op that has no import."""
    return x.cumsum(0)[:rows].clone()


@cumulated.register_fake
def _(x, rows):
    return x.new_empty(rows, x.shape[1])


SPEC = """
import torch
from aotc import aot

positive = aot.native_op("many::positive", backend={many!r}, fake=lambda x: torch.empty_like(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 64))
        self.register_buffer("last", torch.arange(64.0))

    def forward(self, x):
        y = (x * self.weight).abs()
        if {has_torch}:
            y = torch.ops.aotc_pairs.cumulated(y, x.shape[0]) * 0.5
        if {has_native}:
            y = positive(y.abs()) * 2
        if {has_state}:
            y = y + self.last
            self.last.copy_(y.sum(0) * 0.125)
        return torch.softmax(y, -1), y.sum(-1)


model = Model()
example_inputs = (torch.randn(5, 64),)
if {is_dynamic}:
    dynamic_shapes = ({{0: torch.export.Dim("rows", min=2, max=300)}},)
"""


def expected(features, x, last):
    """(outputs, the state after the call) by eager torch."""
    y = (x * torch.linspace(-1, 1, COLUMNS)).abs()
    if "torch" in features:
        y = y.cumsum(0) * 0.5
    if "native-back-ends" in features:
        y = (y + 1) * 2
    if "state" in features:
        y = y + last
        last = y.sum(0) * 0.125
    return (torch.softmax(y, -1), y.sum(-1)), last


@pytest.fixture(scope="module")
def many(compile_library):  # noqa: F811
    return compile_library("many.cpp", "many")


@pytest.fixture(scope="module")
def built(many, cache, tmp_path_factory):
    """`built(features)`: the path of the bundle."""
    folder = tmp_path_factory.mktemp("pairs")

    def make(features):
        from aotc.aot.cli.program import run

        name = "-".join(features) or "plain"
        spec, out = folder / f"{name}.py".replace("-", "_"), folder / name
        rows = {
            "is_dynamic": "dynamic-shapes" in features,
            "has_state": "state" in features,
            "has_torch": "torch" in features,
            "has_native": "native-back-ends" in features,
        }
        spec.write_text(SPEC.format(many=str(many), **rows))
        line = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache, "--embed-backends"]
        line += ["--fallback", "torch"] if "torch" in features else []
        assert run([str(word) for word in line]) == 0
        return out

    return make


def check(found, wanted):
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_numpy(numpy.asarray(got)), want)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("features", ROWS)
def test_a_bundle(built, features):
    bundle = built(features)
    (path,) = bundle.glob("targets/*/plan.msgpack")
    assert set(Plan.from_msgpack(path.read_bytes()).to_map()["features"]) == set(features)
    assert {finding.status for finding in verify(bundle)} == {"ok"}
    sizes = (5, 2, 300, 7, 5) if "dynamic-shapes" in features else (5, 5)
    generator = torch.Generator().manual_seed(7)
    xs = [torch.randn(rows, COLUMNS, generator=generator) for rows in sizes]
    for threads in (1, 2):
        with runtime.load(bundle, threads=threads) as program:
            assert len(program.dims) == ("dynamic-shapes" in features)
            called, session = torch.arange(float(COLUMNS)), program.session()
            kept = called
            for x in xs:
                wanted, called = expected(features, x, called)
                check(program(x.numpy()), wanted)
                out = tuple(numpy.zeros(each.shape, numpy.float32) for each in wanted)
                wanted, kept = expected(features, x, kept)
                session(x.numpy(), out=out)
                check(out, wanted)
            if "state" in features:
                state = torch.from_numpy(numpy.asarray(session.state["last"]))
                torch.testing.assert_close(state, kept)
                session.reset()
                check(session(xs[0].numpy()), expected(features, xs[0], torch.arange(64.0))[0])
            x = xs[1].numpy()
            bound, kept = program.bind(x), torch.arange(float(COLUMNS))
            for _ in range(3):
                wanted, kept = expected(features, torch.from_numpy(x), kept)
                check(bound(), wanted)
                x += 0.25

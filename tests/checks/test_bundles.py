"""Data errors of programs on the CPU: every op, sizes of a call, states, torch's ops, threads."""

import threading
from pathlib import Path

import numpy
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import sites
import torch

from aotc.runtime import load
from aotc.runtime.errors import AssertionFailed, DivisionByZero, IndexOutOfRange

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    """Builds a spec given as text; answers the loaded program's path."""
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("checks")

    def make(name, text, *options):
        spec, out = folder / f"{name}.py", folder / f"{name}.aotc"
        spec.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n{text}")
        arguments = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache, *options]
        assert run([str(each) for each in arguments]) == 0
        return out

    return make


@pytest.fixture(scope="module")
def everything(built):
    return built("everything", "from sites import model, example_inputs\n")


def given(name, bad):
    """The inputs of the model, `bad` in the last place of one of them."""
    arrays = {key: numpy.array(site.good) for key, site in sites.SITES.items()}
    if bad is not None:
        arrays[name][-1] = bad
    return list(arrays.values())


def test_good_data_is_taken_and_gives_what_eager_gives(everything):
    with load(everything) as program:
        found = program(*given("", None))
    for site, array in zip(sites.SITES.values(), found, strict=True):
        expected = site.run(torch.tensor(site.good))
        numpy.testing.assert_allclose(array, expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", sites.SITES)
def test_what_eager_refuses_raises(everything, name):
    site = sites.SITES[name]
    with load(everything) as program:
        for bad in site.bad:
            arrays = given(name, bad)
            index = torch.from_numpy(arrays[list(sites.SITES).index(name)])
            with pytest.raises(site.error):
                site.run(index)
            with pytest.raises(site.error) as caught:
                program(*arrays)
            assert isinstance(caught.value, DivisionByZero if bad == 0 else IndexOutOfRange)
            assert caught.value.operation == site.operation
            assert "sites.py:" in caught.value.where
            seen = bad + 1 if name == "cut off" and abs(bad) < 9 else bad
            if bad and name != "cut off":
                assert caught.value.found == seen
                assert str(bad) in str(caught.value)
        program(*given("", None))  # an error leaves the session as it was


def test_bound_calls_and_out_raise_too(everything):
    arrays = given("", None)
    with load(everything) as program:
        outputs = program(*arrays)
        bound = program.bind(*arrays, out=outputs)
        bound()
        arrays[0][-1] = 99
        with pytest.raises(IndexOutOfRange, match="index 99 in `embedding`"):
            bound()
        arrays[0][-1] = 1
        bound()
        bound.close()


def test_an_unchecked_bundle_takes_what_it_gets(built):
    text = "from sites import model, example_inputs\n"
    path = built("unchecked", text, "--unchecked-indices")
    with load(path) as program:
        assert not program.plan.at().checks
        for name, site in sites.SITES.items():
            for bad in site.bad:
                found = program(*given(name, bad))
                assert all(numpy.isfinite(each).all() for each in found)


DYNAMIC = """
import torch
from torch.export import Dim

class Rows(torch.nn.Module):
    def forward(self, table, index, divisor):
        return torch.nn.functional.embedding(index, table), table[index, 0], index // divisor

model = Rows()
example_inputs = (torch.randn(6, 4), torch.tensor([0, 5, 3]), torch.tensor([2, 3, 1]))
rows, count = Dim("rows", max=64), Dim("count", max=64)
dynamic_shapes = ({0: rows}, {0: count}, {0: count})
"""


def test_limits_are_those_of_the_sizes_of_a_call(built):
    with load(built("dynamic", DYNAMIC)) as program:
        for rows, count in ((6, 3), (17, 5), (17, 1), (3, 40)):
            table = numpy.random.rand(rows, 4).astype("float32")
            index = numpy.arange(count) % rows
            one = numpy.ones(count, numpy.int64)
            program(table, index, one)
            for bad in (rows, -1):
                wrong = index.copy()
                wrong[count // 2] = bad
                with pytest.raises(IndexOutOfRange, match=f"index {bad} .* 0 to {rows - 1}"):
                    program(table, wrong, one)
            with pytest.raises(DivisionByZero):
                program(table, index, one * 0)
            program(table, index, one)


STATE = """
import torch

class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4, 3))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, place, row):
        self.calls += 1
        self.rows[place] = row
        return self.rows.sum() + self.calls

model = Cache()
example_inputs = (torch.tensor([1]), torch.randn(1, 3))
"""


def test_a_session_goes_on_after_a_failed_call(built):
    row = numpy.ones((1, 3), "float32")
    with load(built("state", STATE)) as program, program.session() as session:
        session(numpy.array([2]), row)
        with pytest.raises(IndexOutOfRange, match="index 2147483652 in `index_put`"):
            session(numpy.array([2**31 + 4]), row)
        rows = numpy.array(session.state["rows"])
        assert rows.sum() == 3.0  # nothing was written outside of the range
        assert rows[2].tolist() == [1.0, 1.0, 1.0]
        session.reset()
        assert session(numpy.array([0]), row) == 4.0


FALLBACK = """
import torch

class Mixed(torch.nn.Module):
    def forward(self, table, index):
        found = torch.linalg.eigvalsh(table[index] @ table[index].T)
        return torch.nn.functional.embedding((found > 1e30).long() + index, table)

model = Mixed()
example_inputs = (torch.eye(4), torch.tensor([0, 3]))
"""


@pytest.mark.filterwarnings("ignore")
def test_a_bundle_with_ops_that_torch_runs_raises(built):
    with load(built("mixed", FALLBACK, "--fallback", "torch")) as program:
        table = torch.eye(4)
        program(table, torch.tensor([0, 3]))
        with pytest.raises(IndexOutOfRange, match="`index`"):
            program(table, torch.tensor([0, 4]))
        with pytest.raises(IndexOutOfRange, match="`embedding`"):
            program(table, torch.tensor([0, -1]))


def test_threads_learn_of_their_own_errors_only(everything):
    wrong = []

    def call(program, bad):
        for turn in range(40):
            try:
                program(*given("embedding", bad if turn % 2 else None))
                raised = False
            except IndexOutOfRange as error:
                raised = error.found == bad
            if raised != bool(turn % 2):
                wrong.append((bad, turn))

    with load(everything) as program:
        threads = [threading.Thread(target=call, args=(program, 50 + n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


PROVED = """
import torch

class Proved(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.places = torch.nn.Embedding(16, 4)

    def forward(self, x):
        constant = x[self.order]
        counted = self.places(torch.arange(x.shape[1]))
        best = x.gather(1, x.argmax(1, keepdim=True))
        clamped = x.flatten()[(x[0] * 5).long().clamp(0, 11)]
        byte = torch.arange(256.0)[x[0].to(torch.uint8).long()]
        rest = torch.arange(12)[(x[0].long() % 12)]
        return constant, counted, best, clamped, byte, rest, x.long() // 3

model = Proved()
example_inputs = (torch.rand(3, 4),)
"""


def test_what_is_known_to_be_in_range_has_no_check(built):
    with load(built("proved", PROVED)) as program:
        assert program.plan.at().checks == ()


def test_the_error_tells_what_and_where():
    fields = {"operation": "embedding", "where": " at m.py:3 in f", "found": 9, "low": 0, "high": 3}
    error = IndexOutOfRange(**fields)
    assert error.message == "index 9 in `embedding` at m.py:3 in f, expected 0 to 3"
    assert isinstance(error, IndexError)
    assert isinstance(error, RuntimeError)
    assert (error.exit_code, error.code) == (2, "index-out-of-range")
    assert isinstance(DivisionByZero(operation="div", where=""), ZeroDivisionError)
    assert isinstance(AssertionFailed(asserted="no", where=""), RuntimeError)

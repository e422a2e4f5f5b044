"""`--size NAME=N`: `aotc run`, `bench` and `profile` at sizes of one's own."""

from __future__ import annotations

import json
import random

import pytest
import torch

from aotc.aot.call_sizes import resized
from aotc.aot.cli.contender import _at_shapes
from aotc.aot.cli.program import run
from aotc.aot.host_array import HostArray

SPEC = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.last = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 4)

    def forward(self, ids, scale):
        return self.last(self.words(ids)).mean(1) * scale

model = Net()
example_inputs = (torch.tensor([[10, 3, 7], [2, 9, 0]]), torch.tensor([[1.0], [2.0]]))
batch, tokens = torch.export.Dim("batch", max=16), torch.export.Dim("tokens", max=64)
dynamic_shapes = {"ids": {0: batch, 1: tokens}, "scale": {0: batch}}
"""


def build(folder, text):
    """The folder, with `net.py` and its bundle."""
    (folder / "net.py").write_text(text)
    words = ["build", str(folder / "net.py"), "-o", str(folder / "bundle"), "--quiet"]
    assert run([*words, "--cache-dir", str(folder / "cache")]) == 0
    return folder


@pytest.fixture(scope="module")
def built_net(tmp_path_factory):
    return build(tmp_path_factory.mktemp("sizes"), SPEC)


def shapes(seed):
    """An array's shape and another one of as many dims."""
    draws = random.Random(seed)
    rank = draws.randint(0, 4)
    pick = [0, 1, 1, 2, 3, 4, 7] if seed % 3 else [1, 2, 3, 5]
    return tuple(tuple(draws.choice(pick) for _ in range(rank)) for _ in range(2))


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_repeated_along_each_dim(seed):
    found, wanted = shapes(seed)
    dtype, name = ((torch.int64, "i64"), (torch.float32, "f32"), (torch.uint8, "u8"))[seed % 3]
    tensor = torch.randint(1, 100, found).to(dtype)
    array = resized(HostArray(name, found, tensor.numpy().tobytes()), wanted)
    assert array.shape == wanted
    (grid,) = _at_shapes((tensor,), [wanted])
    if tensor.numel():
        for axis, extent in enumerate(found):  # as a person would say it
            if wanted[axis] > extent:
                again = grid.narrow(axis, extent, wanted[axis] - extent)
                before = grid.narrow(axis, 0, wanted[axis] - extent)
                assert torch.equal(again, before)
    assert array.data == grid.numpy().tobytes()


def test_a_run_has_the_sizes_asked_for(built_net, capsys):
    for options in ([], ["--seed", "3"]):
        words = ["run", str(built_net / "bundle"), "--size", "batch=7", "--size", "tokens=40"]
        assert run([*words, *options, "--json"]) == 0
        (output,) = json.loads(capsys.readouterr().out)["outputs"]
        assert output["shape"] == [7, 4]


def test_a_run_on_the_examples_numbers_is_right(built_net, capsys):
    from aotc.aot.capture.spec import load_spec

    path = built_net / "y.npy"
    words = [
        "run",
        str(built_net / "bundle"),
        "--size",
        "tokens=5",
        "--output",
        f"output_0=@{path}",
    ]
    code = run(words)
    text = capsys.readouterr()
    assert code == 0, text.err
    import numpy

    ids = torch.tensor([[10, 3, 7, 10, 3], [2, 9, 0, 2, 9]])
    expected = load_spec(str(built_net / "net.py")).module(ids, torch.tensor([[1.0], [2.0]]))
    assert abs(numpy.load(path) - expected.detach().numpy()).max() < 1e-5


def test_a_profile_is_of_the_sizes_asked_for(built_net):
    from aotc.aot.cli.profile import profile_bundle

    grids = []
    for sizes in ({}, {"batch": 16, "tokens": 64}):
        profile = profile_bundle(built_net / "bundle", "cpu", 1, sizes=sizes)
        assert all(row.time_us > 0 for row in profile.launches)
        grids.append([row.grid for row in profile.launches])
        assert (profile.launches[0].nbytes is None) == bool(sizes)
    assert grids[0] != grids[1]


def test_contenders_have_the_sizes_asked_for(built_net, capsys):
    words = ["bench", str(built_net / "bundle"), str(built_net / "net.py"), "--json"]
    words += ["--rounds", "1", "--seconds", "0.01", "--size", "batch=16", "--size", "tokens=64"]
    assert run([*words, "--against", "eager"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert [row["kind"] for row in rows] == ["aotc", "eager"]
    assert all(row["calls"] for row in rows)
    assert run([*words[:2], *words[3:]]) == 0


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (["rows=3"], "no size `rows`, expected batch = 1..16, tokens = 1..64"),
        (["batch=17"], "`batch` is 17"),
        (["batch=0"], "`batch` is 0"),
        (["batch"], "NAME=N"),
        (["batch=-1"], "NAME=N"),
        (["batch=2", "batch=3"], "was given before"),
    ],
)
def test_what_is_no_size_is_named(built_net, capsys, command, sizes, text):
    options = [word for size in sizes for word in ("--size", size)]
    assert run([command, str(built_net / "bundle"), *options]) == 2
    errors = capsys.readouterr().err
    assert text in errors


KEEPING = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 6, 4))

    def forward(self, x):
        self.rows[:, : x.shape[1]] = x
        return self.rows.sum(1), x * 2

model = Net()
example_inputs = (torch.randn(2, 3, 4),)
Dim = torch.export.Dim
batch, length, tokens = Dim("batch", max=4), Dim("length", min=2, max=40), Dim("tokens", max=40)
dynamic_shapes = {"x": {0: batch, 1: tokens}}
state_shapes = {"rows": {0: batch, 1: length}}
"""


@pytest.fixture(scope="module")
def keeping(tmp_path_factory):
    return build(tmp_path_factory.mktemp("states"), KEEPING)


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_sizes_of_states_are_those_of_the_session(keeping, capsys, command):
    words = [command, str(keeping / "bundle"), "--size", "batch=4", "--size", "tokens=30"]
    quick = ["--rounds", "1", "--seconds", "0.01"] if command == "bench" else []
    assert run([*words, *quick]) == 2  # length is 6
    errors = capsys.readouterr().err
    assert "length" in errors, errors
    assert run([*words, *quick, "--size", "length=30", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    if command == "run":
        assert [row["shape"] for row in record["outputs"]] == [[4, 4], [4, 30, 4]]
    assert run([*words, "--size", "length=41"]) == 2
    assert "41" in capsys.readouterr().err


def test_states_of_the_spec_have_sizes_of_their_own(keeping, capsys):
    words = ["bench", str(keeping / "bundle"), str(keeping / "net.py"), "--against", "eager"]
    assert run([*words, "--size", "length=30"]) == 2
    assert "'--size length' is of states" in capsys.readouterr().err


ASSERTING = """
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        rows = (x @ x.T).sum(1)
        torch._assert_async((rows.sort().values > 0).all(), "a row is nothing")
        return rows

model, example_inputs = Net(), (torch.rand(8, 16),)
"""


def test_a_step_by_itself_has_the_operands_of_a_call(tmp_path):
    from aotc.aot.cli.profile import profile_bundle

    profile = profile_bundle(build(tmp_path, ASSERTING) / "bundle", "cpu", 2)
    assert len(profile.launches) > 1

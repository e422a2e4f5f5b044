"""A model with nested arguments and results, through a whole build: the call is the model's own."""

import pytest

torch = pytest.importorskip("torch")

from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import (  # noqa: E402
    InputDtype,
    InputFixed,
    InputMissing,
    InputUnknown,
)

MODEL = """
from typing import NamedTuple

import torch


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Model(torch.nn.Module):
    def forward(self, x, batch, mask=None, scale=2.0):
        y = x * scale + batch["bias"]
        return {
            "pair": Pair(y, y),
            "seen": [x, x.T, batch["ids"][0], None, scale],
            "count": (y > 0).sum(),
            "is_positive": y > 0,
        }


model = Model()


def example_inputs():
    x = torch.arange(12.0).reshape(3, 4) - 5
    batch = {"bias": torch.ones(4), "ids": (torch.arange(3), torch.zeros(2, dtype=torch.bool))}
    return {"x": x, "batch": batch, "mask": None, "scale": 0.5}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    from aotc.aot.cli.program import run

    folder = tmp_path_factory.mktemp("nested")
    (folder / "nested.py").write_text(MODEL)
    arguments = ["build", folder / "nested.py", "-o", folder / "b", "--quiet", "--cache-dir", cache]
    assert run([str(argument) for argument in arguments]) == 0
    return folder


@pytest.fixture
def example(built):
    from aotc.aot.capture.spec import load_spec

    spec = load_spec(str(built / "nested.py"))
    with load(built / "b") as program:
        yield program, dict(spec.keyword_arguments), spec.module


def test_the_result_is_that_of_the_model(example):
    program, arguments, model = example
    wanted, found = model(**arguments), program(**arguments)
    assert list(found) == list(wanted)
    assert torch.equal(found["pair"].second, wanted["pair"].second)
    assert found["seen"][3:] == [None, 0.5]
    for left, right in zip(found["seen"][:3], wanted["seen"], strict=False):
        assert torch.equal(left, right)
    assert found["count"].dtype == torch.int64
    assert found["count"].item() == wanted["count"].item()
    assert torch.equal(found["is_positive"], wanted["is_positive"])


def test_outputs_have_memory_of_their_own(example):
    program, arguments, _ = example
    found = program(**arguments)
    arrays = [arguments["x"], *program.flatten(found)]
    addresses = {array.data_ptr() for array in arrays}
    assert len(addresses) == len(arrays)  # also of the input given back and of one tensor twice
    found["seen"][0].zero_()
    assert arguments["x"].any()


def test_what_does_not_fit_is_named(example):
    program, arguments, _ = example
    batch = arguments["batch"]
    with pytest.raises(InputMissing, match=r"`batch\.ids` is missing"):
        program(arguments["x"], {"bias": batch["bias"]})
    with pytest.raises(InputUnknown, match=r"`batch\.more` is not known"):
        program(arguments["x"], {**batch, "more": batch["bias"]})
    with pytest.raises(InputDtype, match="`batch_bias` has dtype f64, expected f32"):
        program(arguments["x"], {**batch, "bias": batch["bias"].double()})
    with pytest.raises(InputFixed, match=r"`scale` is 2.0, expected 0.5"):
        program(arguments["x"], batch, scale=2.0)


class Twice(torch.nn.Module):
    def forward(self, x, options):
        return {"twice": x * options["factor"], "rest": [x + options["bias"]]}


def test_an_exported_file_keeps_the_structure(aotc, cache, tmp_path):
    x = torch.ones(2, 3)
    arguments = (x, {"factor": 2, "bias": torch.ones(3)})
    torch.export.save(torch.export.export(Twice(), arguments), tmp_path / "twice.pt2")
    code, _, errors = aotc(
        "build", tmp_path / "twice.pt2", "-o", tmp_path / "b", "--quiet", "--cache-dir", cache
    )
    assert code == 0, errors
    with load(tmp_path / "b") as program:
        found = program(x, options=arguments[1])
        assert [each.name for each in program.outputs] == ["twice", "rest.0"]
    assert torch.equal(found["twice"], 2 * x)
    assert torch.equal(found["rest"][0], x + 1)

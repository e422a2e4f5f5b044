"""Captures that the cache remembers: used when nothing changed and the model's numbers agree."""

import json
import sys

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.cache_entry import from_files, to_files  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import load_spec, spec_of  # noqa: E402
from aotc.aot.capture_cache import cached_capture  # noqa: E402
from aotc.aot.errors import UnsupportedError  # noqa: E402
from aotc.cache import Store  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.tied = self.inner
        self.register_buffer("scale", torch.full((4,), 2.0, dtype=torch.bfloat16), persistent=False)

    def forward(self, x, y=None):
        table = torch.tensor([1.0, -0.0, float("inf"), 3.0])
        return {"sum": self.tied(self.inner(x)) * self.scale + table.nan_to_num(posinf=0.0), "x": x}

model = Model()
example_inputs = {"x": torch.randn(2, 4)}
"""


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "remembered.py"
    path.write_text(SPEC)
    return str(path)


@pytest.fixture
def exports(monkeypatch):
    """The calls of torch.export."""
    calls = []
    real = torch.export.export
    monkeypatch.setattr(
        torch.export, "export", lambda *args, **kwargs: calls.append(1) or real(*args, **kwargs)
    )
    return calls


def assert_same(found, expected):
    assert found.graph.inputs == expected.graph.inputs
    assert found.graph.outputs == expected.graph.outputs  # nodes are interned: the very same
    assert found.graph.output_names == expected.graph.output_names
    assert found.structure == expected.structure
    assert set(found.graph.constants) == set(expected.graph.constants)
    pairs = [(found.graph.constants[name], row) for name, row in expected.graph.constants.items()]
    arrays = [(one.array, other.array) for one, other in pairs]
    arrays += zip(found.golden_inputs, expected.golden_inputs, strict=True)
    arrays += zip(found.golden_outputs, expected.golden_outputs, strict=True)
    for one, other in arrays:
        assert one.dtype == other.dtype
        numpy.testing.assert_array_equal(one, other, strict=True)


def test_the_second_capture_exports_nothing(spec_file, store, exports):
    expected, was_known = cached_capture(load_spec(spec_file), store)
    assert (was_known, len(exports)) == (False, 1)
    found, was_known = cached_capture(load_spec(spec_file), store)
    assert (was_known, len(exports)) == (True, 1)
    assert_same(found, expected)


def test_an_entry_holds_no_weights_of_the_model(spec_file):
    spec = load_spec(spec_file)
    files = to_files(capture(spec), spec)
    assert b"inner.weight" in files["facts.json"]
    kept = {name: len(data) for name, data in files.items() if name.endswith(".bin")}
    assert kept == {"constant-0.bin": 4 * 4, "output-1.bin": 4 * 8, "output-2.bin": 4 * 8}


def test_another_weight_is_another_capture(spec_file, store, exports):
    cached_capture(load_spec(spec_file), store)
    spec = load_spec(spec_file)
    spec.module.inner.weight.data.add_(1)
    assert not cached_capture(spec, store)[1]
    assert len(exports) == 2


def test_a_model_whose_numbers_changed_is_captured_anew(spec_file):
    """As after a switch that no fingerprint sees."""
    spec = load_spec(spec_file)
    files = to_files(capture(spec), spec)
    assert from_files(files, spec) is not None
    spec.module.inner.bias.data.add_(1e-6)
    assert from_files(files, spec) is None


def test_code_that_is_imported_late_is_not_told(tmp_path, store, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "imported_late.py").write_text("BY = 3.0\n")
    path = tmp_path / "late.py"
    body = "import imported_late\n        return x * imported_late.BY"
    path.write_text(SPEC.partition("        table =")[0] + f"        {body}\n"
                    "model = Model()\nexample_inputs = (torch.ones(2, 4),)\n")  # fmt: skip
    try:
        assert [cached_capture(load_spec(str(path)), store)[1] for _ in range(3)] == [
            False,
            False,
            True,
        ]
    finally:
        sys.modules.pop("imported_late", None)


def test_a_refusal_is_a_refusal_each_time(store):
    class Refused(torch.nn.Module):
        def forward(self, x):
            return x.nonzero()

    for _ in range(2):
        with pytest.raises(UnsupportedError):
            cached_capture(spec_of(Refused(), (torch.ones(3),)), store)


def test_a_weight_that_is_not_finite_is_warned_of_each_time(store):
    class Endless(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([1.0, float("inf")]))

        def forward(self, x):
            return x * self.weight

    for _ in range(2):
        with pytest.warns(UserWarning, match="weight `weight` is not finite: 1 of 2 elements"):
            cached_capture(spec_of(Endless(), (torch.ones(2),)), store)


def test_a_build_says_that_it_came_from_the_cache(aotc, spec_file, tmp_path):
    cache = tmp_path / "cache"
    digests = []
    for turn in range(2):
        code, out, errors = aotc(
            "build", spec_file, "-o", tmp_path / f"bundle{turn}", "--cache-dir", cache, "--json"
        )
        assert code == 0, errors
        report = json.loads(out)
        digests.append(report["digest"])
        detail = report["stages"][0]["detail"]
        assert detail.endswith(", from the cache") == bool(turn)
    assert digests[0] == digests[1]

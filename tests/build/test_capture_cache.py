"""Captures from the cache: used when nothing changed and the model's numbers agree."""

import json
import sys
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.cache_entry import from_files, to_files  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.fingerprint import fingerprint  # noqa: E402
from aotc.aot.capture.spec import load_spec, load_specs, spec_of  # noqa: E402
from aotc.aot.capture_cache import cached_captures  # noqa: E402
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


def cached_capture(spec, store):
    """One spec's capture, and whether the cache knew it."""
    return next(cached_captures([spec], store))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "cache")


@pytest.fixture
def spec_file(tmp_path):
    path = tmp_path / "cached.py"
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
    for name in ("input_names", "output_names"):
        assert getattr(found.graph, name) == getattr(expected.graph, name)
    for name in ("structure", "dims", "guards", "specialised", "entry", "held", "is_strict"):
        assert getattr(found, name) == getattr(expected, name)
    for name in ("probes", "trials"):
        pairs = list(zip(getattr(found, name), getattr(expected, name), strict=True))
        assert [str(one) for one, _ in pairs if name == "probes"] == [
            str(other) for _, other in pairs if name == "probes"
        ]
        for one, other in pairs:
            for array, again in zip(
                (*one.inputs, *one.outputs), (*other.inputs, *other.outputs), strict=True
            ):
                numpy.testing.assert_allclose(array, again, rtol=1e-4, atol=1e-5)
    states = [each.name for each in expected.graph.states]
    assert [each.name for each in found.graph.states] == states
    for one, other in zip(found.graph.states, expected.graph.states, strict=True):
        assert (one.initial is None) == (other.initial is None)
        if one.initial is not None:
            numpy.testing.assert_array_equal(one.initial.array, other.initial.array)
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
    assert kept == {"constant-0.bin": 4 * 4}  # its outputs are the model's own, to the bit


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


def test_code_that_is_imported_late_is_not_hashed(tmp_path, store, monkeypatch):
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


# -- entry points, dims and states -----------------------------------------------------------------

ENTRIES = """
import torch
from torch import nn
from torch.export import Dim
from aotc.aot import EntryPoint

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("total", torch.full((4,), 0.5))
        self.register_buffer("rows", torch.zeros(2, 6, 4))
        self.register_buffer("calls", torch.tensor([3]))

    def forward(self, x):
        self.total += self.inner(x).sum(0)
        return x.tanh() + self.total

    def read(self, x, factor=2.0):
        return {"sum": (self.inner(x) * factor + self.total).reshape(-1, 4)}

    def write(self, x, place):
        self.rows.index_copy_(1, place, self.inner(x))
        self.calls = self.calls + 1  # set, not written to
        return self.rows.sum(1), self.calls.clone()

BY = 3.0
model = Model()
rows = Dim("rows", min=2, max=64)
batch, length = Dim("batch", min=1, max=9), Dim("length", min=2, max=20)
entry_points = {
    "forward": EntryPoint(example_inputs=(torch.randn(3, 4),), dynamic_shapes=({0: rows},)),
    "read": EntryPoint(example_inputs=(torch.randn(3, 4),)),
    "write": EntryPoint(
        example_inputs=(torch.randn(2, 3, 4), torch.tensor([1, 4, 2])),
        dynamic_shapes=({0: batch}, None),
        state_shapes={"rows": {0: batch, 1: length}},
    ),
    "called": EntryPoint(
        function=lambda model, x: model.read(x)["sum"] * BY,
        example_inputs=(torch.randn(2, 4, 4),),
        dynamic_shapes=({0: Dim.AUTO},),
    ),
}
"""


@pytest.fixture
def entries_file(tmp_path):
    path = tmp_path / "entries.py"
    path.write_text(ENTRIES)
    return str(path)


def test_entries_with_states_and_dims_are_captured_once(entries_file, store, exports):
    expected = list(cached_captures(load_specs(entries_file), store))
    assert [known for _, known in expected] == [False] * 4
    assert len(exports) == 4
    specs = load_specs(entries_file)
    before = {name: value.clone() for name, value in specs[0].module.state_dict().items()}
    found = list(cached_captures(specs, store))
    assert [known for _, known in found] == [True] * 4
    assert len(exports) == 4
    for (one, _), (other, _) in zip(found, expected, strict=True):
        assert_same(one, other)
    assert [len(one.probes) for one, _ in found] == [2, 0, 1, 2]
    for name, value in specs[0].module.state_dict().items():
        assert torch.equal(before[name], value)  # what calls changed is as it was


@pytest.mark.parametrize(
    ("old", "new", "others"),
    [
        ("factor=2.0", "factor=2.5", 4),  # one file is the code of all
        ("max=64", "max=65", 4),
    ],
)
def test_a_changed_file_is_another_capture(entries_file, store, exports, old, new, others):
    list(cached_captures(load_specs(entries_file), store))
    Path(entries_file).write_text(ENTRIES.replace(old, new))
    found = list(cached_captures(load_specs(entries_file), store))
    assert [known for _, known in found].count(False) == others


def test_what_an_entry_is_captured_for_is_in_its_fingerprint():
    module, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    module.register_buffer("seen", torch.zeros(3, 4))
    dim = torch.export.Dim

    def of(shapes=None, states=None):
        return str(sorted(fingerprint(spec_of(module, (x,), "m", shapes, states)).items()))

    rows = dim("rows", max=8)
    found = [
        of(),
        of(({0: rows},)),
        of(({0: dim("rows", max=9)},)),
        of(({0: dim("rows", min=2, max=8)},)),
        of(({0: dim("other", max=8)},)),
        of(({0: dim.AUTO},)),
        of(({0: dim.DYNAMIC},)),
        of(({0: 2 * dim("half", max=8)},)),
        of(({0: 2 * dim("half", max=8) + 1},)),
        of(None, {"seen": {0: rows}}),
        of(({0: rows},), {"seen": {0: rows}}),
    ]
    assert len(set(found)) == len(found)
    assert of(({0: dim("rows", max=8)},)) == found[1]


def test_methods_of_one_name_are_not_one():
    """As of two lambdas, whose names say nothing."""
    from aotc.aot import EntryPoint
    from aotc.aot.capture.spec import entry_specs

    module, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    functions = (lambda model, x: model(x) + 1, lambda model, x: model(x) * 2)
    digests = []
    for function in functions:
        rows = {"forward": EntryPoint(function=function, example_inputs=(x,))}
        digests.append(fingerprint(entry_specs(module, rows, "m")[0])["model"])
    assert digests[0] != digests[1]


def test_an_entry_whose_states_changed_otherwise_is_captured_anew(entries_file):
    spec = next(each for each in load_specs(entries_file) if each.entry == "write")
    files = to_files(capture(spec), spec)
    assert from_files(files, spec) is not None
    spec.module.calls.add_(1)  # only a state after the call differs
    assert from_files(files, spec) is None


def test_a_second_build_of_entries_exports_nothing(aotc, entries_file, tmp_path, exports):
    digests, counts = [], []
    for turn in range(2):
        code, out, errors = aotc(
            "build", entries_file, "-o", tmp_path / f"bundle{turn}",
            "--cache-dir", tmp_path / "cache", "--json",
        )  # fmt: skip
        assert code == 0, errors
        digests.append(json.loads(out)["digest"])
        counts.append(len(exports))
    assert digests[0] == digests[1]
    assert counts == [4, 4]

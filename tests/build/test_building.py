"""`aot.build`: models of this process, which are afterwards as they were."""

from __future__ import annotations

import functools
import io

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc import aot, runtime  # noqa: E402
from aotc.aot.errors import (  # noqa: E402
    ModelRaised,
    OptionInvalid,
    OutputExists,
    SpecEntriesInvalid,
    SpecInputsInvalid,
    SpecInputsMissing,
    SpecModelInvalid,
    UnknownTarget,
)

pytestmark = [pytest.mark.torch, pytest.mark.triton]


class Net(torch.nn.Module):
    """Modules that train otherwise than they serve, and a state that each call changes."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.norm = torch.nn.BatchNorm1d(64)
        self.dropout = torch.nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return self.dropout(torch.relu(self.norm(self.linear(x)))) + self.calls

    def twice(self, x):
        return 2 * self.linear(x)


def scaled(x):
    return x.sin() * 3


class Offset:
    def __call__(self, x):
        return x + 7


X = torch.linspace(-1, 1, 4 * 64).reshape(4, 64)
COMPILED = torch.compile(torch.nn.Linear(64, 8))
FORMS = {
    "a module": torch.nn.Linear(64, 8),
    "a function": scaled,
    "a lambda": lambda x: x.cos(),
    "a function of torch's": torch.relu,
    "a partial function": functools.partial(scaled),
    "an object that is called": Offset(),
    "a method": Net().twice,
    "a module that torch.compile gave": COMPILED,
    "a function that torch.compile gave": torch.compile(scaled),
    "a module with weight norm": torch.nn.utils.parametrizations.weight_norm(
        torch.nn.Linear(64, 8)
    ),
    "a lazy module": torch.nn.LazyLinear(8),
}


@pytest.mark.parametrize("form", FORMS)
def test_whatever_is_called_gives_its_numbers(tmp_path, form):
    model = FORMS[form]
    report = aot.build(model, (X,), tmp_path / "bundle")
    assert report.path == str(tmp_path / "bundle")
    eager = COMPILED._orig_mod if model is COMPILED else model
    with runtime.load(tmp_path / "bundle") as program, torch.no_grad():
        torch.testing.assert_close(program(X), eager(X))


@pytest.mark.parametrize("quantize", [None, "int8"])
def test_a_model_is_afterwards_as_it_was(tmp_path, quantize):
    model = Net().train()
    model.dropout.eval()
    model.linear.weight.grad = torch.ones(64, 64)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    aot.build(model, X, tmp_path / "bundle", quantize=quantize)
    assert torch.equal(torch.get_rng_state(), state)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert [each.training for each in model.modules()] == [True, True, True, False]
    assert model.linear.weight.requires_grad
    assert model.linear.weight.grad is not None


def test_quantised_weights_are_those_of_all_that_hold_the_module(tmp_path):
    model, x = torch.nn.Linear(64, 64).eval(), X.detach()
    # What autograd made cannot be copied.
    model.register_buffer("computed", model.weight.sum(0), persistent=False)
    before = model.weight.detach().clone()
    entries = {
        "forward": aot.EntryPoint((x,)),
        "held": aot.EntryPoint((x,), function=lambda _, x: model(x)),
    }
    out = tmp_path / "bundle"
    report = aot.build(model, None, out, entry_points=entries, quantize="int4")
    assert report.quantized["weights"] == 1
    assert torch.equal(model.weight, before)
    with runtime.load(out) as program, torch.no_grad():
        assert torch.equal(program.held(x), program(x))
        assert (program(x) - model(x)).abs().max() > 1e-3


def test_lazy_layers_are_quantised_and_keep_their_own_weights(tmp_path):
    model = torch.nn.LazyLinear(64)
    report = aot.build(model, (X,), tmp_path / "bundle", quantize="int4")
    assert report.quantized["weights"] == 1
    with runtime.load(tmp_path / "bundle") as program, torch.no_grad():
        assert (program(X) - model(X)).abs().max() > 1e-3


def test_a_model_that_inference_mode_made_is_built(tmp_path):
    with torch.inference_mode():
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64)).eval()
    for quantize in (None, "int8"):
        aot.build(model, (X,), tmp_path / str(quantize), quantize=quantize)
    with runtime.load(tmp_path / "None") as program, torch.inference_mode():
        torch.testing.assert_close(program(X), model(X))


def test_a_model_that_does_not_build_trains_as_it_did(tmp_path):
    model = Net().train()
    with pytest.raises(ModelRaised):
        aot.build(model, X[:, :3], tmp_path / "bundle")
    assert model.training
    assert model.norm.training
    assert not (tmp_path / "bundle").exists()


def test_what_was_typed_anew_is_built_anew(tmp_path):
    for number in (1, 2):
        names = {"torch": torch, "__name__": "__main__"}
        text = f"class Added(torch.nn.Module):\n  def forward(self, x): return x + {number}"
        exec(text, names)
        aot.build(names["Added"](), X, tmp_path / str(number))
        with runtime.load(tmp_path / str(number)) as program:
            assert torch.equal(program(X), X + number)


def test_dims_and_entry_points(tmp_path):
    rows = torch.export.Dim("rows", max=64)
    report = aot.build(scaled, {"x": X}, tmp_path / "dims", dynamic_shapes={"x": {0: rows}})
    assert report.dims == ("rows = 1..64",)
    with runtime.load(tmp_path / "dims") as program:
        torch.testing.assert_close(program(X[:3]), scaled(X[:3]))
    entries = {
        "forward": aot.EntryPoint(example_inputs=(X,)),
        "twice": {"example_inputs": (X[:2],), "method": "twice"},
    }
    model = Net().eval()
    with pytest.raises(SpecEntriesInvalid):
        aot.build(
            model, None, tmp_path / "entries", entry_points={"load_weights": entries["twice"]}
        )
    aot.build(model, None, tmp_path / "entries", entry_points=entries)
    with runtime.load(tmp_path / "entries") as program, torch.no_grad():
        torch.testing.assert_close(program.twice(X[:2]), model.twice(X[:2]))


def test_exported_programs(tmp_path):
    program = torch.export.export(torch.nn.Linear(64, 8), (X,))
    file = io.BytesIO()
    torch.export.save(program, file)
    aot.build(program, None, tmp_path / "bundle")
    with runtime.load(tmp_path / "bundle") as loaded, torch.no_grad():
        torch.testing.assert_close(loaded(X), program.module()(X))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"example_inputs": None}, SpecInputsMissing),
        ({"example_inputs": (X, X)}, SpecInputsInvalid),
        ({"model": Net}, SpecModelInvalid),
        ({"model": "model.py"}, SpecModelInvalid),
        ({"targets": "cpux"}, UnknownTarget),
        ({"quantize": "int9"}, OptionInvalid),
        ({"fallback": "jax"}, OptionInvalid),
        ({"ranks": 9}, OptionInvalid),
        ({"tun": "full"}, TypeError),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, changes, error):
    given = {"model": Net(), "example_inputs": (X,), **changes}
    with pytest.raises(error):
        aot.build(given.pop("model"), given.pop("example_inputs"), tmp_path / "bundle", **given)
    assert not (tmp_path / "bundle").exists()


def test_options_are_fields_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_DUMP", str(tmp_path / "of the setting"))
    options = {"cache_folder": str(tmp_path / "cache"), "skip": frozenset({"fold"}), "jobs": 1}
    aot.build(scaled, X, tmp_path / "one", **options)
    aot.build(scaled, X, tmp_path / "two", cache_dir=str(tmp_path / "cache"), dump=tmp_path / "own")
    for folder in ("cache", "of the setting", "own"):
        assert any((tmp_path / folder).iterdir()), folder


def test_a_bundle_is_not_replaced_unasked(tmp_path):
    aot.build(scaled, X, tmp_path / "bundle")
    with pytest.raises(OutputExists):
        aot.build(scaled, X, tmp_path / "bundle")
    aot.build(torch.relu, X, tmp_path / "bundle", force=True)
    with runtime.load(tmp_path / "bundle") as program:
        assert torch.equal(program(X), torch.relu(X))

"""What cannot be captured is refused with torch's reason, the user's line and the usual remedy."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402  needs torch

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import WeightWarning, capture, warn_of_weights  # noqa: E402  needs torch
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.ones(4, 4)


def branch(x):
    if x.sum() > 0:
        return x
    return x + 1


def turns(x):
    for number in range(int(x.abs().max())):
        x = x + number
    return x


def size(x):
    return x[: int(x[0, 0].item())]


def numpy_inside(x):
    return torch.tensor(memoryview(x.numpy()).tolist())


def compared(x):
    return x if torch.equal(x, x * 1) else -x


def classes(x):
    return torch.nn.functional.one_hot(x.long())


def selected_twice(x):
    return torch.nn.functional.mse_loss(x[x > 0], x[x > 0] * 2)


def least_squares(x):
    return torch.linalg.lstsq(x, x).solution


EXPORT = {
    compared: ("control flow depends on the values", "torch.equal(x, x * 1)", "torch.where"),
    classes: ("how many classes", "one_hot(x.long())", "num_classes"),
    selected_twice: ("two sizes that depend on data", "mse_loss(x[x > 0]", "one mask"),
    least_squares: ("no result of an op before it runs", "torch.linalg.lstsq(x, x)", "outside"),
    branch: ("control flow depends on the value", "if x.sum() > 0:", "torch.where"),
    turns: ("control flow depends on the value", "range(int(x.abs().max()))", "fixed number"),
    size: ("a size or an index is the value", "x[: int(x[0, 0].item())]", "mask"),
    numpy_inside: ("the model leaves torch", "memoryview(x.numpy())", "torch's ops"),
}


@pytest.mark.parametrize("model", EXPORT, ids=lambda model: model.__name__)
def test_what_export_refuses_has_reason_line_and_remedy(model, capsys):
    meaning, line, remedy = EXPORT[model]
    with pytest.raises(errors.ExportFailed) as caught:
        capture(spec_of(model, (X,), "test_refusals.py"))
    assert meaning in caught.value.message
    assert f"in {model.__name__}: " in caught.value.source
    assert line in caught.value.source
    assert remedy in caught.value.hint_text
    assert len(caught.value.message.splitlines()) == 2  # one paragraph and the place
    assert capsys.readouterr() == ("", "")  # torch's own graph stays out of the way


OF_DATA = {
    "unique": (lambda x: torch.unique(x), "sort it"),
    "nonzero": (lambda x: torch.nonzero(x), "nonzero_static"),
    "counts": (lambda x: torch.bincount(x[0].long()), "minlength"),
    "repeated": (lambda x: torch.repeat_interleave(x, x[0].long(), 0), "output_size"),
    "rows": (lambda x: x[x > 0], "a mask of what counts"),
}


@pytest.mark.parametrize("name", OF_DATA)
def test_an_op_whose_shape_depends_on_data_says_what_to_write(name):
    model, remedy = OF_DATA[name]
    with pytest.raises(errors.ShapesUnsupported, match=r"test_export_errors\.py:\d+ in") as caught:
        capture(spec_of(model, (X,), "test_refusals.py"))
    assert remedy in caught.value.message
    assert "--fallback" not in caught.value.hint_text


def reads(x):
    if x.sum() > 0:
        x = x + 1
    rows = int(x[0, 0])
    return x[:rows] * float(x.max())


def test_all_places_that_read_data_are_named():
    with pytest.raises(errors.ExportFailed) as caught:
        capture(spec_of(reads, (X,), "test_refusals.py"))
    for line in ("if x.sum() > 0:", "rows = int(x[0, 0])", "* float(x.max())"):
        assert caught.value.source.count(line) == 1
    assert caught.value.source.index("sum()") < caught.value.source.index("int(")


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.GRU(4, 4, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0]


ROWS = Dim("rows", min=2, max=64)
SIZES = {
    "a multiple": (
        lambda x: x.view(-1, 4, 4).sum(1),
        torch.ones(8, 4),
        "suggests `_rows = Dim",
        "2 * length",
    ),
    "a number": (lambda x: x.reshape(4, 4), X, "it needs `rows = 4`)", "another range"),
    "a range": (
        lambda x: x if x.shape[0] > 2 else -x,
        X,
        "Dim('rows', min=3, max=64)`)",
        "Dim.AUTO",
    ),
    "a layer": (
        Recurrent(),
        X[None],
        "it needs `rows = 4`; `rnn` is of class GRU)",
        "recurrent-models",
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_what_a_model_asks_of_sizes_is_said_by_their_names(name):
    model, x, words, remedy = SIZES[name]
    shapes = ({x.ndim - 2: ROWS},)
    with pytest.raises(errors.ExportFailed) as caught:
        capture(spec_of(model, (x,), "test_refusals.py", dynamic_shapes=shapes))
    assert words in caught.value.message
    assert remedy in caught.value.hint_text
    assert not {"TORCH_LOGS", "L['", "guard"} & set(caught.value.message.split())
    assert len(caught.value.message.splitlines()) == 2


class Sparse(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.eye(4).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.weight, x)


class Behind(torch.nn.Module):
    """Changes a weight in a way that torch does not see; decomposed, torch itself crashes."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        self.linear.weight.data.mul_(0.5)
        return self.linear(x)


class Wrapped(torch.Tensor):
    """A tensor of a library's own class, such as a quantized weight, that lacks `isfinite`."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.isfinite:
            raise NotImplementedError("isfinite")
        return super().__torch_function__(function, types, args, kwargs)


def leaves(x):
    raise SystemExit(4)


NOT_OURS = {
    "sparse": (Sparse(), (X,), "layout `torch.sparse_coo`"),
    "behind torch's back": (Behind(), (X,), r"by `\.data`"),
    "a script": (torch.jit.script(torch.nn.ReLU()), (X,), "TorchScript"),
    "a trace": (torch.jit.trace(torch.nn.ReLU(), X), (X,), "TorchScript"),
    "without memory": (torch.nn.Linear(4, 4, device="meta"), (X,), "`weight`, `bias` lie on"),
    "an argument without memory": (torch.relu, (X.to("meta"),), "`argument 0` lie"),
    "an exit": (leaves, (X,), "SystemExit: 4"),
    "an object": (lambda x, y: x, (X, object()), "neither a tensor nor plain data"),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_faults_of_the_model_are_no_internal_errors(name):
    model, inputs, words = NOT_OURS[name]
    with pytest.raises((errors.UnsupportedError, errors.SpecError), match=words) as caught:
        capture(spec_of(model, inputs, "test_refusals.py"))
    assert caught.value.exit_code in (2, 3)
    assert "torch/" not in getattr(caught.value, "source", "")


def test_weights_of_a_librarys_own_class_are_not_looked_into():
    state = {"weight": torch.ones(4).as_subclass(Wrapped)}
    warn_of_weights(state, ["weight"])


def test_arithmetic_in_numpy_is_taken_by_strict_export():
    captured = capture(spec_of(lambda x: torch.from_numpy(x.numpy() * 2), (X,)))
    assert captured.is_strict
    assert captured.golden_outputs[0].tolist() == (X * 2).tolist()


def nonzero(x):
    return torch.nonzero(x)


def masked(x):
    return x[x > 0]


def number(x):
    return x.tolist()


DEPENDENT = {nonzero: "its shape depends on data", masked: "its shape", number: "its result is a"}


@pytest.mark.parametrize("model", DEPENDENT, ids=lambda model: model.__name__)
def test_results_that_depend_on_data_are_named_once(model):
    with pytest.raises(errors.OpsUnsupported, match=DEPENDENT[model]) as caught:
        capture(spec_of(model, (X,)))
    assert len(caught.value.ops.splitlines()) == 1  # and none of the arithmetic on its size


class Weights(torch.nn.Module):
    def __init__(self, weight, table):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        with torch.no_grad():
            self.linear.weight[0, :2] = weight
        self.register_buffer("table", torch.full((4,), table))

    def forward(self, x):
        return self.linear(x) + self.table


CASES = {
    "infinite": (float("inf"), 0.0, ["weight `linear.weight` is not finite: 2 of 16 elements"]),
    "both": (float("nan"), float("nan"), ["`linear.weight` is not finite", "`table` is not a num"]),
    "a mask": (0.0, float("-inf"), []),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_that_are_not_finite_are_named(name):
    weight, table, expected = CASES[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        capture(spec_of(Weights(weight, table), (X,)))
    found = [str(each.message) for each in caught if each.category is WeightWarning]
    assert len(found) == len(expected)
    assert all(text in line for text, line in zip(expected, found, strict=True))


class Traced(torch.nn.Module):
    """Takes another branch while it is traced, as libraries do."""

    def forward(self, x):
        return x * (2 if torch.compiler.is_exporting() else 1)


def test_a_program_that_is_not_the_model_is_refused():
    with pytest.raises(errors.ExportDiffers, match="output 0 has max error 1 relative") as caught:
        capture(spec_of(Traced(), (X,), "test_refusals.py"))
    assert caught.value.exit_code == 3

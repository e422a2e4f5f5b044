"""What SPEC may be, and the error for each way in which it can be wrong."""

from __future__ import annotations

import os
import sys
import textwrap
import zipfile

import pytest

from aotc.aot import errors
from aotc.aot.ir.text import print_graph

torch = pytest.importorskip("torch")

from aotc.aot.capture import spec as spec_module  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.spec import load_spec  # noqa: E402

pytestmark = pytest.mark.torch

HEAD = "import torch\nfrom torch import nn\n"


@pytest.fixture
def write(tmp_path):
    def write_file(body: str, name: str = "model.py") -> str:
        path = tmp_path / name
        path.write_text(HEAD + textwrap.dedent(body))
        return str(path)

    return write_file


def test_model_and_tuple(write):
    spec = load_spec(write("model = nn.Linear(4, 3)\nexample_inputs = (torch.ones(2, 4),)\n"))
    assert spec.name == "model"
    assert not spec.module.training
    graph = capture(spec).graph
    assert graph.input_names == ("input",)
    assert graph.output_names == ("output_0",)
    assert sorted(graph.constants) == ["bias", "weight"]


def test_build_model_and_dict_function(write):
    path = write("""
        def build_model():
            return nn.Bilinear(3, 4, 2)

        def example_inputs():
            return {"input1": torch.ones(5, 3), "input2": torch.ones(5, 4)}
    """)
    assert capture(load_spec(path)).graph.input_names == ("input1", "input2")
    assert load_spec(path).keyword_arguments.keys() == {"input1", "input2"}


def test_plain_function_by_name(write):
    path = write("""
        def price(spot, strike):
            return torch.relu(spot - strike), spot

        example_inputs = {"spot": torch.ones(3), "strike": torch.ones(3)}
    """)
    graph = capture(load_spec(f"{path}:price")).graph
    assert graph.input_names == ("spot", "strike")
    assert graph.outputs[1] is graph.inputs[0]


def test_module_by_name(write, tmp_path, monkeypatch):
    write("model = nn.Linear(4, 3)\nexample_inputs = torch.ones(2, 4)\n", "my_models.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_spec("my_models:model").path == "my_models"


def test_exported_file(write, tmp_path):
    program = torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),))
    torch.export.save(program, tmp_path / "linear.pt2")
    graph = capture(load_spec(str(tmp_path / "linear.pt2"))).graph
    assert graph.inputs[0].shape == (2, 4)


def test_neighbours_of_the_file_can_be_imported(write, tmp_path):
    (tmp_path / "neighbour_of_spec.py").write_text("WIDTH = 4\n")
    path = write("""
        from neighbour_of_spec import WIDTH
        model = nn.Linear(WIDTH, 3)
        example_inputs = (torch.ones(2, WIDTH),)
    """)
    assert load_spec(path).module.in_features == 4


def test_the_file_as_it_stands_is_read(write, monkeypatch):
    """Python's own bytecode is taken for a file of the same size and the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    for size in (3, 4):
        path = write(f"model = nn.Linear({size}, 2)\nexample_inputs = (torch.ones(1, {size}),)\n")
        os.utime(path, (0, 0))
        assert load_spec(path).module.in_features == size


def test_tied_weights_are_stored_once(write):
    """Equal ones each: a program may be given other values of either."""
    path = write("""
        class Tied(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(7, 4)
                self.head = nn.Linear(4, 7, bias=False)
                self.head.weight = self.table.weight
                self.copy = nn.Parameter(self.table.weight.detach().clone())

            def forward(self, ids):
                return self.head(self.table(ids)) @ self.copy

        model = Tied()
        example_inputs = (torch.tensor([1, 2]),)
    """)
    constants = capture(load_spec(path)).graph.constants.values()
    assert sorted(len(each.names) for each in constants) == [1, 2]


def test_arguments_that_are_no_tensors_are_fixed(write):
    path = write("""
        def model(x, scale, flag=True):
            return x * scale if flag else x

        example_inputs = (torch.ones(3), 2.5)
    """)
    graph = capture(load_spec(path)).graph
    assert graph.input_names == ("x",)
    assert "value=2.5" in print_graph(graph)


WRONG = [
    (None, errors.SpecFileMissing, ["does not exist"]),
    ("example_inputs = ()", errors.SpecModelMissing, ["has no `model`", "build_model()"]),
    ("model = nn.ReLU()", errors.SpecInputsMissing, ["has no `example_inputs`"]),
    ("model = 3\nexample_inputs = ()", errors.SpecModelInvalid, ["is `int`", "torch.nn.Module"]),
    ("model = nn.ReLU\nexample_inputs = ()", errors.SpecModelInvalid, ["is `class ReLU`"]),
    (
        "def load():\n    return torch.missing_name\n\nmodel = load()",
        errors.SpecImportFailed,
        ["AttributeError", "model.py:4 in load", "return torch.missing_name"],
    ),
    ("model = (", errors.SpecImportFailed, ["SyntaxError", "model.py:3", "model = ("]),
    (
        "import no_such_package_anywhere",
        errors.SpecImportFailed,
        ["ModuleNotFoundError", "model.py:3"],
    ),
    (
        "def build_model():\n    raise OSError('no weights')\n\nexample_inputs = ()",
        errors.SpecImportFailed,
        ["`build_model()` ran", "OSError: no weights", "model.py:4 in build_model"],
    ),
    (
        "model = nn.Linear(4, 3)\nexample_inputs = (torch.ones(2, 4), 1)",
        errors.SpecInputsInvalid,
        ["`Linear.forward(input)`", "too many positional arguments"],
    ),
    (
        "def model(x, y):\n    return x\n\nexample_inputs = {'x': torch.ones(1)}",
        errors.SpecInputsInvalid,
        ["`model(x, y)`", "missing a required argument: 'y'"],
    ),
]


@pytest.mark.parametrize(("body", "kind", "words"), WRONG)
def test_wrong_spec(write, tmp_path, body, kind, words):
    path = str(tmp_path / "model.py") if body is None else write(body)
    with pytest.raises(kind) as caught:
        load_spec(path)
    for word in words:
        assert word in str(caught.value)
    is_raised = issubclass(kind, (errors.UnsupportedError, errors.SpecImportFailed))
    assert caught.value.exit_code == (3 if is_raised else 2)


@pytest.mark.parametrize("text", ["model.txt", "model", "a b:c"])
def test_spec_of_no_known_form(text):
    with pytest.raises(errors.SpecNotUnderstood, match="FILE"):
        load_spec(text)


def test_module_that_is_not_there():
    with pytest.raises(errors.SpecModuleMissing, match="no_such_package"):
        load_spec("no_such_package.models:model")


def test_damaged_exported_file(tmp_path):
    (tmp_path / "model.pt2").write_bytes(b"PK not really")
    with pytest.raises(errors.ExportedFileInvalid):
        load_spec(str(tmp_path / "model.pt2"))


def test_libraries_of_an_exported_file_s_ops_are_imported(tmp_path, monkeypatch):
    (tmp_path / "defines_ops.py").write_text("ARE_DEFINED = True\n")
    (tmp_path / "of_another_torch.py").write_text("raise RuntimeError('no such operator')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(spec_module.OP_MODULES, "beside", "defines_ops")
    monkeypatch.setitem(spec_module.OP_MODULES, "nowhere", "of_another_torch")
    path = tmp_path / "program.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        ops = "torch.ops.beside.add.default torch.ops.aten.mul.Tensor torch.ops.nowhere.sub.out"
        archive.writestr("program/models/model.json", f'{{"target": "{ops}"}}')
    with pytest.raises(errors.ExportedFileInvalid, match="ops `beside, nowhere` is not imported"):
        load_spec(str(path))
    assert sys.modules.pop("defines_ops").ARE_DEFINED


def test_exported_file_with_dynamic_shapes_keeps_its_dims(tmp_path):
    rows = torch.export.Dim("rows")
    program = torch.export.export(
        torch.nn.Linear(4, 3), (torch.ones(2, 4),), dynamic_shapes=({0: rows},)
    )
    torch.export.save(program, tmp_path / "linear.pt2")
    captured = capture(load_spec(str(tmp_path / "linear.pt2")))
    (size,) = captured.dims
    assert str(captured.graph.outputs[0].type) == f"f32[{size.name}, 3]"


def refusal(path: str, kind: type[errors.AotcError]) -> str:
    with pytest.raises(kind) as caught:
        capture(load_spec(path))
    return str(caught.value)


def test_every_unsupported_op_is_listed_with_its_line(write):
    path = write("""
        def spectrum(x):
            return torch.linalg.eigvalsh(x)

        class Model(nn.Module):
            def forward(self, x):
                y = spectrum(x)
                z = torch.linalg.inv(x @ x.T)
                return torch.relu(y), z

        model = Model()
        example_inputs = (torch.ones(3, 3),)
    """)
    text = refusal(path, errors.OpsUnsupported)
    assert "at model.py:5 in spectrum" in text
    assert "at model.py:10 in forward" in text


def test_result_whose_shape_depends_on_data_is_refused(write):
    path = write("""
        def model(x):
            return x[x > 0]

        example_inputs = (torch.ones(3),)
    """)
    assert "model.py:5 in model" in refusal(path, errors.OpsUnsupported)


def test_control_flow_on_values_gives_the_reason_and_the_line(write):
    path = write("""
        def model(x):
            if x.sum() > 0:
                return x
            return -x

        example_inputs = (torch.ones(3),)
    """)
    text = refusal(path, errors.ExportFailed)
    assert "data-dependent" in text
    assert "model.py:5 in model" in text


def test_changed_inputs_are_refused_by_name(write):
    path = write("""
        def model(x):
            x.add_(1)
            return x * 2

        example_inputs = (torch.ones(3),)
    """)
    assert "`x`" in refusal(path, errors.MutationUnsupported)


def test_model_that_fails_on_its_own_inputs(write):
    path = write("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 3)

            def forward(self, x):
                return self.layer(x)

        model = Model()
        example_inputs = (torch.ones(2, 5),)
    """)
    text = refusal(path, errors.ModelRaised)
    assert "shapes cannot be multiplied" in text
    assert "model.py:10 in forward" in text

"""Which ops are left to torch, what is refused all the same, and what the user reads."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

from torch._higher_order_ops.out_dtype import out_dtype  # noqa: E402

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.fallback import FallbackWarning  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.ir.graph import walk  # noqa: E402
from aotc.aot.ir.reference import evaluate  # noqa: E402
from aotc.aot.ir.text import parse_graph, print_graph  # noqa: E402
from aotc.aot.pipeline import BuildOptions, build  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.schedule.schedule import EmptyTensorUnsupported  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402

pytestmark = pytest.mark.torch
X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


@torch.library.custom_op("aotc_fallback::changing", mutates_args=("x",))
def changing(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("aotc_fallback::crossing", mutates_args=("x", "y"))
def crossing(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)
    y.add_(1)


@torch.library.custom_op("aotc_fallback::listing", mutates_args=("parts",))
def listing(parts: list[torch.Tensor]) -> None:
    parts[0].add_(parts[1])


@torch.library.custom_op("aotc_fallback::cut", mutates_args=())
def cut(x: torch.Tensor, count: int, low: float, *, high: int = 9) -> torch.Tensor:
    return x.clamp(low, high).sum() * torch.ones(count)


@cut.register_fake
def _(x, count, low, *, high=9):
    return x.new_empty(count)


def reported(x):
    """A call that torch keeps in its place among others, since it may raise."""
    values, info = torch.linalg.inv_ex(x[:, :4])
    torch.ops.aten._linalg_check_errors(info, "reported", is_matrix=True)
    return values


def captured(model, *inputs, dynamic_shapes=None):
    spec = spec_of(model, inputs or (X,), "test_capture.py", dynamic_shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        return capture(spec, fallback=True)


def nodes_of(graph):
    return [node for node in walk(graph.outputs) if node.op == "torch"]


def test_without_the_flag_the_refusal_names_it():
    with pytest.raises(errors.OpsUnsupported) as caught:
        capture(spec_of(lambda x: torch.special.bessel_j0(x), (X,), "test_capture.py"))
    assert "`--fallback torch`" in str(caught.value)
    assert caught.value.code == "ops-unsupported"


def test_a_warning_lists_every_op_with_its_count_and_lines():
    def model(x):
        a = torch.special.bessel_j0(x) + torch.special.bessel_j0(x + 1)
        return a, torch.special.bessel_j0(x), torch.special.bessel_j1(x)

    with pytest.warns(FallbackWarning) as seen:
        found = capture(spec_of(model, (X,), "test_capture.py"), fallback=True)
    (warning,) = [row for row in seen if row.category is FallbackWarning]
    first, second, third = str(warning.message).splitlines()
    assert first == "torch runs these ops at each call, they are not compiled:"
    line = model.__code__.co_firstlineno + 1
    assert second == f"  `aten::special_bessel_j0`, 2 calls at test_capture.py:{line} in model"
    assert "`aten::special_bessel_j1`, 1 call at" in third
    assert [(op.name, op.calls) for op in found.torch_ops] == [
        ("aten::special_bessel_j0", 2),
        ("aten::special_bessel_j1", 1),
    ]


def test_what_can_be_compiled_is_not_left_to_torch():
    found = captured(lambda x: (x.softmax(-1), torch.sort(x)[0]))
    assert nodes_of(found.graph) == []
    assert found.torch_ops == ()


def test_a_call_is_data():
    graph = captured(lambda x: cut(x, 5, -1.5, high=2)).graph
    (node,) = nodes_of(graph)
    assert node.attr("operator") == "aotc_fallback::cut"
    assert node.attr("operands") == (("f32", (4, 6)),)
    assert node.attr("results") == (("f32", (5,)),)
    low = ("", "float", (-1.5).hex())
    assert node.attr("arguments") == (
        ("", "tensor", 0),
        ("", "int", 5),
        low,
        ("high", "int", 2),
    )
    assert parse_graph(print_graph(graph)).outputs[0] is graph.outputs[0]
    with pytest.raises(ValueError, match="torch runs it"):
        evaluate(node, [X.numpy()])


def test_calls_on_constants_are_not_folded():
    table = torch.nn.Parameter(X.abs() + 1)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = table

        def forward(self, x):
            return torch.special.bessel_j0(self.table * 2) + x

    graph, _ = rewrite(captured(Model()).graph)
    (node,) = nodes_of(graph)
    assert node.inputs[0].op == "constant"


def test_a_call_is_a_group_of_its_own_between_kernels():
    graph = captured(lambda x: torch.special.bessel_j0(x.T.exp()).neg()).graph
    found = schedule(rewrite(graph)[0], CPU)
    assert [group.kind for group in found.groups] == ["pointwise", "torch", "pointwise"]
    assert found.launched == (found.groups[0], found.groups[2])


MM, I32 = torch.ops.aten.mm.default, torch.int32
REFUSED = {
    "it changes a view of a tensor": lambda x: (y := x + 1, changing(y[1:]))[0],
    "it changes one tensor by two arguments": lambda x: (y := x + 1, crossing(y, y))[0],
    "or a list of tensors": lambda x: (y := x + 1, listing([y, x * 2]))[0],
    "its shape depends on data": lambda x: torch.unique(x),
    "it is not an op of torch's registry": lambda x: out_dtype(
        MM, torch.int32, x.char(), x.T.char()
    ),
    "it has effects beside its results": lambda x: reported(x),
    "an argument is a complex tensor": lambda x: (x * 1j).asin().abs(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_torch_cannot_run_either_is_refused_by_name(reason):
    with pytest.raises(errors.FallbackRefused) as caught:
        captured(REFUSED[reason])
    assert reason in caught.value.message
    assert ".py:" in caught.value.message
    assert "--fallback" not in caught.value.hint_text


def test_sizes_of_a_call_are_those_of_the_op():
    shapes = ({0: torch.export.Dim("rows", max=64)},)
    found = captured(lambda x: torch.special.bessel_j0(x), X, dynamic_shapes=shapes)
    (dim,) = found.dims
    (call,) = [node for node in found.graph.nodes() if node.op == "torch"]
    assert call.attr("results") == ((("f32", found.graph.inputs[0].shape)),)
    assert str(call.attr("operands")[0][1][0]) == dim.name == "rows"


def test_tensors_of_no_elements_are_refused_as_ever():
    graph = captured(lambda x: torch.special.bessel_j0(x[:0]).sum() + x).graph
    assert nodes_of(graph) == []  # nothing is computed of nothing
    with pytest.raises(EmptyTensorUnsupported):
        schedule(captured(lambda x: torch.linalg.det(x[:0, :0]) + x).graph, CPU)


SPEC = """
import torch

def model(x):
    return torch.special.bessel_j0(x)

example_inputs = (torch.ones(3),)
"""


def test_one_bundle_for_the_cpu_and_a_gpu(tmp_path, aotc):
    path = tmp_path / "model.py"
    path.write_text(SPEC)
    options = BuildOptions(tmp_path / "cache", fallback="torch")
    with pytest.warns(FallbackWarning):
        report = build(str(path), tmp_path / "out", ["cpu", "cuda:sm_90"], options)
    assert [row.target.partition("-")[0] for row in report.targets] == ["cpu", "cuda"]
    text = aotc("inspect", tmp_path / "out", "--kernels")[1]
    assert text.count("torch   aten::special_bessel_j0") == 2


def test_a_model_of_one_op_of_torch_needs_no_kernel(tmp_path):
    from aotc.runtime import load

    path = tmp_path / "model.py"
    path.write_text(SPEC)
    options = BuildOptions(tmp_path / "cache", fallback="torch")
    with pytest.warns(FallbackWarning):
        report = build(str(path), tmp_path / "out", ["cpu"], options)
    assert [(op.name, op.calls) for op in report.torch_ops] == [("aten::special_bessel_j0", 1)]
    assert report.record()["torch_ops"][0]["sources"] == ("model.py:5 in model",)
    x = torch.rand(3)
    with load(tmp_path / "out") as program:
        torch.testing.assert_close(program(x), torch.special.bessel_j0(x))

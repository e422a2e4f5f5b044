"""What aotc cannot compile: who takes it, what is said of it, and that the rest stays ours."""

from __future__ import annotations

import copy
import logging
import operator
import pickle

import pytest
import torch
from dynamo_models import Transformer
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from aotc.aot.dynamo import aotc, eager_graph
from aotc.aot.dynamo.eager_graph import laid
from aotc.aot.dynamo.fallback import leave
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]


def since(before):
    return {name: count - before[name] for name, count in counters().items()}


@torch.library.custom_op("aotc_tests::bumpy", mutates_args=())
def bumpy(x: torch.Tensor) -> torch.Tensor:
    """An op of somebody's, which aotc knows nothing of: the square of x."""
    return x * x


bumpy.register_fake(torch.empty_like)
bumpy.register_autograd(
    lambda ctx, gradient: gradient * 2 * ctx.saved_tensors[0],
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Erratic(nn.Module):
    """The foreign op between two linears."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.second(bumpy(self.first(x).sin()).relu())


@pytest.mark.parametrize("fallback", ["eager", "inductor"])
def test_the_regions_around_an_op_stay_ours(fallback, fresh, caplog):
    module, x = Erratic(), torch.randn(4, 6)
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options={"fallback": fallback})
    before = counters()
    with caplog.at_level(logging.WARNING, "aotc"), torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    assert since(before)["regions_left"] == 1
    counted = since(before)
    assert counted["programs_made"] + counted["programs_cached"] == 2
    (line,) = [row.getMessage() for row in caplog.records if row.name == "aotc"]
    assert f"1 op goes to {fallback}: `aotc_tests.bumpy.default`" in line
    assert "test_fallback.py" in line


def test_gradients_through_a_region_that_is_left(fresh):
    module, x = Erratic(), torch.randn(4, 6)
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options={"fallback": "eager"})
    for each in (module, compiled):
        each(x).square().sum().backward()
    for one, other in zip(compiled.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_where_that_is_an_error(fresh):
    compiled = torch.compile(Erratic(), backend=aotc, options={"fallback": "error"})
    with pytest.raises(
        Exception, match=r"(?s)a graph has parts .*`aotc_tests.bumpy.default` at test_fall"
    ):
        compiled(torch.randn(4, 6))


def test_random_numbers_are_torchs_own(fresh):
    module = Transformer(dropout=0.5)
    compiled = torch.compile(copy.deepcopy(module), backend=aotc, options={"fallback": "eager"})
    tokens = torch.randint(0, 20, (2, 8))
    for each in (module, compiled):
        torch.manual_seed(7)
        functional.cross_entropy(each(tokens).flatten(0, 1), tokens.flatten()).backward()
    for one, other in zip(compiled.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_a_dtype_that_we_lack_is_named(fresh, caplog):
    compiled = torch.compile(
        lambda x, y: (x * 2, y * 2), backend=aotc, options={"fallback": "eager"}
    )
    x, y = torch.randn(3).to(torch.complex32), torch.randn(3)
    with caplog.at_level(logging.WARNING, "aotc"):
        doubled, plain = compiled(x, y)
    assert torch.equal(torch.view_as_real(doubled), torch.view_as_real(x * 2))
    assert torch.equal(plain, y * 2)
    assert "torch.complex32" in caplog.text


def test_calls_on_one_line_are_left_one_by_one(fresh, caplog):
    """Each turn of a loop refuses an op with the same words; the rest of each turn is ours."""

    def function(a, b):
        for turn in range(3):
            b = torch.linalg.solve_triangular(a, b * 2, upper=False).sin() + turn
        return b

    a, b = torch.randn(4, 4).tril() + 3 * torch.eye(4), torch.randn(4, 2)
    compiled = torch.compile(function, backend=aotc, options={"fallback": "eager"})
    with caplog.at_level(logging.WARNING, "aotc"):
        torch.testing.assert_close(compiled(a, b), function(a, b))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all("aotc: 1 op goes to eager: `aten.linalg_solve_triangular" in line for line in lines)


def test_a_device_without_a_target_is_named(fresh, caplog):
    compiled = torch.compile(lambda x: x * 2, backend=aotc, options={"fallback": "eager"})
    with caplog.at_level(logging.WARNING, "aotc"):
        found = compiled(torch.empty(3, device="meta"))
    assert found.device.type == "meta"
    assert "device `meta`" in caplog.text


@pytest.fixture
def kernels_only():
    """An op with kernels and no backward, the square of its operand."""
    with torch.library._scoped_library("aotc_kernels_only", "FRAGMENT") as library:
        library.define("squared(Tensor x) -> Tensor")
        library.impl("squared", torch.square, "CPU")
        library.impl("squared", torch.empty_like, "Meta")
        yield lambda x: torch.ops.aotc_kernels_only.squared(x)


def test_an_op_without_a_backward_is_refused(fresh, kernels_only):
    compiled = torch.compile(kernels_only, backend=aotc, options={"fallback": "eager"})
    with pytest.raises(Exception, match=r"`aotc_kernels_only\.squared` has no backward"):
        compiled(torch.ones(3, requires_grad=True))


def test_it_runs_where_no_gradient_is_asked_for(fresh, kernels_only):
    def call(x):
        with torch.no_grad():
            known = kernels_only(x)
        return x * known + kernels_only(x.detach())

    x = torch.full((3,), 2.0, requires_grad=True)
    torch.compile(call, backend=aotc, options={"fallback": "eager"})(x).sum().backward()
    assert x.grad.tolist() == [4.0] * 3


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (torch.ones(3, device="meta"), "device `meta`, which has no target here"),
        (torch.ones(3).to(torch.complex32), "element type `torch.complex32`"),
        (torch.ones(3, dtype=torch.float8_e4m3fn), "element type `torch.float8_e4m3fn`"),
    ],
    ids=["device", "complex", "float8"],
)
def test_an_argument_that_we_lack_is_the_one_reason(fresh, x, reason):
    compiled = torch.compile(lambda x: x.view(-1).t(), backend=aotc, options={"fallback": "error"})
    with pytest.raises(Exception, match="a graph has parts") as caught:
        compiled(x)
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert len(lines) == 1
    assert reason in lines[0]


def test_tangents_are_not_lost(fresh, caplog):
    """A compiled graph, ours or Inductor's, would give a result without one."""
    function = torch.compile(lambda x: x.sin() * x, backend=aotc)
    x = torch.linspace(-1, 1, 5)
    with forward_ad.dual_level(), caplog.at_level(logging.WARNING, "aotc"):
        found = forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones(5))))
    torch.testing.assert_close(found.tangent, x.cos() * x + x.sin())
    assert "a graph goes to eager: it is called inside of `forward_ad.dual_level`" in caplog.text
    torch.testing.assert_close(function(x), x.sin() * x)


def test_ragged_dims_are_no_numbers(fresh):
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    found = torch.compile(lambda x: x * 2, backend=aotc, options={"fallback": "eager"})(x)
    for one, other in zip(found.unbind(), rows, strict=True):
        torch.testing.assert_close(one, other * 2)


def test_a_number_that_is_left_takes_what_makes_it_along(fresh, caplog):
    def model(x, number):
        return x + round(number / 2 * 123.4567, 1), x * (number / 2)

    compiled = torch.compile(model, backend=aotc, dynamic=True, fullgraph=True)
    for number in (2, 5):
        x = torch.randn(4)
        for found, expected in zip(compiled(x, number), model(x, number), strict=True):
            torch.testing.assert_close(found, expected)
    assert "internal error" not in caplog.text


def test_ops_that_torch_runs_get_arguments_in_the_strides_that_it_traced():
    """What lies otherwise at a call is copied: results lie as arguments do, and who reads them was
    compiled for that."""
    seen = []

    def strides(x):
        seen.append(x.stride())
        return x + 1

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(2, 3, 4).transpose(0, 1)
    graph.output((graph.call_function(strides, (x,)),))
    call, kept = leave(torch.fx.GraphModule({}, graph), [x.meta["val"]], "eager", ["a reason"])
    laid_well, laid_otherwise = torch.randn(2, 3, 4).transpose(0, 1), torch.randn(3, 2, 4)
    for value in (laid_well, laid_otherwise):
        torch.testing.assert_close(call([value])[0], value + 1)
    assert seen == [(4, 12, 1)] * 2
    assert kept is not None


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (0, 1, 2, 3), (3, 0, 1, 2)])
def test_attention_takes_arguments_as_they_lie_and_gives_what_was_traced(order, monkeypatch):
    """Dense heads are not copied into the gaps of the view that torch traced."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    traced = torch.randn(2, 5, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)  # [2, 4, 5, 8] each
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"x{number}") for number in range(3)]
    for node, value in zip(nodes, traced, strict=True):
        node.meta["val"] = value
    found = graph.call_function(attention, tuple(nodes))
    first = graph.call_function(operator.getitem, (found, 0))
    first.meta["val"] = attention(*traced)[0].contiguous()
    graph.output((first,))
    copies = []
    monkeypatch.setattr(eager_graph, "laid", lambda *pair: copies.append(laid(*pair)) or copies[-1])
    call, _ = leave(torch.fx.GraphModule({}, graph), traced, "eager", ["a reason"])
    back = [order.index(dim) for dim in range(4)]
    given = [value.permute(order).contiguous().permute(back) for value in traced]
    (result,) = call(list(given))
    torch.testing.assert_close(result, attention(*traced)[0])
    assert result.stride() == first.meta["val"].stride()
    assert len(copies) == (1 if order[-1] == 3 else 4)


def test_what_torch_asserts_of_numbers_and_other_sizes_is_not_left_to_inductor(caplog):
    """Inductor writes what is known of a number where that is made: `u0 + u1 == s77`, in code that
    is given no tensor of this size."""

    def model(counts, x):
        first, second = counts.tolist()
        return torch.split(x, [first, second])[1].sort()

    caplog.set_level("WARNING", "aotc")
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(model, backend=aotc, dynamic=True)
        for first, count in ((3, 10), (7, 12)):
            x, counts = torch.randn(count), torch.tensor([first, count - first])
            for found, expected in zip(compiled(counts, x), model(counts, x), strict=True):
                assert torch.equal(found, expected)
    assert "go to eager" in caplog.text


def test_a_second_process_makes_and_draws_what_depends_on_no_tensor():
    """torch's pickle of a graph would have the first results as constants."""

    def function(x):
        zeros = torch.ops.aten.zeros.default([3])
        counted = torch.ops.aten.add_.Tensor(zeros, x)
        return [torch.ops.aten.rand.default([3]) + counted]

    module = make_fx(function)(torch.ones(3))
    opened = pickle.loads(pickle.dumps(eager_graph.eager_graph(module))).opened()
    for _ in range(2):
        torch.manual_seed(0)
        expected = torch.rand(3) + 1
        torch.manual_seed(0)
        assert torch.equal(opened([torch.ones(3)])[0], expected)

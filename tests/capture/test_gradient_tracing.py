"""Models that compute gradients: `torch.func`, `torch.autograd.grad`, against torch in f64."""

from __future__ import annotations

import numpy
import pytest

from aotc.aot.ir.reference import interpret

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.export import Dim  # noqa: E402
from torch.func import (  # noqa: E402
    functional_call,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)
from torch.nn import functional  # noqa: E402

from aotc.aot import errors  # noqa: E402
from aotc.aot.capture import gradient_tracing  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.gradient_tracing import NO_LEVEL, transforms_undone  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402

pytestmark = pytest.mark.torch
DATA = torch.randn(6, 6, generator=torch.Generator().manual_seed(3))
ROWS = torch.tensor([0, 0, 2])

# What is differentiated: one function for each kind of op that has a gradient of its own.
FUNCTIONS = {
    "matmul": lambda x: x @ x.T,
    "convolution": lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]),
    "bilinear": lambda x: functional.bilinear(x, x, x.repeat(2, 1, 1)),
    "distances": lambda x: torch.cdist(x[:3], x[3:]),
    "distance": lambda x: torch.dist(x, x.T),
    "layer_norm": lambda x: functional.layer_norm(x, (6,)),
    "group_norm": lambda x: functional.group_norm(x[None], 3),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "softmax": lambda x: functional.softmax(x, 1) ** 2,
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.arange(6)),
    "max_pool": lambda x: functional.max_pool2d(x[None, None], 3, 2, 1),
    "avg_pool": lambda x: functional.avg_pool2d(x[None, None], 3, 2, 1),
    "adaptive_avg_pool": lambda x: functional.adaptive_avg_pool2d(x[None, None], 4),
    "adaptive_max_pool": lambda x: functional.adaptive_max_pool2d(x[None, None], 4),
    "reflection": lambda x: functional.pad(x[None], (1, 2), mode="reflect"),
    "replication": lambda x: functional.pad(x[None], (1, 2), mode="replicate"),
    "resize": lambda x: functional.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
    "samples": lambda x: functional.grid_sample(x[None, None], x[None, :4, :2, None].mT.tanh()),
    "embedding": lambda x: functional.embedding(ROWS, x),
    "embedding_bag": lambda x: functional.embedding_bag(ROWS, x, torch.tensor([0, 2])),
    "index": lambda x: x[ROWS],
    "gather": lambda x: x.gather(1, ROWS.expand(6, 3)),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, ROWS.repeat(6, 2), x) ** 2,
    "masked_scatter": lambda x: x.masked_scatter(x > 0, x.T.contiguous()),
    "put": lambda x: x.put(ROWS[1:], x[0, :2] ** 2),
    "diagonal_scatter": lambda x: x.diagonal_scatter(x[0, 1:] ** 2, 1),
    "topk": lambda x: x.topk(2).values,
    "sort": lambda x: x.sort().values[:, :2],
    "median": lambda x: x.median(1).values,
    "cumsum": lambda x: x.cumsum(1) ** 2,
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: torch.logcumsumexp(x, 1),
    "prod": lambda x: x.prod(1),
    "norm": lambda x: x.norm(dim=1),
    "std": lambda x: x.std(1),
    "amax": lambda x: x.amax(1),
    "gelu": functional.gelu,
    "elu": functional.elu,
    "hardswish": functional.hardswish,
    "softshrink": functional.softshrink,
    "logsigmoid": functional.logsigmoid,
    "glu": functional.glu,
    "mish": functional.mish,
    "silu": functional.silu,
    "clamp": lambda x: x.clamp(-1, 1) ** 3,
    "smooth_l1": lambda x: functional.smooth_l1_loss(x, x.T.flip(0)),
    "power": lambda x: x.abs() ** x,
    "atan2": lambda x: torch.atan2(x, x.T + 2),
    "foreach": lambda x: torch.stack(torch._foreach_mul([x, x.T], 2.0)) ** 2,
}


def network(x, *weights):
    first, second = weights
    return (x @ first).tanh() @ second


class Forces(torch.nn.Module):
    """Minus the gradient of an energy, as a user writes it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 8), torch.nn.SiLU(), torch.nn.Linear(8, 1)
        )
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, places):
        self.calls += 1
        places = places.detach().requires_grad_(True)
        with torch.enable_grad():
            energy = self.layers(places).sum()
            (gradient,) = torch.autograd.grad(energy, places)
        return energy.detach(), -gradient


class Weights(torch.nn.Module):
    """A step of learning, and gradients of each sample: gradients in the model's own weights."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 3)

    def forward(self, x):
        weights = dict(self.layer.named_parameters())

        def loss(weights, x):
            return functional_call(self.layer, weights, (x,)).tanh().sum()

        steps = grad(loss)(weights, x)
        learned = {name: weights[name] - 0.1 * step for name, step in steps.items()}
        each = vmap(grad(loss), in_dims=(None, 0))(weights, x)
        return loss(learned, x), [row.flatten(1).norm(dim=1) for row in each.values()]


def derivatives(x):
    def energy(row):
        return (row @ DATA).tanh().sum()

    value, pull = vjp(lambda y: functional.layer_norm(y, (6,)), x)
    pushed = jvp(lambda y: functional.softmax(y, -1) @ y.T, (x,), (x.flip(0),))
    return (
        jacrev(lambda row: row.cumsum(0).exp())(x[0]),
        jacfwd(lambda row: row * row.sum())(x[0]),
        vmap(hessian(energy))(x),
        value,
        *pull(x),
        *pushed,
        grad(lambda y: grad(lambda z: (z**3).sum())(y).pow(2).sum())(x),
    )


def check(model, *arguments):
    spec = spec_of(model, arguments)
    captured = capture(spec)
    before = [numpy.zeros((), "f4") for _ in captured.graph.states]
    found = interpret(captured.graph, [*captured.golden_inputs, *before])
    expected = torch.utils._pytree.tree_leaves(spec.module(*arguments))
    assert len(found) >= len(expected)  # states follow
    for one, other in zip(found, expected, strict=False):
        numpy.testing.assert_allclose(one, other.detach().numpy(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_ops(name):
    function = FUNCTIONS[name]

    def weighed(x):
        found = function(x)
        return (found * torch.linspace(0, 1, found.numel()).view(found.shape)).sum()

    check(grad(weighed), DATA)


@pytest.mark.parametrize("make", [Forces, Weights, lambda: derivatives])
def test_models(make):
    check(make(), DATA)


def test_a_batch_that_varies():
    varies = ({0: Dim("batch", max=64)},)
    captured = capture(
        spec_of(grad(lambda x: x.sin().cumsum(1).sum()), (DATA,), dynamic_shapes=varies)
    )
    assert [dim.name for dim in captured.dims] == ["batch"]


SECOND = {
    "powers": lambda row: (row**3).sum() + row.prod(),
    "products": lambda row: (row.sin() * row.flip(0)).sum(),
    "norms": lambda row: row.norm() + (row * row.sum()).exp().mean(),
}


@pytest.mark.parametrize("name", SECOND)
def test_tangents_that_torch_makes_without_data_are_on_the_device(name):
    check(vmap(hessian(SECOND[name])), DATA)


def test_a_trace_of_its_own_has_places_that_any_kernel_may_take():
    """Kernels of `ctc_loss` take targets unchecked: memory as it was found ends the process."""
    places = torch.randint(5, (3, 4)).t()
    made = gradient_tracing._alike(places)
    assert (made.shape, made.stride(), made.dtype) == (places.shape, places.stride(), places.dtype)
    assert not made.any()
    model = lambda x, t: functional.ctc_loss(x, t, (6, 5), (3, 2))  # noqa: E731
    given = torch.randn(6, 2, 5).log_softmax(-1), torch.randint(1, 5, (5,))
    capture(spec_of(model, given))


def test_an_export_leaves_hooks_of_saved_tensors_on():
    check(grad(lambda x: x.sin().sum()), DATA)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        DATA.clone().requires_grad_().sin().sum().backward()


def test_a_refusal_names_the_users_line():
    with pytest.raises(errors.OpsUnsupported, match=r"test_gradient_tracing\.py:\d+ in <lambda>"):
        capture(spec_of(grad(lambda x: torch.linalg.matrix_exp(x).sum()), (DATA,)))


def test_what_fails_inside_of_a_transform_leaves_none_behind():
    def fail(x):
        torch._C._enter_dual_level()
        raise ValueError

    with pytest.raises(ValueError), transforms_undone():  # noqa: PT011
        vmap(fail)(DATA)
    assert forward_ad._current_level == NO_LEVEL
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert torch.equal(jvp(torch.sin, (DATA,), (DATA,))[1], DATA.cos() * DATA)


class InTorchsOwnMode(Forces):
    """Forces as most write them: gradients are recorded since torch does so by default."""

    def forward(self, places):
        self.calls += 1
        places.requires_grad_(True)
        energy = self.layers(places).sum()
        (slope,) = torch.autograd.grad(energy, places, create_graph=True)
        (bend,) = torch.autograd.grad(slope.pow(2).sum(), places)
        return energy, {"forces": -slope, "bends": bend}


def test_a_model_that_records_gradients_without_asking():
    given = DATA.clone()
    model = InTorchsOwnMode()
    captured = capture(spec_of(model, (given,)))
    assert not model.calls
    assert "forward" not in vars(model)
    check(model, DATA.clone())
    varies = ({0: Dim("batch", max=64)},)
    captured = capture(spec_of(InTorchsOwnMode(), (given,), dynamic_shapes=varies))
    assert [dim.name for dim in captured.dims] == ["batch"]


@pytest.mark.parametrize("name", ["attention", "softmax", "index", "cumsum", "gelu"])
def test_gradients_of_an_example_that_asks_for_them(name):
    def slope(x):
        return torch.autograd.grad(FUNCTIONS[name](x).pow(2).sum(), x)[0]

    check(slope, DATA.clone().requires_grad_())


def test_what_raises_with_gradients_too_says_so():
    def unrelated(x):
        return torch.autograd.grad(x.sum(), torch.ones(2, requires_grad=True))

    with pytest.raises(errors.ModelRaised, match="not have been used in the graph"):
        capture(spec_of(unrelated, (DATA.clone().requires_grad_(),)))

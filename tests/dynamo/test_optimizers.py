"""Steps of optimisers that are compiled, and scaled gradients, beside eager."""

from __future__ import annotations

import copy

import pytest
import torch
from dynamo_models import Perceptron

from aotc.aot.capture.decompositions import foreach
from aotc.aot.dynamo import aotc
from aotc.aot.dynamo.programs import counters

pytestmark = [pytest.mark.torch, pytest.mark.triton]
STRICT = {"fallback": "error"}
OPTIMIZERS = {
    "SGD with momentum": lambda values: torch.optim.SGD(values, lr=0.1, momentum=0.9),
    "AdamW": lambda values: torch.optim.AdamW(values, lr=0.1, amsgrad=True),
    "AdamW by lists": lambda values: torch.optim.AdamW(values, lr=0.1, foreach=True),
    "RMSprop": lambda values: torch.optim.RMSprop(values, lr=0.1),
}


def stepped(kind, dtype, **compiling):
    """Parameters after four steps, each along the sine of what they are."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    values = [torch.nn.Parameter(torch.randn(33, 7).to(dtype)) for _ in range(3)]
    optimizer = OPTIMIZERS[kind](values)
    step = torch.compile(optimizer.step, **compiling) if compiling else optimizer.step
    for _ in range(4):
        for each in values:
            each.grad = torch.sin(each.detach())
        step()
    return torch.cat([each.detach().flatten() for each in values]).double()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_compiled_optimizer(kind, fresh):
    """As near to the steps in f64 as the same graph op by op: a compiled optimiser counts its steps
    in f32, eager in Python."""
    expected = stepped(kind, torch.float64)
    op_by_op = (stepped(kind, torch.float32, backend="aot_eager") - expected).abs()
    before = counters()["graphs"]
    ours = (stepped(kind, torch.float32, backend=aotc, options=STRICT) - expected).abs()
    assert counters()["graphs"] > before
    assert ours.max() <= 2 * op_by_op.max() + 1e-7
    assert ours.mean() <= 2 * op_by_op.mean() + 1e-8


def drawn(kind, generator):
    """An argument of this kind of a schema."""
    if kind == "List[Tensor]":
        return [0.1 + 0.8 * torch.rand(size, generator=generator) for size in ((3, 4), (5,), ())]
    if kind == "List[number]":
        return [0.5, 2.0, 1.25]
    return torch.tensor(0.75) if kind == "Tensor" else 0.625


@pytest.mark.parametrize("op", foreach.decompositions(), ids=str)
def test_an_op_of_lists_is_one_for_each_tensor(op):
    generator = torch.Generator().manual_seed(2)
    names = ("Tensor", "List[Tensor]", "number", "List[number]")
    arguments = [each for each in op._schema.arguments if not each.kwarg_only]
    given = [drawn(str(each.type), generator) for each in arguments if str(each.type) in names]
    if op is torch.ops.aten._foreach_norm.Scalar:
        given[1] = 2
    wanted = op(*given)
    found = foreach.decompositions()[op](*given)
    for one, other in zip(found, given[0] if wanted is None else wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-6, atol=1e-7)


def test_a_scaler_of_gradients(fresh):
    """f16 autocast: a step whose gradients overflow is left out, as in eager."""
    start, found = Perceptron(), []
    data = [torch.randn(5, 12) for _ in range(8)]
    for compiling in ({}, {"backend": aotc, "options": STRICT}):
        module = copy.deepcopy(start)
        call = torch.compile(module, **compiling) if compiling else module
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        losses, scales = [], []
        for number, batch in enumerate(data):
            with torch.autocast("cpu", torch.float16):
                loss = call(batch).float().square().mean()
            optimizer.zero_grad()
            scaler.scale(loss * (1e6 if number == 4 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
        found.append((torch.tensor(losses), scales))
    assert found[0][1] == found[1][1]
    assert found[0][1][4] < found[0][1][3]
    torch.testing.assert_close(found[1][0], found[0][0], rtol=5e-3, atol=1e-3)

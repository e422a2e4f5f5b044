"""A decomposition that is wrong is no rounding: it loosens no tolerance, of whatever model. And
what torch finds in its own names while one runs."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch.export import Dim  # noqa: E402

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.libraries import ops_listed_once  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.contents import TOLERANCES, tolerances  # noqa: E402

pytestmark = pytest.mark.torch


@torch.library.custom_op("aotc_capture::softsign", mutates_args=())
def softsign(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + x.abs())


@softsign.register_fake
def _(x):
    return torch.empty_like(x)


class Model(torch.nn.Module):
    def __init__(self, dtype, has_state):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8, dtype=dtype)
        self.has_state = has_state
        self.register_buffer("total", torch.zeros(8, dtype=dtype))

    def forward(self, x):
        y = softsign(self.linear(x))
        if self.has_state:
            self.total.add_(y.sum(0))
            return y + self.total
        return y


WRONG = {torch.ops.aotc_capture.softsign.default: lambda x: x / (1 + 3 * x.abs())}


@pytest.mark.parametrize(
    ("dtype", "has_state", "is_dynamic"),
    [
        (torch.float32, False, False),
        (torch.float32, True, False),
        (torch.float32, False, True),
        (torch.bfloat16, True, True),
    ],
    ids=["f32", "state", "dynamic", "bf16, state, dynamic"],
)
def test_it_loosens_no_tolerance(dtype, has_state, is_dynamic):
    torch.manual_seed(0)
    model, x = Model(dtype, has_state), torch.randn(4, 8, dtype=dtype)
    shapes = ({0: Dim("rows", max=16)},) if is_dynamic else None
    found = capture(replace(spec_of(model, (x,), dynamic_shapes=shapes), decompositions=WRONG))
    limits = {*tolerances(found, "ieee")}
    for probe in found.probes:
        limits |= {*tolerances(found, "ieee", probe.roundings)}
    assert limits == {TOLERANCES["f32" if dtype == torch.float32 else "bf16"]}


def test_what_torch_calls_callable_while_ops_are_listed_once():
    """Its annotations are not made, and what may be called is known all the same."""
    own = torch._ops.Callable
    with ops_listed_once(), ops_listed_once():
        kind = torch._ops.Callable
        assert kind[[int], str] is kind
        assert isinstance(len, kind)
        assert not isinstance("len", kind)
    assert torch._ops.Callable is own

"""Golden numbers know how far their own roundings carry them."""

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.capture import capture  # noqa: E402  needs torch
from aotc.aot.capture.golden import golden_tensors, roundings  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.contents import TOLERANCES, tolerances  # noqa: E402

pytestmark = pytest.mark.torch


class Deep(torch.nn.Module):
    """Each block amplifies the roundings of the one before."""

    def __init__(self, blocks, gain):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(blocks))
        self.gain = gain

    def forward(self, x):
        for block in self.blocks:
            x = torch.sin(self.gain * block(x))
        return x, (x > 0).sum()


def captured(dtype, blocks=8, gain=4.0):
    model = Deep(blocks, gain).to(dtype)
    return capture(spec_of(model, (torch.randn(16, 64, generator=seeded()).to(dtype),)))


def seeded():
    return torch.Generator().manual_seed(5)


def test_roundings_of_float32_are_small():
    found = captured(torch.float32, blocks=2, gain=1.0)
    assert 0.0 < found.golden_roundings[0] < 2e-5
    assert tolerances(found, "ieee") == (TOLERANCES["f32"], 0.0)


def test_a_model_in_float32_that_amplifies_is_judged_by_float64():
    found = captured(torch.float32, blocks=24, gain=8.0)
    model = Deep(24, 8.0).double()
    exact = model(torch.randn(16, 64, generator=seeded()).double())[0]
    distance = (torch.from_numpy(found.golden_outputs[0]) - exact).abs().max() / exact.abs().max()
    assert found.golden_roundings[0] == pytest.approx(distance.item(), rel=1e-3)
    assert tolerances(found, "ieee")[0] == pytest.approx(3 * distance.item(), rel=1e-3)
    assert tolerances(found, "ieee")[0] > TOLERANCES["f32"]


class Written(torch.nn.Module):
    """Writes into a part of what it made, which a mode of torch's does not follow."""

    def forward(self, x):
        y = torch.sin(x * 3.0)
        y[:, 0] = torch.exp(x[:, 1])
        return y.relu_()


def test_what_is_written_into_is_judged_too():
    found = capture(spec_of(Written(), (torch.randn(4, 8, generator=seeded()),)))
    assert 0.0 < found.golden_roundings[0] < 2e-7


def test_what_a_mode_does_not_follow_has_no_roundings():
    x = torch.randn(4, 8, generator=seeded())
    with pytest.raises(NotImplementedError, match="in f64"):
        roundings(lambda: Written()(x), (Written()(x),), False)


def test_a_model_that_amplifies_is_judged_by_its_own_roundings():
    found = captured(torch.bfloat16)
    model = Deep(8, 4.0)
    wide = model.bfloat16().float()(torch.randn(16, 64, generator=seeded()).bfloat16().float())[0]
    stored = torch.from_numpy(found.golden_outputs[0].copy()).view(torch.bfloat16).float()
    distance = ((stored - wide).abs().max() / wide.abs().max()).item()
    assert found.golden_roundings[0] == pytest.approx(distance, rel=1e-3)
    assert tolerances(found, "ieee")[0] == pytest.approx(3 * distance, rel=1e-3)
    assert tolerances(found, "ieee")[0] > TOLERANCES["bf16"]


class Sorts(torch.nn.Module):
    def forward(self, x):
        return torch.sort(x).indices, torch.topk(x, 300).indices


def test_equal_elements_keep_their_order():
    # Enough of them that torch sorts otherwise than by insertion.
    x = torch.arange(1000.0) % 3
    found = capture(spec_of(Sorts(), (x,)))
    stable = torch.sort(x, stable=True).indices
    assert (found.golden_outputs[0] == stable.numpy()).all()
    highest = torch.sort(x, stable=True, descending=True).indices[:300]
    assert (found.golden_outputs[1] == highest.numpy()).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_convolutions_that_follow_each_other(dtype):
    """torch checks that an image and its bias have one type before a mode sees the convolution."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)]
    image = torch.randn(1, 3, 10, 10, generator=seeded()).to(dtype)
    found = capture(spec_of(torch.nn.Sequential(*layers).to(dtype), (image,)))
    assert 0.0 < found.golden_roundings[0] < 0.02


def test_an_encoder_of_layers_in_sixteen_bits():
    """Its attention detaches and views what it computed, which tensors of inference mode refuse."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(torch.bfloat16).eval()
    found = capture(spec_of(model, (torch.randn(2, 5, 16, generator=seeded()).bfloat16(),)))
    assert 0.0 < found.golden_roundings[0] < 0.1


def test_bits_of_floats_have_no_roundings():
    def model(x, whole):
        return x.view(torch.int32) * 2.0, whole.view(torch.float32) * 2.0

    given = torch.ones(4), torch.ones(4, dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="wider floats"):
        roundings(lambda: model(*given), model(*given), False)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_a_quotient_that_would_end_the_process_raises(dtype):
    least = torch.full((3,), torch.iinfo(dtype).min, dtype=dtype)
    for divisor in (-1, torch.tensor([2, -1, 3], dtype=dtype)):
        with pytest.raises(OverflowError, match="eager torch ends the process"):
            golden_tensors(lambda divisor=divisor: torch.div(least, divisor, rounding_mode="trunc"))
    (found,) = golden_tensors(lambda: torch.div(least, 2, rounding_mode="trunc"))
    assert torch.equal(found, least // 2)

"""Attention whose masks hide keys by -100, as those of Swin: weights below normal numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from aotc import aot, runtime  # noqa: E402

HIDDEN = 20  # keys from here on


class Masked(torch.nn.Module):
    def forward(self, q, k, v, mask):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)


@pytest.mark.parametrize("keys", [49, 300])
def test_faint_weights_are_0_and_the_rest_is_right(keys, tmp_path):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, keys, 32) for _ in range(3))
    mask = torch.randn(2, 3, keys, keys)
    aot.build(Masked(), (q, k, v, mask), tmp_path / "b")
    with runtime.load(tmp_path / "b") as program:
        for hiding in (-80.0, -95.0, -100.0, -1000.0):
            hidden = mask.clone()
            hidden[..., HIDDEN:] += hiding
            found = torch.from_dlpack(program(q, k, v, hidden))
            wanted = Masked()(*(each.double() for each in (q, k, v, hidden)))
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)
        zeros = v.clone()
        zeros[:, :, :HIDDEN] = 0.0
        hidden = mask.clone()
        hidden[..., HIDDEN:] -= 115.0  # e^-115 is 1e-50, and the least number of f32 is 1e-45
        assert not torch.from_dlpack(program(q, k, zeros, hidden)).any()
        hidden[..., HIDDEN:] += 20.0  # between the normal numbers and that
        found = torch.from_dlpack(program(q, k, zeros, hidden.clamp(max=0)))
        assert (found.abs() < 1e-36).all()
        hidden[0, 0, 0, 0] = float("nan")
        assert torch.from_dlpack(program(q, k, v, hidden))[0, 0, 0].isnan().all()

"""Batch norms in a checkpoint: computed again without the running statistics."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Checkpointed(nn.Module):
    def __init__(self, affine: bool) -> None:
        super().__init__()
        norms = [nn.BatchNorm1d(4, affine=affine) for _ in range(2)]
        self.inner = nn.Sequential(nn.Conv1d(3, 4, 3), norms[0], nn.ReLU(), norms[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False).sum(1)


@pytest.mark.parametrize("affine", [True, False])
def test_a_checkpoint_moves_running_statistics_once(fresh, affine):
    model = Checkpointed(affine)
    expected = copy.deepcopy(model)
    compiled = torch.compile(model, backend="aotc", options={"fallback": "error"})
    data = [torch.randn(5, 3, 9) for _ in range(2)]
    for x in data:
        given = [x.clone().requires_grad_() for _ in range(2)]
        found, wanted = compiled(given[0]), expected.inner(given[1]).sum(1)
        torch.testing.assert_close(found, wanted)
        (found * x.mean(1)[:, :7]).sum().backward()
        (wanted * x.mean(1)[:, :7]).sum().backward()
        torch.testing.assert_close(given[0].grad, given[1].grad)
    for name, buffer in expected.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), buffer)
    for name, parameter in expected.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).grad, parameter.grad)


def test_tangents_of_views_are_compiled(fresh):
    """`jacfwd` lays the tangent of a view as the view lies."""
    options = {"fallback": "error"}
    for view in (lambda x: x[:, 0], lambda x: x[1], lambda x: x.t()[1:, 0]):

        def function(x, view=view):
            return torch.func.jacfwd(torch.sin)(view(x))

        x = torch.randn(3, 4)
        compiled = torch.compile(function, backend="aotc", options=options)
        torch.testing.assert_close(compiled(x), function(x))

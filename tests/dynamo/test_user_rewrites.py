"""Rewrites of the user's in the back ends of torch.compile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aotc.aot import ops, rewrite
from aotc.aot.rewrites.registry import only
from aotc.aot.rewrites.user_rewrites import load_rewrites
from aotc.kernels import on_cpu

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("forgetful")]
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_an_equation_of_the_users_is_written(rewriting):
    with only():

        @rewrite(lambda x, y: ops.minimum(ops.maximum(x, 0.0), 6.0) * y)
        def half(x, y):
            return ops.mul(ops.sigmoid(x) * 6.0, y)

        found = torch.compile(lambda x, y: x.clamp(0, 6) * y, backend=rewriting)(
            torch.zeros(3), torch.ones(3)
        )
    assert rewriting.done[0]["half"] == 1
    assert torch.equal(found, torch.full((3,), 3.0))


@pytest.mark.parametrize("number_first", [True, False])
def test_an_equation_is_written_though_the_tables_go_on_from_it(rewriting, number_first):
    with only():

        @rewrite(lambda x: ops.sin(x))
        def nothing(x):
            return 0.0 * x if number_first else x * 0.0

        found = torch.compile(lambda x: torch.sin(x) + 1, backend=rewriting)(torch.ones(3))
    assert rewriting.done[0]["nothing"] == 1
    assert torch.equal(found, torch.ones(3))


def test_one_that_cannot_be_written_is_named(rewriting, caplog):
    with only():

        @rewrite(lambda x: ops.sin(x))
        def differently(x):
            return ops.relu(x)

        x = torch.ones(3, requires_grad=True)
        torch.compile(lambda x: torch.sin(x) * 2, backend=rewriting)(x)
    is_written = bool(rewriting.done[0].get("differently"))
    assert is_written != ("`differently` matches and is not applied" in caplog.text)


def test_a_kernel_of_the_users_is_called(rewriting):
    rewrites = load_rewrites(EXAMPLES / "rewrites" / "swiglu.py")
    x, y = torch.randn(4, 32), torch.randn(4, 32)
    with only(*rewrites), on_cpu():
        function = lambda x, y: x * torch.sigmoid(x) * y + 1.0  # noqa: E731
        found = torch.compile(function, backend=rewriting)(x, y)
    assert rewriting.done[0]["gated_by_kernel"] == 1
    assert any("gated_by_kernel" in call for call in rewriting.calls())
    torch.testing.assert_close(found, function(x, y))


def test_one_that_changes_the_type_is_refused_by_name(rewriting):
    with only():

        @rewrite(lambda x: ops.sigmoid(x))
        def narrower(x):
            return ops.cast(x, dtype="f16")

        with pytest.raises(Exception, match=r"rewrite `narrower` .* is rejected: it gives f16"):
            torch.compile(lambda x: torch.sigmoid(x), backend=rewriting)(torch.randn(4))


def test_the_back_end_aotc_uses_them_and_forgets_them():
    x = torch.randn(4, 32)
    with only():
        torch.testing.assert_close(
            torch.compile(torch.sigmoid, backend="aotc")(x), torch.sigmoid(x)
        )

        @rewrite(lambda x: ops.sigmoid(x))
        def doubled(x):
            return ops.sin(x)

        torch._dynamo.reset()
        found = torch.compile(torch.sigmoid, backend="aotc")(x)
        torch.testing.assert_close(found, torch.sin(x))
    torch._dynamo.reset()
    found = torch.compile(torch.sigmoid, backend="aotc")(x)
    torch.testing.assert_close(found, torch.sigmoid(x))


def test_kernels_of_the_users_wait_for_sizes_that_are_known(rewriting):
    rewrites = load_rewrites(EXAMPLES / "rewrites" / "swiglu.py")
    with only(*rewrites):
        function = torch.compile(
            lambda x, y: x * torch.sigmoid(x) * y, backend=rewriting, dynamic=True
        )
        x, y = torch.randn(4, 32), torch.randn(4, 32)
        torch.testing.assert_close(function(x, y), x * torch.sigmoid(x) * y)
    assert rewriting.done == [{"swish": 1}]

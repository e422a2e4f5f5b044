"""`kernels.adamw_step` beside `torch.optim.AdamW`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kernel_cases import EPSILON  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid  # noqa: E402

SHAPES = ((3, 4), (20001,), (0,), (), (7, 2, 1))


def states(parameters, dtype):
    return [torch.zeros(each.shape, dtype=dtype) for each in parameters]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_steps_are_those_of_torch_in_f64(dtype):
    torch.manual_seed(0)
    parameters = [torch.randn(shape).to(dtype) for shape in SHAPES]
    averages, squares = (states(parameters, torch.float32) for _ in range(2))
    wide = [each.double().requires_grad_() for each in parameters]
    optimizer = torch.optim.AdamW(wide, lr=0.01, weight_decay=0.1)
    for step in (1, 2, 3):
        gradients = [torch.randn(shape).to(dtype) for shape in SHAPES]
        for one, other, gradient in zip(wide, parameters, gradients, strict=True):
            one.data.copy_(other)  # so that each step is compared by itself
            one.grad = gradient.double()
        optimizer.step()
        kernels.adamw_step(
            parameters, gradients, averages, squares, step, lr=0.01, weight_decay=0.1
        )
        for one, other in zip(parameters, wide, strict=True):
            # One rounding to the type, and of f32 that of the decay and of a step of at most 0.1.
            allowed = other.abs() * (EPSILON[dtype] + 8 * EPSILON[torch.float32]) + 0.1 * 2.0**-19
            assert bool(((one.double() - other).abs() <= allowed).all())
        for place, one in enumerate(wide):
            kept = optimizer.state[one]
            torch.testing.assert_close(
                averages[place].double(), kept["exp_avg"], rtol=1e-5, atol=1e-6
            )
            torch.testing.assert_close(
                squares[place].double(), kept["exp_avg_sq"], rtol=1e-5, atol=1e-6
            )


def test_lists_of_several_types_and_wrong_ones():
    mixed = [torch.ones(5), torch.ones(5).half(), torch.ones(2, 3)]
    gradients = [each.clone() for each in mixed]
    gradients[2] = torch.ones(3, 2).t()  # any strides
    averages, squares = (states(mixed, torch.float32) for _ in range(2))
    kernels.adamw_step(mixed, gradients, averages, squares, 1, lr=0.5, weight_decay=0.0)
    for each in mixed:
        torch.testing.assert_close(each, torch.full_like(each, 0.5))
    kernels.adamw_step([], [], [], [], 1)
    with pytest.raises(KernelValueInvalid, match="1 or more, and four lists of one length"):
        kernels.adamw_step(mixed, gradients, averages, squares, 0)
    with pytest.raises(ValueError, match="four lists"):
        kernels.adamw_step(mixed, gradients[1:], averages, squares, 1)
    with pytest.raises(KernelShapeInvalid, match=r"`gradient` has shape \[3\], expected \[2\]"):
        kernels.adamw_step(*([torch.ones(n)] for n in (2, 3, 2, 2)), 1)
    with pytest.raises(KernelShapeInvalid, match="expected a contiguous tensor"):
        kernels.adamw_step(*([torch.ones(3, 2).t()] for _ in range(4)), 1)


def test_torchs_own_checks():
    lists = [[torch.rand(3), torch.rand(2, 2)] for _ in range(4)]
    arguments = (*lists, 1, 0.1, 0.9, 0.99, 1e-8, 0.0)
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.aotc.adamw_step.default, arguments, test_utils=tests)

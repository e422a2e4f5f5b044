"""One step of AdamW for a list of tensors, in one launch: Loshchilov and Hutter, arXiv 1711.05101.

The kernel gets a table of addresses, so that the number of tensors does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from aotc.aot.errors import KernelShapeInvalid, KernelValueInvalid
from aotc.kernels.library.checks import check_device, check_floats, check_shape
from aotc.kernels.library.devices import DEVICES
from aotc.kernels.library.launch import accumulator, launch
from aotc.kernels.library.registration import NAMESPACE
from aotc.kernels.library.tiles import POINTWISE

_COLUMNS = 5  # of the table: four addresses and a number of elements


@triton.jit
def adamw_kernel(
    table, blocks, parameter, state, decay, rate, beta1, beta2, eps, root,
    ACC: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """parameter, state: tensors of the types that the addresses point to, which are not read."""
    entry = tl.load(blocks + 2 * tl.program_id(0))
    at = tl.load(blocks + 2 * tl.program_id(0) + 1) * BLOCK + tl.arange(0, BLOCK)
    row = table + 5 * entry
    values = tl.load(row).to(parameter.dtype)
    gradients = tl.load(row + 1).to(parameter.dtype)
    averages = tl.load(row + 2).to(state.dtype)
    squares = tl.load(row + 3).to(state.dtype)
    mask = at < tl.load(row + 4)
    g = tl.load(gradients + at, mask=mask).to(ACC)
    average = tl.load(averages + at, mask=mask).to(ACC)
    square = tl.load(squares + at, mask=mask).to(ACC)
    value = tl.load(values + at, mask=mask).to(ACC) * decay
    average += (g - average) * (1.0 - beta1)
    square = square * beta2 + g * g * (1.0 - beta2)
    value -= rate * average / (tl.sqrt(square) * root + eps)
    tl.store(values + at, value, mask=mask)
    tl.store(averages + at, average, mask=mask)
    tl.store(squares + at, square, mask=mask)


def adamw_step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    averages: Sequence[Tensor],
    squares: Sequence[Tensor],
    step: int,
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 1e-2,
) -> None:
    """One step of AdamW, in place, as `torch.optim.AdamW` without options takes it.

    parameters, gradients: floats, each pair of one shape, type and device; averages, squares: the
    running means of the gradient and of its square, of the parameters' shapes, all of one type
    (f32, or the parameters'). Parameters and states are contiguous. step: the number of this step,
    1 or more. Computed in f32, with numbers (`lr` and others) rounded to f32; f16 and bf16
    parameters are rounded once a step.
    Raises KernelValueInvalid, KernelShapeInvalid, KernelDtypeUnsupported and KernelDeviceInvalid.
    """
    lists = (parameters, gradients, averages, squares)
    if step < 1 or len({len(each) for each in lists}) != 1:
        found = (step, *map(len, lists))
        raise KernelValueInvalid(
            function="adamw_step", argument="step, and the lengths of the lists,", found=found,
            expected="1 or more, and four lists of one length",
        )  # fmt: skip
    groups: dict[Any, list[int]] = {}
    for place, row in enumerate(zip(*lists, strict=True)):
        _check(*row)
        groups.setdefault((row[0].dtype, row[2].dtype, row[0].device), []).append(place)
    for places in groups.values():
        chosen = ([each[place].detach() for place in places] for each in lists)
        torch.ops.aotc.adamw_step(*chosen, step, lr, *betas, eps, weight_decay)


def _check(parameter: Tensor, gradient: Tensor, average: Tensor, square: Tensor) -> None:
    check_floats("adamw_step", parameter=parameter, gradient=gradient)
    check_floats("adamw_step", average=average, square=square)
    check_device("adamw_step", "average", average, parameter)
    for name, x in (("gradient", gradient), ("average", average), ("square", square)):
        check_shape("adamw_step", name, x, parameter.shape)
    for name, x in (("parameter", parameter), ("average", average), ("square", square)):
        if not x.is_contiguous():
            raise KernelShapeInvalid(
                function="adamw_step", argument=name, expected="a contiguous tensor",
                found=f"{list(x.shape)} with strides {list(x.stride())}",
                advice="it is changed in place: make it contiguous before the first step; ",
            )  # fmt: skip


def _run(
    parameters: list[Tensor], gradients: list[Tensor], averages: list[Tensor],
    squares: list[Tensor], step: int, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float,
) -> None:  # fmt: skip
    first, state = parameters[0], averages[0]
    block, num_warps = POINTWISE[first.device.type]
    gradients = [each.contiguous() for each in gradients]
    rows, blocks = [], []
    for place, row in enumerate(zip(parameters, gradients, averages, squares, strict=True)):
        rows.append([*(each.data_ptr() for each in row), row[0].numel()])
        blocks += [(place, number) for number in range(triton.cdiv(row[0].numel(), block))]
    numbers = [number for row in (*rows, *blocks) for number in row]
    on_host = torch.tensor(numbers, dtype=torch.int64, pin_memory=first.is_cuda)
    table, places = on_host.to(first.device, non_blocking=True).split(
        [_COLUMNS * len(rows), 2 * len(blocks)]
    )
    launch(
        adamw_kernel, (len(blocks),), table, places, first, state,
        1.0 - lr * weight_decay, lr / (1.0 - beta1**step), beta1, beta2, eps,
        (1.0 - beta2**step) ** -0.5,
        ACC=accumulator(first), BLOCK=block, num_warps=num_warps,
    )  # fmt: skip


_NAME = f"{NAMESPACE}::adamw_step"
torch.library.define(
    _NAME,
    "(Tensor(a!)[] parameters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, "
    "int step, float lr, float beta1, float beta2, float eps, float weight_decay) -> ()",
    tags=(torch.Tag.pt2_compliant_tag,),
)
torch.library.impl(_NAME, DEVICES)(_run)
torch.library.register_fake(_NAME)(lambda *arguments: None)

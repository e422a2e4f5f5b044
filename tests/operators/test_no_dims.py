"""Ops over a dim take tensors that have none, as torch's do: dim 0 and -1 stand for the element."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from aotc.aot.dynamo import aotc

pytestmark = [pytest.mark.torch, pytest.mark.triton]

OPS: dict[str, Callable[[Tensor], Tensor | tuple[Tensor, ...]]] = {
    "flip": lambda x: x.flip(0),
    "flip from the end": lambda x: x.flip(-1),
    "flip nothing": lambda x: x.flip(()),
    "transpose": lambda x: x.transpose(0, -1),
    "movedim": lambda x: x.movedim(0, 0),
    "roll": lambda x: x.roll(3),
    "squeeze": lambda x: x.squeeze(0),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "expand": lambda x: x.expand(4),
    "repeat": lambda x: x.repeat(3),
    "repeat_interleave": lambda x: x.repeat_interleave(3),
    "flatten": lambda x: x.flatten(),
    "stack": lambda x: torch.stack([x, x]),
    "diagflat": lambda x: torch.diagflat(x),
    "sum": lambda x: x.sum(0),
    "prod": lambda x: x.prod(0),
    "mean": lambda x: x.float().mean(-1),
    "amax": lambda x: x.amax(0),
    "aminmax": lambda x: tuple(torch.aminmax(x, dim=0)),
    "argmax": lambda x: x.argmax(0),
    "any": lambda x: x.any(0),
    "std": lambda x: x.float().std(0, correction=0),
    "var": lambda x: x.float().var(-1, correction=0),
    "norm": lambda x: x.float().norm(2, 0),
    "logsumexp": lambda x: x.float().logsumexp(0),
    "count_nonzero": lambda x: x.count_nonzero(0),
    "nansum": lambda x: x.float().nansum(0),
    "softmax": lambda x: x.float().softmax(0),
    "log_softmax": lambda x: x.float().log_softmax(-1),
    "normalize": lambda x: F.normalize(x.float(), dim=0),
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(-1),
    "logcumsumexp": lambda x: x.float().logcumsumexp(0),
    "cummax": lambda x: tuple(x.cummax(0)),
    "cummin": lambda x: tuple(x.cummin(-1)),
    "sort": lambda x: tuple(x.sort(0)),
    "argsort": lambda x: x.argsort(),
    "msort": lambda x: x.msort(),
    "topk": lambda x: tuple(x.topk(1, 0)),
    "median": lambda x: tuple(x.median(0)),
    "nanmedian": lambda x: tuple(x.float().nanmedian(0)),
    "kthvalue": lambda x: tuple(x.kthvalue(1, 0)),
    "mode": lambda x: tuple(x.mode(0)),
    "gather": lambda x: x.gather(0, x - 5),
    "scatter": lambda x: x.scatter(0, x - 5, x * 3),
    "index_select": lambda x: x.index_select(0, x - 5),
    "index_add": lambda x: x.index_add(0, x - 5, x),
    "index_copy": lambda x: x.index_copy(0, x - 5, x * 2),
    "take": lambda x: x.take(x - 5),
    "searchsorted": lambda x: torch.searchsorted(torch.arange(9), x),
    "bucketize": lambda x: torch.bucketize(x, torch.arange(9)),
    "one_hot": lambda x: F.one_hot(x, 9),
    "embedding": lambda x: F.embedding(x, torch.arange(18.0).view(9, 2)),
}


def test_ops_of_one_dim_take_an_element():
    x = torch.tensor(5)

    def results(x: Tensor) -> list[Tensor]:
        each = (op(x) for op in OPS.values())
        return [one for found in each for one in (found if isinstance(found, tuple) else (found,))]

    found = torch.compile(results, backend=aotc, options={"fallback": "error"})(x)
    for own, expected in zip(found, results(x), strict=True):
        torch.testing.assert_close(own, expected)

"""A model that leaves ops to torch in every way that a bundle knows, one output for each way.

Sizes are odd, so that wrong strides and offsets show.
"""

from __future__ import annotations

import torch

ROWS, COLUMNS = 7, 5


@torch.library.custom_op("aotc_fallback::scaled", mutates_args=())
def scaled(
    x: torch.Tensor, by: float, shift: torch.Tensor | None = None, *, mode: str = "both"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two results of different types; every kind of plain argument but lists."""
    total = x * by if shift is None else x * by + shift
    return (total if mode == "both" else -total), (x > 0).sum(0)


@scaled.register_fake
def _(x, by, shift=None, *, mode="both"):
    return torch.empty_like(x), x.new_empty(x.shape[1], dtype=torch.int64)


@torch.library.custom_op("aotc_fallback::joined", mutates_args=())
def joined(parts: list[torch.Tensor], weights: list[float], dtype: torch.dtype) -> torch.Tensor:
    """Lists of tensors and of numbers, and a dtype; takes strides as they come."""
    return sum(part * weight for part, weight in zip(parts, weights, strict=True)).to(dtype)


@joined.register_fake
def _(parts, weights, dtype):
    return torch.empty_like(parts[0], dtype=dtype)


@torch.library.custom_op("aotc_fallback::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    """Takes bf16 alone, as a library's kernel may."""
    assert x.dtype == torch.bfloat16
    return x / 2


@halved.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("aotc_fallback::least", mutates_args=())
def least(x: torch.Tensor) -> torch.Tensor:
    """A result of rank 0, of bytes."""
    return x.amin()


@least.register_fake
def _(x):
    return x.new_empty(())


@torch.library.custom_op("aotc_fallback::exchanged", mutates_args=("rows", "total"))
def exchanged(
    total: torch.Tensor, by: int, rows: torch.Tensor, idle: torch.Tensor | None = None
) -> torch.Tensor:
    """Changes two arguments beside its result, one of them a weight, and leaves out a third."""
    total.add_(rows.sum(0))
    rows.mul_(by)
    return total - 1


@exchanged.register_fake
def _(total, by, rows, idle=None):
    return torch.empty_like(total)


@torch.library.custom_op("aotc_fallback::counted", mutates_args=("x", "y"))
def counted(x: torch.Tensor, y: torch.Tensor | None = None) -> None:
    """No result, and an argument that it may change or is not given."""
    x.add_(1)
    if y is not None:
        y.sub_(1)


class Model(torch.nn.Module):
    """See the module."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(COLUMNS, COLUMNS, generator=generator))
        self.register_buffer("table", torch.randint(0, 4, (ROWS, COLUMNS), generator=generator))

    def forward(self, x, y):
        q, r = torch.linalg.qr(x)  # the first of all, on an input; two results
        gram = x.T @ x + COLUMNS * y[0].sign().abs() * torch.eye(COLUMNS)  # singular for zeros
        solved = torch.linalg.solve(gram, self.weight)  # a composite with a check, on a weight
        total, positive = scaled(x.exp(), 0.5, y.reshape(ROWS, COLUMNS), mode="negative")
        row = torch.special.bessel_j0(torch.special.bessel_j1(x) + 1)  # two in a row
        sums, rows = x[1] * 2, x.exp()
        fewer = exchanged(sums, 3, rows)
        before = rows + 0
        counted(rows)
        counted(sums, before)
        halves = halved((x + y.reshape(ROWS, COLUMNS)).to(torch.bfloat16))
        return {
            "qr": q @ r,
            "solved": (solved.relu() + 1).log(),
            "total": total,  # results are outputs as they are
            "positive": positive,
            "row": row,
            "row_again": torch.tanh(row),
            "last": torch.linalg.lu_factor(gram + positive)[1],
            "joined": joined([x.T, self.weight[:, :1].expand(COLUMNS, ROWS)], [0.5, 2.0], x.dtype),
            "changed": rows + sums - fewer,
            "changed_as_it_is": before,
            "halves": halves.float() * 2,
            "least": least(self.table.to(torch.uint8)),
            "of_literals": torch.special.bessel_j0(torch.arange(1.0, 9.0)) + x[0, 0],
        }


model = Model()


def inputs(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, COLUMNS, generator=generator), torch.randn(
        ROWS * COLUMNS, generator=generator
    )


example_inputs = inputs(0)

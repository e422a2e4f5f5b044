"""Programs with control flow, drawn at random: each a function of torch's ops, and the same in
Python's own words."""

from __future__ import annotations

import torch
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional

ROWS, COLUMNS = 4, 6


def drawn_program(source, depth=2):
    """A pair of functions of x `[ROWS, COLUMNS]` and w `[COLUMNS, COLUMNS]` to the like of x."""
    first, second = (drawn_part(source, depth) for _ in range(2))
    return tuple(lambda x, w, a=a, b=b: b(a(x, w), w) for a, b in zip(first, second, strict=True))


def drawn_part(source, depth):
    if not depth or source.random() < 0.3:
        simple = source.choice(SIMPLE)
        return simple, simple
    return source.choice(NESTING)(*drawn_part(source, depth - 1), *drawn_part(source, depth - 1))


def branches(one, one_plain, other, other_plain):
    return (
        lambda x, w: torch.cond(x.sum() > 0, one, other, (x, w)),
        lambda x, w: (one_plain if x.sum() > 0 else other_plain)(x, w),
    )


def loop(one, one_plain, *_):
    def plain(x, w):
        for _ in range(3):
            x = one_plain(x, w)
        return x

    def run(x, w):
        count = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(
            lambda i, x, w: i < 3, lambda i, x, w: (i + 1, one(x, w), w.clone()), (count, x, w)
        )[1]

    return run, plain


def over_rows(one, one_plain, *_):
    """Each row of x is added to all rows of what is carried."""

    def run(x, w):
        def combine(carried, row):
            found = one(carried + row, w)
            return found, found.sum(0)

        last, sums = scan(combine, x, x)
        return last * 0.5 + sums

    def plain(x, w):
        carried, sums = x, []
        for row in x:
            carried = one_plain(carried + row, w)
            sums.append(carried.sum(0))
        return carried * 0.5 + torch.stack(sums)

    return run, plain


def each_row(one, one_plain, *_):
    return (
        lambda x, w: map_rows(
            lambda row, w: one(row.expand(ROWS, COLUMNS).clone(), w).mean(0), x, w
        ),
        lambda x, w: torch.stack([one_plain(row.expand(ROWS, COLUMNS), w).mean(0) for row in x]),
    )


SIMPLE = (
    lambda x, w: torch.tanh(x @ w),
    lambda x, w: torch.sin(x) - 0.3,
    lambda x, w: functional.softmax(x, -1) * 2,
    lambda x, w: functional.layer_norm(x, (COLUMNS,)) @ w,
    lambda x, w: torch.where(x > 0.2, x * 0.5, x.cos()),
)
NESTING = (branches, branches, loop, over_rows, each_row)


def operands(seed, requires_grad=False, device="cpu", dtype=torch.float64):
    """x and w of a drawn program."""
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, COLUMNS, dtype=torch.float64, generator=source)
    w = torch.randn(COLUMNS, COLUMNS, dtype=torch.float64, generator=source) * 0.4
    return [each.to(device, dtype).requires_grad_(requires_grad) for each in (x, w)]


def gradients_of(function, given):
    """The result, and the gradients of the sum of its squares."""
    found = function(*given)
    gradients = torch.autograd.grad(found.square().sum(), given, materialize_grads=True)
    return [found, *gradients]

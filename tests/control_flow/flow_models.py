"""Models with control flow, each with what draws its inputs and, where sizes vary, the dims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch.export import Dim

F64, I64 = torch.float64, torch.int64


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=I64)


@dataclass(frozen=True)
class Case:
    """run: the model, given a module with `linear` of 8 by 8 in f64 and `table`, f64[5, 8]; draw:
    its inputs at a size; shapes: the dynamic ones; sizes: those of calls that are compared."""

    run: Callable[..., Any]
    draw: Callable[[int], tuple[torch.Tensor, ...]]
    shapes: Any = None
    sizes: tuple[int, ...] = (4,)


class Model(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.linear = nn.Linear(8, 8, dtype=F64)
        self.table = nn.Parameter(torch.randn(5, 8, dtype=F64))
        self.name = name

    def forward(self, *args: torch.Tensor) -> Any:
        return CASES[self.name].run(self, *args)


CASES: dict[str, Case] = {}


def case(draw: Callable[[int], tuple[torch.Tensor, ...]], **rest: Any) -> Callable[..., Any]:
    def note(run: Callable[..., Any]) -> Callable[..., Any]:
        CASES[run.__name__] = Case(run, draw, **rest)
        return run

    return note


def rows(size: int) -> tuple[torch.Tensor, ...]:
    return (torch.randn(size, 8, dtype=F64),)


def rows_and_flag(size: int) -> tuple[torch.Tensor, ...]:
    return (*rows(size), torch.rand(()) < 0.5)


def rows_and_count(size: int) -> tuple[torch.Tensor, ...]:
    return (*rows(size), torch.randint(0, 9, ()))


ROWS = Dim("rows", min=1, max=64)


@case(rows_and_flag)
def branch(model, x, flag):
    return torch.cond(flag, lambda x: model.linear(x).relu(), lambda x: x.sin(), (x,))


@case(rows, shapes=({0: ROWS},), sizes=(1, 3, 64, 4))
def branch_of_data_and_size(model, x):
    first = lambda x: model.linear(x) * x.shape[0]  # noqa: E731
    return torch.cond(x.sum() > 0, first, lambda x: x.cos(), (x,)), x + 1


@case(rows_and_flag)
def branch_of_several_results(model, x, flag):
    def first(x):
        return x + 1, x.sum(0), (x[0] * 3).long()

    def other(x):
        return x.clone(), x.amax(0), torch.ones(8, dtype=I64)

    return torch.cond(flag, first, other, (x,))


@case(rows_and_flag)
def branches_within_branches(model, x, flag):
    def inner(x):
        return torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: model.linear(x), (x,))

    return torch.cond(flag, inner, lambda x: x - model.table[0], (x,))


@case(rows_and_flag)
def branch_of_views(model, x, flag):
    first = lambda x: x.t().contiguous()  # noqa: E731
    return torch.cond(flag, first, lambda x: x.reshape(8, 4) * 2, (x,)).t()


@case(lambda size: (torch.randint(0, 5, (size,)), torch.rand(()) < 0.5))
def lookup_in_a_branch(model, places, flag):
    first = lambda places: model.table[places]  # noqa: E731
    return torch.cond(flag, first, lambda places: places[:, None] * model.table[:1], (places,))


@case(rows_and_count)
def loop_of_several_types(model, x, count):
    def more(at, x, flag, half):
        return (at < count) & flag

    def step(at, x, flag, half):
        return at + 1, torch.tanh(model.linear(x)), x.abs().sum() < 1e6, half + at.float()

    begin = (zero(), x, torch.tensor(True), torch.zeros(3, dtype=torch.float32))
    return while_loop(more, step, begin)


@case(rows_and_count, shapes=({0: ROWS}, None), sizes=(1, 17, 4))
def loop_of_dynamic_size(model, x, count):
    more = lambda at, x: at < count  # noqa: E731
    return while_loop(more, lambda at, x: (at + 1, x.sin() + x.shape[0]), (zero(), x))


@case(rows)
def loop_until_data_says(model, x):
    more = lambda x, turns: x.abs().max() > 0.1  # noqa: E731
    return while_loop(more, lambda x, turns: (x * 0.7, turns + 1), (x, zero()))


@case(rows_and_count)
def loop_that_swaps(model, x, count):
    more = lambda at, a, b, c: at < count  # noqa: E731
    step = lambda at, a, b, c: (at + 1, b.clone(), a.clone(), a + b.flip(0))  # noqa: E731
    return while_loop(more, step, (zero(), x, x + 1, x * 2))


@case(rows_and_count)
def loop_that_writes_rows(model, x, count):
    def step(at, memory):
        row = memory.sum(0, keepdim=True) + at
        return at + 1, memory.index_copy(0, (at % 4).reshape(1), row)

    return while_loop(lambda at, memory: at < count, step, (zero(), x))


@case(rows_and_count)
def loops_within_loops(model, x, count):
    def step(at, x):
        more = lambda turn, y: turn < at  # noqa: E731
        _, y = while_loop(more, lambda turn, y: (turn + 1, y * 0.5 + turn), (zero(), x))
        return at + 1, y

    return while_loop(lambda at, x: at < count, step, (zero(), x))


@case(rows)
def running_sums(model, x):
    return scan(lambda c, row: (c + row, (c * row).sin()), torch.zeros(8, dtype=F64), x)


@case(rows, shapes=({0: ROWS},), sizes=(1, 64, 3))
def recurrence(model, x):
    def step(c, row):
        new = torch.tanh(model.linear(c) + row)
        return new, (new * 2, new.sum())

    return scan(step, torch.zeros(8, dtype=F64), x)


@case(rows)
def recurrence_in_reverse(model, x):
    step = lambda c, row: (torch.tanh(c + row), c - row)  # noqa: E731
    return scan(step, torch.ones(8, dtype=F64), x, reverse=True)


@case(rows)
def recurrence_along_another_dim(model, x):
    step = lambda c, column: (c * 0.5 + column, c.cos())  # noqa: E731
    return scan(step, torch.ones(4, dtype=F64), x, dim=1)


@case(rows_and_flag)
def branch_in_a_scan(model, x, flag):
    def step(c, row):
        new = torch.cond(
            row.sum() > 0, lambda c, row: model.linear(row) + c, lambda c, row: c - row, (c, row)
        )
        return new, new.sum()

    return scan(step, torch.zeros(8, dtype=F64), x)


@case(lambda size: (torch.randn(size, 3, 8, dtype=F64), torch.randn(8, 5, dtype=F64)))
def products(model, x, weight):
    return mapped(lambda each, weight: each @ weight, x, weight)


@case(lambda size: (torch.randn(size, 3, 8, dtype=F64),), shapes=({0: ROWS},), sizes=(1, 9, 2))
def rows_of_softmax(model, x):
    return mapped(lambda each, table: each.softmax(1) * table, x.clone(), model.table[0].clone())


@case(lambda size: (torch.randint(0, 5, (size, 2)),))
def lookups_in_a_map(model, places):
    return mapped(lambda each, table: table[each], places, model.table)


@case(lambda size: (torch.randn(size, 8, dtype=F64), torch.rand(3) < 0.5))
def branches_of_literals_and_one_flag_of_several(model, x, flags):
    one = torch.cond(flags[1], lambda: torch.ones(3), lambda: torch.arange(3.0), ())
    two = torch.cond(flags[2:], lambda x: (x + 1, x.sum()), lambda x: (x - 1, x.amax()), (x,))
    again = torch.cond(x.sum() > 0, lambda x: x.amax(), lambda x: x.amin(), (x,))
    return one, two[1], again, x.sum() > 0


@case(rows_and_count)
def scan_in_a_loop_that_drops_results(model, x, count):
    def step(at, x, unread):
        last, rows = scan(lambda c, row: (c * 0.5 + row, c + row), torch.zeros(8, dtype=F64), x)
        return at + 1, rows * 0.5, last

    begin = (zero(), x, torch.zeros(8, dtype=F64))
    return while_loop(lambda at, x, unread: at < count, step, begin)[1]


@case(rows)
def loop_of_whole_numbers_of_python(model, x):
    last, y = while_loop(lambda at, x: at < 5, lambda at, x: (at + 1, x * 2 + at), (0, x))
    return y, y * last


@case(rows_and_count)
def loop_over_whole_numbers(model, x, count):
    def step(at, bits, seen, small):
        return at + 1, bits * 6364136223846793005 + at, seen | (bits % 3 == 0), small - 1

    begin = (zero(), torch.arange(4), torch.zeros(4, dtype=torch.bool),
             torch.zeros(2, dtype=torch.int8))  # fmt: skip
    return while_loop(lambda at, bits, seen, small: at < count, step, begin)


@case(lambda size: (torch.randn(size, 8), torch.rand(()) < 0.5))
def short_floats(model, x, flag):
    x = x.to(torch.bfloat16)
    found = torch.cond(flag, lambda x: x.softmax(1), lambda x: x * 3, (x,))
    step = lambda c, row: (c * 0.5 + row, c.exp())  # noqa: E731
    return found, *scan(step, torch.zeros(8, dtype=torch.bfloat16), x)


def spec(name: str) -> dict[str, Any]:
    """What a spec file has."""
    row = CASES[name]
    torch.manual_seed(5)
    found = {"model": Model(name).eval(), "example_inputs": row.draw(row.sizes[-1])}
    return found | ({} if row.shapes is None else {"dynamic_shapes": (row.shapes,)})

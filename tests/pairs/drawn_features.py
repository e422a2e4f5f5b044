"""Parts of models for `test_draws.py`: each is one feature, and any of them make one model.

A part takes rows of `COLUMNS` numbers and gives rows; it may take inputs and give outputs of its
own. What a part draws at random does not decide its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import triton
import triton.language as tl
from torch import nn
from torch._higher_order_ops import scan, while_loop
from torch.library import triton_op, wrap_triton

COLUMNS, LENGTH = 64, 12


class Part(nn.Module):
    """One feature. dims: of each input of its own, the dims that have as many elements as there are
    rows. options: of `aot.build`."""

    dims: ClassVar[dict[str, Any]] = {}
    options: ClassVar[dict[str, Any]] = {}

    def example(self, rows: int) -> dict[str, Any]:
        """Its inputs."""
        return {}

    def forward(self, h, given):
        return h, ()


@dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


torch.export.register_dataclass(Pair, serialized_type_name="aotc_draws.Pair")


class State(Part):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.arange(float(COLUMNS)))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, h, given):
        self.count.add_(1)
        h = h + 0.1 * self.last
        self.last.copy_(h.mean(0))
        return h, (self.count.clone(),)


class Cache(Part):
    dims: ClassVar = {"places": {0: "rows"}}

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(LENGTH, COLUMNS))

    def example(self, rows):
        return {"places": torch.randperm(LENGTH)[:rows]}

    def forward(self, h, given):
        self.cache.index_copy_(0, given["places"], h)
        return h + 0.1 * self.cache.sum(0), ()


class Quantised(Part):
    options: ClassVar = {"quantize": "int8"}

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(COLUMNS, COLUMNS)

    def forward(self, h, given):
        return h + 0.5 * self.linear(h), ()


class Image(Part):
    """Channels last, and of a fixed shape beside the rows."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, COLUMNS, 3)

    def example(self, rows):
        return {"image": torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)}

    def forward(self, h, given):
        image = self.convolution(given["image"])
        return h + image.mean((0, 2, 3)), (image,)


@triton.jit
def gate_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count)
    tl.store(out_ptr + at, x * tl.sigmoid(x), mask=at < count)


@triton_op("aotc_draws::gate", mutates_args={})
def gate(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    wrap_triton(gate_kernel)[grid](x, out, x.numel(), BLOCK=128)
    return out


class Kernel(Part):
    def forward(self, h, given):
        return gate(h.contiguous()), ()


@torch.library.custom_op("aotc_draws::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


class OfTorch(Part):
    options: ClassVar = {"fallback": "torch"}

    def forward(self, h, given):
        return doubled(h) * 0.5, ()


class Branch(Part):
    def forward(self, h, given):
        return torch.cond(h.sum() > 0, lambda a: a.relu() * 2, lambda a: a.sin() - 1, (h,)), ()


class Loop(Part):
    def forward(self, h, given):
        def more(x, turns):
            return (x.abs().max() > 0.5) & (turns < 20)

        turns = torch.zeros((), dtype=torch.int64)
        return while_loop(more, lambda x, turns: (0.5 * x, turns + 1), (h, turns))[0], ()


class Scan(Part):
    def forward(self, h, given):
        def step(carried, row):
            return 0.5 * carried + torch.tanh(row), carried + row

        carried, rows = scan(step, torch.zeros(COLUMNS), h)
        return h + 0.1 * rows, (carried,)


class Spectrum(Part):
    dims: ClassVar = {"waves": {0: "rows"}}

    def example(self, rows):
        return {"waves": torch.randn(rows, COLUMNS, dtype=torch.complex64)}

    def forward(self, h, given):
        found = torch.fft.fft(given["waves"], dim=-1) * (1 + h)
        return h + 0.05 * found.abs(), (found,)


class Dropout(Part):
    def forward(self, h, given):
        kept = nn.functional.dropout(torch.ones_like(h), 0.5, True)  # 0 or 2
        return h + kept * (kept - 2), ()


class Half(Part):
    dims: ClassVar = {"half": {0: "rows"}, "wide": {0: "rows"}}

    def example(self, rows):
        return {
            "half": torch.randn(rows, COLUMNS).bfloat16(),
            "wide": torch.randn(rows, 3).double(),
        }

    def forward(self, h, given):
        return h + given["half"], (given["half"].relu(), given["wide"].cumsum(0))


class Aliases(Part):
    def forward(self, h, given):
        return h, (h, h.T, h[:, 3:5])


class Record(Part):
    dims: ClassVar = {"pair": [{0: "rows"}, None]}

    def example(self, rows):
        return {"pair": Pair(torch.randn(rows, COLUMNS), torch.randn(COLUMNS))}

    def forward(self, h, given):
        return h + given["pair"].left * given["pair"].right, (None, [h.sum(0)])


PARTS = (
    State, Cache, Quantised, Image, Kernel, OfTorch, Branch, Loop, Scan, Spectrum, Dropout, Half,
    Aliases, Record,
)  # fmt: skip


class Model(nn.Module):
    """A layer, then the parts one after the other."""

    def __init__(self, parts):
        super().__init__()
        self.linear = nn.Linear(COLUMNS, COLUMNS)
        self.parts = nn.ModuleList(part() for part in parts)

    def forward(self, x, given):
        h, others = torch.tanh(self.linear(x)), []
        for part in self.parts:
            h, own = part(h, given)
            others.append(own)
        return {"rows": h * 1.5, "others": others}

    def scores(self, x):
        """Of a second entry point: the same weights, and the states where there are any."""
        y = self.linear(x).softmax(-1)
        for part in self.parts:
            y = y + part.last if isinstance(part, State) else y
            y = y + part.cache.sum() if isinstance(part, Cache) else y
        return y

    def example(self, rows):
        given = {}
        for part in self.parts:
            given |= part.example(rows)
        return torch.randn(rows, COLUMNS), given

    def shapes(self, rows):
        """`dynamic_shapes`, where `rows` is a `Dim`."""
        found = {}
        for part in self.parts:
            names = part.example(1)
            found |= {name: _with_dim(part.dims.get(name), rows) for name in names}
        return {0: rows}, found


def _with_dim(shape, rows):
    if isinstance(shape, list):
        return [_with_dim(each, rows) for each in shape]
    return None if shape is None else dict.fromkeys(shape, rows)

"""Models that call functions of native back ends, as specs: source texts and what they need."""

HEAD = """
import torch
from aotc import aot
"""

# Every kind of signature of `libraries/many.cpp` in one graph, between ops that are compiled.
MANY = (
    HEAD
    + """
like = torch.empty_like
positive = aot.native_op("many::positive", backend={many!r}, fake=lambda x: like(x))
aligned = aot.native_op("many::aligned", backend={many!r}, fake=lambda x: like(x))
sort = aot.native_op("many::sorted", backend={many!r}, fake=lambda x: like(x))
split = aot.native_op(
    "many::split", backend={many!r},
    fake=lambda x, by: (like(x, dtype=torch.uint8), like(x, dtype=torch.int8)),
)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64))

    def forward(self, x, whole):
        y = positive(x.abs()) * self.weight
        z = aligned(positive(self.weight))
        up, down = split(x > 0, 3)
        return y.sum(-1), positive(x.abs()).t(), z, sort(whole.flatten()), up + 1, down


model = Model()
example_inputs = (torch.randn(48, 64), torch.randint(0, 99, (7, 5), dtype=torch.int32))
"""
)

# A function in the middle of a plan that fails by what it reads.
FAILING = (
    HEAD
    + """
positive = aot.native_op("many::positive", backend={many!r}, fake=lambda x: torch.empty_like(x))


class Model(torch.nn.Module):
    def forward(self, x):
        return (positive(x.relu() - x.neg().relu()) * 2).sum(-1)


model = Model()
example_inputs = (torch.rand(256, 512),)
"""
)

TILES = (
    HEAD
    + """
tiles = aot.native_op(
    "many::tiles", backend={many!r}, fake=lambda x: x.new_empty(640, 3, dtype=torch.int32)
)


class Model(torch.nn.Module):
    def forward(self, x):
        return tiles(x + 1), x * 2


model = Model()
example_inputs = (torch.rand(256, 512),)
"""
)

# The same op as a native function and as a Triton kernel.
EITHER = (
    HEAD
    + """
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton


@triton.jit
def add_one(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=mask) + 1, mask=mask)


@triton_op("either::add_one", mutates_args={{}})
def in_triton(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(add_one)[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096)
    return out


positive = aot.native_op(
    "many::either", backend={many!r}, function="positive", fake=lambda x: torch.empty_like(x),
    triton=in_triton,
)


class Model(torch.nn.Module):
    def forward(self, x):
        return positive(x.abs()) * 2


model = Model()
example_inputs = (torch.randn(256, 512),)
"""
)

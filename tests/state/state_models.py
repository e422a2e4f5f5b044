"""Models that change their buffers, each in another way."""

import torch
from shared_models import SHARED
from torch import nn


class Several(nn.Module):
    """What is read before and after its change, twice the same value, a dtype of each kind."""

    def __init__(self):
        super().__init__()
        self.register_buffer("old", torch.arange(12.0).reshape(3, 4))
        self.register_buffer("twin", torch.zeros(3, 4))
        self.register_buffer("seen", torch.zeros(4, dtype=torch.bool))
        self.register_buffer("narrow", torch.ones(3, 4, dtype=torch.bfloat16))
        self.register_buffer("fixed", torch.full((4,), 2.0))
        self.register_buffer("empty", torch.zeros(0))
        self.register_buffer("step", torch.tensor(3))

    def forward(self, x):
        before = self.old.sum(0)
        self.old.copy_(x * self.fixed)
        self.twin.copy_(x * self.fixed)
        self.seen.logical_or_(x[0] > 0.5)
        self.narrow.add_(x.bfloat16())
        self.empty.mul_(2)
        self.step.add_(1)
        return before + self.old.sum(0), self.narrow.float(), self.step * x.mean()


class Swap(nn.Module):
    """Each state takes what the other one held."""

    def __init__(self):
        super().__init__()
        self.register_buffer("left", torch.arange(6.0))
        self.register_buffer("right", -torch.arange(6.0))

    def forward(self, x):
        left = self.left.clone()
        self.left.copy_(self.right)
        self.right.copy_(left + x)
        return self.left * 2


class Spread(nn.Module):
    """States that are written whole from fewer elements, or from those of another type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.arange(10.0).reshape(2, 5))
        self.register_buffer("same", torch.arange(6.0))
        self.register_buffer("count", torch.arange(5))
        self.register_buffer("narrow", torch.arange(6.0).reshape(3, 2).bfloat16())

    def forward(self, x):
        before = self.rows.sum(0) + self.same.sum() + self.narrow.float().sum()
        self.rows.copy_(x)
        self.same[:] = 0.25
        self.count.copy_(x * 3)
        self.narrow.fill_(x.sum())
        return before, self.rows, self.rows.view(-1)[3:8], self.count.clone(), self.same * 2


class Zeroed(nn.Module):
    """A state that is set to a number, and one that is an input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.ones(5))
        self.register_buffer("last", torch.zeros(5))

    def forward(self, x):
        found = self.total + self.last
        self.total.zero_()
        self.last.copy_(x)
        return found


class Filled(nn.Module):
    """Whole states set from fewer elements than they have, and from those of another type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("numbers", torch.arange(8.0))
        self.register_buffer("rows", torch.arange(8.0).reshape(2, 4))
        self.register_buffer("counts", torch.arange(4))

    def forward(self, x):
        found = self.numbers[:4] + self.rows + self.counts
        self.numbers[:] = x[0]
        self.rows.copy_(x)
        self.counts.copy_(x * 8)
        return found


class Written(nn.Module):
    """Rows written at places, in every way that torch has for it; the old value is read or not."""

    def __init__(self):
        super().__init__()
        for name in ("rows", "columns", "sums", "both", "sliced"):
            self.register_buffer(name, torch.zeros(6, 8))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        self.columns[:, place] = x[:, :1].T.expand(6, 1)
        self.sums.index_add_(0, place, x)
        before = self.both.sum(0)
        self.both[place] = x
        self.sliced[2:3] = x
        return self.rows @ x.T, self.columns.sum(0), self.sums * 2, before, self.sliced.mean()


class Chained(nn.Module):
    """Rows of one state written several times, in one place and in others."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(6, 8))
        self.register_buffer("seen", torch.zeros(6, 8))

    def forward(self, x, place):
        self.rows.index_copy_(0, place, x)
        self.rows[:, place] = x[:, :1].T.expand(6, 1)
        self.rows[2:4] = x * 2
        self.seen[place] = x
        middle = self.seen.sum()
        self.seen[0] = x[0] + 1
        return self.rows.sum(0), self.seen.sum(0), middle


class Given(nn.Module):
    """The state itself is the result, once as it is and once written in place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x, place):
        self.count += x[0]
        self.rows.index_copy_(0, place, x)
        return self.count, self.rows


class Replaced(nn.Module):
    """New values of which nobody reads the old ones, equal ones and one that is a result too."""

    def __init__(self):
        super().__init__()
        for name in ("one", "other", "last"):
            self.register_buffer(name, torch.zeros(4))

    def forward(self, x):
        self.one.copy_(x + 1)
        self.other.copy_(x + 1)
        self.last.copy_(self.one * x)
        return self.last, x.sum()


class Normed(nn.Module):
    """A batch norm that learns its statistics."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        self.norm.train()
        return self.norm(x)


MODELS = {
    "several": (Several, lambda step: (torch.randn(3, 4, generator=seeded(step)),)),
    "swap": (Swap, lambda step: (torch.randn(6, generator=seeded(step)),)),
    "spread": (Spread, lambda step: (torch.randn(5, generator=seeded(step)),)),
    "zeroed": (Zeroed, lambda step: (torch.randn(5, generator=seeded(step)),)),
    "filled": (Filled, lambda step: (torch.randn(4, generator=seeded(step)),)),
    "written": (
        Written,
        lambda step: (torch.randn(1, 8, generator=seeded(step)), torch.tensor([step % 6])),
    ),
    "chained": (
        Chained,
        lambda step: (torch.randn(1, 8, generator=seeded(step)), torch.tensor([step % 6])),
    ),
    "given": (
        Given,
        lambda step: (torch.randn(1, 3, generator=seeded(step)), torch.tensor([step % 4])),
    ),
    "replaced": (Replaced, lambda step: (torch.randn(4, generator=seeded(step)),)),
    "batch_norm": (
        Normed,
        lambda step: (torch.randn(5, 4, generator=seeded(step)),),
    ),
    **{
        name: (make, lambda step: (torch.randn(4, generator=seeded(step)),))
        for name, make in SHARED.items()
    },
}


def seeded(step):
    return torch.Generator().manual_seed(step)

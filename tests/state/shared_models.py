"""Models whose changed buffers share memory, or are written at places that other buffers hold."""

import torch
from torch import nn


class Views(nn.Module):
    """The same tensor by two names, parts of one another, and one that is no buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(8))
        self.register_buffer("twin", self.a)
        self.part = self.a[2:6]
        self.register_buffer("table", torch.zeros(3, 4))
        self.register_buffer("column", self.table[:, 1])
        self.transposed = self.table.t()
        keys, values = torch.zeros(2, 3, 4).unbind()  # in one storage, but apart
        self.register_buffer("keys", keys)
        self.register_buffer("values", values)
        self.plain = torch.ones(4)

    def forward(self, x):
        self.part.add_(x)
        self.twin[1:5] *= 2
        self.column.add_(x[:3])
        self.transposed[0].sub_(self.a[:3])
        self.keys[1] += x
        self.values.add_(self.keys)
        self.plain.mul_(x)
        return self.a * 2, self.table.sum(1), self.column + 1, self.keys + self.values, self.plain


class Overlapping(nn.Module):
    """Buffers none of which holds the other."""

    def __init__(self):
        super().__init__()
        memory = torch.arange(12.0)
        self.register_buffer("head", memory[0:8])
        self.register_buffer("tail", memory[4:12].view(4, 2).t())

    def forward(self, x):
        self.head[2:6] += x
        self.tail.mul_(1.5)
        return self.head.sum() + self.tail[1].sum(), self.tail + 0


class Ring(nn.Module):
    """Rows, columns and single elements at places that a counter in the state decides."""

    def __init__(self):
        super().__init__()
        self.register_buffer("ring", torch.zeros(6, 4))
        self.register_buffer("cube", torch.zeros(2, 6, 4))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        place = self.count % 6
        self.ring[place] = x
        self.ring[-1 - place, :] += 2 * x
        self.cube[:, place] = x
        self.cube[..., self.count % 4] = 7
        self.cube[1, place, self.count % 4] = x[0]
        self.count += 1
        found = self.cube[:, place, 1:3], self.cube[None, ..., self.count % 4]
        return self.ring.sum(0), self.ring[self.count % 6], *found


SHARED = {"views": Views, "overlapping": Overlapping, "ring": Ring}

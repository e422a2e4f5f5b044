"""Models of several entry points, as spec files; `PAIRS` crosses entries with all else that a plan
can hold."""

HEAD = """
import torch
from torch.export import Dim

from aotc.aot import EntryPoint

torch.manual_seed(0)
"""

# A cache that one entry fills, one changes and one only reads; sizes of one entry's own.
DECODER = (
    HEAD
    + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(16, 8))

    def prefill(self, x):
        y = self.project(x)
        self.cache.index_copy_(0, torch.arange(x.shape[0]), y)
        return y.sum(0)

    def decode(self, x, place):
        self.cache.index_copy_(0, place, self.project(x))
        return torch.softmax(x @ self.cache.T, -1) @ self.cache

    def peek(self, x):
        return x @ self.cache.T


model = Model()
entry_points = {
    "prefill": EntryPoint((torch.randn(5, 8),), ({0: Dim("n", min=2, max=16)},)),
    "decode": EntryPoint((torch.randn(1, 8), torch.tensor([6]))),
    "peek": {"example_inputs": (torch.randn(3, 8),)},
}
"""
)

# One module called in two ways by functions, one of which is what a call of the program is.
FUNCTIONS = (
    HEAD
    + """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(6)
        self.project = torch.nn.Linear(6, 6)

    def forward(self, x):
        return {"y": self.project(self.norm(x))}


model = Model()
rows = Dim("rows", max=32)
entry_points = {
    "forward": EntryPoint((torch.randn(4, 6),), ({0: rows},)),
    "twice": EntryPoint(
        (torch.randn(3, 6), torch.randn(3, 6)),
        ({0: Dim("rows", max=8)}, {0: Dim("rows", max=8)}),
        function=lambda model, x, y: (model(x)["y"] + y, model.norm(y)),
    ),
}
"""
)

WRONG = {  # entry_points → what the message says
    "{}": "no entry",
    "7": "int",
    "{'a b': EntryPoint((x,))}": "the name 'a b'",
    "{'class': 3}": "`class`: int",
    "{'close': EntryPoint((x,))}": "the name `close`",
    "{'session': EntryPoint((x,))}": "the name `session`",
    "{'_inner': EntryPoint((x,))}": "the name `_inner`",
    "{'a': EntryPoint((x,), method='nope')}": "the method `nope`",
    "{'a': {'inputs': (x,)}}": "`a` with other fields",
    "{'a': EntryPoint()}": "`a` without inputs",
}
WRONG_SPEC = (
    HEAD
    + """
model = torch.nn.Linear(4, 4)
x = torch.randn(2, 4)
entry_points = {entries}
"""
)

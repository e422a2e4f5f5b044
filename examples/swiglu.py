"""A gated block written in plain torch; `rewrites/swiglu.py` puts a Triton kernel into it.

aotc build examples/swiglu.py -o swiglu.bundle --rewrites examples/rewrites/swiglu.py
"""

import torch


class Block(torch.nn.Module):
    def __init__(self, width=96, hidden=256):
        super().__init__()
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


def build_model():
    return Block()


example_inputs = (torch.randn(4, 33, 96),)

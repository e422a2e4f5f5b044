"""A text classifier of the size of MiniLM: 6 layers of 384, 12 heads, 22.7 million parameters.

aotc build examples/serving/spec.py -o classifier.aotc

Its weights are random: what is shown is a server. `ids`, i64[batch, length], has zeros on the right
where a text is shorter; the result is f32[batch, 2].
"""

import torch
from torch import nn
from torch.nn import functional

WORDS, WIDTH, HEADS, LAYERS, LONGEST = 30522, 384, 12, 6, 128


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self):
        super().__init__()
        self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        heads = self.heads(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(*heads.unbind(0), attn_mask=mask)
        x = self.first(x + self.joined(found.transpose(1, 2).reshape(batch, length, WIDTH)))
        return self.second(x + self.down(functional.gelu(self.up(x))))


class Classifier(nn.Module):
    """Words and places in, one row of two numbers a text out."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids):
        mask = (ids != 0)[:, None, None, :]
        x = self.norm(self.words(ids) + self.places.weight[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, mask)
        return self.out(x[:, 0])


model = Classifier().eval()
example_inputs = (torch.arange(1, 65).reshape(2, 32),)
dynamic_shapes = (
    {
        0: torch.export.Dim("batch", min=1, max=32),
        1: torch.export.Dim("length", min=2, max=LONGEST),
    },
)

"""A small image classifier: convolution, batch norm, ReLU, pooling, residual blocks, classifier."""

import torch
from torch import nn
from torch.nn import functional


class Residual(nn.Module):
    """Two convolutions and the way around them, halving the image where `stride` is 2."""

    def __init__(self, channels, wider, stride):
        super().__init__()
        self.first = nn.Conv2d(channels, wider, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(wider)
        self.second = nn.Conv2d(wider, wider, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(wider)
        self.around = nn.Identity()
        if stride != 1 or wider != channels:
            self.around = nn.Sequential(
                nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider)
            )

    def forward(self, image):
        hidden = functional.relu(self.first_norm(self.first(image)))
        hidden = self.second_norm(self.second(hidden))
        return functional.relu(hidden + self.around(image))


class Classifier(nn.Module):
    """A stem, three residual blocks, and scores for each class."""

    def __init__(self, channels, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 5, stride=2, padding=2, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.blocks = nn.Sequential(
            Residual(channels, channels, 1),
            Residual(channels, 2 * channels, 2),
            Residual(2 * channels, 4 * channels, 2),
        )
        self.classify = nn.Linear(4 * channels, classes)

    def forward(self, image):
        hidden = self.pool(functional.relu(self.stem_norm(self.stem(image))))
        hidden = self.blocks(hidden)
        return self.classify(functional.adaptive_avg_pool2d(hidden, 1).flatten(1))


def build_model(channels=32, classes=10):
    model = Classifier(channels, classes)
    generator = torch.Generator().manual_seed(2)
    for module in model.modules():
        # Statistics as training leaves them, so that folding batch norm is put to the test.
        if isinstance(module, nn.BatchNorm2d):
            shape = module.running_mean.shape
            module.running_mean.copy_(torch.randn(shape, generator=generator) * 0.1)
            module.running_var.copy_(torch.rand(shape, generator=generator) + 0.5)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)
            nn.init.uniform_(module.bias, -0.2, 0.2, generator=generator)
    return model


def example_inputs(batch=1, extent=128):
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(batch, 3, extent, extent, generator=generator),)

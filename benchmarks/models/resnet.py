"""ResNet-50 in plain torch: batch 8 of 224² images in bf16, random weights, eval mode."""

import torch
from torch import Tensor, nn

# Blocks, inner channels and first stride of each stage; outer channels are four times the inner.
STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
BATCH, SIDE, CLASSES = 8, 224, 1000


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias, "same" padding, and its batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class Bottleneck(nn.Module):
    """1×1, 3×3 (with the stride), 1×1, and the way around them."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.reduce = convolution(inputs, inner, 1)
        self.middle = convolution(inner, inner, 3, stride)
        self.expand = convolution(inner, outputs, 1)
        is_plain = stride == 1 and inputs == outputs
        self.around = nn.Identity() if is_plain else convolution(inputs, outputs, 1, stride)

    def forward(self, image: Tensor) -> Tensor:
        inner = torch.relu(self.middle(torch.relu(self.reduce(image))))
        return torch.relu(self.expand(inner) + self.around(image))


class ResNet(nn.Module):
    """The 50-layer form: images [N, 3, H, W] → logits [N, classes]."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__()
        self.stem = convolution(3, 64, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        inputs = 64
        for count, inner, stride in STAGES:
            for number in range(count):
                blocks.append(Bottleneck(inputs, inner, stride if number == 0 else 1))
                inputs = 4 * inner
        self.body = nn.Sequential(*blocks)
        self.head = nn.Linear(inputs, classes)

    def forward(self, image: Tensor) -> Tensor:
        features = self.body(self.pool(torch.relu(self.stem(image))))
        return self.head(features.mean((2, 3)))


def _settle(model: nn.Module) -> None:
    """Statistics and scales as of a trained net: no layer blows up or dies out."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.0)
            nn.init.normal_(module.bias, std=0.1)
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.8, 1.2)


def build_model() -> nn.Module:
    """Parameters and statistics in bf16, as `model.bfloat16()` leaves them."""
    torch.manual_seed(0)
    model = ResNet().eval()
    _settle(model)
    return model.to(torch.bfloat16)


def example_inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(BATCH, 3, SIDE, SIDE).to(torch.bfloat16),)

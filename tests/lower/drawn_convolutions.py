"""Convolutions of drawn shapes as one model: builds it for a target, and prints how far it is off.

    python drawn_convolutions.py TARGET FOLDER CACHE [COUNT]

In bf16, and in int8 with static scales as PT2E writes them out. Beside f64 of the same numbers, the
largest error of each case in units of what rounding its result and adding up its terms may make.
The first case has an open number of images.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.ao.quantization.fx._decomposed
from torch import nn
from torch.export import Dim

COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 24  # of the cases
UNIT_ROUNDOFF = {torch.bfloat16: 2.0**-9, torch.float32: 2.0**-24}
ROUNDINGS = 2  # of a result and its sum with the bias
TERMS = 2.0**-16  # of the largest sum that terms of some sign could make: of deep sums in f32
OPS = torch.ops.quantized_decomposed
CODES = 0.03, 117, 0, 255, torch.uint8  # of the data in int8: scale, zero point, range, type
NARROW = """
import sys
sys.path.insert(0, {folder!r})
from drawn_convolutions import *

build_model, example_inputs = build_narrow_model, narrow_inputs(drawn(1), 2)
"""


@dataclass(frozen=True, slots=True)
class Case:
    images: int
    channels: int
    filters: int
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    is_last: bool
    """Channels come last, and go last."""


FIXED = (
    Case(3, 64, 96, (9, 14), (3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    Case(2, 32, 64, (7, 7), (3, 3), (1, 1), (5, 4), (1, 1), 1, False),  # more than the filter
    Case(2, 1, 64, (20, 21), (5, 7), (1, 1), (2, 3), (1, 1), 1, True),
    Case(2, 64, 64, (19, 23), (3, 3), (2, 3), (1, 1), (1, 1), 1, True),
    Case(1, 64, 64, (24, 17), (1, 1), (2, 2), (0, 0), (1, 1), 1, True),
    Case(2, 32, 64, (40,), (5,), (1,), (2,), (1,), 1, False),
    Case(1, 32, 64, (5, 9, 11), (3, 3, 3), (1, 1, 1), (1, 0, 1), (1, 1, 1), 1, True),
    Case(1, 64, 64, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1), 1, True),  # few positions
)


def drawn(seed: int) -> list[Case]:
    """The fixed cases, and others."""
    chance, found = random.Random(seed), list(FIXED)
    while len(found) < COUNT:
        groups = chance.choice((1, 1, 1, 2))
        kernel, stride, padding, dilation = (
            (chance.choice(values), chance.choice(values))
            for values in ((1, 2, 3, 3, 5), (1, 1, 1, 2, 3), (0, 1, 2, 3), (1, 1, 2))
        )
        size = chance.randrange(11, 30), chance.randrange(11, 30)
        sides = chance.choice((16, 32, 48, 64, 96, 7)) * groups, 32 * chance.randrange(1, 5)
        images = chance.randrange(1, 4)
        found.append(
            Case(
                images,
                *sides,
                size,
                kernel,
                stride,
                padding,
                dilation,
                groups,
                chance.random() < 0.7,
            )
        )
    return found


class Model(nn.Module):
    """All cases side by side, each with a bias and a ReLU behind it."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__()
        kinds = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
        self.cases = cases
        self.layers = nn.ModuleList(
            kinds[len(case.size)](
                case.channels,
                case.filters,
                case.kernel,
                case.stride,
                case.padding,
                case.dilation,
                case.groups,
            )
            for case in cases
        )

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A result of each input."""
        found = []
        for case, layer, x in zip(self.cases, self.layers, inputs, strict=True):
            data = x.movedim(-1, 1) if case.is_last else x
            result = torch.relu(layer(data))
            found.append(result.movedim(1, -1) if case.is_last else result)
        return tuple(found)


class Narrow(Model):
    """The same of codes of 8 bits: of the data with one scale, of filters with one each."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__(cases)
        self.layers.double()
        for place, layer in enumerate(self.layers):
            weight = layer.weight.detach()
            scale = weight.abs().flatten(1).amax(1) / 127
            wide = scale.reshape(-1, *(1 for _ in weight.shape[1:]))
            self.register_buffer(f"codes{place}", (weight / wide).round().to(torch.int8))
            self.register_buffer(f"scale{place}", scale.float())
            self.register_buffer(f"zero{place}", torch.zeros(len(scale), dtype=torch.int64))
            layer.weight = nn.Parameter(torch.zeros(()), requires_grad=False)
            layer.bias = nn.Parameter(layer.bias.detach().float(), requires_grad=False)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A result of each input."""
        found = []
        for place, (case, layer, x) in enumerate(zip(self.cases, self.layers, inputs, strict=True)):
            codes, scale, zero = (
                getattr(self, f"{name}{place}") for name in ("codes", "scale", "zero")
            )
            data = x.movedim(-1, 1) if case.is_last else x
            data = OPS.quantize_per_tensor.default(data, *CODES)
            data = OPS.dequantize_per_tensor.default(data, *CODES)
            channels = scale, zero, 0, -128, 127, torch.int8
            weight = OPS.dequantize_per_channel.default(codes, *channels)
            result = self.multiplied(layer, data, weight)
            found.append(result.movedim(1, -1) if case.is_last else result)
        return tuple(found)

    def multiplied(
        self, layer: nn.Module, data: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The convolution with its bias and ReLU."""
        return torch.relu(layer._conv_forward(data, weight, layer.bias))


class Wide(Narrow):
    """The same in f64, or sums of the terms' absolute values."""

    is_absolute = False

    def multiplied(
        self, layer: nn.Module, data: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """The convolution with its bias and ReLU."""
        parts = data.double(), weight.double(), layer.bias.double()
        parts = tuple(each.abs() for each in parts) if self.is_absolute else parts
        return torch.relu(layer._conv_forward(*parts))


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return Model(drawn(1)).to(torch.bfloat16).eval()


def build_narrow_model(kind: type[Narrow] = Narrow) -> nn.Module:
    torch.manual_seed(0)
    return kind(drawn(1)).eval()


def inputs_of(cases: list[Case], seed: int, more: int = 0) -> tuple[torch.Tensor, ...]:
    """Fresh numbers; the first case has so many more images."""
    torch.manual_seed(seed)
    found = []
    for place, case in enumerate(cases):
        images = case.images + (more if place == 0 else 0)
        shape = (*case.size, case.channels) if case.is_last else (case.channels, *case.size)
        found.append(torch.randn(images, *shape).to(torch.bfloat16))
    return tuple(found)


def narrow_inputs(cases: list[Case], seed: int, more: int = 0) -> tuple[torch.Tensor, ...]:
    """The same in f32."""
    return tuple(each.float() for each in inputs_of(cases, seed, more))


example_inputs = inputs_of(drawn(1), 2)
dynamic_shapes = (({0: Dim("images", min=2, max=8)}, *({} for _ in range(COUNT - 1))),)


def expected(inputs: tuple[torch.Tensor, ...]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The results in f64, and sums of the absolute values of their terms."""
    if inputs[0].dtype == torch.float32:
        wide, sizes = (build_narrow_model(Wide) for _ in range(2))
        sizes.is_absolute = True
        return wide(*inputs), sizes(*inputs)
    wide, sizes = build_model().double(), build_model().double()
    for layer in sizes.layers:
        for parameter in layer.parameters():
            parameter.data = parameter.abs()
    return wide(*(each.double() for each in inputs)), sizes(*(x.double().abs() for x in inputs))


def errors(results: list[torch.Tensor], inputs: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """Case → its largest error by what it may be: 1 is allowed."""
    found = {}
    for case, result, right, terms in zip(drawn(1), results, *expected(inputs), strict=True):
        allowed = ROUNDINGS * UNIT_ROUNDOFF[result.dtype] * right + TERMS * terms + 1e-30
        assert result.shape == right.shape, case
        found[str(case)] = ((result.double() - right).abs() / allowed).max().item()
    return found


def main() -> None:
    """Builds both models, and calls each with two numbers of images."""
    from aotc.aot.pipeline import BuildOptions, build
    from aotc.runtime import load

    target, folder, here = sys.argv[1], Path(sys.argv[2]), Path(__file__)
    narrow = folder / "narrow.py"
    narrow.write_text(NARROW.format(folder=str(here.parent)))
    worst: dict[str, float] = {}
    for name, spec, drawn_inputs in (("bf16", here, inputs_of), ("int8", narrow, narrow_inputs)):
        options = BuildOptions(Path(sys.argv[3]), tune="off", dump=folder / name)
        build(str(spec), folder / f"{name}-bundle", [target], options)
        with load(folder / f"{name}-bundle") as program, torch.no_grad():
            for seed, more in ((5, 0), (6, 4)):
                inputs = drawn_inputs(drawn(1), seed, more)
                results = [torch.as_tensor(each) for each in program(*inputs)]
                for case, error in errors(results, inputs).items():
                    key = f"{name}: {case}"
                    worst[key] = max(worst.get(key, 0.0), error)
    print(json.dumps(worst))


if __name__ == "__main__":
    main()

"""Convolutions of few channels as one model: builds it for a target, and prints how far it is off.

    python few_channels.py TARGET FOLDER CACHE [SEED]

Beside f64 of the same numbers, the largest error of each case in units of what rounding may make.
A second call has infinities and NaN in each image: results must be what they are in f64 there, and
elsewhere as near as before.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from drawn_convolutions import ROUNDINGS, TERMS, UNIT_ROUNDOFF, Case, Model, inputs_of
from torch import nn

COUNT = 36
FIXED = (
    Case(2, 3, 64, (29, 31), (7, 7), (2, 2), (3, 3), (1, 1), 1, True),
    Case(2, 3, 32, (25, 30), (3, 3), (2, 2), (1, 1), (1, 1), 1, False),
    Case(1, 3, 96, (67, 67), (11, 11), (4, 4), (2, 2), (1, 1), 1, True),
    Case(1, 1, 24, (28, 28), (5, 5), (1, 1), (0, 0), (1, 1), 1, False),
    Case(3, 4, 64, (20, 33), (4, 4), (4, 4), (0, 0), (1, 1), 1, True),  # no margins: no copy
    Case(2, 3, 16, (40, 40), (16, 16), (16, 16), (0, 0), (1, 1), 1, True),
    Case(1, 2, 64, (120,), (10,), (5,), (0,), (1,), 1, False),
    Case(2, 3, 16, (3, 4), (7, 7), (2, 2), (3, 3), (1, 1), 1, True),  # smaller than the filter
    Case(1, 3, 32, (5, 12, 13), (3, 5, 5), (1, 2, 2), (1, 2, 2), (1, 1, 1), 1, True),
    Case(1, 9, 80, (11, 6), (9, 4), (1, 4), (1, 3), (1, 1), 1, False),  # 15 positions
    Case(2, 3, 64, (21, 22), (5, 7), (2, 1), (4, 6), (2, 1), 1, True),
    Case(2, 12, 64, (15, 17), (3, 3), (1, 1), (1, 1), (1, 1), 1, True),  # a depth of 108
    Case(2, 24, 48, (15, 17), (3, 3), (2, 2), (1, 1), (1, 1), 1, True),
    Case(2, 6, 64, (15, 17), (3, 5), (3, 2), (0, 1), (1, 1), 2, True),
)


def drawn(seed: int) -> list[Case]:
    """The fixed cases, and others."""
    chance, found = random.Random(seed), list(FIXED)
    while len(found) < COUNT:
        rank = chance.choice((1, 2, 2, 2, 2, 3))
        longest = (40, 24, 9)[rank - 1]
        size = tuple(chance.randrange(2, longest) for _ in range(rank))
        kernel = tuple(chance.choice((1, 2, 3, 4, 5, 7, 9, 11)) for _ in range(rank))
        stride = tuple(chance.choice((1, 1, 2, 3, 4)) for _ in range(rank))
        padding = tuple(chance.choice((0, 1, 2, 3, 5)) for _ in range(rank))
        dilation = tuple(chance.choice((1, 1, 1, 2)) for _ in range(rank))
        groups = chance.choice((1, 1, 1, 1, 2))
        sides = chance.randrange(1, 10) * groups, chance.choice((16, 17, 32, 64, 80)) * groups
        case = Case(
            chance.randrange(1, 4), *sides, size, kernel, stride, padding, dilation, groups,
            chance.random() < 0.6,
        )  # fmt: skip
        spans = zip(size, padding, kernel, dilation, strict=True)
        if all(length + 2 * more >= (count - 1) * step + 1 for length, more, count, step in spans):
            found.append(case)
    return found


SEED = int(os.environ.get("FEW_CHANNELS_SEED", "1"))


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return Model(drawn(SEED)).to(torch.bfloat16).eval()


example_inputs = inputs_of(drawn(SEED), 2)


def with_infinities(inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """A few elements of each input are infinite or none."""
    torch.manual_seed(3)
    found = []
    for each in inputs:
        flat = each.clone().flatten()
        for value in (float("inf"), float("-inf"), float("nan")):
            flat[torch.randint(len(flat), ())] = value
        found.append(flat.reshape(each.shape))
    return tuple(found)


def errors(
    results: list[torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    build: Callable[[], nn.Module] = build_model,
) -> list[float]:
    """The largest error of each case by what it may be; infinite where one is not what it should
    be in f64."""
    wide, sizes = build().double(), build().double()
    for layer in sizes.layers:
        for parameter in layer.parameters():
            parameter.data = parameter.abs()
    right = wide(*(each.double() for each in inputs))
    terms = sizes(*(each.double().abs().nan_to_num(0, 0, 0) for each in inputs))
    found = []
    for result, wanted, size in zip(results, right, terms, strict=True):
        allowed = ROUNDINGS * UNIT_ROUNDOFF[result.dtype] * wanted + TERMS * size + 1e-30
        error = (result.double() - wanted).abs() / allowed
        known = wanted.isfinite()
        is_alike = torch.equal(result[~known].double().nan_to_num(7), wanted[~known].nan_to_num(7))
        worst = error[known].nan_to_num(float("inf")).amax().item() if known.any() else 0.0
        assert result.shape == wanted.shape
        found.append(worst if is_alike else float("inf"))
    return found


def main() -> None:
    """Builds the model, and calls it with numbers, and with some that are infinite or none."""
    from aotc.aot.pipeline import BuildOptions, build
    from aotc.runtime import load

    target, folder = sys.argv[1], Path(sys.argv[2])
    options = BuildOptions(Path(sys.argv[3]), tune="off", dump=folder / "dump")
    build(__file__, folder / "bundle", [target], options)
    worst: dict[str, float] = {}
    with load(folder / "bundle") as program, torch.no_grad():
        inputs = inputs_of(drawn(SEED), 5)
        for given in (inputs, with_infinities(inputs)):
            results = [torch.as_tensor(each) for each in program(*given)]
            for case, error in zip(drawn(SEED), errors(results, given), strict=True):
                worst[str(case)] = max(worst.get(str(case), 0.0), error)
    print(json.dumps(worst))


if __name__ == "__main__":
    main()

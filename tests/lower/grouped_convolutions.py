"""Convolutions by groups as one model: builds it for a target, and prints how far it is off.

    python grouped_convolutions.py TARGET FOLDER CACHE DTYPE

Beside f64 of the same numbers, the largest error of each case in units of what rounding may make;
the second call has infinities and NaN, which other groups must not see.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import torch
from drawn_convolutions import Case, Model, inputs_of
from few_channels import errors, with_infinities
from torch import nn

COUNT = int(os.environ.get("GROUPED_COUNT", "26"))
DTYPE = os.environ.get("GROUPED_DTYPE", "bfloat16")
SEED = int(os.environ.get("GROUPED_SEED", "1"))
FIXED = (
    Case(2, 128, 128, (14, 15), (3, 3), (1, 1), (1, 1), (1, 1), 32, True),  # 4 of each
    Case(2, 64, 64, (15, 14), (3, 3), (2, 2), (1, 1), (1, 1), 8, True),
    Case(2, 64, 64, (14, 14), (3, 3), (1, 1), (1, 1), (1, 1), 4, True),
    Case(1, 72, 72, (15, 17), (3, 3), (1, 1), (1, 1), (1, 1), 3, True),  # 24 of each
    Case(1, 112, 112, (13, 11), (3, 3), (2, 1), (1, 1), (1, 1), 2, False),
    Case(2, 48, 96, (9, 20), (1, 1), (1, 1), (0, 0), (1, 1), 3, True),
    Case(2, 32, 32, (40,), (5,), (1,), (2,), (1,), 2, False),
    Case(1, 32, 16, (5, 9, 11), (3, 3, 3), (1, 2, 1), (1, 0, 1), (1, 1, 1), 2, True),
    Case(2, 12, 24, (19, 21), (3, 3), (1, 1), (1, 2), (1, 2), 6, True),  # 2 for 4
    Case(1, 160, 260, (12, 13), (2, 3), (1, 1), (1, 0), (2, 1), 2, True),  # 130 of each
)


def drawn(seed: int) -> list[Case]:
    """The fixed cases, and others."""
    chance, found = random.Random(seed), list(FIXED)
    while len(found) < COUNT:
        groups = chance.choice((2, 3, 4, 5, 8))
        kernel, stride, padding, dilation = (
            (chance.choice(values), chance.choice(values))
            for values in ((1, 2, 3, 3, 5), (1, 1, 1, 2, 3), (0, 1, 2, 3), (1, 1, 2))
        )
        size = chance.randrange(11, 26), chance.randrange(11, 26)
        widths = (2, 3, 4, 5, 8, 12, 16, 16, 24, 32, 40, 48, 64, 72)
        sides = chance.choice(widths) * groups, chance.choice(widths) * groups
        images, is_last = chance.randrange(1, 4), chance.random() < 0.7
        found.append(Case(images, *sides, size, kernel, stride, padding, dilation, groups, is_last))
    return found


def build_model() -> nn.Module:
    torch.manual_seed(0)
    return Model(drawn(SEED)).to(getattr(torch, DTYPE)).eval()


def inputs(seed: int) -> tuple[torch.Tensor, ...]:
    """Fresh numbers."""
    return tuple(each.to(getattr(torch, DTYPE)) for each in inputs_of(drawn(SEED), seed))


example_inputs = inputs(2)


def main() -> None:
    """Builds the model, and calls it with numbers, and with some that are infinite or none."""
    from aotc.aot.pipeline import BuildOptions, build
    from aotc.runtime import load

    target, folder = sys.argv[1], Path(sys.argv[2])
    options = BuildOptions(Path(sys.argv[3]), tune="off", dump=folder / "dump")
    build(__file__, folder / "bundle", [target], options)
    worst: dict[str, float] = {}
    with load(folder / "bundle") as program, torch.no_grad():
        fresh = inputs(5)
        for given in (fresh, with_infinities(fresh)):
            results = [torch.as_tensor(each) for each in program(*given)]
            rows = zip(drawn(SEED), errors(results, given, build_model), strict=True)
            for place, (case, error) in enumerate(rows):
                name = f"{place} {case}"
                worst[name] = max(worst.get(name, 0.0), error)
    print(json.dumps(worst))


if __name__ == "__main__":
    main()

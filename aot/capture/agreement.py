"""Whether torch.export's program gives the model's own numbers on the example.

A model may take another branch while it is traced (`torch.compiler.is_compiling()`), and libraries
do. The bundle would then be right by the program and wrong by the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import torch

from aotc.aot.capture.exporting import run
from aotc.aot.capture.golden import golden_tensors
from aotc.aot.capture.spec import Spec
from aotc.aot.errors import ExportDiffers, ModelRaised

# Of an output's largest element: far beyond what another order of operations explains.
LIMIT, LIMIT_OF_HALVES = 1e-3, 5e-2
TIMES_ROUNDINGS = 10.0  # of how far the model's own roundings carry the output


def check_agreement(
    spec: Spec, outputs: Sequence[torch.Tensor], roundings: Sequence[float], is_narrow: bool
) -> None:
    """Raise `ExportDiffers` where the model's floats are not those of the exported program.

    For models that keep no state, since a call of theirs changes tensors that only they know.
    outputs: what the program gave on the spec's example, in order; roundings: how far roundings
    carry each. Whole numbers are left to the comparison of the bundle, since a choice between
    nearly equal values may go either way.
    """
    module = spec.module
    if module is None:
        return
    try:
        with torch.no_grad():
            own = golden_tensors(lambda: run(spec, module))
    except ModelRaised:  # it ran for torch.export; whatever it keeps of that is its own affair
        return
    for place, (found, expected) in enumerate(zip(outputs, own, strict=False)):
        if not expected.is_floating_point() or found.shape != expected.shape:
            continue
        difference = _difference(found, expected)
        least = LIMIT_OF_HALVES if is_narrow else LIMIT
        limit = max(least, TIMES_ROUNDINGS * roundings[place])
        if difference > limit:
            raise ExportDiffers(place=place, found=f"{difference:.2g}", expected=f"{limit:.2g}")


def _difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference of elements that are finite in both, of the largest one expected."""
    pair = [each.double().numpy() for each in (found, expected)]
    is_finite = numpy.isfinite(pair[0]) & numpy.isfinite(pair[1])
    if not is_finite.any():
        return 0.0
    first, second = (each[is_finite] for each in pair)
    return float(numpy.abs(first - second).max() / (numpy.abs(second).max() or 1.0))

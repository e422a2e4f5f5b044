"""Are these the numbers of eager torch?"""

from __future__ import annotations

import numpy
import torch

from aotc.aot.capture.importer import to_array
from aotc.aot.ir.storage import Array, widen
from benchmarks.operators.samples import DTYPES

# Relative to the value, and to the largest finite value of the result: sums have another order.
RELATIVE = {"f64": 1e-9, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


UNWRITTEN = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)  # what stands in their results is anything


def difference(operator: str, found: Array, expected: torch.Tensor) -> str:
    """How `found` (stored form) differs from `expected`; empty where it does not."""
    name = NAMES[expected.dtype]
    stored = to_array(expected)
    if found.shape != stored.shape or found.dtype != stored.dtype:
        return f"{found.dtype}{list(found.shape)}, expected {stored.dtype}{list(stored.shape)}"
    if operator in UNWRITTEN:
        return ""
    if name not in RELATIVE:
        count = int((found != stored).sum())
        return f"{count} of {stored.size} elements differ" if count else ""
    left = torch.from_numpy(numpy.array(widen(found, name), "float64", order="C"))
    right = torch.from_numpy(numpy.array(widen(stored, name), "float64", order="C"))
    finite = right[right.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    limit = RELATIVE[name]
    close = torch.isclose(left, right, rtol=limit, atol=limit * scale, equal_nan=True)
    if bool(close.all()):
        return ""
    place = int((~close).flatten().nonzero()[0])
    pair = f"{left.flatten()[place]:.6g}, expected {right.flatten()[place]:.6g}"
    return f"{int((~close).sum())} of {stored.size} elements differ: {pair}"

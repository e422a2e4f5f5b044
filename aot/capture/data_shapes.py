"""Ops whose output shape depends on data, which no program supports, and what to write instead."""

from __future__ import annotations

from typing import Any

from aotc.aot.capture.custom_ops import base_name

OF_DATA = "its shape depends on data"
MASKED = "keep the full size and a mask of what counts"
PLACES = "`torch.nonzero_static(x, size=…)` has a size that is known"
ORDERED = "sort it, and compare each element with the one before"
# Op → what to write instead.
INSTEAD = {
    "_unique2": ORDERED, "unique_consecutive": ORDERED, "unique_dim": ORDERED,
    "argwhere": PLACES, "nonzero": PLACES,
    "bincount": "give `minlength`, and numbers below it",
    "one_hot": "give `num_classes`",
    "repeat_interleave": "give `output_size`",
    "tensor_split": "give the places as numbers",
    "_pack_padded_sequence": "give the padded rows, and choose each one's last step by its length",
}  # fmt: skip


def reason_of(op: Any) -> str:
    """Why an op has no row that depends on how large data make its result."""
    return f"{OF_DATA}: {INSTEAD.get(base_name(op), MASKED)}"

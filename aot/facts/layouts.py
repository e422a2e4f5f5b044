"""What it costs that a bundle stores parameters in more layouts than one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Any

from aotc.runtime.arrays.dtypes import DTYPES
from aotc.runtime.bundle.manifest import HEAD_NAME
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.parameters import PARAMETERS_NAME, Parameter, Parameters
from aotc.runtime.bundle.plan import Plan
from aotc.runtime.bundle.plan_parts import RANK_MARK
from aotc.runtime.bundle.weights import MappedFile, Tensor, read_header


def layouts(opened: Bundle, plans: Mapping[str, Plan]) -> list[dict[str, Any]]:
    """The parameters that several tensors of the weights file hold: bytes in each of these, and
    which entries of which targets read it. Largest first.

    A quantised parameter is small integers or 8-bit floats and their scales, which are one layout
    together: a row is of either part, "values" or "scales", where the file has it more than once.
    """
    if all(entry.name != PARAMETERS_NAME for entry in opened.manifest.files):
        return []
    where = opened.where(PARAMETERS_NAME)
    rows = Parameters.from_bytes(opened.read(PARAMETERS_NAME), where)
    reads: dict[str, tuple[int, ...]] = {}
    for number, parameter in enumerate(rows.parameters):
        if parameter.stored:
            reads[parameter.stored] = (number,)
    if rows.code is not None:
        reads |= dict(zip(rows.code.outputs, rows.code.reads, strict=True))
    users = _users(opened, plans)
    holders: dict[int, list[str]] = {}
    for name, numbers in reads.items():
        if RANK_MARK in name:  # another part in the same layout
            continue
        for number in dict.fromkeys(numbers):
            holders.setdefault(number, []).append(name)
    tensors = stored_tensors(opened)
    sizes = {name: tensor.nbytes for name, tensor in tensors.items()}

    def row(number: int, name: str) -> dict[str, Any]:
        """A tensor that holds a parameter, with its share of the bytes."""
        whole = sum(rows.parameters[each].nbytes for each in reads[name]) or 1
        nbytes = sizes.get(name, 0) * rows.parameters[number].nbytes // whole
        return {"name": name, "bytes": nbytes, "read_by": sorted(users.get(name, ()))}

    found = [
        {
            "parameter": rows.parameters[number].names[0],
            "part": part,
            "bytes": rows.parameters[number].nbytes,
            "tensors": [row(number, name) for name in names],
        }
        for number, every in holders.items()
        for part, names in _parts(rows.parameters[number], every, tensors).items()
        if len(names) > 1
    ]
    return sorted(found, key=lambda row: (-row["bytes"], row["parameter"]))


def _parts(
    parameter: Parameter, names: list[str], tensors: Mapping[str, Tensor]
) -> dict[str, list[str]]:
    """The tensors that hold a parameter: its values, and the scales of quantised ones."""
    wide = {
        each: prod(tensors[each].shape)
        for each in names
        if each in tensors and DTYPES[tensors[each].dtype].itemsize_bytes > 1
    }
    is_quantised = any(each in tensors and each not in wide for each in names)
    if not is_quantised or DTYPES[parameter.dtype].itemsize_bytes == 1:
        return {"values": names}
    scales = {each for each, count in wide.items() if count < prod(parameter.shape)}
    return {
        "values": [each for each in names if each not in scales],
        "scales": [each for each in names if each in scales],
    }


def more_bytes(rows: list[dict[str, Any]]) -> int:
    """What all layouts but the largest of each parameter take."""
    sizes = [[each["bytes"] for each in row["tensors"]] for row in rows]
    return sum(sum(each) - max(each) for each in sizes)


def stored_tensors(opened: Bundle) -> dict[str, Tensor]:
    """The tensors of the weights file by name; none where the weights are outside."""
    entry = opened.manifest.weights
    if entry is None or any(row.name == HEAD_NAME for row in opened.manifest.files):
        return {}
    where = opened.where(entry.name)
    descriptor = opened.directory.open_sized(entry.name, entry.nbytes)
    try:
        return read_header(MappedFile(descriptor, entry.nbytes).view, where)
    finally:
        os.close(descriptor)


def _users(opened: Bundle, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
    """Tensor of the weights file → the entries that read it."""
    entries = opened.manifest.entries
    users: dict[str, set[str]] = {}
    for plan in plans.values():
        for lows, number in plan.lows:
            for space, value in plan.at(lows, number).arguments():
                if space == "weight":
                    users.setdefault(str(value), set()).add(entries[number].name)
    return users

"""Matmul groups on a GPU: which writers write them, and in which order their candidates stand.

Windows are written by convolution/source.py where they are plain loads. So are small products of
many rows, beside the forms of gpu_source.py: with little to compute, its shorter programs win.
"""

from __future__ import annotations

from itertools import chain, zip_longest

from aotc.aot.ir.size import typical
from aotc.aot.lower.convolution.source import lower_convolution
from aotc.aot.lower.matmul.gpu_source import lower_matmul_gpu
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.schedule.group import Group
from aotc.aot.traits import TargetTraits

# Sizes of the pointwise convolutions on which windows won (benchmarks/gpu/convolution.py).
FEWEST_ROWS = 256
MOST_OPERATIONS = 2_000_000_000


def lower_product(group: Group, traits: TargetTraits) -> KernelSpec:
    """The matmul of the group in all forms that suit it."""
    is_windowed = any(node.op == "window" for node in group.nodes)
    windows = lower_convolution(group, traits) if is_windowed or _is_small(group) else None
    if windows is not None and is_windowed:
        return windows
    plain = lower_matmul_gpu(group, traits)
    return plain if windows is None else _merged(windows, plain)


def _is_small(group: Group) -> bool:
    """Whether the product has many rows and little work."""
    domain = group.domain
    is_flat = domain.outer.extent == 1 and typical(domain.rows.extent) >= FEWEST_ROWS
    return is_flat and group.operations <= MOST_OPERATIONS


def _merged(first: KernelSpec, second: KernelSpec) -> KernelSpec:
    """One spec with the candidates of both in turns; the second where they read other dims."""
    if first.sizes != second.sizes:
        return second
    pairs = zip_longest(first.candidates, second.candidates)
    candidates = tuple(each for each in chain.from_iterable(pairs) if each is not None)
    return KernelSpec(
        name=second.name,
        forms=(*first.forms, *second.forms),
        params=second.params,
        candidates=candidates,
        bytes=second.bytes,
        operations=second.operations,
        sizes=second.sizes,
    )

"""The lower stage: each group of a schedule → KernelSpec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aotc.aot.errors import SizeUnsupported
from aotc.aot.extensions import extension
from aotc.aot.ir.recursion import deep_recursion
from aotc.aot.ir.size import UndecidedSize, fixed
from aotc.aot.lower.attention.source import lower_attention
from aotc.aot.lower.call import kernel_of, lower_call
from aotc.aot.lower.kernel_file import products_apart
from aotc.aot.lower.matmul.source import lower_matmul
from aotc.aot.lower.placed.table import ON_MEMORY
from aotc.aot.lower.pointwise.source import lower_pointwise
from aotc.aot.lower.row.source import lower_row
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule.group import Group, Schedule
from aotc.aot.traits import TargetTraits

# Values are written by calls within calls, as deep as the schedule lets a kernel be.
STACK_FRAMES = 10_000
MOST_ZEROED_BYTES = 16 << 20  # of a launch
UNFUSED = ("enable_fp_fusion", 0)  # a launch option of GPUs


def _lower_call(group: Group, traits: TargetTraits) -> KernelSpec:
    call = group.root_op
    assert call is not None
    if call.op == "placed":
        return kernel_of(group, ON_MEMORY[call.attr("function")](call, traits), traits)
    if call.op == "native":
        spec: KernelSpec = extension("native kernels").lower_native(group, traits)
        return spec
    return lower_call(group, traits)


LOWERED: dict[str, Callable[[Group, TargetTraits], KernelSpec]] = {
    "pointwise": lower_pointwise,
    "row": lower_row,
    "matmul": lower_matmul,
    "attention": lower_attention,
    "call": _lower_call,
}


def lower(schedule: Schedule, traits: TargetTraits) -> tuple[KernelSpec, ...]:
    """One spec for each group that is launched, in the order of the groups.

    Groups of the same work give specs of the same digest: compile each digest once. The pointer
    parameters of a spec are its group's `reads`, then its `roots`.
    """
    with deep_recursion(STACK_FRAMES):
        return tuple(_lowered(group, traits) for group in schedule.launched)


def _lowered(group: Group, traits: TargetTraits) -> KernelSpec:
    try:
        spec = _with_few_counters(LOWERED[group.kind](group, traits))
        return _unfused(spec) if traits.is_gpu and products_apart(group) else spec
    except UndecidedSize as undecided:
        places = [node.source for node in group.nodes if node.source]
        source = f"\n  at {places[-1]}" if places else ""
        raise SizeUnsupported(kernel=group.label, detail=str(undecided), source=source) from None


def _with_few_counters(spec: KernelSpec) -> KernelSpec:
    """The spec without candidates that keep more memory zero, at the largest sizes, than is worth
    keeping between calls: a counter for each of any number of rows."""

    def kept_bytes(row: Candidate) -> int:
        return sum(fixed(each.nbytes) for each in row.scratch if each.is_zeroed)

    few = tuple(row for row in spec.candidates if kept_bytes(row) <= MOST_ZEROED_BYTES)
    return replace(spec, candidates=few) if few else spec


def _unfused(spec: KernelSpec) -> KernelSpec:
    rows = (replace(each, config=(*each.config, UNFUSED)) for each in spec.candidates)
    return replace(spec, candidates=tuple(rows))

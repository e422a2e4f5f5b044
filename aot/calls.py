"""The calls that `tune` measures as a whole: launches and their memory, at typical sizes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from aotc.aot.ir.size import size_of, typical
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.measure.program import Buffer
from aotc.aot.plan import ChosenKernel, Variant, plan_variants
from aotc.aot.plan.plan import GPU_ALIGNMENT_BYTES
from aotc.aot.sources import Lowered, Sources
from aotc.aot.tune.tune import Tuning
from aotc.aot.tune.whole_call import Call, CallLaunch
from aotc.runtime.bundle.native_plan import SYMBOL
from aotc.runtime.bundle.plan import LaunchPlan
from aotc.runtime.bundle.plan_parts import Argument
from aotc.runtime.errors import AotcError

Examples = Sequence[Sequence[Any]]  # of each entry point the inputs as contiguous arrays
ARENA: Argument = ("arena", 0)
WHOLE = ("i1", "i8", "u8", "i16", "i32", "i64")
EXAMPLE_BYTES = 1 << 20  # of an input, beyond which it is all zeros


def calls_of(sources: Sources, tuning: Tuning, examples: Examples = ()) -> Iterator[Call]:
    """A call of each variant all of whose steps are kernels of ours on one device, those with the
    most work first.

    Inputs of whole numbers are those of the example where they have its size: how many keys an
    attention reads may hang on them.
    """
    order = sorted(sources.variants, key=lambda each: -sum(spec.bytes for spec in each.specs))
    for each in order:
        if any(_is_of_others(spec, tuning) for spec in each.specs):
            continue
        planned = _planned(sources, each, tuning)
        if planned is not None and planned.is_of_launches and planned.launches:
            yield _call(each, planned, examples[each.entry] if examples else ())


def _is_of_others(spec: KernelSpec, tuning: Tuning) -> bool:
    """Whether it is a native function, or reaches other devices."""
    candidate = tuning.kernels[spec.digest].candidate
    return spec.form(candidate).function == SYMBOL or candidate.ranks > 0


def _chosen(spec: KernelSpec, tuning: Tuning) -> ChosenKernel:
    """A kernel, as far as a plan of its memory asks."""
    kernel = tuning.kernels[spec.digest]
    return ChosenKernel(
        kernel.binary.symbol,
        spec.name,
        kernel.candidate.grid,
        scratch=kernel.candidate.scratch,
        maps=kernel.candidate.maps,
        sizes=tuple(map(size_of, spec.sizes)),
    )


def _planned(sources: Sources, variant: Lowered, tuning: Tuning) -> LaunchPlan | None:
    """The launches at typical sizes; None where those are no call's."""
    chosen = tuple(_chosen(spec, tuning) for spec in variant.specs)
    row = Variant(variant.dims, variant.assignment, chosen)
    try:
        planned = plan_variants(sources.dims, [row], 0, step=GPU_ALIGNMENT_BYTES)
        return planned.at([dim.typical for dim in variant.dims])
    except AotcError:
        return None


def _call(variant: Lowered, planned: LaunchPlan, example: Sequence[Any]) -> Call:
    """All that lies in the arena is one block."""
    blocks: dict[Argument, Buffer] = {ARENA: Buffer("i8", planned.arena_bytes, "stored")}
    launches = []
    rows = zip(variant.specs, variant.assignment.launches, planned.launches, strict=True)
    for spec, buffers, launch in rows:
        operands = []
        for param, operand, argument in zip(
            spec.params, buffers.operands, launch.args[: len(spec.params)], strict=True
        ):
            space, value = argument
            if space == "arena":
                operands.append((ARENA, int(value)))
                continue
            operands.append((argument, 0))
            role = "weight" if space == "weight" else "read"
            kind, nbytes = param.type.removeprefix("*"), typical(operand.nbytes)
            data = b""
            if space == "input" and kind in WHOLE and nbytes <= EXAMPLE_BYTES and example:
                data = memoryview(example[int(value)]).tobytes()
            found = Buffer(kind, nbytes, role, data if len(data) == nbytes else b"")
            known = blocks.setdefault(argument, found)
            if known.nbytes < found.nbytes:
                blocks[argument] = found
        launches.append((spec.digest, operands))
    numbers = {argument: number for number, argument in enumerate(blocks)}
    return Call(
        max(variant.specs, key=lambda spec: spec.bytes).name,
        tuple(blocks.values()),
        tuple(
            CallLaunch(digest, tuple((numbers[argument], start) for argument, start in operands))
            for digest, operands in launches
        ),
    )

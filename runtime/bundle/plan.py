"""The launch plan: which step runs when, on which grid, with which addresses.

`plan.msgpack` is canonical MessagePack (`canonical.py`); its fields are those that `Plan` declares
and the records of which it is made, in `plan_parts.py`, `launch_plan.py`, `torch_calls.py`,
`native_plan.py` and `control_steps.py`. A `[space, value]` is memory, or a number that is passed as
it is; wherever a number may stand, `[number of a value]` may stand for it (`extent.py`).

`features` are the names of what a runtime must support to run the plan; an unknown one raises an
error that names it. `dims` counts the dynamic sizes. Each variant has a range for each of them, and
the first variant whose ranges contain all sizes of a call serves it; a plan of fixed shapes has no
dims and one variant. `limits` are numbers of elements, none of which may exceed 2³¹ - 1. The first
`zeroed_bytes` of the arena are zero when a session opens, and every launch leaves them zero. The
file of the library ends with the digest of the plan up to the end of `sizes`: so the code itself
says how its kernels may be launched and how much memory they access, and the rest of the plan only
says where that memory is.

`Plan.at` gives the `LaunchPlan` for a call's sizes, without formulas; the plan of fixed shapes has
one, `Plan.fixed`. Every index and offset is checked before a number reaches native code, by the
declared limits and by the rules of `plan_rules.py`.
"""

from __future__ import annotations

from ..errors import BundleMalformed, PlanFeatureUnknown, SizeInvalid
from ..record import Record, field
from . import schema
from .canonical import Limits, decode, encode
from .control_steps import broken_blocks
from .extent import (
    DIMS_LIMIT,
    ROWS,
    Number,
    broken_rows,
    count_of,
    evaluate,
    evaluate_line,
    highest,
    line_of,
    reader,
)
from .launch_plan import VARIANT, at_sizes, named_memory
from .launch_plan import LaunchPlan as LaunchPlan
from .launch_plan import Variant as Variant
from .plan_parts import ALIGNMENT_BYTES as ALIGNMENT_BYTES
from .plan_parts import CHECK_BYTES as CHECK_BYTES
from .plan_parts import ELEMENTS_LIMIT as ELEMENTS_LIMIT
from .plan_parts import END, SCRATCH_LIMIT_BYTES, STATES_LIMIT
from .plan_parts import Argument as Argument
from .plan_parts import Buffer as Buffer
from .plan_parts import Check as Check
from .plan_parts import Image as Image
from .plan_parts import Kernel as Kernel
from .plan_parts import Launch as Launch
from .plan_parts import Map as Map
from .plan_parts import StateSlot as StateSlot
from .plan_parts import Use as Use
from .plan_rules import (
    CONTROL,
    GRID_LIMITS,
    GUARDED,
    PARALLEL,
    PLAN_FEATURES,
    broken_use,
    check_arguments,
    check_images,
    check_relations,
    features_of,
    with_uses,
)
from .schema import DIGEST_BYTES, NAME, Fields, Integer, List, Refused, read, refuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .extent import Row
    from .launch_plan import Step
    from .outline import Outline
    from .schema import Broken, Numbering
    from .signature import Dim, TensorSpec


PLAN_ABI = 3
CODE_END = "sizes"  # the last of what the file of the library has the digest of
VARIANTS_LIMIT = 512
_SIZES = schema.Row(Integer(0, VARIANTS_LIMIT - 1), List(END, limit=DIMS_LIMIT, least=1))
READ_AT = List(_SIZES, limit=VARIANTS_LIMIT, least=1)
KERNEL, STATE_SLOT = Fields(Kernel), Fields(StateSlot)
LIMITS = Limits(file_bytes=16 << 20, values=1 << 19, depth=16, text_bytes=4096)


class Known:
    """What a plan keeps of the sizes that it has met.

    line: its rows of sizes as they are evaluated; values and states: those of the last sizes, with
    what they are of; outlines: of the variants that were used, by their number.
    """

    __slots__ = ("line", "outlines", "states", "values")

    def __init__(self) -> None:
        self.line: list[Any] | None = None
        self.values: tuple[tuple[int, ...], list[int]] | None = None
        self.states: tuple[list[int], tuple[StateSlot, ...]] | None = None
        self.outlines: dict[int, Outline | None] = {}


class Plan(Record):
    """The plan of a target, whose numbers may be formulas; where there is one entry and no size
    depends on a call, `fixed` is its launch plan, and None elsewhere."""

    abi: int = field(Integer(PLAN_ABI, PLAN_ABI))
    dims: int = field(Integer(0, DIMS_LIMIT))  # how many dynamic sizes there are
    features: tuple[str, ...] = field(List(NAME, limit=256))
    kernels: tuple[Kernel, ...] = field(List(Kernel, limit=1 << 16))
    limits: tuple[int, ...] = field(List(Number(0, 1 << 62), limit=1 << 12))
    scratch_bytes: int = field(Integer(0, SCRATCH_LIMIT_BYTES))  # of each thread, at any sizes
    sizes: tuple[Row, ...] = field(ROWS)
    states: tuple[StateSlot, ...] = field(List(StateSlot, limit=STATES_LIMIT))
    variants: tuple[Variant, ...] = field(List(VARIANT, limit=VARIANTS_LIMIT, least=1))
    # The number of a variant and sizes of a call, where its smallest sizes are none together.
    read_at: tuple[tuple[int, tuple[int, ...]], ...] = field(READ_AT, default=(), feature=GUARDED)
    path: str = "plan.msgpack"
    fixed: LaunchPlan | None = None
    code_digest: bytes = b""  # SHA-256 of the file up to the end of CODE_END
    _known: Known | None = None

    @property
    def known(self) -> Known:
        """What it keeps of the sizes that it has met."""
        try:
            found = self._known
        except AttributeError:  # of two threads that come here either one's will do
            found = Known()
            self._put("_known", found)
        assert found is not None  # the slot is empty or has one
        return found

    @classmethod
    def from_map(cls, tree: Any, path: str = "plan.msgpack") -> Plan:
        """Check a decoded plan; raises `BundleMalformed`, `BundleLimit` and
        `PlanFeatureUnknown`."""
        features = tree.get("features") if type(tree) is dict else None
        if type(features) is list:
            for name in features:
                if type(name) is str and name not in PLAN_FEATURES:
                    raise PlanFeatureUnknown(path=path, found=name[:128])
        plan: Plan = read(PLAN, tree, path, count_of(tree))
        refuse(_broken(plan), path)
        fixed = None
        if not plan.dims and len(plan.variants) == 1:
            fixed = plan._launch_plan(0, reader(evaluate(plan.sizes, ())))
            check_relations(fixed, path)
        return plan.replace(path=path, fixed=fixed)

    @classmethod
    def made(
        cls,
        dims: int,
        variants: Sequence[Variant],
        kernels: Sequence[Kernel],
        states: Sequence[StateSlot],
        scratch_bytes: int,
        sizes: Sequence[Row] = (),
        limits: Sequence[int] = (),
        read_at: Sequence[tuple[int, tuple[int, ...]]] = (),
    ) -> Plan:
        """A new plan, checked as one that is read.

        Kernels that name no use of theirs get those that the launches are, which reach nothing.
        """
        if not any(kernel.uses for kernel in kernels):
            kernels, variants = with_uses(kernels, variants)
        plan = cls(
            PLAN_ABI,
            dims,
            features_of(dims, states, variants, read_at),
            tuple(kernels),
            tuple(limits),
            scratch_bytes,
            tuple(sizes),
            tuple(states),
            tuple(variants),
            tuple(read_at),
        )
        return cls.from_msgpack(plan.to_msgpack())

    @classmethod
    def of(cls, plan: LaunchPlan) -> Plan:
        """The plan of fixed shapes that is this launch plan; raises as reading it would."""
        parts = (plan.arena_bytes, plan.buffers, plan.checks, (), plan.steps, plan.zeroed_bytes)
        return cls.made(0, (Variant(*parts),), plan.kernels, plan.states, plan.scratch_bytes)

    @classmethod
    def from_msgpack(cls, data: bytes, path: str = "plan.msgpack") -> Plan:
        """Read and check everything that needs no other file; raises `BundleError`s."""
        ends: dict[str, int] = {}
        plan = cls.from_map(decode(data, LIMITS, path, ends), path)
        import hashlib

        return plan.replace(code_digest=hashlib.sha256(data[: ends[CODE_END]]).digest())

    def to_msgpack(self) -> bytes:
        """The canonical bytes."""
        return encode(self.to_map())

    def to_map(self) -> dict[str, Any]:
        """The plan as plain values."""
        tree: dict[str, Any] = PLAN.write(self)
        return tree

    @property
    def lows(self) -> list[tuple[tuple[int, ...], int]]:
        """(the smallest sizes of a call, one a dim, and the entry) of each variant, as `at` takes
        them."""
        others = dict(self.read_at)
        return [
            (others.get(number) or tuple([low for low, _ in row.ranges]), row.entry)
            for number, row in enumerate(self.variants)
        ]

    @property
    def entries(self) -> int:
        """How many ways there are to call it."""
        return 1 + max(row.entry for row in self.variants)

    @property
    def ranks(self) -> int:
        """How many devices each call runs on."""
        if PARALLEL not in self.features:
            return 1
        peers = (value for space, value in self.arguments() if space == "peer")
        return 1 + max(peers, default=0)

    @property
    def has_ends(self) -> bool:
        """Whether the range of every dim ends before the largest size that a dim can have."""
        return all(high < ELEMENTS_LIMIT for row in self.variants for _, high in row.ranges)

    @property
    def zeroed_bytes(self) -> int:
        """The arena's first bytes that all launches of all variants leave zero."""
        return max(variant.zeroed_bytes for variant in self.variants)

    def most_bytes(self) -> tuple[int, int]:
        """Bytes of the arena and of images' scratch that no sizes in range need more than."""
        arena_bytes = scratch_bytes = 0
        for variant in self.variants:
            at = reader(highest(self.sizes, variant.ranges))
            arena_bytes = max(arena_bytes, at(variant.arena_bytes))
            for step in variant.steps:
                image = self.kernels[step.kernel].image if isinstance(step, Launch) else None
                if isinstance(step, Launch) and image is not None and image.scratch_bytes:
                    x, y, z = map(at, step.grid)
                    scratch_bytes = max(scratch_bytes, x * y * z * image.scratch_bytes)
        return arena_bytes, scratch_bytes

    @property
    def steps(self) -> Iterator[Step]:
        """Those of all variants."""
        return (step for variant in self.variants for step in variant.steps)

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """(space, value) of all that the steps of all variants name, in order, then the weights
        that states start with; values may be formulas."""
        return named_memory(self.steps, self.states)

    def named(self, kind: str, field: str) -> list[str]:
        """The distinct texts of a field in all steps of a kind, sorted."""
        return sorted({getattr(step, field) for step in self.steps if step.kind == kind})

    def at(self, dims: Sequence[int] = (), entry: int = 0) -> LaunchPlan:
        """The plan of an entry for these sizes, one a dim, within the dims' ranges.

        Raises `SizeInvalid` where a tensor would be too large, `BundleMalformed` for a plan that
        breaks the rules at these sizes.
        """
        if self.fixed is not None:
            return self.fixed
        values = self._values_at(tuple(dims))
        number = reader(values)
        for elements in map(number, self.limits):
            if elements > ELEMENTS_LIMIT:
                found = f"a tensor of {elements} elements"
                raise SizeInvalid(found=found, expected=f"at most {ELEMENTS_LIMIT}")
        own = (index for index, row in enumerate(self.variants) if row.entry == entry)
        index = next((each for each in own if _holds(self.variants[each].ranges, dims)), None)
        if index is None:
            raise BundleMalformed(
                path=self.path,
                field="variants",
                found=f"none of entry {entry} for sizes {list(dims)}",
                expected="one for each size within the ranges",
            )
        outline = self._outline(index)
        if outline is not None:
            outlined = outline.at(values, self._states_at(values), self.scratch_bytes)
            if outlined is not None:
                return outlined
        plan = self._launch_plan(index, number)
        check_relations(plan, self.path)
        self._check_grids(plan)
        return plan

    def _values_at(self, dims: tuple[int, ...]) -> list[int]:
        """All values for these sizes; those of the last ones are kept."""
        known = self.known
        last = known.values
        if last is None or last[0] != dims:
            if known.line is None:
                known.line = line_of(self.sizes)
            last = known.values = dims, evaluate_line(known.line, dims)
        return last[1]

    def _states_at(self, values: list[int]) -> tuple[StateSlot, ...]:
        """The states where formulas have these values; those of the last sizes of states are
        kept, so that sessions of the same sizes have the same ones."""
        known, number = self.known, reader(values)
        key = [number(slot.nbytes) for slot in self.states]
        last = known.states
        if last is None or last[0] != key:
            last = known.states = key, self.states_at(number)
        return last[1]

    def _outline(self, index: int) -> Outline | None:
        """The outline of a variant, made when it is first needed."""
        known = self.known.outlines
        if index not in known:
            from .outline import outline_of  # plans of fixed shapes have no need of it

            count = self.dims + len(self.sizes)
            known[index] = outline_of(self.kernels, self.variants[index], count)
        return known[index]

    def _launch_plan(self, index: int, number: Numbering) -> LaunchPlan:
        """A variant at a call's sizes, in full; raises `BundleMalformed`."""
        is_fixed = not (self.sizes or self.dims)
        try:
            variant, parameters = at_sizes(self.kernels, self.variants[index], number, is_fixed)
        except Refused:  # what is shared has no place of its own to name
            self._variant_at(index, number)
            raise
        return LaunchPlan(
            variant.arena_bytes,
            self.scratch_bytes,
            variant.buffers,
            self.kernels,
            variant.steps,
            variant.zeroed_bytes,
            self.states_at(number),
            variant.checks,
            parameters,
        )

    def _variant_at(self, index: int, number: Numbering) -> Variant:
        """A variant at a call's sizes, part by part; raises `BundleMalformed` with the place."""
        variant = self.variants[index]
        steps = [row for row in variant.steps if not _is_empty(row, number)]
        try:
            found: Variant = VARIANT.at(variant.replace(steps=steps), number)
        except Refused as error:
            raise error.inside(f"variants[{index}]").error(self.path) from None
        return found

    def states_at(self, number: Numbering) -> tuple[StateSlot, ...]:
        """The states where formulas have these values."""
        return tuple([STATE_SLOT.at(slot, number) for slot in self.states])

    def state_slots(
        self, dims: Sequence[Dim], sizes: Mapping[str, int], specs: Sequence[TensorSpec]
    ) -> tuple[StateSlot, ...]:
        """The states for the sizes of a session, by the names of the dims: as large as `specs`.

        Raises `BundleMalformed`.
        """
        values = self._values_at(tuple([sizes.get(dim.name, dim.low) for dim in dims]))
        slots = self._states_at(values)
        found, expected = [slot.nbytes for slot in slots], [spec.nbytes for spec in specs]
        if found != expected:
            raise BundleMalformed(
                path=self.path, field="states", found=f"{found} bytes", expected=f"{expected} bytes"
            )
        return slots

    def _check_grids(self, plan: LaunchPlan) -> None:
        """Raise `SizeInvalid` for more programs than devices start along one axis."""
        for launch in plan.launches:
            if self.kernels[launch.kernel].image is not None:
                for axis, extent, limit in zip("xyz", launch.grid, GRID_LIMITS, strict=True):
                    if extent > limit:
                        found = f"{extent} programs of a kernel along {axis}"
                        raise SizeInvalid(found=found, expected=f"at most {limit}")

    def validate(
        self,
        counts: Sequence[tuple[int, int]],
        weights: Collection[str],
        path: str,
        image_bytes: int | None,
    ) -> None:
        """Check what depends on the rest of the bundle.

        counts: how many inputs and outputs each entry has; weights: names of the tensors;
        image_bytes: size of the target's library, None where it is not a row of images. Raises
        `BundleMalformed`.

        Of each variant the plan for its smallest sizes stands for all: which memory a launch names
        does not depend on sizes.
        """
        if self.entries != len(counts):
            expected = f"those of {len(counts)} entries, as the manifest has"
            found = f"of {self.entries} entries"
            raise BundleMalformed(path=path, field="variants", found=found, expected=expected)
        for lows, entry in self.lows:
            plan = self.at(lows, entry)
            check_arguments(plan, *counts[entry], weights, path)
            check_images(plan, image_bytes, path)


PLAN = Fields(Plan)


def files_of(plan: Plan, library: bytes) -> tuple[bytes, bytes]:
    """The files of a plan and of the library that it is for."""
    data = plan.to_msgpack()
    return data, library + Plan.from_msgpack(data).code_digest


def split_library(data: bytes) -> tuple[bytes, bytes]:
    """The code in the file of a library, and the digest of the plan's part that is of this code."""
    return data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]


def _broken(plan: Plan) -> Broken:
    """Every relation between the parts of a plan, at any sizes, that does not hold."""
    dims, features = plan.dims, features_of(plan.dims, plan.states, plan.variants, plan.read_at)
    if plan.features != features:
        yield "features", list(plan.features), f"{list(features)}, those of what the plan holds"
    if {CONTROL, PARALLEL} <= set(features):
        yield "features", f"{CONTROL}, {PARALLEL}", "one of the two"
    variants = [0] * plan.entries
    for variant in plan.variants:
        variants[variant.entry] += 1
    for entry, count in enumerate(variants):
        if not count or (not dims and count != 1):
            expected = "at least 1" if dims else "1 where no size depends on the call"
            yield "variants", f"{count} of entry {entry}", expected
    yield from broken_rows(plan.sizes, dims)
    for number, sizes in plan.read_at:
        ranges = plan.variants[number].ranges if number < len(plan.variants) else ()
        if not sizes or not _holds(ranges, sizes):
            yield "read_at", [number, list(sizes)], "a variant and sizes within its ranges"
    for index, variant in enumerate(plan.variants):
        yield from _broken_variant(plan, variant, f"variants[{index}]")


def _broken_variant(plan: Plan, variant: Variant, field: str) -> Broken:
    """Every relation between a variant and the rest of a plan, at any sizes, that does not hold."""
    dims, kernels = plan.dims, len(plan.kernels)
    if len(variant.ranges) != dims:
        yield f"{field}.ranges", len(variant.ranges), f"{dims} rows, one a dim"
    if CONTROL in plan.features:
        yield from broken_blocks(variant.steps, f"{field}.steps")
    for number, step in enumerate(variant.steps):
        if not isinstance(step, Launch):
            continue
        if step.kernel >= kernels:
            yield f"{field}.steps[{number}].kernel", step.kernel, f"less than {kernels}"
        else:
            uses = plan.kernels[step.kernel].uses
            yield from broken_use(step, uses, variant.ranges, f"{field}.steps[{number}]")


def _is_empty(step: Step, number: Numbering) -> bool:
    return isinstance(step, Launch) and 0 in map(number, step.grid)


def _holds(ranges: Sequence[Sequence[int]], dims: Sequence[int]) -> bool:
    if len(ranges) != len(dims):
        return False
    return all(low <= size <= high for (low, high), size in zip(ranges, dims, strict=True))

"""Rules that a launch plan must obey: relations within it, and to the rest of its bundle."""

from __future__ import annotations

from ..errors import BundleMalformed
from .control_steps import CONDITION_BYTES, ControlStep, broken_control_step
from .native_plan import NativeLaunch, broken_native, broken_workspace
from .plan_parts import (
    ALIGNMENT_BYTES,
    ARENA_LIMIT_BYTES,
    CHECK_BYTES,
    MAP_ITEMSIZES,
    NUMBERS,
    PROGRAMS_LIMIT,
    Launch,
    Spans,
    Use,
)
from .schema import refuse
from .torch_calls import TorchCall, broken_call
from .whole import check_whole, whole_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from typing import Any

    from .launch_plan import LaunchPlan, Variant
    from .plan_parts import Kernel, Map, StateSlot
    from .schema import Broken
    from .signature import TensorSpec
    from .whole import Memory


DYNAMIC, STATE, TORCH, NATIVE = "dynamic-shapes", "state", "torch", "native-back-ends"
CONTROL, CHECKS, GUARDED, MAPS, PARALLEL = (
    "control-flow",
    "data-checks",
    "guarded-sizes",
    "tensor-maps",
    "tensor-parallel",
)
PLAN_FEATURES = (CONTROL, CHECKS, DYNAMIC, GUARDED, NATIVE, STATE, MAPS, PARALLEL, TORCH)  # sorted
MAP_ALIGNMENT_BYTES = 16  # of their memory and of all strides but the last
MAP_SWIZZLES = (0, 32, 64, 128)
GRID_LIMITS = (PROGRAMS_LIMIT, 65535, 65535)
KIND_SPACES = {"write": ("arena", "output", "state", "check"), "zeroed": ("arena",)}


def features_of(
    dims: int,
    states: Sequence[StateSlot],
    variants: Iterable[Variant],
    read_at: Sequence[Any] = (),
) -> tuple[str, ...]:
    """The features that a runtime must support to run a plan, sorted."""
    found = {DYNAMIC} if dims else set()
    if read_at:
        found.add(GUARDED)
    if states:
        found.add(STATE)
    for variant in variants:
        if variant.checks:
            found.add(CHECKS)
        for step in variant.steps:
            if isinstance(step, TorchCall):
                found.add(TORCH)
            elif isinstance(step, NativeLaunch):
                found.add(NATIVE)
            elif isinstance(step, ControlStep):
                found.add(CONTROL)
            else:
                if step.maps:
                    found.add(MAPS)
                if any(space == "peer" for space, _ in step.args):
                    found.add(PARALLEL)
    return tuple(sorted(found))


def with_uses(
    kernels: Sequence[Kernel], variants: Sequence[Variant]
) -> tuple[list[Kernel], list[Variant]]:
    """The plan with uses added to its kernels, one for each way they are launched; these access no
    memory."""
    uses: list[dict[Use, int]] = [{} for _ in kernels]
    found = []
    for variant in variants:
        steps = list(variant.steps)
        for number, step in enumerate(steps):
            if isinstance(step, Launch) and step.kernel < len(uses):
                parameters: Any = tuple([_nothing_of(*argument) for argument in step.args])
                known = uses[step.kernel]
                use = Use(step.grid, step.maps, parameters, variant.ranges)
                steps[number] = step.replace(use=known.setdefault(use, len(known)))
        found.append(variant.replace(steps=tuple(steps)))
    pairs = zip(kernels, uses, strict=True)
    return [kernel.replace(uses=tuple(known)) for kernel, known in pairs], found


def _nothing_of(space: str, value: Any) -> tuple[str, Any]:
    """The parameter of which such an argument is one; of memory nothing is reached."""
    kinds = {"int": "int", "peer": "peer", "weight": "read", "input": "read"}
    kind = kinds.get(space, "write")
    return kind, value if kind in NUMBERS else 0


def broken_use(
    step: Launch, uses: Sequence[Use], ranges: Sequence[tuple[int, int]], field: str
) -> Broken:
    """Launches that differ from what the kernel's code was made for, at sizes within `ranges`."""
    if step.use >= len(uses):
        yield f"{field}.use", step.use, f"less than {len(uses)}"
        return
    use = uses[step.use]
    if step.grid != use.grid or step.maps != use.maps:
        yield f"{field}.grid", "another grid, or other maps", "those of the kernel's use"
    if len(step.args) != len(use.parameters):
        yield f"{field}.args", len(step.args), f"{len(use.parameters)}, as the kernel takes"
    for (space, value), (kind, number) in zip(step.args, use.parameters, strict=False):
        is_number = kind in NUMBERS
        if (space if space in NUMBERS else "") != (kind if is_number else "") or (
            is_number and value != number
        ):
            expected = f"the number {number}" if is_number else "memory"
            yield f"{field}.args", f"{space} {value!r}", f"{expected}, as the kernel takes"
        if kind in ("write", "zeroed") and space not in KIND_SPACES[kind]:
            yield f"{field}.args", f"`{space}`", f"one of {KIND_SPACES[kind]} for what is written"
    rows = zip(ranges, use.ranges, strict=False)
    if len(ranges) != len(use.ranges) or any(
        low < least or high > most for (low, high), (least, most) in rows
    ):
        yield f"{field}.use", f"{list(ranges)}", f"sizes within {list(use.ranges)}"


def check_reach(plan: LaunchPlan, sizes: Mapping[Memory, int], path: str) -> None:
    """Check that no kernel reaches beyond the memory that a launch gives it.

    sizes: bytes by (space, value) of all memory outside the arena. Raises `BundleMalformed`.
    """
    refuse(_beyond(plan, sizes), path)


def _beyond(plan: LaunchPlan, sizes: Mapping[Memory, int]) -> Broken:
    spans = Spans((row.offset, row.offset + row.nbytes) for row in plan.buffers)
    known: set[Any] = set()  # repeated layers give the same memory to the same parameters
    for launch, parameters in zip(plan.launches, plan.parameters, strict=True):
        pairs = [each for each in zip(launch.args, parameters, strict=True) if each not in known]
        known.update(pairs)
        for memory, (kind, nbytes) in pairs:
            space, value = memory
            if kind in NUMBERS:
                continue
            if space == "arena":
                at: Any = value
                is_zeroed = at + nbytes <= plan.zeroed_bytes
                is_mixed = at < plan.zeroed_bytes and nbytes
                holds = is_zeroed if kind == "zeroed" else not is_mixed
                if not holds or not spans.holds(at, nbytes):
                    kernel = plan.kernels[launch.kernel].name
                    where = "the zeroed part" if kind == "zeroed" else "one buffer"
                    found = f"`{kernel}` at byte {value} of the arena"
                    yield "steps", found, f"{nbytes} bytes inside {where}"
            elif nbytes > sizes[memory]:
                kernel = plan.kernels[launch.kernel].name
                found = f"`{kernel}` on {sizes[memory]} bytes of {space} {value!r}"
                yield "steps", found, f"{nbytes} bytes, which it reaches"


def check_relations(plan: LaunchPlan, path: str) -> None:
    """Check the relations between the numbers of a plan at given sizes."""
    refuse(_broken_relations(plan), path)


def check_arguments(
    plan: LaunchPlan, inputs: int, outputs: int, weights: Collection[str], path: str
) -> None:
    """Check what a plan names against its bundle: how many inputs and outputs there are, and the
    weights' names. Raises `BundleMalformed`."""
    limits = {
        "input": inputs,
        "output": outputs,
        "state": len(plan.states),
        "check": len(plan.checks),
    }
    refuse(_broken_states(plan.states, weights), path)
    refuse(_broken_arguments(plan, limits, weights), path)


def check_images(plan: LaunchPlan, image_bytes: int | None, path: str) -> None:
    """Check a plan's kernels and steps against its target's library: a row of images of so many
    bytes, or code that is found by its symbols (None). Raises `BundleMalformed`."""
    is_device = image_bytes is not None
    refuse(_broken_images(plan.kernels, image_bytes), path)
    for index, step in enumerate(plan.steps):
        if isinstance(step, NativeLaunch):
            refuse(broken_workspace(step, f"steps[{index}]", is_device), path)
    refuse(_broken_grids(plan) if is_device else _broken_maps(plan), path)


def check_steps(
    plan: LaunchPlan,
    ops: Collection[str],
    backends: Collection[str],
    signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    weights: Mapping[str, int],
    path: str,
) -> None:
    """Check all steps against their bundle: the ops and back ends that its manifest lists, its
    inputs and outputs, and the bytes of each weight.

    Raises `BundleMalformed`.
    """
    outlined = plan.outlined
    if outlined is not None and outlined.reaches(plan, signature, weights):
        return
    sizes = whole_bytes(signature, weights)
    sizes |= {("state", index): row.nbytes for index, row in enumerate(plan.states)}
    words = {("check", index): CHECK_BYTES for index in range(len(plan.checks))}
    check_reach(plan, sizes | words, path)
    if plan.is_of_launches:
        return
    for index, step in enumerate(plan.steps):
        field = f"steps[{index}]"
        tensors: Sequence[Any] = ()
        name, known, expected = "", backends, "a back end that the manifest lists"
        if isinstance(step, TorchCall):
            name, known, expected = step.op, ops, "an op that the manifest lists"
            tensors = tuple(step.tensors())
        elif isinstance(step, NativeLaunch):
            name, tensors = step.backend, step.tensors
        elif isinstance(step, ControlStep):
            for memory in step.memory:
                check_whole(memory, CONDITION_BYTES, sizes, field, path)
        if tensors and name not in known:
            raise BundleMalformed(path=path, field=field, found=f"`{name}`", expected=expected)
        for tensor in tensors:
            check_whole(tensor.memory, tensor.nbytes, sizes, field, path)


def _broken_relations(plan: LaunchPlan) -> Broken:
    """What is wrong within a plan of given sizes."""
    arena_bytes, buffers = plan.arena_bytes, plan.buffers
    if plan.zeroed_bytes > arena_bytes:
        yield "zeroed_bytes", plan.zeroed_bytes, f"at most the arena's {arena_bytes} bytes"
    for index, row in enumerate(buffers):
        if row.offset % ALIGNMENT_BYTES or row.offset + row.nbytes > arena_bytes:
            found = f"{row.nbytes} bytes at {row.offset}"
            expected = f"a multiple of {ALIGNMENT_BYTES} that ends within {arena_bytes} bytes"
            yield f"buffers[{index}]", found, expected
    spans = Spans((row.offset, row.offset + row.nbytes) for row in buffers)
    inside: set[Any] = {row.offset for row in buffers}  # offsets known to lie inside a buffer
    known: set[int] = set()  # maps whose own numbers hold, by `id`: launches of a use share them
    for index, step in enumerate(plan.steps):
        field = f"steps[{index}]"
        if isinstance(step, TorchCall):
            yield from broken_call(step, field, spans)
        elif isinstance(step, NativeLaunch):
            yield from broken_native(step, field, spans)
        elif isinstance(step, ControlStep):
            yield from broken_control_step(step, field, spans)
        else:
            yield from _broken_places(step, field, spans, inside)
            for position, each in enumerate(step.maps):
                yield from _broken_map(f"{field}.maps[{position}]", each, step.args, known)


def _broken_places(step: Launch, field: str, spans: Spans, inside: set[Any]) -> Broken:
    """Launches with too many programs, and places in the arena outside of its buffers; adds those
    inside a buffer to `inside`."""
    x, y, z = step.grid
    if x * y * z > PROGRAMS_LIMIT:
        yield f"{field}.grid", f"{x * y * z} programs", f"at most {PROGRAMS_LIMIT}"
    for position, (space, value) in enumerate(step.args):
        if space == "arena" and value not in inside:
            if not spans.holds(int(value), 1):
                where = f"{field}.args[{position}]"
                yield where, f"arena offset {value}", "an offset inside a buffer"
            inside.add(value)


def _broken_map(field: str, row: Map, arguments: Sequence[Any], known: set[int]) -> Broken:
    """Tensor maps that the device would refuse, or that read from elsewhere."""
    yield from broken_map_argument(field, row, arguments)
    if id(row) not in known:
        known.add(id(row))
        yield from broken_layout(field, row)


def broken_map_argument(field: str, row: Map, arguments: Sequence[Any]) -> Broken:
    """Tensor maps of arguments that are not memory."""
    if row.argument >= len(arguments) or arguments[row.argument][0] in ("check", *NUMBERS):
        yield f"{field}.argument", row.argument, "the number of an argument that is memory"


def broken_layout(field: str, row: Map) -> Broken:
    """Tensor maps whose own numbers contradict each other."""
    itemsize, rank = MAP_ITEMSIZES[row.dtype], len(row.shape)
    if len(row.strides) != rank or len(row.box) != rank:
        yield field, f"{len(row.strides)} strides, a box of {len(row.box)}", f"{rank} of each"
        return
    if row.strides[-1] != 1:
        yield f"{field}.strides", row.strides, "elements side by side along the last dim"
    for place in (row.start, *row.strides[:-1]):
        if place * itemsize % MAP_ALIGNMENT_BYTES:
            yield field, f"{place * itemsize} bytes", f"a multiple of {MAP_ALIGNMENT_BYTES}"
    width_bytes, swizzle_bytes = row.box[-1] * itemsize, row.swizzle_bytes
    if swizzle_bytes not in MAP_SWIZZLES or 0 < swizzle_bytes < width_bytes:
        yield f"{field}.swizzle_bytes", swizzle_bytes, f"one of {MAP_SWIZZLES}, the box fits in"
    if width_bytes % MAP_ALIGNMENT_BYTES:
        yield f"{field}.box", row.box, f"rows of a multiple of {MAP_ALIGNMENT_BYTES} bytes"


def _broken_states(states: Sequence[StateSlot], weights: Collection[str]) -> Broken:
    """States whose initial weight does not exist."""
    for index, state in enumerate(states):
        if state.initial is not None and state.initial not in weights:
            expected = "the name of a tensor in the weights"
            yield f"states[{index}].initial", f"{state.initial!r}", expected


def _broken_arguments(
    plan: LaunchPlan, limits: Mapping[str, int], weights: Collection[str]
) -> Broken:
    """Arguments beyond the limits of their spaces, or outside the weights."""
    for index, step in enumerate(plan.steps):
        for position, (space, value) in enumerate(step.memory):
            expected = ""
            if space in limits and not (type(value) is int and value < limits[space]):
                expected = f"{space} from 0 to {limits[space] - 1}"
            elif space == "weight" and value not in weights:
                expected = "the name of a tensor in the weights"
            if expected:
                yield f"steps[{index}][{position}]", f"{space} {value!r}", expected


def _broken_images(kernels: Sequence[Kernel], image_bytes: int | None) -> Broken:
    """Images that are missing, too many or outside the library."""
    for index, kernel in enumerate(kernels):
        field, image = f"kernels[{index}].image", kernel.image
        if image_bytes is None:
            if image is not None:
                yield field, "there", "nil, as the target has no images"
        elif image is None:
            yield field, "nil", "an image, as the target has one for each kernel"
        elif image.offset + image.nbytes > image_bytes:
            found = f"{image.nbytes} bytes at {image.offset}"
            yield field, found, f"an end within the library's {image_bytes} bytes"


def _broken_maps(plan: LaunchPlan) -> Broken:
    """Tensor maps for a device that has none."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, Launch) and step.maps:
            yield f"steps[{index}].maps", len(step.maps), "none, as the target has no images"


def _broken_grids(plan: LaunchPlan) -> Broken:
    """Grids that no device takes."""
    for index, step in enumerate(plan.steps):
        if isinstance(step, Launch):
            kernel = plan.kernels[step.kernel]
            yield from _broken_launch(f"steps[{index}].grid", step.grid, kernel)


def _broken_launch(field: str, grid: tuple[int, int, int], kernel: Kernel) -> Broken:
    for axis, extent, limit in zip("xyz", grid, GRID_LIMITS, strict=True):
        if extent > limit:
            yield field, f"{extent} programs along {axis}", f"at most {limit}"
    scratch_bytes = kernel.image.scratch_bytes if kernel.image is not None else 0
    total_bytes = scratch_bytes * grid[0] * grid[1] * grid[2]
    if total_bytes > ARENA_LIMIT_BYTES:
        yield field, f"{total_bytes} bytes of scratch", f"at most {ARENA_LIMIT_BYTES}"

"""What a launch plan must hold to: schema, relations inside it, and relations to its bundle."""

from __future__ import annotations

from ..errors import BundleMalformed, PlanFeatureUnknown
from .extent import DIMS_LIMIT, ExtentSchema, RowsSchema, broken_rows
from .launch_plan import memory_of
from .native_plan import NativeLaunch, broken_native, broken_place, native_numbers, native_schema
from .plan_parts import Launch, Spans
from .schema import (
    Choice,
    Fields,
    Integer,
    List,
    Multiple,
    Name,
    Optional,
    Schema,
    Symbol,
    Text,
    Union,
)
from .torch_calls import TorchCall, broken_call, call_numbers, call_schema
from .whole import check_whole, whole_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .launch_plan import LaunchPlan
    from .plan_parts import Kernel, Map, StateSlot
    from .signature import TensorSpec

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected

PLAN_ABI = 1
DYNAMIC, STATE, TORCH, NATIVE = "dynamic-shapes", "state", "torch", "native-back-ends"
CHECKS, MAPS = "data-checks", "tensor-maps"
PLAN_FEATURES = (CHECKS, DYNAMIC, NATIVE, STATE, MAPS, TORCH)  # sorted
ALIGNMENT_BYTES = 64
ARENA_LIMIT_BYTES = 1 << 40
SCRATCH_LIMIT_BYTES = 1 << 30
PROGRAMS_LIMIT = (1 << 31) - 1  # programs of one launch, x · y · z

# Limits of every device whose library is a row of images; one that has less shared memory than a
# kernel needs says so when it is loaded.
IMAGE_LIMIT_BYTES = 1 << 28
WARP_THREADS = 32
BLOCK_THREADS_LIMIT = 1024
SHARED_LIMIT_BYTES = 227 << 10
MAP_ITEMSIZES = {"f16": 2, "f32": 4, "bf16": 2}  # of tensor maps, bytes
MAP_RANK_LIMIT, MAP_BOX_LIMIT = 5, 256
MAP_ALIGNMENT_BYTES = 16  # of their memory and of all strides but the last
MAP_SWIZZLES = (0, 32, 64, 128)
GRID_LIMITS = (PROGRAMS_LIMIT, 65535, 65535)

SPACES = ("arena", "weight", "input", "output", "state", "check", "int")
STATES_LIMIT = 4096
CHECKS_LIMIT = 1 << 16
CHECK_BYTES = 8  # of the word that a check marks
ELEMENTS_LIMIT = (1 << 31) - 1
VARIANTS_LIMIT = 64
STEPS_LIMIT = 1 << 16


class MemorySchema(Schema):
    """`[space, value]`, the value's type by its space."""

    __slots__ = ()
    expected = "[space, value] with a space of " + ", ".join(SPACES)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2:
            self.refuse(value, field, path)
        if type(value[0]) is not str or value[0] not in VALUES:
            self.refuse(value[0], f"{field}[0]", path)
        VALUES[value[0]].check(value[1], f"{field}[1]", path)


BYTES = ExtentSchema(0, ARENA_LIMIT_BYTES)
WORD = ExtentSchema(-(1 << 63), (1 << 63) - 1)
VALUES: dict[str, Schema] = {
    "arena": BYTES,
    "weight": Text(256),
    "input": Integer(0, 4095),
    "output": Integer(0, 4095),
    "state": Integer(0, STATES_LIMIT - 1),
    "check": Integer(0, CHECKS_LIMIT - 1),
    "int": WORD,
}
CHECK_SCHEMA = Fields(
    {
        "kind": Choice("index", "divisor", "assertion"),
        "operation": Text(256),
        "place": Text(256, least=0),
        "low": WORD,
        "high": WORD,
    }
)
IMAGE_SCHEMA = Fields(
    {
        "offset": Integer(0, ARENA_LIMIT_BYTES),
        "nbytes": Integer(1, IMAGE_LIMIT_BYTES),
        "threads": Multiple(WARP_THREADS, BLOCK_THREADS_LIMIT),
        "shared_bytes": Integer(0, SHARED_LIMIT_BYTES),
        "scratch_bytes": Integer(0, 1 << 20),
        "is_programmatic": Integer(0, 1),
    }
)
MAP_SCHEMA = Fields(
    {
        "argument": Integer(0, 255),
        "dtype": Choice(*MAP_ITEMSIZES),
        "start": BYTES,
        "shape": List(ExtentSchema(1, (1 << 32) - 1), limit=MAP_RANK_LIMIT, least=1),
        "strides": List(ExtentSchema(1, ARENA_LIMIT_BYTES), limit=MAP_RANK_LIMIT, least=1),
        "box": List(Integer(1, MAP_BOX_LIMIT), limit=MAP_RANK_LIMIT, least=1),
        "swizzle_bytes": Integer(0, 128),
    }
)
LAUNCH_SCHEMA = Fields(
    {
        "kernel": Integer(0, (1 << 16) - 1),
        "grid": List(ExtentSchema(1, PROGRAMS_LIMIT), limit=3, least=3),
        "args": List(MemorySchema(), limit=256),
        "maps": List(MAP_SCHEMA, limit=64),
    }
)
STEP_SCHEMA = Union(
    {
        "kernel": LAUNCH_SCHEMA,
        "torch": call_schema(MemorySchema()),
        "native": native_schema(MemorySchema()),
    }
)
VARIANT_SCHEMA = Fields(
    {
        "arena_bytes": BYTES,
        "buffers": List(
            Fields({"name": Text(256), "offset": BYTES, "nbytes": BYTES}), limit=1 << 16
        ),
        "checks": List(CHECK_SCHEMA, limit=CHECKS_LIMIT),
        "ranges": List(List(Integer(1, ELEMENTS_LIMIT), limit=2, least=2), limit=DIMS_LIMIT),
        "steps": List(STEP_SCHEMA, limit=STEPS_LIMIT),
        "zeroed_bytes": Integer(0, ARENA_LIMIT_BYTES),
    }
)
PLAN_SCHEMA = Fields(
    {
        "abi": Integer(PLAN_ABI, PLAN_ABI),
        "dims": Integer(0, DIMS_LIMIT),
        "features": List(Name(), limit=256),
        "kernels": List(
            Fields({"symbol": Symbol(), "name": Text(256), "image": Optional(IMAGE_SCHEMA)}),
            limit=1 << 16,
        ),
        "limits": List(ExtentSchema(0, 1 << 62), limit=1 << 12),
        "scratch_bytes": Integer(0, SCRATCH_LIMIT_BYTES),
        "sizes": RowsSchema(),
        "states": List(
            Fields({"initial": Optional(Text(256)), "nbytes": Integer(0, ARENA_LIMIT_BYTES)}),
            limit=STATES_LIMIT,
        ),
        "variants": List(VARIANT_SCHEMA, limit=VARIANTS_LIMIT, least=1),
    }
)


def features_of(tree: Mapping[str, Any]) -> list[str]:
    """The features that a plan needs of whoever runs it, sorted."""
    found = set()
    if tree["dims"]:
        found.add(DYNAMIC)
    if tree["states"]:
        found.add(STATE)
    for variant in tree["variants"]:
        if variant["checks"]:
            found.add(CHECKS)
        for step in variant["steps"]:
            if step["kind"] == "torch":
                found.add(TORCH)
            elif step["kind"] == "native":
                found.add(NATIVE)
            elif step["maps"]:
                found.add(MAPS)
    return sorted(found)


def check_tree(tree: Any, path: str) -> None:
    """Check a decoded plan: its features, its schema, and the relations that hold whatever the
    sizes. Raises `PlanFeatureUnknown`, `BundleMalformed` and `BundleLimit`."""
    features = tree.get("features") if type(tree) is dict else None
    if type(features) is list:
        for name in features:
            if type(name) is str and name not in PLAN_FEATURES:
                raise PlanFeatureUnknown(path=path, found=name[:128])
    PLAN_SCHEMA.check(tree, "", path)
    refuse(_broken_tree(tree), path)


def _broken_tree(tree: dict[str, Any]) -> Broken:
    dims, features = tree["dims"], features_of(tree)
    if tree["features"] != features:
        yield "features", tree["features"], f"{features}, those of what the plan holds"
    if not dims and len(tree["variants"]) != 1:
        yield "variants", len(tree["variants"]), "1 where no size depends on the call"
    yield from broken_rows(tree["sizes"], dims)
    count, kernels = dims + len(tree["sizes"]), len(tree["kernels"])
    for index, variant in enumerate(tree["variants"]):
        field = f"variants[{index}]"
        if len(variant["ranges"]) != dims:
            yield f"{field}.ranges", len(variant["ranges"]), f"{dims} rows, one a dim"
        for number, row in enumerate(variant["steps"]):
            if row["kind"] == "kernel" and row["kernel"] >= kernels:
                yield f"{field}.steps[{number}].kernel", row["kernel"], f"less than {kernels}"
    for number in _numbers(tree):
        if type(number) is list and number[0] >= count:
            yield "sizes", f"value {number[0]}", f"one of {count} values"


def _numbers(tree: Mapping[str, Any]) -> Iterator[Any]:
    """Each number of a plan that may be a formula."""
    yield from tree["limits"]
    for variant in tree["variants"]:
        yield variant["arena_bytes"]
        for row in variant["buffers"]:
            yield from (row["offset"], row["nbytes"])
        for row in variant["checks"]:
            yield from (row["low"], row["high"])
        for step in variant["steps"]:
            yield from _STEP_NUMBERS[step["kind"]](step)


def _launch_numbers(row: Mapping[str, Any]) -> Iterator[Any]:
    yield from row["grid"]
    for _, value in row["args"]:
        yield value
    for each in row["maps"]:
        yield each["start"]
        yield from each["shape"]
        yield from each["strides"]


_STEP_NUMBERS = {"kernel": _launch_numbers, "torch": call_numbers, "native": native_numbers}


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
            refuse(broken_place(step, f"steps[{index}]", is_device), path)
    refuse(_broken_grids(plan) if is_device else _broken_maps(plan), path)


def check_steps(
    plan: LaunchPlan,
    ops: Collection[str],
    backends: Collection[str],
    signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]],
    weights: Mapping[str, int],
    path: str,
) -> None:
    """Check what torch runs and native functions against their bundle: the ops and back ends that
    its manifest lists, its inputs and outputs, and the bytes of each weight.

    Raises `BundleMalformed`.
    """
    sizes = whole_bytes(signature, weights)
    sizes |= {("state", index): row.nbytes for index, row in enumerate(plan.states)}
    for index, step in enumerate(plan.steps):
        field = f"steps[{index}]"
        tensors: Sequence[Any] = ()
        name, known, expected = "", backends, "a back end that the manifest lists"
        if isinstance(step, TorchCall):
            name, known, expected = step.op, ops, "an op that the manifest lists"
            tensors = tuple(step.tensors())
        elif isinstance(step, NativeLaunch):
            name, tensors = step.backend, step.tensors
        if tensors and name not in known:
            raise BundleMalformed(path=path, field=field, found=f"`{name}`", expected=expected)
        for tensor in tensors:
            check_whole(tensor.memory, tensor.nbytes, sizes, field, path)


def refuse(broken: Broken, path: str) -> None:
    """Raise `BundleMalformed` for the first of what is broken."""
    for field, found, expected in broken:
        raise BundleMalformed(path=path, field=field, found=found, expected=expected)


def _broken_relations(plan: LaunchPlan) -> Broken:
    """Every relation inside a plan of given sizes that does not hold."""
    arena_bytes, buffers = plan.arena_bytes, plan.buffers
    if plan.zeroed_bytes > arena_bytes:
        yield "zeroed_bytes", plan.zeroed_bytes, f"at most the arena's {arena_bytes} bytes"
    for index, row in enumerate(buffers):
        if row.offset % ALIGNMENT_BYTES or row.offset + row.nbytes > arena_bytes:
            found = f"{row.nbytes} bytes at {row.offset}"
            expected = f"a multiple of {ALIGNMENT_BYTES} that ends within {arena_bytes} bytes"
            yield f"buffers[{index}]", found, expected
    starts = {row.offset for row in buffers}
    spans = Spans((row.offset, row.offset + row.nbytes) for row in buffers)
    for index, step in enumerate(plan.steps):
        field = f"steps[{index}]"
        if isinstance(step, TorchCall):
            yield from broken_call(step, field, spans)
            continue
        if isinstance(step, NativeLaunch):
            yield from broken_native(step, field, spans)
            continue
        x, y, z = step.grid
        if x * y * z > PROGRAMS_LIMIT:
            yield f"{field}.grid", f"{x * y * z} programs", f"at most {PROGRAMS_LIMIT}"
        for position, (space, value) in enumerate(step.args):
            if space == "arena" and value not in starts and not spans.holds(int(value), 1):
                where = f"{field}.args[{position}]"
                yield where, f"arena offset {value}", "an offset inside a buffer"
        for position, each in enumerate(step.maps):
            yield from _broken_map(f"{field}.maps[{position}]", each, step.args)


def _broken_map(field: str, row: Map, arguments: Sequence[Any]) -> Broken:
    """What the device would not take, or would read from elsewhere."""
    itemsize, rank = MAP_ITEMSIZES[row.dtype], len(row.shape)
    if row.argument >= len(arguments) or arguments[row.argument][0] in ("check", "int"):
        yield f"{field}.argument", row.argument, "the number of an argument that is memory"
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
    """States that start with a weight which is not there."""
    for index, state in enumerate(states):
        if state.initial is not None and state.initial not in weights:
            expected = "the name of a tensor in the weights"
            yield f"states[{index}].initial", f"{state.initial!r}", expected


def _broken_arguments(
    plan: LaunchPlan, limits: Mapping[str, int], weights: Collection[str]
) -> Broken:
    """Arguments beyond the limits of their spaces, or outside the weights."""
    for index, step in enumerate(plan.steps):
        for position, (space, value) in enumerate(memory_of(step)):
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

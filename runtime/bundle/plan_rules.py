"""What a launch plan must hold to: schema, relations inside it, and relations to its bundle."""

from __future__ import annotations

from ..errors import BundleMalformed
from .native_plan import NATIVES_SCHEMA, broken_natives, broken_places
from .native_plan import SYMBOL as NATIVE_SYMBOL
from .schema import Choice, Fields, Integer, List, Multiple, Optional, Schema, Symbol, Text
from .torch_calls import broken_calls, call_schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import Any

    from .native_plan import NativeLaunch
    from .plan_parts import Kernel, Launch, StateSlot
    from .torch_calls import TorchCall

    Broken = Iterator[tuple[str, object, str]]  # field, found, expected

PLAN_ABI = 3
DYNAMIC_ABI = 4  # of plans whose sizes depend on the call, see `dynamic_plan.py`
TORCH_ABI = 5  # of plans that call torch, see `torch_calls.py`
NATIVE_ABI = 6  # of plans that call native functions, and perhaps torch, see `native_plan.py`
STATE_ABI = 7  # of plans that leave something to the next call
PLAN_ABIS = (1, 2, 3, DYNAMIC_ABI, TORCH_ABI, NATIVE_ABI, STATE_ABI)  # what the runtime understands
ALIGNMENT_BYTES = 64
ARENA_LIMIT_BYTES = 1 << 40
SCRATCH_LIMIT_BYTES = 1 << 30
PROGRAMS_LIMIT = (1 << 31) - 1  # programs of one launch, x · y · z

# Devices whose library is a row of images. Limits of every such device; one that has less shared
# memory than a kernel needs says so when it is loaded.
IMAGE_DEVICES = ("cuda",)
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


class _ArgumentSchema(Schema):
    """`[space, value]`, the value's type by its space."""

    __slots__ = ()
    expected = "[space, value] with a space of " + ", ".join(SPACES)

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2:
            self.refuse(value, field, path)
        if type(value[0]) is not str or value[0] not in VALUES:
            self.refuse(value[0], f"{field}[0]", path)
        VALUES[value[0]].check(value[1], f"{field}[1]", path)


VALUES: dict[str, Schema] = {
    "arena": Integer(0, ARENA_LIMIT_BYTES),
    "weight": Text(256),
    "input": Integer(0, 4095),
    "output": Integer(0, 4095),
    "state": Integer(0, STATES_LIMIT - 1),
    "check": Integer(0, CHECKS_LIMIT - 1),
    "int": Integer(-(1 << 63), (1 << 63) - 1),
}
CHECK_SCHEMA = Fields(
    {
        "kind": Choice("index", "divisor", "assertion"),
        "operation": Text(256),
        "place": Text(256, least=0),
        "low": VALUES["int"],
        "high": VALUES["int"],
    }
)
IMAGE_SCHEMA = Fields(
    {
        "offset": Integer(0, ARENA_LIMIT_BYTES),
        "nbytes": Integer(1, IMAGE_LIMIT_BYTES),
        "threads": Multiple(WARP_THREADS, BLOCK_THREADS_LIMIT),
        "shared_bytes": Integer(0, SHARED_LIMIT_BYTES),
        "scratch_bytes": Integer(0, 1 << 20),
        "is_early": Integer(0, 1),
    }
)
MAP_SCHEMA = Fields(
    {
        "argument": Integer(0, 255),
        "dtype": Choice(*MAP_ITEMSIZES),
        "start": Integer(0, ARENA_LIMIT_BYTES),
        "shape": List(Integer(1, (1 << 32) - 1), limit=MAP_RANK_LIMIT, least=1),
        "strides": List(Integer(1, ARENA_LIMIT_BYTES), limit=MAP_RANK_LIMIT, least=1),
        "box": List(Integer(1, MAP_BOX_LIMIT), limit=MAP_RANK_LIMIT, least=1),
        "swizzle_bytes": Integer(0, 128),
    }
)
PLAN_SCHEMA = Fields(
    {
        "abi": Integer(PLAN_ABI, STATE_ABI),
        "arena_bytes": Integer(0, ARENA_LIMIT_BYTES),
        "scratch_bytes": Integer(0, SCRATCH_LIMIT_BYTES),
        "zeroed_bytes": Integer(0, ARENA_LIMIT_BYTES),
        "buffers": List(
            Fields(
                {
                    "name": Text(256),
                    "offset": Integer(0, ARENA_LIMIT_BYTES),
                    "nbytes": Integer(0, ARENA_LIMIT_BYTES),
                }
            ),
            limit=1 << 16,
        ),
        "kernels": List(
            Fields({"symbol": Symbol(), "name": Text(256), "image": Optional(IMAGE_SCHEMA)}),
            limit=1 << 16,
        ),
        "launches": List(
            Fields(
                {
                    "kernel": Integer(0, (1 << 16) - 1),
                    "grid": List(Integer(1, PROGRAMS_LIMIT), limit=3, least=3),
                    "args": List(_ArgumentSchema(), limit=256),
                    "maps": List(MAP_SCHEMA, limit=64),
                }
            ),
            limit=1 << 16,
        ),
        "calls": List(call_schema(_ArgumentSchema()), limit=1 << 12, least=1),
        "natives": NATIVES_SCHEMA,
        "states": List(
            Fields({"initial": Optional(Text(256)), "nbytes": Integer(0, ARENA_LIMIT_BYTES)}),
            limit=STATES_LIMIT,
            least=1,
        ),
        "checks": List(CHECK_SCHEMA, limit=CHECKS_LIMIT, least=1),
    },
    absent=("calls", "checks", "natives", "states"),
)


def upgraded(tree: Any) -> Any:
    """The tree of an older abi as that of PLAN_ABI; what is no plan of one is left as it is."""
    if type(tree) is not dict:
        return tree
    if tree.get("abi") == 1 and "zeroed_bytes" not in tree:
        tree = _with_each(tree, 2, "kernels", "image", None) | {"zeroed_bytes": 0}
    if tree.get("abi") == 2:
        tree = _with_late_images(_with_each(tree, 3, "launches", "maps", []))
    return tree


def _with_late_images(tree: dict[str, Any]) -> dict[str, Any]:
    """The tree with images that wait for all kernels before them; as it is where it has others."""
    kernels = tree.get("kernels")
    rows = kernels if type(kernels) is list else ()
    images = [row.get("image") for row in rows if type(row) is dict]
    if any(type(image) is dict and "is_early" in image for image in images):
        return tree
    return tree | {"kernels": [_with_late_image(row) for row in rows]} if rows else tree


def _with_late_image(row: Any) -> Any:
    is_image = type(row) is dict and type(row.get("image")) is dict
    return {**row, "image": {**row["image"], "is_early": 0}} if is_image else row


def _with_each(tree: dict[str, Any], abi: int, rows: str, name: str, value: Any) -> dict[str, Any]:
    """The tree as one of `abi`, with a new field in each of its rows; as it is where it has one."""
    found = tree.get(rows)
    if type(found) is not list or any(type(row) is not dict or name in row for row in found):
        return tree
    return {**tree, "abi": abi, rows: [{**row, name: value} for row in found]}


def check_plan(tree: Any, path: str) -> None:
    """Schema first, then the relations between fields that lie in the plan itself."""
    PLAN_SCHEMA.check(tree, "", path)
    _refuse(_broken_relations(tree), path)


def check_arguments(
    launches: Sequence[Launch],
    calls: Sequence[TorchCall],
    states: Sequence[StateSlot],
    counts: tuple[int, int, int],
    weights: Collection[str],
    path: str,
) -> None:
    """Check what a plan names against its bundle's signature and weights; `counts` are those of
    inputs, outputs and checks. Raises `BundleMalformed`."""
    limits = {"input": counts[0], "output": counts[1], "state": len(states), "check": counts[2]}
    _refuse(_broken_states(states, weights), path)
    _refuse(_broken_arguments(launches, calls, limits, weights), path)


def check_images(
    kernels: Sequence[Kernel],
    launches: Sequence[Launch],
    natives: Sequence[NativeLaunch],
    device: str,
    library_bytes: int,
    path: str,
) -> None:
    """Check a plan's kernels and launches against its target: a family of devices, and a library of
    so many bytes. Raises `BundleMalformed`."""
    is_device = device in IMAGE_DEVICES
    _refuse(_broken_images(kernels, device, library_bytes), path)
    _refuse(broken_places(natives, launches, is_device), path)
    _refuse(_broken_grids(kernels, launches) if is_device else _broken_maps(launches, device), path)


def _refuse(broken: Broken, path: str) -> None:
    for field, found, expected in broken:
        raise BundleMalformed(path=path, field=field, found=found, expected=expected)


def _broken_relations(tree: dict[str, Any]) -> Broken:
    """Every relation inside a plan of fixed shapes that does not hold."""
    arena_bytes, buffers = tree["arena_bytes"], tree["buffers"]
    yield from _broken_abi(tree)
    if tree["zeroed_bytes"] > arena_bytes:
        yield "zeroed_bytes", tree["zeroed_bytes"], f"at most the arena's {arena_bytes} bytes"
    for index, row in enumerate(buffers):
        if row["offset"] % ALIGNMENT_BYTES or row["offset"] + row["nbytes"] > arena_bytes:
            found = f"{row['nbytes']} bytes at {row['offset']}"
            expected = f"a multiple of {ALIGNMENT_BYTES} that ends within {arena_bytes} bytes"
            yield f"buffers[{index}]", found, expected
    starts = {row["offset"] for row in buffers}
    for index, row in enumerate(tree["launches"]):
        field = f"launches[{index}]"
        if row["kernel"] >= len(tree["kernels"]):
            yield f"{field}.kernel", row["kernel"], f"less than {len(tree['kernels'])}"
        x, y, z = row["grid"]
        if x * y * z > PROGRAMS_LIMIT:
            yield f"{field}.grid", f"{x * y * z} programs", f"at most {PROGRAMS_LIMIT}"
        for position, (space, value) in enumerate(row["args"]):
            if space == "arena" and value not in starts and not _inside(value, buffers):
                where = f"{field}.args[{position}]"
                yield where, f"arena offset {value}", "an offset inside a buffer"
        for position, each in enumerate(row["maps"]):
            yield from _broken_map(f"{field}.maps[{position}]", each, row["args"])
    yield from broken_calls(tree)
    yield from broken_natives(tree)


def _broken_abi(tree: dict[str, Any]) -> Broken:
    abi = TORCH_ABI if "calls" in tree else PLAN_ABI
    abi = NATIVE_ABI if "natives" in tree else abi
    if "states" in tree:
        abi = STATE_ABI
        for field in ("calls", "natives"):
            if field in tree:  # they may fail in the middle of a call
                yield field, len(tree[field]), "none in a plan with states"
    if tree["abi"] != abi:
        yield "abi", tree["abi"], f"{abi}, the least for what the plan holds"


def _broken_map(field: str, row: dict[str, Any], arguments: list[Any]) -> Broken:
    """What the device would not take, or would read from elsewhere."""
    itemsize, rank = MAP_ITEMSIZES[row["dtype"]], len(row["shape"])
    if row["argument"] >= len(arguments) or arguments[row["argument"]][0] in ("check", "int"):
        yield f"{field}.argument", row["argument"], "the number of an argument that is memory"
    if len(row["strides"]) != rank or len(row["box"]) != rank:
        yield field, f"{len(row['strides'])} strides, a box of {len(row['box'])}", f"{rank} of each"
        return
    if row["strides"][-1] != 1:
        yield f"{field}.strides", row["strides"], "elements side by side along the last dim"
    for place in (row["start"], *row["strides"][:-1]):
        if place * itemsize % MAP_ALIGNMENT_BYTES:
            yield field, f"{place * itemsize} bytes", f"a multiple of {MAP_ALIGNMENT_BYTES}"
    width_bytes, swizzle_bytes = row["box"][-1] * itemsize, row["swizzle_bytes"]
    if swizzle_bytes not in MAP_SWIZZLES or 0 < swizzle_bytes < width_bytes:
        yield f"{field}.swizzle_bytes", swizzle_bytes, f"one of {MAP_SWIZZLES}, the box fits in"
    if width_bytes % MAP_ALIGNMENT_BYTES:
        yield f"{field}.box", row["box"], f"rows of a multiple of {MAP_ALIGNMENT_BYTES} bytes"


def _inside(offset: int, buffers: list[dict[str, Any]]) -> bool:
    return any(row["offset"] <= offset < row["offset"] + row["nbytes"] for row in buffers)


def _broken_states(states: Sequence[StateSlot], weights: Collection[str]) -> Broken:
    """States that start with a weight which is not there."""
    for index, state in enumerate(states):
        if state.initial is not None and state.initial not in weights:
            expected = "the name of a tensor in the weights"
            yield f"states[{index}].initial", f"{state.initial!r}", expected


def _broken_arguments(
    launches: Sequence[Launch],
    calls: Sequence[TorchCall],
    limits: Mapping[str, int],
    weights: Collection[str],
) -> Broken:
    """Arguments beyond the limits of their spaces, or outside the weights."""
    rows = [(f"launches[{index}].args", row.args) for index, row in enumerate(launches)]
    for index, call in enumerate(calls):
        rows.append((f"calls[{index}]", tuple(each.memory for each in call.tensors())))
    for field, arguments in rows:
        for position, (space, value) in enumerate(arguments):
            expected = ""
            if space in limits and not (type(value) is int and value < limits[space]):
                expected = f"{space} from 0 to {limits[space] - 1}"
            elif space == "weight" and value not in weights:
                expected = "the name of a tensor in the weights"
            if expected:
                yield f"{field}[{position}]", f"{space} {value!r}", expected


def _broken_images(kernels: Sequence[Kernel], device: str, library_bytes: int) -> Broken:
    """Images that are missing, too many or outside the library."""
    for index, kernel in enumerate(kernels):
        field, image = f"kernels[{index}].image", kernel.image
        if device not in IMAGE_DEVICES:
            if image is not None:
                yield field, "there", f"nil for device `{device}`"
        elif kernel.symbol == NATIVE_SYMBOL:
            if image is not None:
                yield field, "there", "nil for the kernel that calls native functions"
        elif image is None:
            yield field, "nil", f"an image for device `{device}`"
        elif image.offset + image.nbytes > library_bytes:
            found = f"{image.nbytes} bytes at {image.offset}"
            yield field, found, f"an end within the library's {library_bytes} bytes"


def _broken_maps(launches: Sequence[Launch], device: str) -> Broken:
    """Tensor maps for a device that has none."""
    for index, launch in enumerate(launches):
        if launch.maps:
            yield f"launches[{index}].maps", len(launch.maps), f"none for device `{device}`"


def _broken_grids(kernels: Sequence[Kernel], launches: Sequence[Launch]) -> Broken:
    """Grids that no device takes."""
    for index, launch in enumerate(launches):
        yield from _broken_launch(f"launches[{index}].grid", launch.grid, kernels[launch.kernel])


def _broken_launch(field: str, grid: tuple[int, int, int], kernel: Kernel) -> Broken:
    for axis, extent, limit in zip("xyz", grid, GRID_LIMITS, strict=True):
        if extent > limit:
            yield field, f"{extent} programs along {axis}", f"at most {limit}"
    scratch_bytes = kernel.image.scratch_bytes if kernel.image is not None else 0
    total_bytes = scratch_bytes * grid[0] * grid[1] * grid[2]
    if total_bytes > ARENA_LIMIT_BYTES:
        yield field, f"{total_bytes} bytes of scratch", f"at most {ARENA_LIMIT_BYTES}"

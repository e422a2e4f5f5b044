"""Plans whose sizes depend on the call: one `LaunchPlan` for each set of sizes, made when met.

Grammar of `plan.msgpack`, abi 4 (plans of fixed shapes are those of `plan.py`):

    plan     = {"abi": 4, "dims": count, "kernels": [kernel], "limits": [extent],
                "scratch_bytes", "sizes": [row], "variants": [variant]}
    variant  = {"arena_bytes": extent, "buffers": [buffer], "launches": [launch],
                "ranges": [[low, high]], "zeroed_bytes"}
             | and, where it has some, {"checks": [check]}    as in `plan.py`, its ends extents
    buffer   = {"name", "nbytes": extent, "offset": extent}
    launch   = {"args": [argument], "grid": [extent, extent, extent], "kernel": index}
             | and, where it makes tensor maps, {"maps": [map]}
    map      = as in `plan.py`; "start", "shape" and "strides" hold extents
    argument = [space, value]   as in `plan.py`; the value of "arena" and "int" is an extent
    extent   = number | [number of a value]       values and rows: see `extent.py`
    kernel   = as in `plan.py`

`ranges` has one row a dim; the first variant whose ranges hold all sizes serves them. `limits` are
numbers of elements, none of which may exceed 2³¹ - 1. A plan for given sizes passes the checks of
`plan.py` before a number of it reaches native code.
"""

from __future__ import annotations

from ..errors import BundleMalformed
from ..record import Record
from ..size_errors import SizeInvalid
from .canonical import decode, encode
from .extent import DIMS_LIMIT, ExtentSchema, RowsSchema, broken_rows, evaluate, highest
from .plan import LIMITS, Image, Kernel, LaunchPlan
from .plan_rules import (
    ARENA_LIMIT_BYTES,
    CHECK_SCHEMA,
    CHECKS_LIMIT,
    DYNAMIC_ABI,
    GRID_LIMITS,
    IMAGE_SCHEMA,
    MAP_RANK_LIMIT,
    MAP_SCHEMA,
    PLAN_ABI,
    PROGRAMS_LIMIT,
    SCRATCH_LIMIT_BYTES,
    VALUES,
    check_plan,
)
from .schema import Fields, Integer, List, Optional, Schema, Symbol, Text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import Any

ELEMENTS_LIMIT = (1 << 31) - 1
VARIANTS_LIMIT = 64


class _ArgumentSchema(Schema):
    """`[space, value]`, the value's type by its space."""

    __slots__ = ()
    expected = "[space, value] as in plans of fixed shapes"

    def check(self, value: Any, field: str, path: str) -> None:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not str:
            self.refuse(value, field, path)
        if value[0] not in _VALUES:
            self.refuse(value[0], f"{field}[0]", path)
        _VALUES[value[0]].check(value[1], f"{field}[1]", path)


_VALUES: dict[str, Schema] = {
    **VALUES,
    "arena": ExtentSchema(0, ARENA_LIMIT_BYTES),
    "int": ExtentSchema(-(1 << 63), (1 << 63) - 1),
}
_CHECK = Fields({**CHECK_SCHEMA.fields, "low": _VALUES["int"], "high": _VALUES["int"]})
_BYTES = ExtentSchema(0, ARENA_LIMIT_BYTES)
_MAP = Fields(
    {
        **MAP_SCHEMA.fields,
        "start": _BYTES,
        "shape": List(ExtentSchema(1, (1 << 32) - 1), limit=MAP_RANK_LIMIT, least=1),
        "strides": List(_BYTES, limit=MAP_RANK_LIMIT, least=1),
    }
)
_VARIANT = Fields(
    {
        "arena_bytes": _BYTES,
        "zeroed_bytes": Integer(0, ARENA_LIMIT_BYTES),
        "ranges": List(List(Integer(1, ELEMENTS_LIMIT), limit=2, least=2), limit=DIMS_LIMIT),
        "buffers": List(
            Fields({"name": Text(256), "offset": _BYTES, "nbytes": _BYTES}), limit=1 << 16
        ),
        "launches": List(
            Fields(
                {
                    "kernel": Integer(0, (1 << 16) - 1),
                    "grid": List(ExtentSchema(1, PROGRAMS_LIMIT), limit=3, least=3),
                    "args": List(_ArgumentSchema(), limit=256),
                    "maps": List(_MAP, limit=64),
                },
                absent=("maps",),
            ),
            limit=1 << 16,
        ),
        "checks": List(_CHECK, limit=CHECKS_LIMIT, least=1),
    },
    absent=("checks",),
)
DYNAMIC_SCHEMA = Fields(
    {
        "abi": Integer(DYNAMIC_ABI, DYNAMIC_ABI),
        "dims": Integer(1, DIMS_LIMIT),
        "sizes": RowsSchema(),
        "limits": List(ExtentSchema(0, 1 << 62), limit=1 << 12),
        "scratch_bytes": Integer(0, SCRATCH_LIMIT_BYTES),
        "kernels": List(
            Fields({"symbol": Symbol(), "name": Text(256), "image": Optional(IMAGE_SCHEMA)}),
            limit=1 << 16,
        ),
        "variants": List(_VARIANT, limit=VARIANTS_LIMIT, least=1),
    }
)


class DynamicPlan(Record):
    """The plans of all sizes. `tree` is the decoded plan, checked; its numbers may be extents."""

    __slots__ = ("abi", "kernels", "path", "scratch_bytes", "tree")
    abi: int
    kernels: tuple[Kernel, ...]
    scratch_bytes: int
    path: str
    tree: dict[str, Any]

    def __init__(self, tree: dict[str, Any], path: str = "plan.msgpack") -> None:
        """Check a decoded plan; raises `BundleMalformed` and `BundleLimit`."""
        DYNAMIC_SCHEMA.check(tree, "", path)
        for field, found, expected in _broken(tree):
            raise BundleMalformed(path=path, field=field, found=found, expected=expected)
        kernels = tuple(
            Kernel(row["symbol"], row["name"], row["image"] and Image(**row["image"]))
            for row in tree["kernels"]
        )
        self._set(
            abi=tree["abi"],
            kernels=kernels,
            scratch_bytes=tree["scratch_bytes"],
            path=path,
            tree=tree,
        )

    def to_map(self) -> dict[str, Any]:
        """The plan as plain values."""
        return self.tree

    @property
    def lowest(self) -> tuple[int, ...]:
        """The smallest sizes of the last variant, one a dim."""
        return tuple(low for low, _ in self.tree["variants"][-1]["ranges"])

    @property
    def has_ends(self) -> bool:
        """Whether the range of every dim ends before the largest size that a dim can have."""
        variants = self.tree["variants"]
        return all(high < ELEMENTS_LIMIT for row in variants for _, high in row["ranges"])

    @property
    def zeroed_bytes(self) -> int:
        """The arena's first bytes that all launches of all variants leave zero."""
        zeroed_bytes: int = max(variant["zeroed_bytes"] for variant in self.tree["variants"])
        return zeroed_bytes

    def most_bytes(self) -> tuple[int, int]:
        """Bytes of the arena and of images' scratch that no sizes in range need more than."""
        arena_bytes = scratch_bytes = 0
        for variant in self.tree["variants"]:
            values = highest(self.tree["sizes"], variant["ranges"])
            arena_bytes = max(arena_bytes, _number(variant["arena_bytes"], values))
            for row in variant["launches"]:
                image = self.kernels[row["kernel"]].image
                if image is not None and image.scratch_bytes:
                    x, y, z = (_number(extent, values) for extent in row["grid"])
                    scratch_bytes = max(scratch_bytes, x * y * z * image.scratch_bytes)
        return arena_bytes, scratch_bytes

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """The arguments of all launches of all variants, in order; values may be extents."""
        for variant in self.tree["variants"]:
            for launch in variant["launches"]:
                yield from ((space, value) for space, value in launch["args"])

    def to_msgpack(self) -> bytes:
        """The canonical bytes."""
        return encode(self.tree)

    def at(self, dims: Sequence[int]) -> LaunchPlan:
        """The plan for these sizes, one a dim, within the dims' ranges.

        Raises `SizeInvalid` where a tensor would be too large, `BundleMalformed` for a plan that
        breaks the rules at these sizes.
        """
        tree = self.tree
        values = evaluate(tree["sizes"], dims)
        for limit in tree["limits"]:
            elements = _number(limit, values)
            if elements > ELEMENTS_LIMIT:
                found = f"a tensor of {elements} elements"
                raise SizeInvalid(found=found, expected=f"at most {ELEMENTS_LIMIT}")
        variant = next((row for row in tree["variants"] if _holds(row["ranges"], dims)), None)
        if variant is None:
            raise BundleMalformed(
                path=self.path,
                field="variants",
                found=f"none for sizes {list(dims)}",
                expected="one for each size within the ranges",
            )
        # A launch that fills a tensor without elements has no programs.
        launches = [_launch(row, values) for row in variant["launches"]]
        plain = {
            "abi": PLAN_ABI,
            "arena_bytes": _number(variant["arena_bytes"], values),
            "scratch_bytes": tree["scratch_bytes"],
            "zeroed_bytes": variant["zeroed_bytes"],
            "buffers": [_numbers(row, values) for row in variant["buffers"]],
            "kernels": tree["kernels"],
            "launches": [row for row in launches if 0 not in row["grid"]],
        }
        if "checks" in variant:
            plain["checks"] = [_numbers(row, values) for row in variant["checks"]]
        self._check_grids(plain)
        check_plan(plain, self.path)
        return LaunchPlan.from_map(plain)

    def _check_grids(self, plain: dict[str, Any]) -> None:
        """Raise `SizeInvalid` for more programs than devices start along one axis."""
        for row in plain["launches"]:
            if self.kernels[row["kernel"]].image is not None:
                for axis, extent, limit in zip("xyz", row["grid"], GRID_LIMITS, strict=True):
                    if extent > limit:
                        found = f"{extent} programs of a kernel along {axis}"
                        raise SizeInvalid(found=found, expected=f"at most {limit}")

    def validate(
        self,
        inputs: int,
        outputs: int,
        weights: Collection[str],
        path: str,
        device: str,
        library_bytes: int,
    ) -> None:
        """Check what depends on the rest of the bundle, as `LaunchPlan.validate` does.

        Of each variant the plan for its smallest sizes stands for all: which memory a launch names
        does not depend on sizes.
        """
        for variant in self.tree["variants"]:
            lows = [low for low, _ in variant["ranges"]]
            self.at(lows).validate(inputs, outputs, weights, path, device, library_bytes)


def read_plan(data: bytes, path: str = "plan.msgpack") -> LaunchPlan | DynamicPlan:
    """The plan of a bundle, of fixed shapes or not; raises `BundleError`s."""
    tree = decode(data, LIMITS, path)
    if type(tree) is dict and tree.get("abi") == DYNAMIC_ABI:
        return DynamicPlan(tree, path)
    return LaunchPlan.from_msgpack(data, path)


def _broken(tree: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Relations inside the plan that do not hold whatever the sizes."""
    dims = tree["dims"]
    yield from broken_rows(tree["sizes"], dims)
    count = dims + len(tree["sizes"])
    for index, variant in enumerate(tree["variants"]):
        field = f"variants[{index}]"
        if len(variant["ranges"]) != dims:
            yield f"{field}.ranges", len(variant["ranges"]), f"{dims} rows, one a dim"
        for row in variant["launches"]:
            if row["kernel"] >= len(tree["kernels"]):
                yield f"{field}.launches", row["kernel"], f"less than {len(tree['kernels'])}"
    for reference in _references(tree):
        if reference >= count:
            yield "sizes", f"value {reference}", f"one of {count} values"


def _references(tree: dict[str, Any]) -> Iterator[int]:
    """The numbers of all values that the plan names."""
    extents = list(tree["limits"])
    for variant in tree["variants"]:
        extents.append(variant["arena_bytes"])
        for row in variant["buffers"]:
            extents += [row["offset"], row["nbytes"]]
        for row in variant["launches"]:
            extents += row["grid"]
            extents += [value for space, value in row["args"]]
            for each in row.get("maps", ()):
                extents += [each["start"], *each["shape"], *each["strides"]]
        for row in variant.get("checks", ()):
            extents += [row["low"], row["high"]]
    return (extent[0] for extent in extents if type(extent) is list)


def _holds(ranges: Sequence[Sequence[int]], dims: Sequence[int]) -> bool:
    return all(low <= size <= high for (low, high), size in zip(ranges, dims, strict=True))


def _number(extent: Any, values: Sequence[int]) -> Any:
    return values[extent[0]] if type(extent) is list else extent


def _numbers(row: dict[str, Any], values: Sequence[int]) -> dict[str, Any]:
    return {name: _number(value, values) for name, value in row.items()}


def _launch(row: dict[str, Any], values: Sequence[int]) -> dict[str, Any]:
    return {
        "kernel": row["kernel"],
        "grid": [_number(extent, values) for extent in row["grid"]],
        "args": [[space, _number(value, values)] for space, value in row["args"]],
        "maps": [_map(each, values) for each in row.get("maps", ())],
    }


def _map(row: dict[str, Any], values: Sequence[int]) -> dict[str, Any]:
    found = {**row, "start": _number(row["start"], values)}
    for name in ("shape", "strides"):
        found[name] = [_number(each, values) for each in row[name]]
    return found

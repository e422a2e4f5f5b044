"""The launch plan: which step runs when, on which grid, with which addresses.

Grammar of `plan.msgpack` (canonical MessagePack, see `canonical.py`):

    plan     = {"abi": 1, "dims": count, "features": [name], "kernels": [kernel],
                "limits": [number], "scratch_bytes", "sizes": [row], "states": [state],
                "variants": [variant]}
    kernel   = {"image", "name", "symbol"}        name: for people; symbol: in the library or image
    image    = nil                                on the CPU, where the library is one shared object
             | {"is_programmatic": 0 | 1, "nbytes", "offset", "scratch_bytes", "shared_bytes",
                "threads"}
                                                  a cubin inside the library, and how to launch it
    state    = {"initial": name | nil, "nbytes"}  what a call leaves to the next one of its session
    variant  = {"arena_bytes": number, "buffers": [buffer], "checks": [check],
                "ranges": [[low, high]], "steps": [step], "zeroed_bytes"}
    buffer   = {"name", "nbytes": number, "offset": number}
                                                  part of the arena; parts share bytes over time
    check    = {"high": number, "kind", "low": number, "operation", "place"}
                                                  of the data of a call: a word that a kernel marks
                                                  where an element is wrong
    step     = {"args": [argument], "grid": [number, number, number], "kernel": index,
                "kind": "kernel", "maps": [map]}  a launch
             | {"kind": "torch", …}               an op that torch runs, see `torch_calls.py`
             | {"kind": "native", …}              a user's function, see `native_plan.py`
    map      = {"argument": index, "box": [n], "dtype", "shape": [number], "start": number,
                "strides": [number], "swizzle_bytes"}
                                                  a tensor map of the memory behind an argument
    argument = [space, value]
    space    = "arena"   value: number, byte offset inside one of `buffers`
             | "weight"  value: name of a tensor in weights.safetensors
             | "input"   value: index of a program input
             | "output"  value: index of a program output
             | "state"   value: index into `states`
             | "check"   value: index into `checks`
             | "int"     value: number, passed as it is
    number   = whole number | [number of a value]  values and rows: see `extent.py`

`features` are the names of what the plan needs of whoever runs it; an unknown one is refused by its
name. `dims` counts the sizes that a call decides. Each variant has a range for each of them, and
the first variant whose ranges hold all sizes serves a call; a plan of fixed shapes has no dims and
one variant. `limits` are numbers of elements, none of which may exceed 2³¹ - 1. The first
`zeroed_bytes` of the arena are zero when a session opens, and every launch leaves them so.

`Plan` is such a file; `Plan.at` gives the `LaunchPlan` of a call's sizes, without formulas,
and the plan of fixed shapes has one, `Plan.fixed`. The compiler writes both and the runtime reads
them: one schema for both. Every index and offset is checked before a number reaches native code, by
the rules of `plan_rules.py`.
"""

from __future__ import annotations

from ..errors import BundleMalformed, SizeInvalid
from ..record import Record
from .canonical import Limits, decode, encode
from .extent import evaluate, highest, placed, reader
from .launch_plan import LaunchPlan as LaunchPlan
from .native_plan import NativeLaunch
from .plan_parts import Argument as Argument
from .plan_parts import Buffer as Buffer
from .plan_parts import Check as Check
from .plan_parts import Image as Image
from .plan_parts import Kernel as Kernel
from .plan_parts import Launch as Launch
from .plan_parts import Map as Map
from .plan_parts import StateSlot as StateSlot
from .plan_rules import ALIGNMENT_BYTES as ALIGNMENT_BYTES
from .plan_rules import CHECK_BYTES as CHECK_BYTES
from .plan_rules import ELEMENTS_LIMIT as ELEMENTS_LIMIT
from .plan_rules import (
    GRID_LIMITS,
    VARIANT_SCHEMA,
    check_arguments,
    check_images,
    check_relations,
    check_tree,
    features_of,
)
from .plan_rules import PLAN_ABI as PLAN_ABI
from .torch_calls import TorchCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import Any

LIMITS = Limits(file_bytes=16 << 20, values=1 << 19, depth=16, text_bytes=4096)


class Plan(Record):
    """The plan of a target. `tree` is the decoded file, checked; its numbers may be formulas.

    kernels, states: as in the file; fixed: the launch plan where no size depends on a call.
    """

    __slots__ = ("fixed", "kernels", "path", "states", "tree")
    kernels: tuple[Kernel, ...]
    states: tuple[StateSlot, ...]
    fixed: LaunchPlan | None
    path: str
    tree: dict[str, Any]

    def __init__(self, tree: dict[str, Any], path: str = "plan.msgpack") -> None:
        """Check a decoded plan; raises `BundleMalformed`, `BundleLimit` and
        `PlanFeatureUnknown`."""
        check_tree(tree, path)
        kernels = tuple(
            Kernel(row["symbol"], row["name"], row["image"] and Image(**row["image"]))
            for row in tree["kernels"]
        )
        states = tuple(StateSlot(row["nbytes"], row["initial"]) for row in tree["states"])
        self._set(tree=tree, path=path, kernels=kernels, states=states, fixed=None)
        if not tree["dims"]:
            values = evaluate(tree["sizes"], ())
            fixed = self._launch_plan(tree["variants"][0], reader(values))
            if values:
                VARIANT_SCHEMA.check(fixed.variant(), "variants[0]", path)
            check_relations(fixed, path)
            self._set(fixed=fixed)

    @classmethod
    def of(cls, plan: LaunchPlan) -> Plan:
        """The plan of fixed shapes that is this launch plan; raises as reading it would."""
        tree = {
            "abi": PLAN_ABI,
            "dims": 0,
            "features": [],
            "kernels": [each.to_map() for each in plan.kernels],
            "limits": [],
            "scratch_bytes": plan.scratch_bytes,
            "sizes": [],
            "states": [each.to_map() for each in plan.states],
            "variants": [plan.variant()],
        }
        return cls({**tree, "features": features_of(tree)})

    @classmethod
    def from_msgpack(cls, data: bytes, path: str = "plan.msgpack") -> Plan:
        """Read and check everything that needs no other file; raises `BundleError`s."""
        return cls(decode(data, LIMITS, path), path)

    def to_msgpack(self) -> bytes:
        """The canonical bytes."""
        return encode(self.tree)

    def to_map(self) -> dict[str, Any]:
        """The plan as plain values."""
        return self.tree

    @property
    def dims(self) -> int:
        """How many sizes a call decides."""
        return int(self.tree["dims"])

    @property
    def scratch_bytes(self) -> int:
        """Bytes that each thread gives to the kernel it runs, at any sizes."""
        return int(self.tree["scratch_bytes"])

    @property
    def lows(self) -> list[tuple[int, ...]]:
        """The smallest sizes of each variant, one a dim."""
        return [tuple(low for low, _ in row["ranges"]) for row in self.tree["variants"]]

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
            at = reader(highest(self.tree["sizes"], variant["ranges"]))
            arena_bytes = max(arena_bytes, at(variant["arena_bytes"]))
            for row in variant["steps"]:
                image = self.kernels[row["kernel"]].image if row["kind"] == "kernel" else None
                if image is not None and image.scratch_bytes:
                    x, y, z = map(at, row["grid"])
                    scratch_bytes = max(scratch_bytes, x * y * z * image.scratch_bytes)
        return arena_bytes, scratch_bytes

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """(space, value) of all that the steps of all variants name, in order, then the weights
        that states start with; values may be formulas."""
        for variant in self.tree["variants"]:
            for row in variant["steps"]:
                if row["kind"] == "kernel":
                    yield from ((space, value) for space, value in row["args"])
                elif row["kind"] == "torch":
                    tensors = (*row["operands"], *filter(None, row["results"]))
                    yield from (tuple(each["memory"]) for each in tensors)
                else:
                    yield from (tuple(each["memory"]) for each in row["tensors"])
        for state in self.states:
            if state.initial is not None:
                yield "weight", state.initial

    def named(self, kind: str, field: str) -> list[str]:
        """The distinct texts of a field in all steps of a kind, sorted."""
        rows = (row for variant in self.tree["variants"] for row in variant["steps"])
        return sorted({row[field] for row in rows if row["kind"] == kind})

    def at(self, dims: Sequence[int] = ()) -> LaunchPlan:
        """The plan for these sizes, one a dim, within the dims' ranges.

        Raises `SizeInvalid` where a tensor would be too large, `BundleMalformed` for a plan that
        breaks the rules at these sizes.
        """
        if self.fixed is not None:
            return self.fixed
        tree = self.tree
        values = evaluate(tree["sizes"], dims)
        read = reader(values)
        for elements in map(read, tree["limits"]):
            if elements > ELEMENTS_LIMIT:
                found = f"a tensor of {elements} elements"
                raise SizeInvalid(found=found, expected=f"at most {ELEMENTS_LIMIT}")
        variants = enumerate(tree["variants"])
        rows = ((at, row) for at, row in variants if _holds(row["ranges"], dims))
        index, variant = next(rows, (0, None))
        if variant is None:
            raise BundleMalformed(
                path=self.path,
                field="variants",
                found=f"none for sizes {list(dims)}",
                expected="one for each size within the ranges",
            )
        plan = self._launch_plan(variant, read)
        VARIANT_SCHEMA.check(plan.variant(), f"variants[{index}]", self.path)
        check_relations(plan, self.path)
        self._check_grids(plan)
        return plan

    def _launch_plan(self, variant: dict[str, Any], at: Callable[[Any], Any]) -> LaunchPlan:
        steps = (_READERS[row["kind"]](row, at) for row in variant["steps"])
        rows = variant["checks"]
        return LaunchPlan(
            at(variant["arena_bytes"]),
            self.scratch_bytes,
            [
                Buffer(row["name"], at(row["offset"]), at(row["nbytes"]))
                for row in variant["buffers"]
            ],
            self.kernels,
            # A launch that fills a tensor without elements has no programs.
            [step for step in steps if type(step) is not Launch or 0 not in step.grid],
            variant["zeroed_bytes"],
            self.states,
            [Check(**{**row, "low": at(row["low"]), "high": at(row["high"])}) for row in rows],
        )

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
        inputs: int,
        outputs: int,
        weights: Collection[str],
        path: str,
        image_bytes: int | None,
    ) -> None:
        """Check what depends on the rest of the bundle.

        inputs, outputs: how many the program has; weights: names of the tensors; image_bytes: size
        of the target's library, None where it is no row of images. Raises `BundleMalformed`.

        Of each variant the plan for its smallest sizes stands for all: which memory a launch names
        does not depend on sizes.
        """
        for lows in self.lows:
            plan = self.at(lows)
            check_arguments(plan, inputs, outputs, weights, path)
            check_images(plan, image_bytes, path)


def _launch(row: dict[str, Any], at: Callable[[Any], Any]) -> Launch:
    x, y, z = map(at, row["grid"])
    args = tuple([placed(argument, at) for argument in row["args"]])
    return Launch(row["kernel"], (x, y, z), args, tuple([_map(each, at) for each in row["maps"]]))


def _map(row: dict[str, Any], at: Callable[[Any], Any]) -> Map:
    shape, strides = (tuple(map(at, row[name])) for name in ("shape", "strides"))
    return Map(**{**row, "start": at(row["start"]), "shape": shape, "strides": strides})


_READERS: dict[str, Callable[[dict[str, Any], Callable[[Any], Any]], Any]] = {
    "kernel": _launch,
    "torch": TorchCall.from_map,
    "native": NativeLaunch.from_map,
}


def _holds(ranges: Sequence[Sequence[int]], dims: Sequence[int]) -> bool:
    return all(low <= size <= high for (low, high), size in zip(ranges, dims, strict=True))

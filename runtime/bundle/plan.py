"""The launch plan: which kernel runs when, on which grid, with which addresses.

Grammar of `plan.msgpack` (canonical MessagePack, see `canonical.py`):

    plan     = {"abi": 3, "arena_bytes", "buffers": [buffer], "kernels": [kernel],
                "launches": [launch], "scratch_bytes", "zeroed_bytes"}
    buffer   = {"name", "nbytes", "offset"}       part of the arena; parts share bytes over time
    kernel   = {"image", "name", "symbol"}        name: for people; symbol: in the library or image
    image    = nil                                on the CPU, where the library is one shared object
             | {"is_early": 0 | 1, "nbytes", "offset", "scratch_bytes", "shared_bytes", "threads"}
                                                  a cubin inside the library, and how to launch it
    launch   = {"args": [argument], "grid": [x, y, z], "kernel": index, "maps": [map]}
    map      = {"argument": index, "box": [n], "dtype", "shape": [n], "start", "strides": [n],
                "swizzle_bytes"}                  a tensor map of the memory behind an argument
    argument = [space, value]
    state    = {"initial": name | nil, "nbytes"}   what a call leaves to the next one of its session
    check    = {"high", "kind", "low", "operation", "place"}    of the data of a call: a word that a
                                                  kernel marks where an element is wrong
    space    = "arena"   value: byte offset, inside one of `buffers`
             | "weight"  value: name of a tensor in weights.safetensors
             | "input"   value: index of a program input
             | "output"  value: index of a program output
             | "state"   value: index into `states`
             | "check"   value: index into `checks`
             | "int"     value: signed 64-bit number, passed as it is

The first `zeroed_bytes` of the arena are zero when a session opens; every launch leaves them so.

Version history: abi 1, the first; abi 2, images of kernels and zeroed bytes; abi 3, tensor maps and
early images. An older plan is read as one of abi 3 without what it does not know, with nothing
zeroed. Abi 4 is another grammar (`dynamic_plan.py`); abi 5 is abi 3 with calls of torch
(`torch_calls.py`); abi 6 is either of them with launches of native functions (`native_plan.py`);
abi 7 is abi 3 with `states`, which start as the weight of the name `initial`, or as zeros. Plans of
each may have `checks`.

The compiler builds `LaunchPlan` objects and the runtime reads them: one schema for both. Every
index and offset is checked before a number reaches native code, by the rules of `plan_rules.py`.
"""

from __future__ import annotations

from ..record import Record
from .canonical import Limits, decode, encode
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
from .plan_rules import DYNAMIC_ABI as DYNAMIC_ABI
from .plan_rules import NATIVE_ABI as NATIVE_ABI
from .plan_rules import PLAN_ABI as PLAN_ABI
from .plan_rules import PLAN_ABIS as PLAN_ABIS
from .plan_rules import STATE_ABI as STATE_ABI
from .plan_rules import TORCH_ABI as TORCH_ABI
from .plan_rules import check_arguments, check_images, check_plan, upgraded
from .torch_calls import TorchCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

LIMITS = Limits(file_bytes=16 << 20, values=1 << 19, depth=16, text_bytes=4096)


class LaunchPlan(Record):
    """All launches of one call, in order, for one target.

    arena_bytes: size of the block that holds every intermediate tensor; scratch_bytes: size of the
    block that each thread lends to the kernel it runs; zeroed_bytes: the arena's first bytes, zero
    when a session opens and left zero by every launch; calls: of torch, between launches; natives:
    the launches that call native functions; states: what a call leaves to the next one; checks: of
    the data of a call, one word of the session each.
    """

    __slots__ = (
        "abi",
        "arena_bytes",
        "buffers",
        "calls",
        "checks",
        "kernels",
        "launches",
        "natives",
        "scratch_bytes",
        "states",
        "zeroed_bytes",
    )
    abi: int
    arena_bytes: int
    scratch_bytes: int
    buffers: tuple[Buffer, ...]
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    zeroed_bytes: int
    calls: tuple[TorchCall, ...]
    natives: tuple[NativeLaunch, ...]
    states: tuple[StateSlot, ...]
    checks: tuple[Check, ...]

    def __init__(
        self,
        abi: int,
        arena_bytes: int,
        scratch_bytes: int,
        buffers: tuple[Buffer, ...],
        kernels: tuple[Kernel, ...],
        launches: tuple[Launch, ...],
        zeroed_bytes: int = 0,
        calls: tuple[TorchCall, ...] = (),
        natives: tuple[NativeLaunch, ...] = (),
        states: tuple[StateSlot, ...] = (),
        checks: tuple[Check, ...] = (),
    ) -> None:
        self._set(
            abi=abi,
            arena_bytes=arena_bytes,
            scratch_bytes=scratch_bytes,
            buffers=tuple(buffers),
            kernels=tuple(kernels),
            launches=tuple(launches),
            zeroed_bytes=zeroed_bytes,
            calls=tuple(calls),
            natives=tuple(natives),
            states=tuple(states),
            checks=tuple(checks),
        )

    def arguments(self) -> Iterator[Argument]:
        """The arguments of all launches in order, then the memory of all calls of torch, then the
        weights that states start with."""
        for launch in self.launches:
            yield from launch.args
        for call in self.calls:
            yield from (each.memory for each in call.tensors())
        for state in self.states:
            if state.initial is not None:
                yield "weight", state.initial

    def steps(self) -> Iterator[Launch | TorchCall]:
        """Launches, and calls of torch between them, in the order in which they run."""
        done = 0
        for call in self.calls:
            yield from self.launches[done : call.after]
            yield call
            done = call.after
        yield from self.launches[done:]

    def to_map(self) -> dict[str, Any]:
        """The plan as plain values, as `aotc inspect --json` shows it."""
        calls = {"calls": [each.to_map() for each in self.calls]} if self.calls else {}
        natives = {"natives": [each.to_map() for each in self.natives]} if self.natives else {}
        rows = [{"initial": each.initial, "nbytes": each.nbytes} for each in self.states]
        return {
            **calls,
            **natives,
            **({"states": rows} if rows else {}),
            **({"checks": [each.to_map() for each in self.checks]} if self.checks else {}),
            "abi": self.abi,
            "arena_bytes": self.arena_bytes,
            "scratch_bytes": self.scratch_bytes,
            "zeroed_bytes": self.zeroed_bytes,
            "buffers": [
                {"name": each.name, "offset": each.offset, "nbytes": each.nbytes}
                for each in self.buffers
            ],
            "kernels": [
                {
                    "symbol": each.symbol,
                    "name": each.name,
                    "image": None if each.image is None else each.image.to_map(),
                }
                for each in self.kernels
            ],
            "launches": [
                {
                    "kernel": each.kernel,
                    "grid": list(each.grid),
                    "args": [list(argument) for argument in each.args],
                    "maps": [row.to_map() for row in each.maps],
                }
                for each in self.launches
            ],
        }

    def to_msgpack(self) -> bytes:
        """The canonical bytes; raises `BundleMalformed` where the plan breaks its own schema."""
        tree = self.to_map()
        check_plan(tree, "plan")
        return encode(tree)

    @classmethod
    def from_msgpack(cls, data: bytes, path: str = "plan.msgpack") -> LaunchPlan:
        """Read and check everything that needs no other file; raises `BundleError`s."""
        tree = upgraded(decode(data, LIMITS, path))
        check_plan(tree, path)
        return cls.from_map(tree)

    @classmethod
    def from_map(cls, tree: dict[str, Any]) -> LaunchPlan:
        """The plan of a tree that was checked."""
        return cls(
            tree["abi"],
            tree["arena_bytes"],
            tree["scratch_bytes"],
            tuple(Buffer(row["name"], row["offset"], row["nbytes"]) for row in tree["buffers"]),
            tuple(
                Kernel(row["symbol"], row["name"], row["image"] and Image(**row["image"]))
                for row in tree["kernels"]
            ),
            tuple(
                Launch(
                    row["kernel"],
                    tuple(row["grid"]),
                    tuple(map(tuple, row["args"])),
                    tuple(Map(**each) for each in row["maps"]),
                )
                for row in tree["launches"]
            ),
            tree["zeroed_bytes"],
            tuple(map(TorchCall.from_map, tree.get("calls", ()))),
            tuple(map(NativeLaunch.from_map, tree.get("natives", ()))),
            tuple(StateSlot(row["nbytes"], row["initial"]) for row in tree.get("states", ())),
            tuple(Check(**row) for row in tree.get("checks", ())),
        )

    def validate(
        self,
        inputs: int,
        outputs: int,
        weights: Collection[str],
        path: str,
        device: str,
        library_bytes: int,
    ) -> None:
        """Check what depends on the rest of the bundle.

        inputs, outputs: how many the program has; weights: names of the tensors; device: the
        target's device family; library_bytes: size of its library. Raises `BundleMalformed`.
        """
        counts = inputs, outputs, len(self.checks)
        check_arguments(self.launches, self.calls, self.states, counts, weights, path)
        check_images(self.kernels, self.launches, self.natives, device, library_bytes, path)

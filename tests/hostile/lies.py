"""Consistent lies about a bundle's plan: drawn, and run on the honest library between guard pages.

    python lies.py BUNDLE COUNT SEED

For each lie the reader refuses it, or it runs; a touch outside of what kernels were given ends the
process. Prints how many were refused and how many ran, and before each run what it changed.
"""

from __future__ import annotations

import copy
import ctypes
import mmap
import random
import sys
from collections import Counter
from contextlib import suppress

from aotc.runtime.bundle.canonical import encode
from aotc.runtime.bundle.opened import Bundle
from aotc.runtime.bundle.plan import LaunchPlan, Plan, split_library
from aotc.runtime.bundle.plan_rules import check_steps
from aotc.runtime.bundle.weights import MappedFile, read_header
from aotc.runtime.drivers import memory
from aotc.runtime.drivers.cpu import driver
from aotc.runtime.errors import AotcError, IndexOutOfRange

PAGE = mmap.PAGESIZE
KEPT = []  # memory that lives until the end
MPROTECT = ctypes.CDLL(None, use_errno=True).mprotect
MPROTECT.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
SPACES = ("arena", "weight", "input", "output", "state", "check", "int")


class Guarded(memory.Memory):
    """Memory that ends where no page is, and begins at most 64 bytes behind such a page."""

    __slots__ = ()

    def __init__(self, nbytes: int) -> None:
        pages = -(-max(nbytes, 1) // PAGE)
        self._mapping = mmap.mmap(-1, (pages + 2) * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        for guard in (base, base + (pages + 1) * PAGE):
            assert not MPROTECT(guard, PAGE, 0)
        self.nbytes = nbytes
        self.address = (base + (pages + 1) * PAGE - nbytes) // 64 * 64


class Lie:
    """A place in a plan, where one of the methods below changes it; all numbers stay consistent."""

    def __init__(self, tree: dict, draw: random.Random, weights: list[str], counts: dict) -> None:
        self.tree, self.draw, self.weights, self.counts = tree, draw, weights, counts
        self.variant = draw.choice(tree["variants"])
        self.launches = [step for step in self.variant["steps"] if step["kind"] == "kernel"]
        self.step, self.buffer = draw.choice(self.launches), draw.choice(self.variant["buffers"])
        self.kernel = tree["kernels"][self.step["kernel"]]
        self.use = self.kernel["uses"][self.step["use"]]

    def some_argument(self) -> list:
        space = self.draw.choice(SPACES)
        if space == "weight":
            return [space, self.draw.choice(self.weights)]
        if space == "arena":
            return [space, self.draw.choice(self.variant["buffers"])["offset"]]
        return [space, 0 if space == "int" else self.draw.randrange(self.counts.get(space, 1))]

    def place(self, argument: list) -> None:
        arguments = self.step["args"]
        if arguments:  # else an earlier lie has left none
            arguments[self.draw.randrange(len(arguments))] = argument

    def offset_of_arena(self) -> int:
        return 64 * self.draw.randrange(self.variant["arena_bytes"] // 64 + 1)

    def argument(self) -> None:
        self.place(self.some_argument())

    def offset(self) -> None:
        self.place(["arena", self.offset_of_arena()])

    def end(self) -> None:
        self.place(["arena", self.buffer["offset"] + self.buffer["nbytes"] - 1])

    def number(self) -> None:
        self.place(["int", self.draw.choice([0, 1, -1, 1 << 40, self.draw.randrange(1 << 31)])])

    def swap(self) -> None:
        other = self.draw.choice(self.launches)
        self.step["args"], other["args"] = other["args"], self.step["args"]

    def turn(self) -> None:
        self.draw.shuffle(self.step["args"])

    def another_kernel(self) -> None:
        self.step["kernel"] = self.draw.randrange(len(self.tree["kernels"]))
        uses = self.tree["kernels"][self.step["kernel"]]["uses"]
        self.step["use"] = number = self.draw.randrange(len(uses))
        self.step["grid"], self.step["maps"] = uses[number]["grid"], uses[number]["maps"]

    def grid(self) -> None:
        self.step["grid"] = [self.draw.choice([1, 2, 1 << 10]) for _ in self.step["grid"]]

    def fewer(self) -> None:
        del self.step["args"][-1:]

    def more(self) -> None:
        self.step["args"].append(self.some_argument())

    def shrink(self) -> None:
        self.buffer["nbytes"] = self.draw.randrange(self.buffer["nbytes"] + 1)

    def move(self) -> None:
        self.buffer["offset"] = self.offset_of_arena()

    def arena(self) -> None:
        self.variant["arena_bytes"] = end = self.draw.randrange(self.variant["arena_bytes"] + 1)
        for each in self.variant["buffers"]:
            each["offset"] = min(each["offset"], end // 64 * 64)
            each["nbytes"] = min(each["nbytes"], end - each["offset"])

    def scratch(self) -> None:
        self.tree["scratch_bytes"] = self.draw.choice([0, 64])

    def symbol(self) -> None:
        self.kernel["symbol"] = self.draw.choice(["aotc_execute", "aotc_worker"])

    def reach(self) -> None:
        """About the kernel, which the library's file knows better."""
        for parameter in self.use["parameters"]:
            if parameter[0] != "int":
                parameter[1] = 0

    def order(self) -> None:
        self.draw.shuffle(self.variant["steps"])

    def ranges(self) -> None:
        self.variant["ranges"] = self.draw.choice(self.tree["variants"])["ranges"]

    def formula(self) -> None:
        value = self.draw.randrange(self.tree["dims"] + len(self.tree["sizes"]))
        self.buffer[self.draw.choice(["nbytes", "offset"])] = [value]

    def turns(self) -> None:
        """Of a repeated block: more than any tensor has rows."""
        marks = [step for step in self.variant["steps"] if step.get("word") == "repeat"]
        self.draw.choice(marks)["count"] = self.draw.choice([0, 1, 9, 200])

    def condition(self) -> None:
        marks = [step for step in self.variant["steps"] if step.get("word") == "if"]
        self.draw.choice(marks)["condition"] = self.some_argument()

    def steps(self) -> None:
        self.variant["steps"] = self.draw.choice(self.tree["variants"])["steps"]


EVERYWHERE = (
    Lie.argument, Lie.argument, Lie.argument, Lie.number, Lie.swap, Lie.turn, Lie.another_kernel,
    Lie.fewer, Lie.more, Lie.scratch, Lie.symbol, Lie.reach, Lie.order,
)  # fmt: skip
OF_NUMBERS = (Lie.offset, Lie.end, Lie.grid, Lie.shrink, Lie.shrink, Lie.move, Lie.arena)
OF_FORMULAS = (Lie.ranges, Lie.formula, Lie.steps)
OF_BLOCKS = (Lie.turns, Lie.turns, Lie.turns, Lie.condition)


def lie(tree: dict, draw: random.Random, weights: list[str], counts: dict[str, int]) -> str:
    """Change the plan; what was changed."""
    kinds = EVERYWHERE + (OF_FORMULAS if tree["dims"] else OF_NUMBERS)
    kind = draw.choice(kinds + (OF_BLOCKS if "control-flow" in tree["features"] else ()))
    kind(Lie(tree, draw, weights, counts))
    return kind.__name__


def run(library: bytes, plan: LaunchPlan, weights: dict, specs: tuple) -> None:
    """One call, all of whose memory is guarded."""
    blocks = [Guarded(spec.nbytes) for each in specs for spec in each]
    nbytes = (tuple(spec.nbytes for spec in each) for each in specs)
    session = driver.Executable(library, plan, weights, *nbytes, threads=1).session()
    session.addresses[:] = [block.address for block in blocks]
    with suppress(IndexOutOfRange):  # of data that are none of the model's
        session.run()
    session.close()


def main(bundle: str, count: int, seed: int) -> None:
    for module in (memory, driver):
        module.Memory = Guarded
    with Bundle(bundle) as opened:
        manifest, directory = opened.manifest, opened.directory
        target = manifest.targets[0]
        honest = directory.read(manifest.file(target.plan))
        library, digest = split_library(directory.read(manifest.file(target.library)))
        entry = manifest.weights
        mapped = MappedFile(directory.open_sized(entry.name, entry.nbytes), entry.nbytes)
    weights, sizes = {}, {}
    for name, tensor in read_header(mapped.view, "weights").items():
        block = Guarded(tensor.nbytes)
        data = bytes(mapped.view[tensor.offset : tensor.offset + tensor.nbytes])
        ctypes.memmove(block.address, data, len(data))
        weights[name], sizes[name] = (block.address, tensor.nbytes), tensor.nbytes
        KEPT.append(block)
    entry = manifest.entry()
    signature = entry.signature
    counts = {"input": len(entry.inputs), "output": len(entry.outputs)}
    tree, results = Plan.from_msgpack(honest).to_map(), Counter()
    draw = random.Random(seed)
    for number in range(-1, count):
        changed, kinds = copy.deepcopy(tree), []
        if number >= 0:
            kinds = [
                lie(changed, draw, list(weights), counts) for _ in range(draw.choice([1, 1, 2]))
            ]
        try:
            plan = Plan.from_msgpack(encode(changed))
            if plan.code_digest != digest:
                results["refused for the library's digest"] += 1
                continue
            plan.validate([tuple(counts.values())], weights, "plan", None)
        except AotcError:
            results["refused"] += 1
            continue
        for low, _ in plan.lows:
            dims = [size if size == 1 else size + draw.randrange(3) for size in low]
            values = signature.values(dims)
            specs = signature.at(values)
            try:
                launches = plan.at(dims)
                check_steps(launches, (), (), specs, sizes, "plan")
            except AotcError:
                results["refused at some sizes"] += 1
                continue
            print("ran", number, *kinds, dims, flush=True)
            run(library, launches, weights, specs)
            results["ran"] += 1
    print(*(f"{what}: {times}" for what, times in sorted(results.items())), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

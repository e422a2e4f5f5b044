"""Triton IR → LLVM IR of one kernel for the CPU.

    tt.func(args…) of one program instance   →   define void @body(args, x, y, z, grid, scratch)

Scalars are computed where they stand; tensors are lazy (see `evaluate`), and loops appear only at
the operations of `ROOT_OPS` and `CONTROL`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from aotc.aot.targets.cpu import (
    calls,
    control,
    fused_store,
    graph,
    math,
    memory,
    reduce,
    reduction_runs,
    reports,
    root_ops,
    tile_dot,
    tile_pipeline,
    transposed_store,
    usage,
    word_pipeline,
)
from aotc.aot.targets.cpu.elementwise import RULES
from aotc.aot.targets.cpu.evaluate import (
    TENSORS,
    VIEWS,
    Kernel,
    StoredProduct,
    anything,
    literal,
)
from aotc.aot.targets.cpu.expand import expand
from aotc.aot.targets.cpu.isa import Isa
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Pointer, integer
from aotc.aot.targets.cpu.memory import Buffer
from aotc.aot.targets.cpu.ttir import Block, Function, Operation, Value, located, parse, unsupported
from aotc.aot.targets.cpu.writer import Operand

_ATTRIBUTES = 'nounwind noinline "min-legal-vector-width"="512" "prefer-vector-width"="512"'
"""Without the widths, LLVM splits vectors of 512 bits."""
_ALIGNED = '"stackrealign"'
"""Of the kernel: without it, each vector that it keeps on the stack lies in two lines."""


class Lowered(NamedTuple):
    llvm_ir: str
    scratch_bytes: int
    sites: tuple[dict[str, Any], ...] | None = None
    """What it may report; with any, the arguments end with the launch's buffer of reports."""


def _routine(
    function: Callable[[Kernel, Operation, calls.Lower], None],
) -> Callable[[Lowering, Operation], None]:
    return lambda lowering, operation: function(lowering.kernel, operation, lowering.routine)


def _call(function: Callable[[Kernel, Operation], None]) -> Callable[[Lowering, Operation], None]:
    return lambda lowering, operation: function(lowering.kernel, operation)


def _control(
    function: Callable[[Kernel, Operation, control.RunBlock], None],
) -> Callable[[Lowering, Operation], None]:
    return lambda lowering, operation: function(lowering.kernel, operation, lowering.block)


def _store(lowering: Lowering, operation: Operation) -> None:
    """Stores that share their loops are written at the last of them."""
    run = lowering.runs[operation]
    if operation is not run[-1] or lowering.close(operation):
        return
    kernel = lowering.kernel
    read_dim = transposed_store.read_dimension(kernel, operation) if len(run) == 1 else None
    if read_dim is None:
        root_ops.store(kernel, run)
    else:
        transposed_store.store(kernel, operation, read_dim)


def _reduce(lowering: Lowering, operation: Operation) -> None:
    """Reductions that share their loops are written at the last of them."""
    run = lowering.runs[operation]
    if operation is run[-1]:
        reduce.reduce(lowering.kernel, run)


def _ignore(lowering: Lowering, operation: Operation) -> None:
    """Hints and synchronization, which mean nothing to a program that runs on one thread."""


class Lowering:
    """Lowers one function; `kernel` holds the state that all parts share."""

    def __init__(
        self, function: Function, isa: Isa, *, no_alias: bool, caller: Lowering | None = None
    ) -> None:
        expand(function)
        self.is_chain = graph.is_chain(function) if caller is None else len(function.blocks) == 1
        self.function = function = function if self.is_chain else graph.ordered(function)
        self.kernel = Kernel(
            no_alias,
            isa=isa,
            functions=function.functions,
            assert_lanes=reports.assert_lanes,
        )
        self.routines: list[str] = [] if caller is None else caller.routines
        """Text of the functions beside this one."""
        if caller is not None:
            self._share(caller.kernel)
        self.runs = reduction_runs.find(function)
        self.runs |= usage.store_runs(function, no_alias=no_alias)
        self.keep = usage.plan(function, self.runs, no_alias=no_alias)
        self.fused_stores = (
            fused_store.fused_stores(function, self.runs, self.keep, self._is_tiled)
            if no_alias
            else {}
        )

    def run(self) -> Lowered:
        for place, argument in enumerate(self.function.arguments):
            self._bind_argument(place, argument)
        self._function_blocks()
        sites = self.kernel.sites
        found = None if sites is None else tuple(sites)
        return Lowered(self._text(), self.kernel.scratch_bytes, found)

    def _is_tiled(self, operation: Operation) -> bool:
        return tile_dot.shape_of(self.kernel, operation) is not None

    def _share(self, kernel: Kernel) -> None:
        """One module holds all functions."""
        own = self.kernel
        own.constants, own.routines = kernel.constants, kernel.routines
        own.writer.functions = kernel.writer.functions
        own.sites, own.is_routine = kernel.sites, True
        if isinstance(kernel.guard, reports.Guard):
            own.guard = reports.Guard(
                own, [], kernel.guard.slots, checks_races=kernel.guard.checks_races
            )

    def routine(self, function: Function, name: str) -> calls.Subroutine:
        """Lowers a function beside this one; its arguments may overlap."""
        made = Lowering(function, self.kernel.isa, no_alias=False, caller=self)
        for place, argument in enumerate(function.arguments):
            made._bind_argument(place, argument)
        made._function_blocks()
        terminators = [x.operations[-1] for x in function.blocks]
        ends = [x for x in terminators if x.name == graph.RETURN]
        results = "".join(f"ptr %result{place}, " for place in range(len(ends[0].operands)))
        arguments = "".join(
            f"{calls.parameter(x, f'%arg{place}')}, " for place, x in enumerate(function.arguments)
        )
        common = f"{calls.PROGRAM}, ptr %scratch{self.kernel.report_argument}"
        body = "\n".join(made.kernel.writer.scopes[0].lines)
        head = f"define internal void @{name}({arguments}{results}{common}) #0 {{"
        self.routines += [head, "entry:", body, "done:", "  ret void", "}"]
        return calls.Subroutine(name, made.kernel.scratch_bytes)

    def _bind_argument(self, place: int, argument: Value) -> None:
        kind = argument.type
        if kind.is_tensor:
            into = Operand(f"%arg{place}", "ptr")
            self.kernel.buffers[argument] = Buffer(into, kind.shape or (), kind.element, 0)
            return
        operand = Operand(f"%arg{place}", LLVM_TYPES[kind.element])
        if kind.is_pointer:
            self.kernel.scalars[argument] = Pointer(operand, integer(0, "i64"), kind.pointee)
        elif kind.element in ("i32", "i64"):
            self.kernel.scalars[argument] = self.kernel.lanes.atom(operand, kind.element)
        else:
            self.kernel.scalars[argument] = operand

    # ------------------------------------------------------------------ blocks

    def block(self, block: Block) -> Operation:
        """Lowers a block's operations; returns its terminator, which the caller handles."""
        with self._region():
            for operation in block.operations[:-1]:
                with located(operation):
                    self.operation(operation)
        return block.operations[-1]

    @contextmanager
    def _region(self) -> Iterator[None]:
        """What a region writes to memory of tensors from around it, others do not find there: it
        may not have run."""
        outer = dict(self.kernel.pending)
        yield
        self.kernel.pending = outer
        for value, pending in outer.items():
            pending.written = False
            self.kernel.buffers.pop(value, None)

    def _block_without(self, loop: Operation, left_out: Operation) -> None:
        """Lowers the operations of a loop's block, which are no roots, but for one."""
        with self._region():
            for operation in loop.body.operations[:-1]:
                if operation is not left_out:
                    with located(operation):
                        self.operation(operation)

    def operation(self, operation: Operation) -> None:
        """Raises CompileError for an operation that is not known, whether its results are read."""
        if operation.name in ROOT_OPS:
            if operation not in self.fused_stores or operation.name == "tt.store":
                ROOT_OPS[operation.name](self, operation)
        elif operation.name not in KNOWN:
            _refuse(self, operation)
        elif any(not x.type.is_tensor for x in operation.results):
            self._scalar(operation)
        else:
            for value in operation.results:
                self._keep(value)

    def close(self, store: Operation) -> bool:
        """Lowers the product that ends in a store, if one does; True if it stored its elements."""
        found = self.fused_stores.get(store)
        if found is None:
            return False
        is_open = fused_store.is_open(found, self.kernel)
        self.kernel.fused_store, self.kernel.asked_for = found if is_open else None, found
        pipelines = (tile_pipeline, word_pipeline) if is_open else ()
        if not any(each.write(self.kernel, found, self._block_without) for each in pipelines):
            ROOT_OPS[found.operation.name](self, found.operation)
        is_stored = self.kernel.fused_store is not None
        self.kernel.fused_store = self.kernel.asked_for = None
        if is_stored:
            no_turn = fused_store.takes_no_turn(found, self.kernel)
            if no_turn is not None:
                self._store_start(found, no_turn)
        return is_stored

    def _store_start(self, product: StoredProduct, no_turn: Operand) -> None:
        """A loop that takes no turn stores nothing: then what it starts with is stored."""

        def write() -> list[Operand]:
            self.kernel.min_depths[product.operation] = self.kernel.writer.depth
            if product.value not in self.kernel.buffers:
                start = root_ops.materialize(self.kernel, tile_pipeline.start_of(product))
                self.kernel.buffers[product.value] = start
            root_ops.store(self.kernel, list(product.stores))
            return []

        self.kernel.writer.branch(no_turn, (write, list))

    def _keep(self, value: Value) -> None:
        how = self.keep.get(value)
        if how is usage.Keep.AT_ONCE:
            self.kernel.buffers[value] = root_ops.materialize(self.kernel, value)
        elif how is usage.Keep.BY_FIRST_ROOT:
            root_ops.defer(self.kernel, value)

    def _scalar(self, operation: Operation) -> None:
        """Scalars are evaluated eagerly, in program order."""
        kernel, result = self.kernel, operation.results[0]
        if operation.name == "ub.poison":
            kernel.scalars[result] = anything(kernel, result)
        elif operation.name == "arith.constant":
            kernel.scalars[result] = literal(operation.attributes["value"], result)
        elif operation.name == "tt.get_program_id":
            axis = "xyz"[operation.integer("axis")]
            kernel.scalars[result] = kernel.lanes.atom(
                Operand(f"%{axis}", "i32"), "i32", natural=True
            )
        elif operation.name == "tt.get_num_programs":
            kernel.scalars[result] = self._number_of_programs(operation.integer("axis"))
        elif operation.name == "tt.load":
            operands = [kernel.scalar(x) for x in operation.operands]
            with kernel.width(1):
                kernel.scalars[result] = memory.load(kernel, operation, operands)
        elif operation.name == "tt.unsplat":
            source = operation.operands[0]
            index = tuple(integer(0) for _ in source.type.shape or ())
            kernel.scalars[result] = kernel.at(source, index)
        elif operation.name in RULES:
            operands = [kernel.scalar(x) for x in operation.operands]
            kernel.scalars[result] = RULES[operation.name](kernel.lanes, operation, operands)
        else:
            _refuse(self, operation)

    def _number_of_programs(self, axis: int) -> Int:
        writer = self.kernel.writer
        place = writer.emit(f"getelementptr i32, ptr %grid, i64 {axis}", "ptr")
        count = writer.emit(f"load i32, {place}", "i32", [place])
        return self.kernel.lanes.atom(count, "i32", natural=True)

    def _function_blocks(self) -> None:
        """The function's own blocks: one, a chain that ends by `cf.cond_br`, or any graph."""
        if not self.is_chain:
            graph.run(self.kernel, self.function, self._block_of_graph)
            return
        writer = self.kernel.writer
        names = dict(zip(self.function.labels, self.function.blocks, strict=True))
        current = self.function.blocks[0]
        while True:
            terminator = self.block(current)
            if terminator.name == graph.RETURN:
                calls.returned(self.kernel, terminator)
                writer.effect("br label %done")
                return
            if terminator.name == graph.JUMP:
                current = names[graph.label(terminator.successors[0])]
            else:
                current = self._leave_by_branch(terminator, names)

    def _block_of_graph(self, block: Block) -> Operation:
        terminator = self.block(block)
        if terminator.name == graph.RETURN:
            calls.returned(self.kernel, terminator)
        return terminator

    def _leave_by_branch(self, terminator: Operation, names: dict[str, Block]) -> Block:
        """`if c: return`: one side only returns, the rest of the kernel is the other."""
        writer = self.kernel.writer
        sides = [names[graph.label(x)] for x in terminator.successors]
        returns = [len(x.operations) == 1 and x.operations[0].name == "tt.return" for x in sides]
        condition = self.kernel.lanes.operand(self.kernel.scalar(terminator.operands[0]))
        following = writer.fresh("rest")
        targets = ("%done", f"%{following}") if returns[0] else (f"%{following}", "%done")
        writer.effect(f"br i1 {condition.text}, label {targets[0]}, label {targets[1]}")
        writer.scope.lines.append(f"{following}:")
        writer.scope.label = following
        writer.scope.may_skip = True
        return sides[1] if returns[0] else sides[0]

    # -------------------------------------------------------------------- text

    def _text(self) -> str:
        """The module: constants, the typed kernel, the wrapper that unpacks its arguments."""
        writer = self.kernel.writer
        attribute = "noalias " if self.kernel.no_alias else ""
        parameters, unpack, given = [], [], []
        for place, argument in enumerate(self.function.arguments):
            kind = LLVM_TYPES[argument.type.element]
            parameters.append(f"{kind} {attribute if kind == 'ptr' else ''}%arg{place}")
            given.append(f"{kind} %arg{place}")
            unpack.append(f"  %slot{place} = getelementptr i64, ptr %args, i64 {place}")
            unpack.append(f"  %arg{place} = load {kind}, ptr %slot{place}")
        if self.kernel.sites is not None:
            slot = len(self.function.arguments)
            unpack.append(f"  %slot{slot} = getelementptr i64, ptr %args, i64 {slot}")
            unpack.append(f"  %report = load ptr, ptr %slot{slot}")
            self.routines.append(reports.FUNCTION)
            guard = self.kernel.guard
            if isinstance(guard, reports.Guard) and guard.checks_races:
                self.routines.append(reports.HISTORY)
        more = self.kernel.report_argument
        common = f"i32 %x, i32 %y, i32 %z, ptr %grid, ptr noalias %scratch{more}"
        passed = f"i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch{more}"
        body = "\n".join(writer.scopes[0].lines)
        is_hinted = any("!llvm.loop" in text for text in (body, *self.routines))
        constants = [
            f"{name} = internal constant {text}" for text, name in self.kernel.constants.items()
        ]
        return "\n".join([
            *constants,
            *self.routines,
            f"define internal void @kernel({', '.join([*parameters, common])}) #0 {_ALIGNED} {{",
            "entry:", body, "done:", "  ret void", "}",
            "define void @body(ptr %args, i32 %x, i32 %y, i32 %z, ptr %grid, ptr %scratch) #0 {",
            *unpack,
            f"  call void @kernel({', '.join([*given, passed])})", "  ret void", "}",
            math.module(writer.functions),
            f"attributes #0 = {{ {_ATTRIBUTES}{self.kernel.isa.attributes} }}",
            *([control.LOOP_METADATA] if is_hinted else []),
            "",
        ])  # fmt: skip


def _refuse(lowering: Lowering, operation: Operation) -> None:
    callee = operation.attributes.get("callee")
    of = f" of `{callee}`" if callee else ""
    raise unsupported(f"operation `{operation.name}`{of}")


ROOT_OPS: dict[str, Callable[[Lowering, Operation], None]] = {
    "tt.store": _store,
    "tt.reduce": _reduce,
    "tt.scan": _call(reduce.scan),
    "tt.atomic_rmw": _call(root_ops.atomic),
    "tt.atomic_cas": _call(root_ops.atomic),
    "tt.dot": _call(tile_dot.dot),
    "scf.for": _control(control.for_loop),
    "scf.while": _control(control.while_loop),
    "scf.if": _control(control.branch),
    "llvm.intr.assume": _ignore,
    "gpu.barrier": _ignore,
    "ttg.barrier": _ignore,
    "tt.assert": _call(reports.assert_),
    "tt.print": _call(reports.print_),
    "tt.histogram": _call(root_ops.histogram),
    "tt.call": _routine(calls.call),
    "tt.map_elementwise": _routine(calls.map_elementwise),
    "tt.elementwise_inline_asm": _refuse,
}
"""Operations that write code where they stand."""

KNOWN = frozenset(
    {"tt.get_program_id", "tt.get_num_programs", "tt.unsplat", *RULES, *VIEWS, *TENSORS}
)
"""Operations without effects, which are evaluated where their results are read."""


def lower(
    ttir: str,
    isa: Isa,
    *,
    no_alias: bool,
    reports_to_host: bool = False,
    checks_memory: bool = False,
    checks_races: bool = False,
) -> Lowered:
    """Lowers Triton IR in generic form; raises CompileError naming what is not supported.

    `no_alias` promises that the memory behind different pointer arguments does not overlap,
    `reports_to_host` that launches pass a buffer of reports where there are sites of them;
    `checks_memory` asks for a report of each access beyond its tensor, `checks_races` also of each
    to a place that another program writes, or that this one writes and another reads.
    """
    lowering = Lowering(parse(ttir), isa, no_alias=no_alias)
    if checks_memory or (reports_to_host and reports.are_needed(lowering.function)):
        lowering.kernel.sites = []
    if checks_memory:
        arguments = lowering.function.arguments
        slots = [place for place, value in enumerate(arguments) if value.type.is_pointer]
        follows = checks_races and not reports.waits_for_others(lowering.function)
        lowering.kernel.guard = reports.Guard(
            lowering.kernel, arguments, slots, checks_races=follows
        )
    return lowering.run()

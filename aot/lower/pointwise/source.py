"""Pointwise groups → kernels over 2-D tiles: rows x, contiguous lanes y."""

from __future__ import annotations

from aotc.aot.ir import index as ix
from aotc.aot.ir.index import Index, Remainder, Symbol
from aotc.aot.ir.ops import OPS
from aotc.aot.ir.size import kernel_text, typical
from aotc.aot.lower import gpu_tiles, kernel_file
from aotc.aot.lower.body import Body
from aotc.aot.lower.emit import Emitter
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.lower.tiles import pointwise_candidates
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import Tracer
from aotc.aot.traits import TargetTraits

_DIMS = ("[:, None]", "[None, :]")


def lower_pointwise(group: Group, traits: TargetTraits) -> KernelSpec:
    """One store of each root; every operand is computed where it is needed."""
    candidates = _candidates(group, traits)
    body, masks = Body(), dict[Symbol, str]()
    symbols = (group.domain.rows, group.domain.lanes)
    is_gpu = traits.is_gpu
    starts = _gpu_starts(*symbols) if is_gpu else _cpu_starts(*symbols)
    for symbol, start, dim in zip(symbols, starts, _DIMS, strict=True):
        if symbol.extent == 1:
            continue
        block = f"{symbol.name.upper()}BLOCK"
        body.write(f"{symbol.name} = {start} + tl.arange(0, {block}){dim}")
        if kernel_file.has_tail(symbol, kernel_file.blocks_of(candidates, block)):
            kernel_file.write_mask(body, symbol, masks)
    emitter = Emitter(
        body,
        kernel_file.buffer_names(group),
        masks,
        rounded=group.rounded,
        starts=dict(group.starts),
        approximates=is_gpu,
    )
    kernel_file.write_stores(emitter, group.roots)
    return kernel_file.kernel_of(group, [kernel_file.Draft("", body.lines)], candidates)


def _cpu_starts(rows: Symbol, lanes: Symbol) -> tuple[str, str]:
    """First element of a program's tile: one grid axis each."""
    return "tl.program_id(0) * XBLOCK", "tl.program_id(1) * YBLOCK"


def _gpu_starts(rows: Symbol, lanes: Symbol) -> tuple[str, str]:
    """The same over one grid axis: neighbours in time are neighbours in memory, no axis limit."""
    if lanes.extent == 1 or rows.extent == 1:
        return "tl.program_id(0) * XBLOCK", "tl.program_id(0) * YBLOCK"
    blocks = f"tl.cdiv({kernel_text(lanes.extent)}, YBLOCK)"
    return f"tl.program_id(0) // {blocks} * XBLOCK", f"tl.program_id(0) % {blocks} * YBLOCK"


def _candidates(group: Group, traits: TargetTraits) -> tuple[Candidate, ...]:
    rows, lanes = group.domain.rows, group.domain.lanes
    element_bytes = group.bytes / max(1, typical(rows.extent * lanes.extent))
    if not traits.is_gpu:
        return pointwise_candidates(rows.extent, lanes.extent, element_bytes, traits)
    shape = gpu_tiles.PointwiseShape(
        rows.extent,
        lanes.extent,
        element_bytes,
        functions=sum(OPS[node.op].cost >= gpu_tiles.FUNCTION_COST for node in group.nodes),
        is_transposed=_is_transposed(group),
    )
    return gpu_tiles.pointwise_candidates(shape, traits)


def _is_transposed(group: Group) -> bool:
    """Whether a load or store is contiguous along the rows of the tile, not along its lanes."""
    reads = set(group.reads)
    tracer = Tracer(lambda node: node in reads)
    for root in group.roots:
        tracer.visit(root.node, root.index)
    offsets = [ix.linear(need.index, need.node.shape) for need in tracer.accesses]
    offsets += [ix.linear(root.index, root.node.shape) for root in group.roots]
    rows, lanes = group.domain.rows, group.domain.lanes
    return any(
        offset.stride(lanes) not in (0, 1) and _is_contiguous(offset, rows) for offset in offsets
    )


def _is_contiguous(offset: Index, symbol: Symbol) -> bool:
    """Whether neighbours along the symbol are mostly neighbours in memory."""
    for atom, count in offset.terms:
        is_run = isinstance(atom, Remainder) and atom.dividend == ix.of(symbol)
        if count == 1 and (atom == symbol or is_run):
            return True
    return False

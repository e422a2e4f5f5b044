"""Pointwise groups → kernels over 2-D tiles: rows x, contiguous lanes y."""

from __future__ import annotations

from aotc.aot.ir.index import Symbol
from aotc.aot.lower import source
from aotc.aot.lower.body import Body
from aotc.aot.lower.emit import Emitter
from aotc.aot.lower.spec import KernelSpec
from aotc.aot.lower.tiles import pointwise_candidates
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.traits import TargetTraits


def lower_pointwise(group: Group, traits: TargetTraits) -> KernelSpec:
    """One store of each root; every operand is computed where it is needed."""
    rows, lanes = group.domain.rows, group.domain.lanes
    element_bytes = group.bytes / max(1, rows.extent * lanes.extent)
    candidates = pointwise_candidates(rows.extent, lanes.extent, element_bytes, traits)
    body, masks = Body(), dict[Symbol, str]()
    for axis, (symbol, dim) in enumerate(((rows, "[:, None]"), (lanes, "[None, :]"))):
        if symbol.extent == 1:
            continue
        block = f"{symbol.name.upper()}BLOCK"
        body.write(source.tile_line(symbol, axis, block, dim))
        if source.overhangs(symbol, source.blocks_of(candidates, block)):
            source.write_mask(body, symbol, masks)
    source.write_stores(Emitter(body, source.buffer_names(group), masks), group.roots)
    return source.kernel(group, ("XBLOCK", "YBLOCK"), body.lines, candidates)

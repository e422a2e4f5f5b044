"""Row groups → kernels that reduce rows: on a CPU in one form, on a GPU in all that fit.

Every form reads a row once from memory where the machine can: a held row stays in the registers of
its program; a streamed one is read again out of the cache if elements of it are stored; a shared
one is held in pieces by programs that wait for each other's partial values.
"""

from __future__ import annotations

from collections.abc import Iterator

from aotc.aot.ir.graph import Node
from aotc.aot.ir.size import proves_at_most, typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.gpu_tiles import VECTOR_BYTES
from aotc.aot.lower.row.gpu_candidates import RowShape, RowTiles, row_tiles
from aotc.aot.lower.row.statistics import singles, statistics
from aotc.aot.lower.row.writer import (
    ALL_WAIT,
    JOINED,
    LANES,
    LAST_JOINS,
    WHOLE,
    Levels,
    RowForm,
    RowWriter,
)
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.lower.tiles import column_candidates, row_candidates
from aotc.aot.schedule.group import Group
from aotc.aot.schedule.trace import is_unrolled
from aotc.aot.traits import TargetTraits

FORMS = {
    "": RowForm(WHOLE),
    "streamed": RowForm(LANES),
    "parts": RowForm(LANES, LAST_JOINS),
    "shared": RowForm(WHOLE, ALL_WAIT),
    "shared_streamed": RowForm(LANES, ALL_WAIT),
}


def lower_row(group: Group, traits: TargetTraits) -> KernelSpec:
    """All reductions of the group over one set of rows, and what surrounds them.

    The first candidate is the cost model's choice.
    """
    drafts: list[kernel_file.Draft] = []
    candidates: list[Candidate] = []
    for form, levels, tiles in (_forms_gpu if traits.is_gpu else _forms_cpu)(group, traits):
        writer = RowWriter(group, form, levels, tiles.candidates)
        drafts.append(kernel_file.Draft(tiles.form, writer.lines()))
        candidates += [
            Candidate(row.config, row.grid, tiles.form, writer.scratch(row))
            for row in tiles.candidates
        ]
    return kernel_file.kernel_of(group, drafts, candidates)


def _forms_gpu(group: Group, traits: TargetTraits) -> Iterator[tuple[RowForm, Levels, RowTiles]]:
    levels = statistics(levels_of(group), group.rounded)
    for tiles in row_tiles(row_shape(group, levels), traits):
        yield FORMS[tiles.form], levels, tiles


def _forms_cpu(group: Group, traits: TargetTraits) -> Iterator[tuple[RowForm, Levels, RowTiles]]:
    domain = group.domain
    assert domain.reduced is not None
    reduced = domain.reduced.extent
    if domain.is_reduced_in_lanes:
        kept = domain.rows.extent
        element_bytes = group.bytes / max(1, typical(kept * reduced))
        candidates = row_candidates(kept, reduced, element_bytes, traits)
    else:
        candidates = column_candidates(domain.outer.extent, reduced, domain.lanes.extent)
    block = kernel_file.blocks_of(candidates, "RBLOCK")[0]
    form = RowForm(WHOLE if proves_at_most(reduced, block) else JOINED, is_of_gpu=False)
    yield form, singles(levels_of(group)), RowTiles("", candidates)


def levels_of(group: Group) -> list[list[Node]]:
    """Reductions of a row group by the number of reductions that each one waits for."""
    depth: dict[Node, int] = {}
    levels: dict[int, list[Node]] = {}
    for node in group.nodes:
        below = max((depth.get(operand, 0) for operand in node.inputs), default=0)
        is_stop = node.kind == "reduce" and not is_unrolled(node)
        depth[node] = below + is_stop
        if is_stop:
            levels.setdefault(depth[node], []).append(node)
    return [levels[level] for level in sorted(levels)]


def row_shape(group: Group, levels: Levels) -> RowShape:
    """What decides the form and the tiles of a row kernel."""
    domain = group.domain
    assert domain.reduced is not None
    is_lanes = domain.is_reduced_in_lanes
    varies = any(domain.reduced in part.symbols() for root in group.roots for part in root.index)
    kept = domain.rows.extent if is_lanes else domain.lanes.extent
    partials = [partial for level in levels for row in level for partial in row.partials()]
    elements = max(1, typical(domain.outer.extent * kept * domain.reduced.extent))
    return RowShape(
        outer=1 if is_lanes else domain.outer.extent,
        kept=kept,
        reduced=domain.reduced.extent,
        element_bytes=group.bytes / elements,
        levels=len(levels),
        is_lanes=is_lanes,
        stores_elements=varies,
        vector=max(1, VECTOR_BYTES // _narrowest(group)),
        can_share=varies and all(DTYPES[row.dtype].itemsize_bytes <= 4 for row in partials),
    )


def _narrowest(group: Group) -> int:
    """Bytes of the smallest element that the group loads or stores."""
    nodes = [*group.reads, *(root.node for root in group.roots)]
    large = max(typical(node.type.numel) for node in nodes)
    # Only tensors of full size decide: the vectors of the others come from a cache.
    sizes = (node for node in nodes if typical(node.type.numel) * 2 > large)
    return min(DTYPES[node.dtype].itemsize_bytes for node in sizes)

"""Row groups → all forms of their kernel that fit a GPU."""

from __future__ import annotations

from aotc.aot.ir.size import typical
from aotc.aot.ir.types import DTYPES
from aotc.aot.lower import kernel_file
from aotc.aot.lower.gpu_tiles import VECTOR_BYTES
from aotc.aot.lower.row.gpu_candidates import RowShape, row_tiles
from aotc.aot.lower.row.gpu_parts import PartedWriter, SharedStreamWriter, SharedWriter
from aotc.aot.lower.row.gpu_source import HeldWriter, Levels, StreamedWriter
from aotc.aot.lower.row.source import levels_of
from aotc.aot.lower.row.statistics import statistics
from aotc.aot.lower.spec import Candidate, KernelSpec
from aotc.aot.schedule.group import Group
from aotc.aot.traits import TargetTraits

_WRITERS: dict[str, type[HeldWriter]] = {
    "": HeldWriter,
    "streamed": StreamedWriter,
    "parts": PartedWriter,
    "shared": SharedWriter,
    "shared_streamed": SharedStreamWriter,
}


def lower_row_gpu(group: Group, traits: TargetTraits) -> KernelSpec:
    """All forms of a row kernel that fit the group; the first candidate is the model's pick."""
    levels = statistics(levels_of(group), group.rounded)
    drafts: list[kernel_file.Draft] = []
    candidates: list[Candidate] = []
    for tiles in row_tiles(row_shape(group, levels), traits):
        writer = _WRITERS[tiles.form](group, tiles, levels)
        lines, scratch = writer.lines(), [name for name, _ in writer.scratch_types()]
        drafts.append(kernel_file.Draft(tiles.form, tiles.constexprs, lines, scratch))
        candidates += [
            Candidate(row.config, row.grid, tiles.form, writer.scratch(row))
            for row in tiles.candidates
        ]
    return kernel_file.kernel_of(group, drafts, candidates)


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

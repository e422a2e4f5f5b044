"""Contiguous copies of operands that a product would otherwise read in a slow memory layout.

- An implicit GEMM reads windows of its input in runs of channels. Where there are few channels, or
  they are not the contiguous axis, it would gather element by element, with a bounds check each.
  Then the input is copied once, padded and channels last, so that a whole row of a window is one
  run.
- CPU, windows whose positions are the depth of a product: read from a padded copy with channels
  contiguous and rows of whole blocks of vectors. The left operand, if each of its elements is read
  for many columns, is read from a copy with the positions of all images contiguous.
- CPU, windows whose positions are the columns of a product: read from a padded copy with positions
  contiguous.
- A right operand with neither contiguous rows nor contiguous columns, such as filters that are an
  argument, perhaps cast or cut into the phases of a stride, is copied row by row, of f32 on a GPU
  column by column; otherwise each tile of rows would gather all of it again.
- GPU: a copy that the graph asks for is dropped if its source has rows at a pitch.
- GPU: a large left operand that is computed for one product, from elements that are apart along
  both its rows and the depth, is stored first. Triton distributes loads over lanes by the
  contiguity that it can prove, and it proves none of `x // 17` and `x % 17`.
- Numbers that are rounded to TF32 for a product are rounded in memory, because tiles reach the
  tensor cores without passing through registers.
- GPU with tensor descriptors: operands whose rows are not aligned to 16 bytes are copied to rows
  that are (`row_pitch.py`).
- GPU: operands whose depth does not lie together, of products of f32, or not in whole loads
  (`depth_together.py`).
- A concat of many parts tests all of them for each element, and a kernel takes a limited number of
  pointers: it becomes a concat of stored concats of a few parts each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from math import isqrt

from aotc.aot.ir import build
from aotc.aot.ir import index as ix
from aotc.aot.ir.graph import Graph, Node, make
from aotc.aot.ir.index import Symbol
from aotc.aot.ir.infer import PACK_N, WORDS_RANK
from aotc.aot.ir.size import Extent, fixed, is_static, typical
from aotc.aot.schedule.depth_together import on_transposed, with_depth_together
from aotc.aot.schedule.domain import (
    batch_index,
    breaks,
    contiguous_run,
    matmul_domain,
    operand_accesses,
    run_along,
)
from aotc.aot.schedule.grow import MATMULS
from aotc.aot.schedule.packed_operands import with_packed_operands
from aotc.aot.schedule.row_pitch import Pitches, with_pitch
from aotc.aot.schedule.trace import STORED, Access, Tracer, accesses, behind_views
from aotc.aot.traits import TargetTraits

_MOVES = frozenset({"view", "pad", "window"})
_COMPUTED = _MOVES | {"pointwise", "concat"}
MOST_PARTS = 32  # of a concat that one kernel joins
MATRIX_RANK = 2
BLOCK = 16  # elements that a processor transposes at once
LEAST_TAILS = 4  # times as long as its tail, which fills a block, a row is at least
BLOCK_DEPTH = 64  # elements of a row in a block of such an operand
MOST_ROW_BYTES = 4 << 20  # of a left operand that is copied to rows along the depth
LARGE = 1 << 20  # elements of operands that are computed before the product
TOGETHER = 16  # elements in a run, a power of two, that Triton finds
# Of products by words of vectors, up to which a copy with margins is better than one of windows for
# each panel (benchmarks/narrow_convolutions.py): bytes are multiplied faster than they are copied.
MOST_COLUMNS = {"bf16": 32}
FEWEST_READS = 4  # reads of each element by windows, from which a copy with margins is faster
WIDE_LANES = 16  # of vectors: shorter ones multiply no faster than they copy


def with_contiguous_copies(graph: Graph, traits: TargetTraits) -> tuple[Graph, frozenset[Node]]:
    """The graph with such copies put in, and the nodes that are the copies."""
    copies: dict[Node, Node] = {}
    pitches = Pitches(graph.constants)

    users, outputs = graph.users(), frozenset(graph.outputs)

    behind: set[Node] = set()  # what products read in place of copies of it

    def copied(given: Node, node: Node) -> Node:
        if node.kind == "concat" and len(node.inputs) > MOST_PARTS:
            node = _by_parts(node, copies)
        if node.kind not in MATMULS:
            return node
        node = _without_copies(node, behind) if traits.is_gpu else node
        shape = node.shape
        if traits.packs_weights:
            node = with_packed_operands(node, copies, traits, is_copied=_is_gathered(node))
        node = _with_margins(_with_copy(node, copies), copies, traits)
        node = _with_columns(node, copies, traits)
        node = node if traits.is_gpu else _with_positions(_with_offsets(node, copies), copies)
        pitched = with_pitch(node, pitches) if traits.has_tensor_copies else node
        is_pitched = pitched is not node  # descriptors read it, whatever its depth
        node = pitched if is_pitched else with_depth_together(node, copies, pitches, traits)
        if traits.is_gpu and not any(
            len(users[each]) > 1 or each in outputs for each in _on_the_way(given.inputs[0])
        ):
            node = _with_rows(node, copies)
        return build.reshape(node, shape)

    found = graph.rebuilt(copied, pitches.made)
    made = behind.union(copies.values())
    products = (node for node in found.nodes() if node.op == "matmul_tf32")
    rounded = (each for node in products for each in _rounded(node, made))
    asked = (node for node in found.nodes() if build.is_stored(node))
    shared = _read_beside(found, copies.values())
    return found, frozenset([*made, *rounded, *asked, *shared])


def _read_beside(graph: Graph, copies: Iterable[Node]) -> Iterator[Node]:
    """What copies with margins are copies of, where something else reads it too: it is computed
    once."""
    users = graph.users()
    for copy in copies:
        path = _on_the_way(copy.inputs[0]) if copy.kind == "pad" else []
        if path and path[-1].op not in STORED and any(len(users[each]) > 1 for each in path):
            yield path[-1]


def _without_copies(root_op: Node, behind: set[Node]) -> Node:
    """The matmul on what its operands are copies of, where that lies as well in memory: rows at a
    pitch, of which either axis of the product goes along. What is computed is added to `behind`."""
    for position, operand in enumerate(root_op.inputs[:2]):
        *views, copy = _on_the_way(operand)
        if root_op.kind != "matmul" or not build.is_stored(copy):
            continue
        moved = copy.inputs[0]
        for view in reversed(views):
            moved = view.on((moved,))
        inputs = (*root_op.inputs[:position], moved, *root_op.inputs[position + 1 :])
        changed = root_op.on(inputs)
        domain = matmul_domain(changed)
        need = operand_accesses(changed, domain, batch_index(changed, domain))[position]
        memory, _ = behind_views(need)
        offset = ix.linear(memory.index, memory.node.shape)
        along = domain.lanes if position else domain.rows
        strides = {offset.stride(symbol) for symbol in (along, domain.reduced) if symbol}
        is_memory = memory.node.kind not in ("pad", "window", "concat", "take", "gather", "view")
        if is_memory and None not in strides and 1 in strides:
            root_op = changed
            if memory.node.op not in STORED:
                behind.add(memory.node)
    return root_op


def _rounded(root_op: Node, copies: AbstractSet[Node]) -> Iterator[Node]:
    """The operands of a product, behind moves, that would be rounded in its kernel."""
    for operand in root_op.inputs:
        while operand.kind in _MOVES and operand not in copies:
            operand = operand.inputs[0]
        if operand.op == "round_tf32":
            yield operand


def _by_parts(joined: Node, copies: dict[Node, Node]) -> Node:
    """concat(x, y, z, …) → concat(concat(x, y, …), concat(z, …), …), the inner ones stored."""
    axis, parts = joined.attr("axis"), list(joined.inputs)
    while len(parts) > MOST_PARTS:
        count = max(2, min(MOST_PARTS, isqrt(len(parts) - 1) + 1))
        groups = [parts[start : start + count] for start in range(0, len(parts), count)]
        parts = [build.concat(group, axis) for group in groups]
        copies |= {part: part for part in parts if part.op == "concat"}
    return make("concat", tuple(parts), joined.attrs, joined.source)


def _to_window(operand: Node) -> list[Node]:
    """An operand and what it views, down to a window if there is one."""
    path = [operand]
    while path[-1].kind == "view" and path[-1].op in ("reshape", "permute"):
        path.append(path[-1].inputs[0])
    return path


def _on_copy(
    path: Sequence[Node], source: Node, order: Sequence[int], more: tuple[int, int] = (0, 0)
) -> tuple[Node, Node]:
    """A copy of what the path ends in, dims in this order, and the operand that reads the copy.

    more: an axis, and elements along it that the copy has beyond those of `source`.
    """
    axis, count = more
    high = tuple(count if each == axis else 0 for each in range(source.type.rank))
    whole = build.pad(source, (0,) * len(high), high, 0) if count else source
    copy = make("permute", (whole,), {"dims": tuple(order)})
    back = tuple(order.index(axis) for axis in range(len(order)))
    moved = make("permute", (copy,), {"dims": back})
    if count:
        moved = build.slice_axis(moved, axis, 0, source.shape[axis])
    for node in reversed(path):
        moved = node.on((moved,))
    return copy, moved


def _with_copy(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul on windows of a copy of their input, if it then reads longer runs."""
    path = _to_window(root_op.inputs[0])
    if path[-1].op != "window" or _run(root_op, None) > 0:
        return root_op
    axes = path[-1].attr("axes")
    first = [axis for axis in range(path[-1].inputs[0].type.rank) if axis not in axes]
    copy, moved = _on_copy(path, path[-1].inputs[0], (*first[:1], *axes, *first[1:]))
    changed = root_op.on((moved, *root_op.inputs[1:]))
    if _run(changed, copy) == 0:
        return root_op
    copies[copy] = copy
    return changed


def _with_margins(root_op: Node, copies: dict[Node, Node], traits: TargetTraits) -> Node:
    """The matmul by tiles on windows whose rows are a steady distance apart: of a copy of their
    input with its margins, pixels that lie a stride apart next to each other; or on a copy of the
    windows, where these are single pixels."""
    found = _with_rows_together(root_op, copies, traits)
    if found is not None:
        return found
    path = _to_window(root_op.inputs[0])
    windows, is_packed = path[-1], root_op.kind == "matmul_packed"
    is_packed = is_packed and root_op.inputs[1].type.rank == WORDS_RANK
    is_packed = is_packed and windows.dtype in dict(traits.product_rates)
    if windows.op == "window" and is_narrow(root_op, traits) and not traits.has_tiles:
        return _with_groups(root_op, path, copies)
    if windows.op == "window" and root_op.kind == "matmul_packed" and root_op.dtype == "f32":
        return _with_margins_once(root_op, windows, copies)
    if windows.op != "window" or not is_packed:
        return root_op
    most = MOST_COLUMNS.get(windows.dtype, math.inf) if traits.lanes >= WIDE_LANES else 0
    if not traits.has_tiles and typical(root_op.shape[-1]) > most:
        return root_op
    source = windows.inputs[0]
    is_strided = traits.has_tiles and set(windows.attr("strides")) != {1}
    if is_strided and set(windows.attr("sizes")) == {1}:
        copy, changed = windows, root_op
    elif is_strided and is_static([source.shape[axis] for axis in windows.attr("axes")]):
        copy, moved = _in_phases(path)
        changed = root_op.on((moved, *root_op.inputs[1:]))
    elif source.kind == "pad":
        copy, changed = source, root_op
    else:
        return root_op
    if copy not in copies and _run(changed, copy) > 0:
        copies[copy] = copy
        return changed
    return root_op if copy not in copies else changed


def _with_margins_once(root_op: Node, windows: Node, copies: dict[Node, Node]) -> Node:
    """The product on windows of a copy of their input with its margins, where panels and windows
    read each element several times: what is inside is then asked once, and windows that have no
    mask are read where they stand."""
    source = windows.inputs[0]
    reads = typical(windows.type.numel) / max(1, typical(source.type.numel))
    panels = -(-typical(root_op.shape[-1]) // PACK_N)
    if source.kind == "pad" and reads * panels >= FEWEST_READS and _run(root_op, source) > 0:
        copies.setdefault(source, source)
    return root_op


def _with_groups(root_op: Node, path: Sequence[Node], copies: dict[Node, Node]) -> Node:
    """The products on windows of a copy of their input with its margins and the channels of each
    group by themselves, x[N, H, W, C] → x[G, N, H, W, C / G], where each element is in several
    windows: then a row of a window is one run, and no line of the cache has another group's."""
    windows, source = path[-1], path[-1].inputs[0]
    last, groups = source.type.rank - 1, root_op.shape[0]
    reads = typical(windows.type.numel) / max(1, typical(source.type.numel))
    if source.kind != "pad" or last in windows.attr("axes") or reads < FEWEST_READS:
        return root_op
    split = build.reshape(source, (*source.shape[:last], groups, source.shape[last] // groups))
    copy = build.permute(split, (last, *range(last), last + 1))
    moved = build.reshape(build.permute(copy, (*range(1, last + 1), 0, last + 1)), source.shape)
    for node in reversed(path):
        moved = node.on((moved,))
    changed = root_op.on((moved, *root_op.inputs[1:]))
    if _run(changed, copy) == 0:
        return root_op
    copies[copy] = copy
    return changed


def is_narrow(root_op: Node, traits: TargetTraits) -> bool:
    """Whether a product is one of several packed ones whose columns fill one vector at most, so
    that a copy of windows, which only these columns read, takes about as long as they do."""
    is_beside = root_op.kind == "matmul_packed" and root_op.type.rank > MATRIX_RANK
    is_multiplied = root_op.dtype == "f32" or root_op.dtype in dict(traits.product_rates)
    return is_beside and is_multiplied and typical(root_op.shape[-1]) <= traits.lanes


def _with_rows_together(
    root_op: Node, copies: dict[Node, Node], traits: TargetTraits
) -> Node | None:
    """The product of windows whose rows lie together, zeros behind each: of a copy of their input
    with its margins and channels; by tiles the rows of an image that lie a stride apart follow each
    other. None where it is no such product, or reads what stands in memory."""
    path = [root_op.inputs[0]]
    while path[-1].kind in ("view", "pad") and path[-1].op != "slice":
        path.append(path[-1].inputs[0])
    windows = path[-1]
    if traits.is_gpu or windows.op != "window" or all(each.kind != "pad" for each in path):
        return None
    source, axes = windows.inputs[0], windows.attr("axes")
    if root_op.kind != "matmul_packed" or axes[-1] != source.type.rank - 1:
        return None
    if traits.has_tiles and set(windows.attr("strides")[:-1]) - {1}:
        copy, moved = _in_phases(path)
        copies.setdefault(copy, copy)
        return root_op.on((moved, *root_op.inputs[1:]))
    if _on_the_way(source)[-1].kind in _COMPUTED or _run(root_op, None) == 0:
        copies.setdefault(source, source)
    return root_op


def _in_phases(path: Sequence[Node]) -> tuple[Node, Node]:
    """A copy of the windows' input in which each s-th pixel follows the one before, s the stride,
    and the operand that reads it: x[N, H, W, C] → x[N, s, s, H / s, W / s, C]. Windows along the
    last axis stay as they are."""
    windows = path[-1]
    source, axes = windows.inputs[0], windows.attr("axes")
    steps = dict(zip(axes, windows.attr("strides"), strict=True))
    last = source.type.rank - 1
    steps = {axis: step for axis, step in steps.items() if step != 1 and axis != last}
    more = [
        -fixed(extent) % steps[axis] if axis in steps else 0
        for axis, extent in enumerate(source.shape)
    ]
    whole = build.pad(source, (0,) * len(more), tuple(more), 0) if any(more) else source
    shape, phases, order = list[Extent](), list[int](), list[int]()
    for axis, extent in enumerate(whole.shape):
        order.append(len(shape))
        shape.append(extent // steps.get(axis, 1))
        if axis in steps:
            phases.append(len(shape))
            shape.append(steps[axis])
    first = axes[0]
    order = [*order[:first], *phases, *order[first:]]
    copy = build.permute(build.reshape(whole, shape), order)
    back = [order.index(place) for place in range(len(order))]
    moved = build.reshape(build.permute(copy, back), whole.shape)
    for axis, count in enumerate(more):
        moved = build.slice_axis(moved, axis, 0, source.shape[axis]) if count else moved
    for node in reversed(path):
        moved = node.on((moved,))
    return copy, moved


def _with_positions(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul whose columns are positions of windows, on a copy of their input, padding
    included, in which these lie side by side."""
    path = _to_window(root_op.inputs[1])
    if root_op.kind != "matmul" or path[-1].op != "window":
        return root_op
    source, axes = path[-1].inputs[0], path[-1].attr("axes")
    domain = matmul_domain(root_op)
    _, need = operand_accesses(root_op, domain, batch_index(root_op, domain))
    tracer = Tracer(lambda node: node is source)
    tracer.visit(need.node, need.index)
    strides = [[part.stride(domain.lanes) for part in each.index] for each in tracer.accesses]
    moving = {axis for row in strides for axis, stride in enumerate(row) if stride != 0}
    if moving != {axes[-1]} or any(row[axes[-1]] is None for row in strides):
        return root_op
    first = [axis for axis in range(source.type.rank) if axis not in axes]
    if axes[-1] != source.type.rank - 1:
        copy, moved = _on_copy(path, source, (*first, *axes))
        copies[copy] = copy
        return root_op.on((root_op.inputs[0], moved))
    if source.kind == "pad":
        copies[source] = source
    return root_op


def _with_offsets(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul whose depth are positions of windows, and its columns kernel offsets and channels,
    on a copy in which channels lie side by side: of the windows' input, padding included, or of the
    windows, where these see less than all of it."""
    path = _to_window(root_op.inputs[1])
    if root_op.kind != "matmul" or path[-1].op != "window":
        return root_op
    windows = path[-1]
    source, axes = windows.inputs[0], windows.attr("axes")
    channels = [axis for axis in range(1, source.type.rank) if axis not in axes]
    domain = matmul_domain(root_op)
    _, need = operand_accesses(root_op, domain, batch_index(root_op, domain))
    tracer = Tracer(lambda node: node is source)
    tracer.visit(need.node, need.index)
    reads = list(tracer.accesses)
    if len(channels) != 1 or len(reads) != 1:
        return root_op
    symbols = [part.symbols() for part in reads[0].index]
    if domain.lanes not in symbols[channels[0]] or domain.lanes in symbols[0]:
        return root_op
    if domain.reduced in symbols[channels[0]] or domain.reduced not in symbols[axes[-1]]:
        return root_op
    if typical(windows.type.numel) < typical(source.type.numel):
        own = range(source.type.rank, windows.type.rank)
        copy, moved = _on_copy(path[:-1], windows, (0, *axes, *own, *channels))
    else:
        copy, moved = _on_copy(path, source, (0, *axes, *channels), _tail(source, axes[-1]))
    copies[copy] = copy
    return root_op.on((_by_positions(root_op.inputs[0], windows, copies), moved))


def _by_positions(left: Node, windows: Node, copies: dict[Node, Node]) -> Node:
    """The left operand of such a product as it is best read along the positions of all images: a
    copy in rows, or one too large for the cache in blocks of rows, which is read as it lies. Where
    each element is multiplied by the channels of one offset alone, a large one stays as it is."""
    (*outer, rows, depth), behind = left.shape, _on_the_way(left)[-1]
    if typical(left.type.nbytes) <= MOST_ROW_BYTES:
        copies[left] = left
        return left
    if set(windows.attr("sizes")) == {1} or not isinstance(depth, int) or depth % BLOCK_DEPTH:
        if behind.kind in _COMPUTED:
            copies[behind] = behind
        return left
    last = len(outer) + 1
    order = (*range(last - 1), last, last - 1, last + 1)
    parts = build.reshape(left, (*outer, rows, depth // BLOCK_DEPTH, BLOCK_DEPTH))
    copy = build.permute(parts, order)
    copies[copy] = copy
    return build.reshape(build.permute(copy, order), left.shape)


def _tail(source: Node, axis: int) -> tuple[int, int]:
    """What a copy with margins has behind an axis, so that each row is whole blocks, which are
    transposed in registers; nothing where that would be much."""
    extent = source.shape[axis]
    if source.kind != "pad" or not isinstance(extent, int):
        return axis, 0
    more = -extent % BLOCK
    return axis, more if more * LEAST_TAILS <= extent else 0


def _with_columns(root_op: Node, copies: dict[Node, Node], traits: TargetTraits) -> Node:
    """The matmul on a copy of its right operand, if that is gathered as it lies; for a processor
    with the dims that it has before they are joined, whose order its kernel chooses."""
    right = root_op.inputs[1]
    if root_op.kind != "matmul" or root_op.type.rank > 3 or not _is_gathered(root_op):
        return root_op
    if traits.is_gpu and right.dtype == "f32":
        return on_transposed(root_op, copies)
    is_joined = right.op == "reshape" and right.inputs[0].op == "permute"
    whole = right.inputs[0] if is_joined and not traits.is_gpu else right
    copies[whole] = build.stored(whole)
    return root_op.on((root_op.inputs[0], build.reshape(copies[whole], right.shape)))


def _on_the_way(operand: Node) -> list[Node]:
    """An operand and what it views."""
    found = [operand]
    while found[-1].kind == "view":
        found.append(found[-1].inputs[0])
    return found


def _with_rows(root_op: Node, copies: dict[Node, Node]) -> Node:
    """The matmul on its left operand in memory, if that is computed for it alone, of elements that
    lie apart."""
    left = root_op.inputs[0]
    if (
        root_op.kind != "matmul"
        or left.type.rank != MATRIX_RANK
        or typical(left.type.numel) < LARGE
    ):
        return root_op
    domain = matmul_domain(root_op)
    assert domain.reduced is not None
    need, _ = operand_accesses(root_op, domain, batch_index(root_op, domain))
    if behind_views(need)[0].node.kind not in ("pointwise", "concat"):
        return root_op
    tracer = Tracer(lambda node: node.kind not in _COMPUTED or build.is_stored(node))
    tracer.visit(need.node, need.index)
    large = (each for each in tracer.accesses if typical(each.node.type.numel) >= LARGE)
    if not any(_lies_apart(each, domain.rows, domain.reduced) for each in large):
        return root_op
    copies[left] = build.stored(left)
    return root_op.on((copies[left], *root_op.inputs[1:]))


def _lies_apart(need: Access, rows: Symbol, depth: Symbol) -> bool:
    """Whether neither elements along the depth nor enough along the rows surely lie together."""
    offset = ix.linear(need.index, need.node.shape)
    if offset.stride(depth) in (0, 1) or offset.stride(rows) in (0, 1):
        return False
    runs = breaks(offset, rows)
    return is_static(runs) and any(fixed(run) & -fixed(run) < TOGETHER for run in runs)


def _is_gathered(root_op: Node) -> bool:
    """Whether a view of an argument, with zeros around it perhaps and in another type, has neither
    rows nor columns of elements that lie together."""
    domain = matmul_domain(root_op)
    assert domain.reduced is not None
    _, need = operand_accesses(root_op, domain, batch_index(root_op, domain))
    while need.node.kind in ("view", "pad") or need.node.op in ("cast", "round_tf32"):
        (need,) = accesses(need.node, need.index)
    if need.node.op != "input":
        return False
    offset = ix.linear(need.index, need.node.shape)
    along = [symbol for symbol in (domain.lanes, domain.reduced) if run_along([offset], symbol)]
    return not {offset.stride(symbol) for symbol in along} & {None, 0, 1}


def _run(root_op: Node, copy: Node | None) -> Extent:
    """Elements of k in one run, if the matmul reads the copy, or what is behind its views."""

    def is_boundary(node: Node) -> bool:
        return node is copy or (copy is None and node.kind not in _MOVES)

    return contiguous_run(root_op, matmul_domain(root_op), is_boundary)

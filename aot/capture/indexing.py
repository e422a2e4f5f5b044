"""`buffer[i]` where `i` is a tensor of one number: an index at run time, not a constant of the
build.

torch reads such a tensor into a Python number, which an export cannot. For a write, an index of
rank 0 has the same meaning. A read gives a copy where torch gives a view, so later writes to either
of them are checked, and refused if the other one would have to see them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._export import non_strict_utils

from aotc.aot.capture.aliases import aliased_placeholders, arguments_written
from aotc.aot.capture.data_assertions import assert_truth, decision, gaussian_nll_loss
from aotc.aot.capture.source_lines import source_of
from aotc.aot.errors import OpsUnsupported

WORDS = (torch.int64, torch.int32, torch.int16, torch.int8)
VIEW = "a view at a place that data decides is written to: write by `tensor[place] = value`"
STALE = "a view at a place that data decides is read after a write to its tensor: clone it first"


@contextmanager
def tensor_indices() -> Iterator[None]:
    """Inside, exports by tracing take indices of rank 0 as indices, and conditions of data under
    which the model raises as checks.

    A torch without this hook goes on reading them, and refuses them.
    """
    handler = getattr(non_strict_utils, "_NonStrictTorchFunctionHandler", None)
    original = getattr(handler, "_override", None)
    if original is None:
        yield
        return

    def override(self: Any, function: Any, arguments: Any, keywords: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("__getitem__", "__setitem__") and isinstance(arguments[0], torch.Tensor):
            found = _split(arguments[0], arguments[1])
            if found is not None and name == "__getitem__":
                return _read, found, {}
            if found is not None:
                return _write, (*found, arguments[2]), {}
        if function is torch.nn.functional.gaussian_nll_loss:
            return gaussian_nll_loss, arguments, keywords
        if name == "__bool__" and isinstance(arguments[0], torch.Tensor):
            decided = decision(arguments[0])
            if decided is not None:
                return assert_truth, decided, {}
        return original(self, function, arguments, keywords)

    handler._override = override
    try:
        yield
    finally:
        handler._override = original


def check_indices(graph: torch.fx.Graph) -> None:
    """Refuse copies in place of views that would show: raises `OpsUnsupported`, naming each."""
    roots, places = aliased_placeholders(graph), {node: n for n, node in enumerate(graph.nodes)}
    found = []
    for node in graph.nodes:
        if node.target is not torch.ops.aten.index.Tensor or not _is_single(node.args[1]):
            continue
        aliases = _aliases_of(node)
        last_read = max((places[user] for each in aliases for user in each.users), default=-1)
        base = roots.get(node.args[0], frozenset())
        reason = ""
        for call in list(graph.nodes)[places[node] + 1 :]:
            for written in arguments_written(call):
                if written in aliases and not _is_written_back(node, aliases, call):
                    reason = VIEW
                elif roots.get(written, frozenset()) & base and places[call] < last_read:
                    reason = reason or STALE
        if reason:
            found.append(f"  `tensor[place]` at {source_of(node) or 'an unknown line'}: {reason}")
    if found:
        raise OpsUnsupported(ops="\n".join(dict.fromkeys(found)))


Index = Sequence[torch.Tensor | None]


def _split(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, Index] | None:
    """The view that an index takes apart from its tensors of rank 0, and these by dim.

    None where there are no such tensors, or others beside them.
    """
    items = list(index) if isinstance(index, tuple) else [index]
    if not any(_is_word(item) for item in items):
        return None
    if not all(_is_word(item) or _is_plain(item) for item in items):
        return None
    if Ellipsis in [item for item in items if not isinstance(item, torch.Tensor)]:
        place = next(n for n, item in enumerate(items) if item is Ellipsis)
        named = sum(item is not None and item is not Ellipsis for item in items)
        items[place : place + 1] = [slice(None)] * (tensor.dim() - named)
    if sum(item is not None for item in items) > tensor.dim():
        return None
    view, words, dim = tensor, [], 0
    for item in items:
        if item is None:
            view = torch.unsqueeze(view, dim)
        elif isinstance(item, torch.Tensor):
            words += [None] * (dim - len(words)) + [item]
        elif isinstance(item, slice):
            if item != slice(None):
                view = torch.ops.aten.slice(view, dim, item.start, item.stop, item.step or 1)
        else:
            view, dim = torch.select(view, dim, item), dim - 1
        dim += 1
    return view, words


def _is_word(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and not item.dim() and item.dtype in WORDS


def _is_plain(item: Any) -> bool:
    if isinstance(item, slice):
        return not any(
            isinstance(each, torch.Tensor) for each in (item.start, item.stop, item.step)
        )
    return item is None or item is Ellipsis or type(item) in (int, torch.SymInt)


def _read(view: torch.Tensor, words: Index) -> torch.Tensor:
    return torch.ops.aten.index.Tensor(view, list(words))


def _write(view: torch.Tensor, words: Index, value: Any) -> None:
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=view.dtype, device=view.device)
    kept = [extent for axis, extent in enumerate(view.shape) if _is_kept(words, axis)]
    while value.dim() > len(kept) and value.shape[0] == 1:
        value = value.squeeze(0)  # leading dims of one element, as an assignment takes them
    torch.ops.aten.index_put_(view, list(words), value.to(view.dtype))


def _is_kept(words: Index, axis: int) -> bool:
    return axis >= len(words) or words[axis] is None


def _is_single(indices: Any) -> bool:
    given = [each for each in indices if each is not None]
    return all(isinstance(each, torch.fx.Node) and not each.meta["val"].dim() for each in given)


def _aliases_of(node: torch.fx.Node) -> set[torch.fx.Node]:
    """The node and all that lies in its memory."""
    found = {node}
    for other in node.graph.nodes:
        if other.op == "call_function" and isinstance(other.target, torch._ops.OpOverload):
            is_view = any(each.alias_info is not None for each in other.target._schema.returns)
            if is_view and other.args and other.args[0] in found:
                found.add(other)
    return found


def _is_written_back(read: torch.fx.Node, aliases: set[torch.fx.Node], call: torch.fx.Node) -> bool:
    """Whether what is written to the copy is then written to the place that it was read from."""
    later = iter(read.graph.nodes)
    for each in later:
        if each is call:
            break
    return any(
        each.target is torch.ops.aten.index_put_.default
        and _reaches(each.args[2], aliases)
        and _is_equal(each.args[0], read.args[0])
        and _is_equal(each.args[1], read.args[1])
        for each in later
    )


def _reaches(value: Any, aliases: set[torch.fx.Node]) -> bool:
    return value in aliases


def _is_equal(left: Any, right: Any) -> bool:
    """Whether two arguments are the same expression."""
    if isinstance(left, torch.fx.Node) and isinstance(right, torch.fx.Node):
        same = left.target is right.target and left.op == right.op == "call_function"
        return left is right or (same and _is_equal(left.args, right.args))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_is_equal, left, right))
    return bool(left == right)

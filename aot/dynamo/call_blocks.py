"""The blocks of memory of a call of a program, and the layout of each.

A call whose outputs are placed in a block allocates it. A call whose inputs are placed in one uses
the rest of it as scratch only if torch keeps no graph for another call, and the inputs are where
the forward call put them; otherwise it allocates scratch of its own. `joint_graph.py` says what the
blocks are for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import sub

import torch

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]  # shape, strides, dtype
Empty = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]
UNSHARED_BYTES = 256  # behind a block that no backward call may write to: see `_base`
_keeps_graph = torch._C._autograd._get_current_graph_task_keep_graph
_hooks = torch._C._autograd._top_saved_tensors_default_hooks


@dataclass(frozen=True, slots=True)
class CallBlock:
    """A block of a call, `nbytes` long: its outputs lie there if it is made by the call, else its
    inputs do.

    places: (number of the output or input, first byte); none where only scratch is there, which
    is memory of the call alone. scratch_bytes: what the block's scratch takes in such memory.
    """

    nbytes: int
    is_made: bool
    places: tuple[tuple[int, int], ...]
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Blocks:
    """All blocks of a call. scratch: (number of the block, first byte there, first byte in memory
    that has its scratch alone) for each output of the program that nobody reads after a call."""

    rows: tuple[CallBlock, ...] = ()
    scratch: tuple[tuple[int, int, int], ...] = ()


NO_BLOCKS = Blocks()


class CallBlocks:
    """The blocks of calls of one program.

    inputs: how many it has; layouts: of its outputs but for scratch; empty: makes memory.
    """

    def __init__(
        self,
        blocks: Blocks,
        inputs: int,
        layouts: Sequence[Layout],
        empty: Empty,
    ) -> None:
        self._rows = rows = blocks.rows
        self._scratch, self._inputs, self._empty = blocks.scratch, inputs, empty
        places = {
            number: (at, start)
            for at, row in enumerate(rows)
            if row.is_made
            for number, start in row.places
        }
        self._layouts = [(places.get(at), *layout) for at, layout in enumerate(layouts)]
        self._given = [
            (at, [number for number, _ in row.places], [start for _, start in row.places])
            for at, row in enumerate(rows)
            if not row.is_made
        ]

    def made(self) -> list[torch.Tensor]:
        """Memory for the outputs, in their order."""
        empty = self._empty
        wholes: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        found = []
        for place, shape, strides, dtype in self._layouts:
            if place is None:
                found.append(empty(shape, strides, dtype))
                continue
            at, start = place
            whole = wholes.get((at, dtype))
            if whole is None:
                whole = wholes[at, dtype] = self._whole(at, wholes).view(dtype)
            found.append(reinterpreted(whole, shape, strides, start // dtype.itemsize))
        return found

    def _whole(self, at: int, wholes: dict[tuple[int, torch.dtype], torch.Tensor]) -> torch.Tensor:
        block = wholes.get((at, torch.uint8))
        if block is None:
            # Hooks of the user's are given what is kept, and may hold it for longer.
            more = UNSHARED_BYTES if _hooks(False) is not None else 0
            block = self._empty((self._rows[at].nbytes + more,), (1,), torch.uint8)
            wholes[at, torch.uint8] = block
        return block

    def scratch(
        self, addresses: Sequence[int], values: Sequence[torch.Tensor]
    ) -> tuple[list[int], list[torch.Tensor]]:
        """The addresses of the outputs that are scratch, and memory to be held until the launch.

        addresses: of inputs and other outputs; values: the inputs.
        """
        held: list[torch.Tensor] = []
        bases = [0] * len(self._rows)
        for at, row in enumerate(self._rows):
            if row.is_made and row.places:
                number, start = row.places[0]
                bases[at] = addresses[self._inputs + number] - start
        for at, numbers, starts in self._given:
            bases[at] = self._base(at, numbers, starts, addresses, values)
        own = [0] * len(self._rows)  # memory of this call's in place of a block
        for at, row in enumerate(self._rows):
            if row.scratch_bytes and not bases[at]:
                held.append(self._empty((row.scratch_bytes,), (1,), torch.uint8))
                own[at] = held[-1].data_ptr()
        found = [
            bases[at] + start if bases[at] else own[at] + alone
            for at, start, alone in self._scratch
        ]
        return found, held

    def _base(
        self,
        at: int,
        numbers: Sequence[int],
        starts: Sequence[int],
        addresses: Sequence[int],
        values: Sequence[torch.Tensor],
    ) -> int:
        """Where the inputs' block begins; 0 where it must not be written to, or is none: the graph
        is retained, or the storage is not as long as a block that only the graph has."""
        if _keeps_graph():
            return 0
        found = set(map(sub, map(addresses.__getitem__, numbers), starts))
        if len(found) > 1:
            return 0
        (base,) = found
        storage = values[numbers[0]].untyped_storage()
        is_whole = storage.data_ptr() == base and storage.nbytes() == self._rows[at].nbytes
        return base if is_whole else 0


def _viewed(
    value: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    return value.as_strided(shape, strides, value.storage_offset() + offset)


reinterpreted = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", _viewed)
"""(tensor, shape, strides, elements behind its first): a tensor in its memory, by torch's own
function where it has it, which takes half as long."""

"""New weights on a device: parameters copied into rows of tensors, and adapters added there.

    old tensors → copies beside them → W + s · B · A in the copies, a launch a parameter
    → every session between two calls → the same addresses

The sums are those of the host, bit by bit: products in the order of the rank, each sum rounded
once to f32, and the sum with the weight once to its type.
"""

from __future__ import annotations

import struct
from _bisect import bisect_right

from ..arrays.dtypes import DTYPES
from ..bundle.placement import PLACEMENT_NAME, as_rows
from ..errors import BundleMalformed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ..bundle.parameters import Parameters
    from ..bundle.placement import Placement, SumCode, View
    from .adapters import Change, Factor

ALIGNMENT_BYTES = 256
EXTENT_LIMIT = 1 << 20  # rows and columns of a weight: a grid has at most 65,535 columns of tiles


class DeviceSums:
    """New weights of a program with an adapter, computed on the device in memory beside the old
    ones."""

    def __init__(
        self,
        executable: Any,
        sizes: Mapping[str, int],
        work: list[tuple[View, Change, SumCode, bytes]],
    ) -> None:
        """sizes: bytes of the tensors that change; work: what is added where, and by which code."""
        self._executable, self._gpu = executable, executable.gpu
        self._sizes, self._work = sizes, work
        self._beside: dict[str, int] = {}
        self._blocks: list[int] = []
        self._modules: dict[str, Any] = {}

    @classmethod
    def of(
        cls,
        rows: Parameters,
        placement: Placement,
        files: Mapping[str, bytes],
        targets: Mapping[int, Change],
        loaded: Any,
    ) -> DeviceSums | None:
        """The sums for changes of parameters, by number; None where one of their tensors holds them
        in another way than the kernels write, or the bundle has none for this device.

        files: those of the bundle below `refit/`.
        """
        executable = loaded.executable
        if not executable.has_one_copy or not executable.weights.keys() >= rows.made:
            return None  # tensors of another target would keep the old weights
        codes = {
            (each.dtype, each.factors): each
            for each in placement.sums
            if executable.runs(each.device, each.needs)
        }
        work = []
        for number, change in targets.items():
            row = rows.parameters[number]
            kinds = {change.left.tensor.dtype, change.right.tensor.dtype}
            code = codes.get((row.dtype, min(kinds))) if len(kinds) == 1 else None
            views = [view for view in placement.views if view.parameter == number]
            spans = [loaded.spans.get(view.tensor, (0, 0)) for view in views]
            is_whole = {view.tensor for view in views} == rows.holders(number)
            fit = map(_fits, views, [change.shape] * len(views), [row] * len(views), spans)
            if code is None or not is_whole or not all(fit):
                return None
            work += [(view, change, code, files[code.library]) for view in views]
        names = {view.tensor for view, _, _, _ in work}
        return cls(executable, {name: loaded.spans[name][1] for name in names}, work)

    def compute(self) -> None:
        """Copy the tensors, bring the adapter to the device and add it; waits for all of it.

        Raises `DriverFault`s, with the weights as they were.
        """
        gpu = self._gpu
        self._beside = self._allocate(self._sizes, "the weights with an adapter")
        stream = gpu.stream()
        try:
            for name, nbytes in self._sizes.items():
                old = self._executable.weights[name]
                gpu.copy(self._beside[name], old, nbytes, stream.handle)
            factors = self._factors()
            for view, change, code, library in self._work:
                self._add(view, change, self._function(code, library), code, factors, stream)
            stream.synchronize()
        finally:
            stream.close()

    def _allocate(self, sizes: Mapping[Any, int], purpose: str) -> dict[Any, int]:
        """Addresses for tensors of these sizes in bytes, in one new block."""
        starts, used = {}, 0
        for name, nbytes in sizes.items():
            starts[name] = used
            used += -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        block = self._gpu.allocate(used, purpose)
        self._blocks.append(block)
        return {name: block + start for name, start in starts.items()}

    def _factors(self) -> dict[int, int]:
        """Device address of each factor, by its address on the host."""
        tensors = {
            factor.tensor.address: factor.tensor.nbytes
            for _, change, _, _ in self._work
            for factor in (change.left, change.right)
        }
        runs = _joined(tensors)
        blocks = self._allocate(runs, "an adapter")
        self._executable.copy_in([(blocks[begin], begin, nbytes) for begin, nbytes in runs.items()])
        begins = sorted(runs)
        found = {}
        for address in tensors:
            begin = begins[bisect_right(begins, address) - 1]
            found[address] = blocks[begin] + address - begin
        return found

    def _function(self, code: SumCode, library: bytes) -> Any:
        if code.library not in self._modules:
            module = self._gpu.load(library)
            function = self._gpu.function(module, code.symbol, code.shared_bytes)
            self._modules[code.library] = module, function
        return self._modules[code.library][1]

    def _add(
        self,
        view: View,
        change: Change,
        function: Any,
        code: SumCode,
        factors: Mapping[int, int],
        stream: Any,
    ) -> None:
        """One launch, over the rows and columns of the view as they lie."""
        left, right, (rows, columns) = change.left, change.right, change.shape
        first, second = _by_rows(left), _by_columns(right)
        row_stride = view.strides[0]
        if _is_transposed(view, change.shape):  # its columns lie together: Wᵀ + Rᵀ · Lᵀ
            first, second = _by_columns(right), _by_rows(left)
            rows, columns, row_stride = columns, rows, view.strides[1]
        (a, row, row_rank), (b, column, column_rank) = first, second
        grid = -(-rows // code.rows), -(-columns // code.columns), 1
        numbers = (rows, columns, change.rank, row_stride, row, row_rank, column_rank, column)
        values = [self._beside[view.tensor], factors[a.tensor.address], factors[b.tensor.address]]
        values += [_bits(a.scale), _bits(b.scale), view.start, *numbers, 0, 0]
        self._executable.launch(function, grid, code.threads, values, stream.handle)

    def put(self) -> None:
        """Copy the tensors to the addresses of the old ones, which nothing reads meanwhile."""
        for name, nbytes in self._sizes.items():
            self._gpu.copy(self._executable.weights[name], self._beside[name], nbytes)
        self._gpu.synchronize()

    def close(self) -> None:
        """Give the memory and the code back; idempotent."""
        for module, _ in self._modules.values():
            module.close()
        for block in self._blocks:
            self._gpu.free(block)
        self._modules.clear()
        self._blocks.clear()


def _joined(tensors: Mapping[int, int]) -> dict[int, int]:
    """Groups tensors, bytes by address, that are adjacent in the file, so that one copy transfers
    many; each begins at a multiple of `ALIGNMENT_BYTES` in its group."""
    runs: dict[int, int] = {}
    begin = 0
    for address, nbytes in sorted(tensors.items()):
        end = begin + runs.get(begin, 0)
        is_behind = bool(runs) and end <= address < end + ALIGNMENT_BYTES
        if not is_behind or (address - begin) % ALIGNMENT_BYTES:
            begin = address
        runs[begin] = address + nbytes - begin
    return runs


def rows_of(
    rows: Parameters,
    placement: Placement,
    names: set[str],
    spans: Mapping[str, tuple[int, int]],
    sources: Sequence[int],
    addresses: Mapping[str, int],
) -> list[tuple[int, int, int, int, int]]:
    """The copies that make tensors of parameters: (device address, host address, bytes of a row,
    rows, bytes from row to row).

    spans: sizes of tensors; sources: where parameters lie; addresses: of tensors on the device.
    Raises `BundleMalformed`.
    """
    found = []
    for view in placement.views:
        row = rows.parameters[view.parameter]
        if view.tensor not in names or not row.nbytes:
            continue
        itemsize = DTYPES[row.dtype].itemsize_bytes
        part = as_rows(row.shape, view.strides) if len(row.shape) == len(view.strides) else None
        count, width, pitch = part or (0, 0, 0)
        last = view.start + (count - 1) * pitch + width
        if not count or width > pitch or last * itemsize > spans[view.tensor][1]:
            field, inside = f"views of {view.tensor}", "rows within the tensor"
            raise BundleMalformed(path=PLACEMENT_NAME, field=field, found="others", expected=inside)
        to = addresses[view.tensor] + view.start * itemsize
        size, step = width * itemsize, pitch * itemsize
        source = sources[view.parameter]
        if count == 1 or width == pitch:
            found.append((to, source, size * count, 1, size * count))
        else:
            found.append((to, source, size, count, step))
    return found


def _by_rows(left: Factor) -> tuple[Factor, int, int]:
    """The factor with its strides along the rows of the result and along the rank."""
    return left, left.strides[0], left.strides[1]


def _by_columns(right: Factor) -> tuple[Factor, int, int]:
    """The factor with its strides along the columns of the result and along the rank."""
    return right, right.strides[1], right.strides[0]


def _is_transposed(view: View, shape: tuple[int, int]) -> bool:
    """Whether the columns of a view lie together, and its rows do not."""
    return view.strides[1] != 1 and shape[1] != 1


def _fits(view: View, shape: tuple[int, int], row: Any, span: tuple[int, int]) -> bool:
    """Whether the kernels write a view: two dims within the tensor, one of them without gaps."""
    if len(view.strides) != 2 or 0 in shape:
        return False
    (rows, columns), (down, along) = shape, view.strides
    is_dense = 1 in (along, down) or 1 in shape
    last = view.start + (rows - 1) * down + (columns - 1) * along
    itemsize = row.nbytes // (rows * columns)
    return is_dense and max(shape) <= EXTENT_LIMIT and (last + 1) * itemsize <= span[1]


def _bits(scale: float) -> int:
    """The bits of an f32 as an integer."""
    return int(struct.unpack("<I", struct.pack("<f", scale))[0])

"""Movement: the elements of the result are elements of the operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fuzz.draw import Draw, Known, NoDraw
from fuzz.program import FLOATS, INTEGERS, NUMBERS
from fuzz.rows.row import Op
from fuzz.values import index_text

Arguments = Mapping[str, Any]


def _op(name: str, text: str, draw: Any, **more: Any) -> Op:
    return Op(name, "movement", text, draw, **{"level": "bits", **more})


def _plain(d: Draw, least: int = 0, most: int = 5) -> Known:
    return d.pick(ranks=range(least, most + 1))


def permute(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axes = d.some_of(range(x.rank), x.rank)
    return {"x": x.ref, "dims": [a - x.rank if d.chance(0.2) else a for a in axes]}


def transpose(d: Draw) -> Arguments:
    x = _plain(d, 2)
    return {"x": x.ref, "a": d.axis(x), "b": d.axis(x)}


def reshape(d: Draw) -> Arguments:
    """Neighbouring extents are multiplied, and some split again."""
    x = _plain(d)
    if not x.rank:
        return {"x": x.ref, "shape": [1] * d.integer(0, 2)}
    shape: list[Any] = []
    axis = 0
    while axis < x.rank:
        stop = min(x.rank, axis + d.one_of((1, 1, 1, 2, 2, 3)))
        if any(x.varies(place) for place in range(axis, stop)):
            shape.append(-1 if stop > axis + 1 else d.extent(x, axis))
        else:
            product = 1
            for place in range(axis, stop):
                product *= x.shape[place]
            shape += _factors(d, product)
        axis = stop
    if -1 not in shape and shape and 0 not in x.shape and d.chance(0.5):
        shape[d.integer(0, len(shape) - 1)] = -1
    if d.chance(0.15):
        shape.insert(d.integer(0, len(shape)), 1)
    if len(shape) > 6:
        raise NoDraw
    return {"x": x.ref, "shape": shape}


def _factors(d: Draw, product: int) -> list[int]:
    if product < 2 or d.chance(0.5):
        return [product]
    divisors = [n for n in range(2, product) if product % n == 0]
    if not divisors:
        return [product]
    first = d.one_of(divisors)
    return [first, *_factors(d, product // first)]


def flatten(d: Draw) -> Arguments:
    x = _plain(d, 2)
    start = d.integer(0, x.rank - 1)
    return {"x": x.ref, "start": start, "end": d.one_of((-1, d.integer(start, x.rank - 1)))}


def unflatten(d: Draw) -> Arguments:
    x = _plain(d, 1, 4)
    axis = d.axis(x, 2, fixed=True)
    factors = _factors(d, x.shape[axis])
    return {"x": x.ref, "axis": axis, "sizes": tuple(factors) if len(factors) > 1 else (1, -1)}


def flip(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axes = d.some_of(range(x.rank))
    return {"x": x.ref, "dims": [a - x.rank if d.chance(0.2) else a for a in axes]}


def roll(d: Draw) -> Arguments:
    x = _plain(d, 1)
    if d.chance(0.2):
        return {"x": x.ref, "shifts": d.integer(-9, 9), "dims": None}
    axes = d.some_of(range(x.rank), 1, 2)
    return {"x": x.ref, "shifts": [d.integer(-9, 9) for _ in axes], "dims": axes}


def rot90(d: Draw) -> Arguments:
    x = _plain(d, 2)
    return {"x": x.ref, "k": d.integer(-3, 5), "dims": d.some_of(range(x.rank), 2, 2)}


def pad_constant(d: Draw) -> Arguments:
    x = _plain(d, 1)
    amounts: list[int] = []
    for place in range(d.integer(1, min(x.rank, 3))):
        low = -min(2, d.least(x, x.rank - 1 - place) // 2) if d.chance(0.3) else 0
        amounts += [d.integer(low, 3), d.integer(low, 3)]
    value = d.number(x.dtype) if d.chance(0.7) else 0
    return {"x": x.ref, "amounts": amounts, "value": value}


def pad_around(d: Draw) -> Arguments:
    """Reflected, replicated or circular: by axes from the end, over one or two leading ones."""
    x = d.pick(dtypes=FLOATS, ranks=(2, 3, 4, 5), may_be_empty=False)
    count = d.one_of([n for n in (1, 2, 3) if n < x.rank <= n + 2])
    amounts: list[int] = []
    for place in range(count):
        most = min(4, d.least(x, x.rank - 1 - place) - 1)
        amounts += [d.integer(0, most), d.integer(0, most)]
    return {"x": x.ref, "amounts": amounts, "mode": d.one_of(("reflect", "replicate", "circular"))}


def _alike(d: Draw, count: int) -> list[Known]:
    x = _plain(d, 1)
    return [x, *(d.matching(x, (x.dtype,), may_broadcast=False) for _ in range(count - 1))]


def cat(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x)
    place = axis % x.rank

    def fits(other: Known) -> bool:
        pairs = zip(other.shapes, x.shapes, strict=True)
        return all(a[:place] + a[place + 1 :] == b[:place] + b[place + 1 :] for a, b in pairs)

    found = [k for k in d.pool.values() if k.rank == x.rank and fits(k)]
    chosen = [d.one_of(found) for _ in range(d.integer(1, 3))]
    parts = [x, *chosen]
    d.rng.shuffle(parts)
    return {"parts": [each.ref for each in parts], "axis": axis}


def stack(d: Draw) -> Arguments:
    parts = _alike(d, d.integer(2, 4))
    return {"parts": [each.ref for each in parts], "axis": d.integer(-parts[0].rank, parts[0].rank)}


def slice_(d: Draw) -> Arguments:
    """A start, an end (from either side or beyond it) and a step along a few axes."""
    x = _plain(d, 1)
    parts = []
    for axis in range(x.rank):
        most = d.least(x, axis)
        if d.chance(0.4) or most < 1:
            parts.append(":")
            continue
        start = d.integer(0, most - 1)
        shown = str(start - most) if d.chance(0.3) and not x.varies(axis) else str(start)
        end = d.one_of(
            ("", "", str(d.integer(start + 1, most)), "1000", str(-d.integer(0, 1) or ""))
        )
        step = d.one_of(("", "", "2", "3", "5"))
        parts.append(
            f"{shown if start or d.chance(0.2) else ''}:{end}" + (f":{step}" if step else "")
        )
    if d.chance(0.15):
        parts = ["...", *parts[-1:]]
    return {"x": x.ref, "places": Text(", ".join(parts))}


class Text(str):
    """Torch code as an argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def last_places(d: Draw) -> Arguments:
    x = _plain(d, 1)
    return {"x": x.ref, "count": d.integer(1, 4)}


def select(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x, 1)
    most = d.least(x, axis)
    return {"x": x.ref, "axis": axis, "at": d.integer(-most, most - 1)}


def narrow(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x, 1)
    most = d.least(x, axis)
    start = d.integer(0, most - 1)
    return {
        "x": x.ref,
        "axis": axis,
        "start": start,
        "length": d.integer(0 if d.chance(0.1) else 1, most - start),
    }


def unfold(d: Draw) -> Arguments:
    x = _plain(d, 1, 4)
    axis = d.axis(x, 1)
    size = d.integer(1, min(5, d.least(x, axis)))
    return {"x": x.ref, "axis": axis, "size": size, "step": d.integer(1, 4)}


def expand(d: Draw) -> Arguments:
    x = _plain(d, 0, 4)
    shape: list[Any] = []
    for axis in range(x.rank):
        is_one = all(shape_[axis] == 1 for shape_ in x.shapes)
        shape.append(d.integer(1, 5) if is_one else d.one_of((-1, d.extent(x, axis))))
    shape = [d.integer(1, 4) for _ in range(d.integer(0, 2))] + shape
    return {"x": x.ref, "shape": shape}


def repeat(d: Draw) -> Arguments:
    x = _plain(d, 0, 4)
    counts = [d.one_of((1, 1, 2, 3)) for _ in range(x.rank + d.integer(0, 1))]
    return {"x": x.ref, "counts": counts}


def tile(d: Draw) -> Arguments:
    x = _plain(d, 1, 4)
    return {"x": x.ref, "counts": tuple(d.integer(1, 3) for _ in range(d.integer(1, x.rank + 1)))}


def repeat_interleave(d: Draw) -> Arguments:
    x = _plain(d, 1, 4)
    return {"x": x.ref, "count": d.integer(1, 3), "axis": d.axis(x)}


def unsqueeze(d: Draw) -> Arguments:
    x = _plain(d, 0, 4)
    return {"x": x.ref, "axis": d.integer(-x.rank - 1, x.rank)}


def squeeze(d: Draw) -> Arguments:
    x = _plain(d, 1)
    found = [a for a in range(x.rank) if all(shape[a] == 1 for shape in x.shapes)]
    return {"x": x.ref, "axis": d.one_of(found)}


def movedim(d: Draw) -> Arguments:
    x = _plain(d, 2)
    return {"x": x.ref, "a": d.axis(x), "b": d.axis(x)}


def part_of(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x, 2, fixed=True)
    parts = d.integer(2, min(4, x.shape[axis]))
    return {"x": x.ref, "axis": axis, "parts": parts, "at": d.one_of((0, -1))}


def triangle(d: Draw) -> Arguments:
    x = _plain(d, 2)
    return {"x": x.ref, "diagonal": d.integer(-3, 3)}


def diagonal(d: Draw) -> Arguments:
    x = d.pick(ranks=(2, 3, 4), may_be_empty=False)
    a, b = d.some_of(range(x.rank), 2, 2)
    return {"x": x.ref, "offset": d.integer(-2, 2), "a": a, "b": b}


def diag_embed(d: Draw) -> Arguments:
    return {"x": _plain(d, 1, 3).ref, "offset": d.integer(-2, 2)}


def pixel_shuffle(d: Draw) -> Arguments:
    def fits(k: Known) -> bool:  # of nothing torch makes other shapes than it says
        return k.has_elements() and k.shape[-3] % 4 == 0 and not k.varies(k.rank - 3)

    x = d.pick(ranks=(3, 4), where=fits)
    return {"x": x.ref, "factor": 2}


def pixel_unshuffle(d: Draw) -> Arguments:
    def fits(k: Known) -> bool:
        is_even = all(s[-1] % 2 == 0 and s[-2] % 2 == 0 for s in k.shapes)
        return is_even and k.is_fixed and k.has_elements()

    return {"x": d.pick(ranks=(3, 4), where=fits).ref, "factor": 2}


def slice_scatter(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x, 1, fixed=True)
    size = x.shape[axis]
    start = d.integer(0, size - 1)
    end = d.integer(start + 1, size)
    step = d.integer(1, 3)
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    own = list(shape)
    own[axis] = (end - start + step - 1) // step
    y = d.tensor(x.dtype, own)
    return {"x": x.ref, "y": y.ref, "axis": axis, "start": start, "end": end, "step": step}


def select_scatter(d: Draw) -> Arguments:
    x = _plain(d, 1)
    axis = d.axis(x, 1)
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    own = [extent for place, extent in enumerate(shape) if place != axis % x.rank]
    y = d.tensor(x.dtype, own)
    return {"x": x.ref, "y": y.ref, "axis": axis, "at": d.integer(0, d.least(x, axis) - 1)}


# --- by places that are data. Legal ones only: a remainder of any integers, or an input of places.


def _places(d: Draw, bound: int, shape: tuple[int | str, ...]) -> Known:
    """An input of places below `bound`."""
    given = d._input("i64", shape, "small")
    return d.bring(type(given)(given.name, "i64", shape, index_text(bound), given.seed))


def gather(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3, 4), may_be_empty=False)
    axis = d.axis(x, 1)
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    own = list(shape)
    own[axis] = d.integer(1, 6)
    for place, extent in enumerate(own):
        if place != axis % x.rank and isinstance(extent, int) and d.chance(0.2):
            own[place] = d.integer(1, extent)
    return {"x": x.ref, "axis": axis, "at": _places(d, d.least(x, axis), tuple(own)).ref}


def gather_computed(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    at = d.matching(x, INTEGERS, may_broadcast=False)
    return {"x": x.ref, "axis": axis, "at": at.ref, "bound": d.extent(x, axis)}


def index_select(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3, 4), may_be_empty=False)
    axis = d.axis(x, 1)
    return {"x": x.ref, "axis": axis, "at": _places(d, d.least(x, axis), (d.integer(1, 7),)).ref}


def index_first(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3, 4), may_be_empty=False)
    shape = d.shape(d.integer(1, 2))  # torch reads a single place as a number, on the host
    return {"x": x.ref, "at": _places(d, d.least(x, 0), shape).ref}


def index_last(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3, 4), may_be_empty=False)
    return {"x": x.ref, "at": _places(d, d.least(x, x.rank - 1), (d.integer(1, 5),)).ref}


def index_two(d: Draw) -> Arguments:
    x = d.pick(ranks=(2, 3, 4), may_be_empty=False)
    count = d.integer(1, 6)
    a, b = (_places(d, d.least(x, axis), (count,)) for axis in (0, 1))
    return {"x": x.ref, "a": a.ref, "b": b.ref}


def index_negative(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    return {"x": x.ref, "at": _places(d, d.least(x, 0), (d.integer(1, 5),)).ref}


def _distinct(d: Draw, bound: int) -> list[int]:
    return d.some_of(range(bound), 1, 6)


def index_put(d: Draw) -> Arguments:
    """Rows at distinct places."""
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    rows = _distinct(d, d.least(x, 0))
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    y = d.tensor(x.dtype, [len(rows), *shape[1:]] if d.chance(0.7) else shape[1:])
    return {"x": x.ref, "rows": rows, "y": y.ref}


def index_copy(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    rows = _distinct(d, d.least(x, axis))
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    own = list(shape)
    own[axis] = len(rows)
    return {"x": x.ref, "axis": axis, "rows": rows, "y": d.tensor(x.dtype, own).ref}


def index_fill(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    rows = _distinct(d, d.least(x, axis))
    return {"x": x.ref, "axis": axis, "rows": rows, "value": d.number(x.dtype)}


def scatter(d: Draw) -> Arguments:
    """To distinct places: a permutation along the axis."""
    x = d.pick(dtypes=NUMBERS, ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    order = d.matching(x, NUMBERS, may_broadcast=False)
    y = d.matching(x, (x.dtype,), may_broadcast=False)
    return {"x": x.ref, "axis": axis, "order": order.ref, "y": y.ref}


def scatter_value(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    axis = d.axis(x, 1)
    shape = d.shape_of(x)
    if shape is None:
        raise NoDraw
    own = list(shape)
    own[axis] = d.integer(1, 3)
    at = _places(d, d.least(x, axis), tuple(own))
    return {"x": x.ref, "axis": axis, "at": at.ref, "value": d.number(x.dtype)}


def masked_fill(d: Draw) -> Arguments:
    x = _plain(d)
    return {"x": x.ref, "mask": d.matching(x, ("bool",)).ref, "value": d.number(x.dtype)}


def where(d: Draw) -> Arguments:
    mask = d.pick(dtypes=("bool",))
    x = d.matching(mask)
    return {"mask": mask.ref, "x": x.ref, "y": d.matching(x, (x.dtype,)).ref}


def where_number(d: Draw) -> Arguments:
    x = _plain(d)
    return {"x": x.ref, "mask": d.matching(x, ("bool",)).ref, "value": d.number(x.dtype)}


def masked_scatter(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3))
    mask = d.matching(x, ("bool",), may_broadcast=False)
    return {"x": x.ref, "mask": mask.ref, "y": d.matching(x, (x.dtype,), may_broadcast=False).ref}


def take(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), may_be_empty=False)
    bound = min(_numel(shape) for shape in x.shapes)
    return {"x": x.ref, "at": _places(d, bound, d.shape(d.integer(1, 2))).ref}


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def one(d: Draw) -> Arguments:
    return {"x": _plain(d).ref}


def arange_like(d: Draw) -> Arguments:
    x = _plain(d, 1)
    return {"x": x.ref, "extent": d.extent(x, x.rank - 1)}


def as_strided(d: Draw) -> Arguments:
    x = d.pick(ranks=(1, 2, 3), where=lambda k: k.is_fixed and _numel(k.shape) >= 4)
    step = d.integer(1, 3)
    rows = d.integer(1, 3)
    columns = (_numel(x.shape) - (rows - 1)) // step
    return {"x": x.ref, "size": (rows, max(columns, 1)), "stride": (1, step if columns else 1)}


ROWS = (
    _op("permute", "{x}.permute({dims})", permute, weight=2),
    _op("transpose", "{x}.transpose({a}, {b})", transpose, weight=2),
    _op("reshape", "{x}.reshape({shape})", reshape, weight=4),
    _op("flatten", "{x}.flatten({start}, {end})", flatten, weight=2),
    _op("unflatten", "{x}.unflatten({axis}, {sizes})", unflatten),
    _op("flip", "{x}.flip({dims})", flip, weight=3),
    _op("roll", "torch.roll({x}, {shifts}, {dims})", roll, weight=2),
    _op("rot90", "torch.rot90({x}, {k}, {dims})", rot90),
    _op("pad", "F.pad({x}, {amounts}, value={value})", pad_constant, weight=2),
    _op("pad around", "F.pad({x}, {amounts}, mode={mode})", pad_around),
    _op("cat", "torch.cat({parts}, {axis})", cat, weight=3),
    _op("stack", "torch.stack({parts}, {axis})", stack, weight=2),
    _op("slice", "{x}[{places}]", slice_, weight=4),
    _op("slice of the last", "{x}[..., -{count}:]", last_places),
    _op("select", "{x}.select({axis}, {at})", select),
    _op("narrow", "{x}.narrow({axis}, {start}, {length})", narrow),
    _op("unfold", "{x}.unfold({axis}, {size}, {step})", unfold, weight=2),
    _op("expand", "{x}.expand({shape})", expand),
    _op("repeat", "{x}.repeat({counts})", repeat),
    _op("tile", "torch.tile({x}, {counts})", tile, weight=0.5),
    _op("repeat_interleave", "{x}.repeat_interleave({count}, {axis})", repeat_interleave),
    _op("unsqueeze", "{x}.unsqueeze({axis})", unsqueeze),
    _op("squeeze", "{x}.squeeze({axis})", squeeze),
    _op("movedim", "torch.movedim({x}, {a}, {b})", movedim, weight=0.5),
    _op("chunk", "torch.chunk({x}, {parts}, {axis})[{at}]", part_of),
    _op("tensor_split", "torch.tensor_split({x}, {parts}, {axis})[{at}]", part_of, weight=0.5),
    _op("tril", "torch.tril({x}, {diagonal})", triangle),
    _op("triu", "torch.triu({x}, {diagonal})", triangle),
    _op("diagonal", "torch.diagonal({x}, {offset}, {a}, {b})", diagonal),
    _op("diag_embed", "torch.diag_embed({x}, {offset})", diag_embed, weight=0.5),
    _op("pixel_shuffle", "F.pixel_shuffle({x}, {factor})", pixel_shuffle, weight=0.5),
    _op("pixel_unshuffle", "F.pixel_unshuffle({x}, {factor})", pixel_unshuffle, weight=0.5),
    _op("slice_scatter", "torch.slice_scatter({x}, {y}, {axis}, {start}, {end}, {step})",
        slice_scatter),
    _op("select_scatter", "torch.select_scatter({x}, {y}, {axis}, {at})", select_scatter),
    _op("gather", "torch.gather({x}, {axis}, {at})", gather, weight=2),
    _op("gather at computed places",
        "torch.gather({x}, {axis}, {at}.long().remainder({bound}))", gather_computed),
    _op("take_along_dim", "torch.take_along_dim({x}, {at}, {axis})", gather, weight=0.5),
    _op("index_select", "torch.index_select({x}, {axis}, {at})", index_select),
    _op("index", "{x}[{at}]", index_first),
    _op("index of the last", "{x}[..., {at}]", index_last),
    _op("index by two", "{x}[{a}, {b}]", index_two),
    _op("index from the end", "{x}[-1 - {at}]", index_negative, weight=0.5),
    _op("take", "torch.take({x}, {at})", take, weight=0.5),
    _op("index_put", "torch.index_put({x}, (torch.tensor({rows}),), {y})", index_put),
    _op("index_copy", "torch.index_copy({x}, {axis}, torch.tensor({rows}), {y})", index_copy),
    _op("index_fill", "torch.index_fill({x}, {axis}, torch.tensor({rows}), {value})", index_fill),
    _op("scatter",
        "torch.scatter({x}, {axis}, torch.argsort({order}, dim={axis}, stable=True), {y})",
        scatter),
    _op("scatter of a number", "torch.scatter({x}, {axis}, {at}, {value})", scatter_value),
    _op("masked_fill", "{x}.masked_fill({mask}, {value})", masked_fill),
    _op("where", "torch.where({mask}, {x}, {y})", where, weight=2),
    _op("where of a number", "torch.where({mask}, {x}, {value})", where_number),
    _op("masked_scatter", "{x}.masked_scatter({mask}, {y})", masked_scatter),
    _op("contiguous", "{x}.contiguous()", one, weight=0.3),
    _op("clone", "{x}.clone()", one, weight=0.3),
    _op("arange", "torch.arange({extent}) + 0 * {x}.shape[-1]", arange_like, weight=0.5),
    _op("as_strided", "torch.as_strided({x}.contiguous(), {size}, {stride})", as_strided,
        weight=0.3, is_fixed_only=True),
)  # fmt: skip

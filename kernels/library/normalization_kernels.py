"""The kernels of the norms: forward, and the gradients of the input, the weight and the bias.

A row that fits is held by one program from its load to its store, a longer one is read twice.
Programs that give gradients of weights go on from row to row with the sums that they have.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def channel_of(column, spatial, inverse, CHANNEL: tl.constexpr):
    """column // spatial; "short" by a product with 1 / spatial, which is exact below 2²¹: half an
    element from the next channel is further than the roundings of the quotient."""
    if CHANNEL == "itself":
        return column
    elif CHANNEL == "short":
        return ((column.to(tl.float32) + 0.5) * inverse).to(tl.int32)
    else:
        return column // spatial


@triton.jit
def add_pairs(one, other, more, another):
    return one + more, other + another


@triton.jit
def two_sums(one, other, AXIS: tl.constexpr):
    """The sums of two tensors along an axis, by one exchange between the threads."""
    return tl.reduce((one, other), AXIS, add_pairs)


@triton.jit
def of_channels(
    pointer, first, start, length, spatial, inverse, CHANNEL: tl.constexpr, RUN: tl.constexpr,
    EVICTION: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The weights of the elements from `start` on of a row whose channels begin at `first`,
    [1, COLUMNS].

    RUN: so many elements in a row have one channel: one load for all.
    """
    column = start + tl.arange(0, COLUMNS // RUN)[None, :] * RUN
    channel = first + channel_of(column, spatial, inverse, CHANNEL)
    found = tl.load(
        pointer + channel, mask=column < length, other=0.0, eviction_policy=EVICTION
    )  # fmt: skip
    if RUN > 1:
        found = tl.broadcast_to(found[:, :, None], (1, COLUMNS // RUN, RUN))
        found = tl.reshape(found, (1, COLUMNS))
    return found


@triton.jit
def whole_norm_kernel(
    x, y, weight, bias, means, scales,
    items, length, x_stride, groups, group_channels, spatial, inverse,
    CHANNEL: tl.constexpr, RUN: tl.constexpr, EPS: tl.constexpr, CENTERED: tl.constexpr,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Rows of one group that a program holds, of ROWS items."""
    group = tl.program_id(0) % groups
    item = (tl.program_id(0) // groups).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    rows = item * groups + group
    lane = tl.arange(0, COLUMNS)[None, :]
    mask = (item < items)[:, None] & (lane < length)
    value = tl.load(x + rows[:, None] * x_stride + lane, mask=mask, other=0.0).to(ACC)
    if CENTERED:
        mean = tl.sum(value, 1) / length
        value = tl.where(mask, value - mean[:, None], 0.0)
        tl.store(means + rows, mean, mask=item < items)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 1) / length + tl.full((), EPS, ACC))
    tl.store(scales + rows, scale, mask=item < items)
    # weights are loaded as late as this, as they would take registers from more programs
    first = group * group_channels
    result = value * scale[:, None]
    if HAS_WEIGHT:
        factor = of_channels(
            weight, first, 0, length, spatial, inverse, CHANNEL, RUN, "evict_last", COLUMNS
        )
        result *= factor.to(ACC)
    if HAS_BIAS:
        offset = of_channels(
            bias, first, 0, length, spatial, inverse, CHANNEL, RUN, "evict_last", COLUMNS
        )
        result += offset.to(ACC)
    tl.store(y + rows[:, None] * length + lane, result, mask=mask)


@triton.jit
def norm_kernel(
    x, y, weight, bias, means, scales,
    length, x_stride, groups, group_channels, spatial, inverse, CHANNEL: tl.constexpr,
    RUN: tl.constexpr, EPS: tl.constexpr, CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACC: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A longer row, in steps: with a mean and a sum of squared differences from it for each lane
    (Welford, "Note on a method for calculating corrected sums of squares and products", 1962)."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, COLUMNS)[None, :]
    x += row * x_stride
    y += row * length
    first = (row % groups) * group_channels
    mean_of_lane = tl.zeros((1, COLUMNS), ACC)
    squares = tl.zeros((1, COLUMNS), ACC)
    for start in range(0, length, COLUMNS):
        mask = start + lane < length
        value = tl.load(
            x + start + lane, mask=mask, other=0.0, eviction_policy="evict_last"
        ).to(ACC)  # fmt: skip
        if CENTERED:
            step = tl.where(mask, value - mean_of_lane, 0.0)
            mean_of_lane += step * (1.0 / (start // COLUMNS + 1).to(ACC))
            squares += tl.where(mask, step * (value - mean_of_lane), 0.0)
        else:
            squares += value * value
    mean = tl.zeros((1,), ACC)
    if CENTERED:
        steps = tl.maximum((length - lane + COLUMNS - 1) // COLUMNS, 0).to(ACC)
        mean = tl.sum(mean_of_lane * steps, 1) / length
        away = mean_of_lane - mean[:, None]
        squares += steps * away * away
        tl.store(means + row + tl.arange(0, 1), mean)
    scale = 1.0 / tl.sqrt(tl.sum(squares, 1) / length + tl.full((), EPS, ACC))
    tl.store(scales + row + tl.arange(0, 1), scale)
    for start in range(0, length, COLUMNS):
        column = start + lane
        mask = column < length
        value = tl.load(x + column, mask=mask, eviction_policy="evict_first").to(ACC)
        result = (value - mean[:, None]) * scale[:, None]
        if HAS_WEIGHT:
            result *= of_channels(
                weight, first, start, length, spatial, inverse, CHANNEL, RUN, "evict_first", COLUMNS
            ).to(ACC)  # fmt: skip
        if HAS_BIAS:
            result += of_channels(
                bias, first, start, length, spatial, inverse, CHANNEL, RUN, "evict_first", COLUMNS
            ).to(ACC)  # fmt: skip
        tl.store(y + column, result, mask=mask)


@triton.jit
def norm_backward_kernel(
    gradient, x, weight, means, scales, out,
    count, length, gradient_stride, x_stride, groups,
    CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, ACC: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradient of the input alone, where each element of a row has a weight of its own."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    row = rows[:, None]
    lane = tl.arange(0, COLUMNS)[None, :]
    gradient += row * gradient_stride
    x += row * x_stride
    out += row * length
    first = (row % groups) * length
    mean = tl.zeros((ROWS, 1), ACC)
    if CENTERED:
        mean = tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
    scale = tl.load(scales + rows, mask=rows < count, other=0.0)[:, None]
    along = tl.zeros((ROWS, COLUMNS), ACC)
    level = tl.zeros((ROWS, COLUMNS), ACC)
    g, value = along, along
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        g = tl.load(
            gradient + column, mask=mask, other=0.0,
            eviction_policy="" if WHOLE else "evict_last",
        ).to(ACC)  # fmt: skip
        value = tl.load(
            x + column, mask=mask, other=0.0, eviction_policy="" if WHOLE else "evict_last"
        ).to(ACC)
        value = tl.where(mask, (value - mean) * scale, 0.0)
        if HAS_WEIGHT:
            g *= tl.load(weight + first + column, mask=mask, other=0.0).to(ACC)
        along += g * value
        level += g
    base = tl.zeros((ROWS, 1), ACC)
    if CENTERED:
        total, whole = two_sums(along, level, 1)
        base = (whole / length)[:, None]
    else:
        total = tl.sum(along, 1)
    share = (total / length)[:, None]
    for start in range(0, 1 if WHOLE else length, COLUMNS):
        column = start + lane
        mask = (row < count) & (column < length)
        if not WHOLE:
            g = tl.load(
                gradient + column, mask=mask, other=0.0, eviction_policy="evict_first"
            ).to(ACC)  # fmt: skip
            value = tl.load(x + column, mask=mask, other=0.0, eviction_policy="evict_first").to(ACC)
            value = (value - mean) * scale
            if HAS_WEIGHT:
                g *= tl.load(weight + first + column, mask=mask, other=0.0).to(ACC)
        tl.store(out + column, (g - base - value * share) * scale, mask=mask)


@triton.jit
def norm_gradients_kernel(
    gradient, x, weight, means, scales, out, partial, count, length, gradient_stride, x_stride,
    CENTERED: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr, AHEAD: tl.constexpr,
    KEEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """All gradients of norms over the last dims: rows are shared out among few programs, each adds
    up the weights' gradients of its rows.

    AHEAD: whether it loads its next rows before it works on those it has. KEEPS: whether it keeps
    the weights from row to row.
    """
    lane = tl.arange(0, COLUMNS)[None, :]
    is_inside = lane < length
    if KEEPS:
        factor = tl.load(weight + lane, mask=is_inside, other=0.0)
    weights = tl.zeros((ROWS, COLUMNS), ACC)
    biases = tl.zeros((ROWS, COLUMNS), ACC)
    programs = tl.num_programs(0)
    if AHEAD:
        row = (tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS))[:, None]
        mask = (row < count) & is_inside
        next_g = tl.load(gradient + row * gradient_stride + lane, mask=mask, other=0.0)
        next_value = tl.load(x + row * x_stride + lane, mask=mask, other=0.0)
    for tile in range(tl.program_id(0), tl.cdiv(count, ROWS), programs):
        rows = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        row = rows[:, None]
        mask = (row < count) & is_inside
        if AHEAD:
            g, value = next_g.to(ACC), next_value.to(ACC)
            after = row + ROWS * programs
            is_there = (after < count) & is_inside
            next_g = tl.load(gradient + after * gradient_stride + lane, mask=is_there, other=0.0)
            next_value = tl.load(x + after * x_stride + lane, mask=is_there, other=0.0)
        else:
            g = tl.load(gradient + row * gradient_stride + lane, mask=mask, other=0.0).to(ACC)
            value = tl.load(x + row * x_stride + lane, mask=mask, other=0.0).to(ACC)
        scale = tl.load(scales + rows, mask=rows < count, other=0.0)[:, None]
        if CENTERED:
            mean = tl.load(means + rows, mask=rows < count, other=0.0)[:, None]
            value = tl.where(mask, value - mean, 0.0)
        value *= scale
        weights += g * value
        if HAS_BIAS:
            biases += g
        if not KEEPS:
            factor = tl.load(weight + lane, mask=is_inside, other=0.0, eviction_policy="evict_last")
        g *= factor.to(ACC)
        if CENTERED:
            along, level = two_sums(g * value, g, 1)
            result = g - value * (along / length)[:, None] - (level / length)[:, None]
        else:
            result = g - value * (tl.sum(g * value, 1) / length)[:, None]
        tl.store(out + row * length + lane, result * scale, mask=mask)
    column = tl.arange(0, COLUMNS)
    place = partial + tl.program_id(0) * length + column
    tl.store(place, tl.sum(weights, 0), mask=column < length)
    if HAS_BIAS:
        tl.store(place + programs * length, tl.sum(biases, 0), mask=column < length)


@triton.jit
def column_sums_kernel(
    gradient, x, means, scales, partial, count, length, gradient_stride, x_stride, chunk,
    groups, group_columns, GROUPED: tl.constexpr, CENTERED: tl.constexpr,
    HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights and biases of a block of columns, over `chunk` rows of all groups.

    GROUPED: whether each `group_columns` of a row have statistics of their own.
    """
    lane = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column = lane[None, :]
    weights = tl.zeros((ROWS, COLUMNS), ACC)
    biases = tl.zeros((ROWS, COLUMNS), ACC)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, count)
    for start in range(begin, end, ROWS):
        rows = start.to(tl.int64) + tl.arange(0, ROWS)
        row = rows[:, None]
        mask = (row < end) & (column < length)
        g = tl.load(gradient + row * gradient_stride + column, mask=mask, other=0.0).to(ACC)
        value = tl.load(x + row * x_stride + column, mask=mask, other=0.0).to(ACC)
        if GROUPED:
            group = row * groups + column // group_columns
            scale = tl.load(scales + group, mask=mask, other=0.0)
            if CENTERED:
                value -= tl.load(means + group, mask=mask, other=0.0)
        else:
            scale = tl.load(scales + rows, mask=rows < end, other=0.0)[:, None]
            if CENTERED:
                value -= tl.load(means + rows, mask=rows < end, other=0.0)[:, None]
        weights += g * value * scale
        biases += g
    place = partial + tl.program_id(1).to(tl.int64) * length + lane
    tl.store(place, tl.sum(weights, 0), mask=lane < length)
    if HAS_BIAS:
        tl.store(place + tl.num_programs(1) * length, tl.sum(biases, 0), mask=lane < length)


@triton.jit
def factors_of(weight, first, channel, channels, HAS_WEIGHT: tl.constexpr, ACC: tl.constexpr):
    """The weights of a group's channels from `first` on, 1 where there are none."""
    if HAS_WEIGHT:
        return tl.load(weight + first + channel, mask=channel < channels, other=0.0).to(ACC)
    else:
        return tl.full(channel.shape, 1.0, ACC)


@triton.jit
def whole_group_gradients_kernel(
    gradient, x, weight, means, scales, out, partial,
    items, length, gradient_stride, x_stride, groups, group_channels, spatial,
    CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """All gradients of a group whose rows a program holds, [ROWS, CHANNELS, POSITIONS]: the items
    are shared out among its programs, each adds up the weights' gradients of its own.

    From the sums of a channel, Σ g·v and Σ g with v the normalised input, come both the gradients
    of its weight w and bias and the group's means: out = (g·w - mean(g·w) - v·mean(g·w·v))·scale.
    """
    group, program = tl.program_id(0) % groups, tl.program_id(0) // groups
    programs = tl.num_programs(0) // groups
    channel = tl.arange(0, CHANNELS)
    position = tl.arange(0, POSITIONS)
    at = channel[None, :, None] * spatial + position[None, None, :]
    is_inside = (channel < group_channels)[None, :, None] & (position < spatial)[None, None, :]
    first = group * group_channels
    factor = factors_of(weight, first, channel, group_channels, HAS_WEIGHT, ACC)
    weights = tl.zeros((ROWS, CHANNELS), ACC)
    biases = tl.zeros((ROWS, CHANNELS), ACC)
    for tile in range(program, tl.cdiv(items, ROWS), programs):
        item = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)
        rows = item * groups + group
        row = rows[:, None, None]
        mask = (item < items)[:, None, None] & is_inside
        g = tl.load(gradient + row * gradient_stride + at, mask=mask, other=0.0).to(ACC)
        value = tl.load(x + row * x_stride + at, mask=mask, other=0.0).to(ACC)
        scale = tl.load(scales + rows, mask=item < items, other=0.0)[:, None, None]
        if CENTERED:
            mean = tl.load(means + rows, mask=item < items, other=0.0)
            value = tl.where(mask, value - mean[:, None, None], 0.0)
        value *= scale
        along, level = two_sums(g * value, g, 2)
        weights += along
        biases += level
        share, base = two_sums(along * factor[None, :], level * factor[None, :], 1)
        result = g * factor[None, :, None] - value * (share / length)[:, None, None]
        if CENTERED:
            result -= (base / length)[:, None, None]
        tl.store(out + row * length + at, result * scale, mask=mask)
    place = partial + program * groups * group_channels + first + channel
    is_channel = channel < group_channels
    if HAS_WEIGHT:
        tl.store(place, tl.sum(weights, 0), mask=is_channel)
    if HAS_BIAS:
        tl.store(place + programs * groups * group_channels, tl.sum(biases, 0), mask=is_channel)


@triton.jit
def group_gradients_kernel(
    gradient, x, weight, means, scales, out, partial,
    length, gradient_stride, x_stride, groups, group_channels, spatial,
    CENTERED: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    CHANNELS: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """The same of a group and an item that are read twice, in steps of [CHANNELS, POSITIONS]."""
    row = tl.program_id(0).to(tl.int64)
    group, item = row % groups, row // groups
    gradient += row * gradient_stride
    x += row * x_stride
    out += row * length
    own = group * group_channels
    place = partial + item * groups * group_channels + own
    after = tl.num_programs(0).to(tl.int64) * group_channels
    mean = tl.zeros((), ACC)
    if CENTERED:
        mean = tl.load(means + row)
    scale = tl.load(scales + row)
    share, base = tl.zeros((CHANNELS,), ACC), tl.zeros((CHANNELS,), ACC)
    for first in range(0, group_channels, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)
        is_channel = channel < group_channels
        along = tl.zeros((CHANNELS, POSITIONS), ACC)
        level = tl.zeros((CHANNELS, POSITIONS), ACC)
        for start in range(0, spatial, POSITIONS):
            position = start + tl.arange(0, POSITIONS)[None, :]
            at = channel[:, None].to(tl.int64) * spatial + position
            mask = is_channel[:, None] & (position < spatial)
            g = tl.load(gradient + at, mask=mask, other=0.0, eviction_policy="evict_last").to(ACC)
            value = tl.load(x + at, mask=mask, other=0.0, eviction_policy="evict_last").to(ACC)
            along += g * (value - mean)
            level += g
        along_channel, of_channel = two_sums(along, level, 1)
        along_channel *= scale
        factor = factors_of(weight, own, channel, group_channels, HAS_WEIGHT, ACC)
        if HAS_WEIGHT:
            tl.store(place + channel, along_channel, mask=is_channel)
        if HAS_BIAS:
            tl.store(place + after + channel, of_channel, mask=is_channel)
        share += along_channel * factor
        base += of_channel * factor
    part = tl.sum(share) / length * scale
    level_part = tl.zeros((), ACC)
    if CENTERED:
        level_part = tl.sum(base) / length
    for first in range(0, group_channels, CHANNELS):
        channel = first + tl.arange(0, CHANNELS)
        is_channel = channel < group_channels
        factor = factors_of(weight, own, channel, group_channels, HAS_WEIGHT, ACC)
        for start in range(0, spatial, POSITIONS):
            position = start + tl.arange(0, POSITIONS)[None, :]
            at = channel[:, None].to(tl.int64) * spatial + position
            mask = is_channel[:, None] & (position < spatial)
            g = tl.load(gradient + at, mask=mask, other=0.0, eviction_policy="evict_first").to(ACC)
            value = tl.load(x + at, mask=mask, other=0.0, eviction_policy="evict_first").to(ACC)
            result = g * factor[:, None] - level_part - (value - mean) * part
            tl.store(out + at, result * scale, mask=mask)


@triton.jit
def sum_parts_kernel(
    partial, of_weight, of_bias, parts, length,
    HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ACC: tl.constexpr,
    PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums over parts of `partial`, [2, parts, length]: of the weights and of the biases."""
    lane = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    which = tl.program_id(1) if HAS_WEIGHT else 1  # of the weights, of the biases
    partial += which.to(tl.int64) * parts * length
    sums = tl.zeros((PARTS, COLUMNS), ACC)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)[:, None]
        mask = (part < parts) & (lane[None, :] < length)
        sums += tl.load(partial + part.to(tl.int64) * length + lane[None, :], mask=mask, other=0.0)
    total = tl.sum(sums, 0)
    if HAS_WEIGHT:
        tl.store(of_weight + lane, total, mask=(lane < length) & (which == 0))
    if HAS_BIAS:
        tl.store(of_bias + lane, total, mask=(lane < length) & (which == 1))

"""What the database's samples do not reach: ties, NaN, empty tensors, long rows, odd divisors."""

import math
import random

import pytest
import torch
from torch.nn import functional as F

from benchmarks.operators.drive import RIGHT, drive
from benchmarks.operators.samples import Sample

pytestmark = pytest.mark.slow
NAN, INF = math.nan, math.inf
NUMBERS = torch.tensor([2.0, NAN, -INF, 0.5, NAN, 2.0, INF, -0.0, 0.0])
LONG = torch.randn(3, 1000, generator=torch.Generator().manual_seed(7))

MANY = torch.randint(0, 1000, (5000,), generator=torch.Generator().manual_seed(9))


def stable_sort(x, descending=False):
    return list(torch.sort(x, dim=-1, descending=descending, stable=True))


def resized_bytes(*images):
    interpolate = torch.nn.functional.interpolate
    return [
        interpolate(image, mode=mode, align_corners=corners, **size)
        for image in images
        for mode in ("bilinear", "bicubic")
        for corners in (True, False)
        for size in ({"size": (5, 3)}, {"size": (13, 2)}, {"scale_factor": (1.3, 0.7)})
    ]


def bytes_of(*shape):
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(5)).byte()


def written_twice(x):
    places = torch.tensor([1, 1, 0, 1, 5])
    values = torch.arange(5.0)
    return [x.index_put((places,), values), x.index_put((places,), values, accumulate=True)]


def written_by_masks(x, values, by_row):
    mask, rows = x > 0, x[:, 0] > 0
    return [
        x.index_put((mask,), values),
        x.index_put((mask,), values, accumulate=True),
        x.index_put((rows,), by_row),
        x.index_put((rows,), by_row[:, :1], accumulate=True),
        x.index_put((rows,), by_row[:1]),
        x.index_put((rows,), by_row[0], accumulate=True),
        x.index_put((x > 1e9,), values[:0]),
    ]


def transposed(x):
    weight = x[0, :, None, :2, :1]
    return [torch.nn.functional.conv_transpose2d(x, weight, padding=(3, 1), stride=2)]


def summed_as_bools(x):
    return [x.sum(0, dtype=torch.bool), (x > 0).prod(dtype=torch.bool), x.prod(dtype=torch.bool)]


def reduced_in_another_type(x):
    return [x.sum(dtype=torch.float64), x.prod(dtype=torch.float64), x.mean(dtype=torch.float64)]


def scaled_by_powers(x, n):
    far = torch.tensor([-140, -149, -126, 127, 128, 0, 5, 100, -100])
    return [torch.ldexp(x, n), torch.ldexp(x.half(), n), torch.ldexp(n, n), torch.ldexp(x, far)]


def counted(x):
    is_high, few = x > 0.5, x[:, :3] > 0
    counts = [is_high.sum(1), is_high.sum(0, keepdim=True), is_high.sum(), torch.count_nonzero(x)]
    return [*counts, few.sum(1), is_high[:, :0].sum(1), is_high.sum((0, 1), dtype=torch.int32)]


def divided(x, y):
    return [x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc")]


def folded(x):
    fold = torch.nn.functional.fold
    return [
        fold(x, (6, 7), (3, 2), dilation=1, padding=1, stride=2),
        fold(x[0], (7, 5), (3, 2), dilation=2, padding=(2, 1), stride=2),
    ]


PLANE = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(8)).round(decimals=1)
KINDS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.half)
LOWEST = torch.where(torch.arange(35.0).reshape(7, 5) % 13 < 9, float("-inf"), PLANE)
UNKNOWN = torch.where(torch.arange(35.0).reshape(7, 5) % 6 == 1, NAN, PLANE)
EDGES = torch.tensor([0.0, -0.0, 1.0, 2.0, -1.0, -2.5, 0.5, 1e-30, -1e-20, 3e7, INF, NAN, 170.6])
TAILS = torch.tensor([-1e30, -40.0, -26.0, -15.0, -11.4, -9.0, -5.5, -2.0, -1.0, -0.1, 0.0, 0.7])
TAILS = torch.cat([TAILS, -TAILS, torch.tensor([INF, -INF, NAN])])
OF_DOUBLES = (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "tanh", "sigmoid", "erf", "erfc",
    "sinh", "cosh", "sin", "cos", "tan", "asin", "acos", "atan", "asinh", "acosh", "atanh", "rsqrt",
    "lgamma", "digamma", "erfinv",
)  # fmt: skip


def normal_tails(x):
    """Each result by itself: what is small is compared with what is small."""
    special = torch.special
    return [*special.erfc(-x).unbind(), *special.ndtr(x).unbind(), *special.log_ndtr(x).unbind()]


def precise_tails(x):
    """Eager's ndtr is ½ (1 + erf), of which nothing is left in the lower tail."""
    special, root = torch.special, math.sqrt(0.5)
    half = special.erfc(x.double() * -root).mul(0.5).to(x.dtype)
    return [*special.erfc(-x).unbind(), *half.unbind(), *special.log_ndtr(x).unbind()]


def pooled_with_places(x):
    pool = torch.nn.functional
    return [
        *pool.max_pool2d(x, 3, padding=1, return_indices=True),
        *pool.max_pool2d(x, (3, 2), 2, (1, 1), (3, 2), return_indices=True),
        *pool.adaptive_max_pool2d(x, (3, 4), return_indices=True),
        *pool.adaptive_max_pool2d(x, (1, 2), return_indices=True),
    ]


def cells_with_nan(x):
    """Maxima over cells of one size, of sizes that differ, at even steps and wider than 16."""
    pool = torch.nn.functional
    sizes = ((3, 4), (7, 5), (4, 7), (6, 1), (2, 3))
    return [pool.adaptive_max_pool2d(x, size) for size in sizes]


def windows_of_integers(x):
    """Means over windows with borders, in one, two and three dims."""
    source, found = random.Random(5), []
    for rank in (1, 2, 3) * 4:
        kernel, strides = ([source.randint(1, most) for _ in range(rank)] for most in (6, 3))
        margins = [source.randint(0, size // 2) for size in kernel]
        options = [source.choice((False, True)) for _ in ("ceil_mode", "count_include_pad")]
        divisor = [source.choice((None, 2))] if rank > 1 else []
        pool = getattr(torch.nn.functional, f"avg_pool{rank}d")
        planes = x[(0,) * (3 - rank)]
        found.append(pool(planes, kernel, strides, margins, *options, *divisor))
    return found


def _unknown_plane(rows, columns):
    plane = torch.arange(2 * rows * columns).reshape(1, 2, rows, columns) * 7 % 23 - 11.0
    plane[0, 0, rows // 2, columns // 3] = NAN
    plane[0, 1, 0, 0] = NAN
    return plane


CALLS = {
    "maxima of cells with NaN": (cells_with_nan, _unknown_plane(5, 8)),
    "maxima of more cells with NaN": (cells_with_nan, _unknown_plane(50, 37)),
    "windows of integers": (
        windows_of_integers,
        torch.arange(3024).reshape(2, 3, 7, 9, 8) % 19 - 9,
    ),
    "maxima and their places": (pooled_with_places, PLANE),
    "maxima and the places of NaN": (pooled_with_places, UNKNOWN),
    "maxima and the places of what is lowest": (pooled_with_places, LOWEST),
    "sums and products as bools": (summed_as_bools, NUMBERS[:4]),
    "all elements reduced in another type": (reduced_in_another_type, LONG[0, :9]),
    "numbers times powers of two": (scaled_by_powers, NUMBERS, torch.arange(-4, 5)),
    "how many are true": (counted, LONG),
    "the most frequent of ties": (lambda x: list(torch.mode(x, 0)), NUMBERS),
    "the most frequent along an inner dim": (
        lambda x: list(torch.mode(x, 1, keepdim=True)),
        torch.arange(60).reshape(3, 10, 2) ** 2 % 7,
    ),
    "the tails of the normal distribution": (normal_tails, TAILS),
    "the tails of the normal distribution in doubles": (normal_tails, TAILS.double()),
    "what is left far below of activations": (
        lambda x: [*F.gelu(x).unbind(), *F.gelu(x, approximate="tanh").unbind()],
        torch.tensor([-20.0, -1e3, -1e7, 1e7]),
    ),
    "an average by a negative divisor": (
        lambda x: [F.avg_pool2d(x, 2, divisor_override=-3), F.avg_pool2d(x, 2, divisor_override=3)],
        torch.arange(-24, 24).reshape(1, 6, 8) * 5 % 17 - 8,
    ),
    "sums of bools that do not count the second": (
        lambda x: [torch.add(x, ~x, alpha=False), torch.add(x, ~x, alpha=True), x.add(True)],
        NUMBERS > 0,
    ),
    "bytes by a negative factor": (
        lambda x: [torch.add(x, x, alpha=-3), torch.sub(x, x.flip(0), alpha=-1)],
        torch.arange(0, 250, 7).byte(),
    ),
    "a place that is one number": (
        lambda x: [x.take(x[0].long()), x.take(-x[5:7].nan_to_num(posinf=1).long())],
        NUMBERS,
    ),
    "the gamma function at its edges": (lambda x: [x.lgamma(), x.digamma()], EDGES),
    "functions of doubles at their edges": (
        lambda x: [getattr(torch, name)(x) for name in OF_DOUBLES],
        torch.cat([NUMBERS, EDGES, torch.tensor([0.999999, -0.7, -745.2, 1e22])]).double(),
    ),
    "more sums than lookups are good for": (
        lambda x: [
            x.index_add(1, MANY, x[:, MANY]),
            x.scatter_add(1, MANY.expand(3, -1).flip(0), x[:, MANY.flip(0)]),
            torch.zeros(3, 3000).index_put((MANY[:3, None] % 3, MANY), x[:, MANY], True),
        ],
        LONG,
    ),
    "more writes than lookups are good for": (
        lambda x: [
            x.index_copy(1, MANY, x.repeat(1, 5)),
            x.scatter(1, (MANY * 7 + torch.arange(3)[:, None]) % 1000, x.repeat(1, 5)),
            x.half().scatter(1, MANY.expand(3, -1), x.repeat(1, 5).half()),
        ],
        LONG,
    ),
    "powers of doubles": (
        lambda x: [x[:, None] ** x, torch.atan2(x[:, None], x), x.abs() ** 0.3],
        torch.cat([NUMBERS, torch.tensor([-3.0, 2.5, 1e3, -0.5, 1.0])]).double(),
    ),
    "overlapping patches": (folded, torch.arange(2 * 12 * 12.0).reshape(2, 12, 12)),
    "sorts put NaN last": (stable_sort, NUMBERS),
    "descending sorts put NaN first": (lambda x: stable_sort(x, True), NUMBERS),
    "equal elements keep their order": (stable_sort, torch.tensor([3, 1, 3, 1, 1, 2, 3])),
    "rows longer than a run are merged": (stable_sort, LONG.round(decimals=1)),
    "a few of a long row": (lambda x: list(torch.topk(x, 7)), LONG),
    "most of a long row": (lambda x: list(torch.topk(x, 600, largest=False)), LONG),
    "a median of numbers with NaN": (lambda x: list(torch.median(x, 0)), NUMBERS),
    "a running sum of blocks": (lambda x: [x.cumsum(-1)], LONG),
    "a running maximum and its place": (lambda x: list(torch.cummax(x, -1)), NUMBERS),
    "a running product of integers": (lambda x: [x.cumprod(0)], torch.arange(1, 60) % 7 - 3),
    "the last of several writes": (lambda x: written_twice(x)[:1], torch.zeros(9)),
    "all of several writes": (lambda x: written_twice(x)[1:], torch.ones(9)),
    "sums of nothing": (lambda x: [x.sum(1), x.prod(1), x @ x.T, x * 2], torch.ones(3, 0)),
    "whether any of nothing": (lambda x: [x.any(), x.all(), x.flip(0)], torch.ones(0) > 0),
    "parts of no elements": (lambda x: [torch.cat([x[:, :0], x, x[:, 3:]], 1)], torch.ones(2, 3)),
    "extremes of bools": (lambda x: [x.amax(), x.amin(), x.int().argmax()], NUMBERS > 0),
    "integer products": (lambda x: [x @ x.T], torch.arange(12).reshape(3, 4) * 2**60),
    "a shift by all bits": (lambda x: [x >> 31, x << 31], torch.tensor([1, -7, 9]).int()),
    "extremes with NaN": (lambda x: [x.amax(), x.argmax(), x.clamp(0, 1)], NUMBERS),
    "a border of a float in integers": (
        lambda x: [torch.nn.functional.pad(x.to(kind), (1, 2), value=1.0) for kind in KINDS],
        torch.arange(3),
    ),
    "small integers of floats beyond them": (
        lambda x: [x.to(torch.uint8), x.to(torch.int8), x.half().to(torch.int16)],
        torch.tensor([-1.5, -0.5, 255.0, 300.25, -129.0, 1e3]),
    ),
    "places of extremes of small integers": (
        lambda x: [*x.int().cummax(1), *x.to(torch.uint8).cummin(0), *x.short().cummin(1)],
        torch.tensor([[1, 7, 3], [4, 0, 100]]),
    ),
    "masks write several values": (
        written_by_masks,
        torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0], [7.0, 0.0, NAN]]),
        torch.arange(4.0),
        torch.arange(6.0).reshape(2, 3),
    ),
    "a transposed convolution padded by more than its kernel": (transposed, PLANE[:, :, :, :4]),
    "resizing in doubles": (
        lambda x: [
            torch.nn.functional.interpolate(x, size, mode=mode, align_corners=corners)
            for size in ((9, 4), (3, 11))
            for mode in ("bilinear", "bicubic")
            for corners in (True, False)
        ],
        PLANE.double(),
    ),
    "resizing bytes": (resized_bytes, bytes_of(2, 3, 8, 9), bytes_of(1, 6, 7, 4)),
    "rows of attention that are masked whole": (
        lambda x, mask: [
            torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask),
            torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=mask == 0),
            torch.nn.functional.scaled_dot_product_attention(
                x, x, x, attn_mask=torch.where(mask == 0, 0.0, torch.finfo(torch.float32).min)
            ),
        ],
        PLANE,
        torch.where(torch.arange(49.0).reshape(7, 7) // 7 % 3 == 1, -INF, 0.0),
    ),
    "a mask writes": (lambda x: [x.masked_scatter(x > 0, torch.arange(9.0))], NUMBERS),
}  # fmt: skip


def quotients(dtype):
    left = torch.tensor([7, -7, 49, -49, 0, 127, -128, 5, 9, -9, 100], dtype=dtype)
    right = torch.tensor([2, 2, 49, -7, 3, 1, 1, -3, -4, 4, 7], dtype=dtype)
    return divided, left, right


CALLS |= {
    f"quotients of {dtype} are rounded as eager rounds them": quotients(dtype)
    for dtype in (torch.float32, torch.float16, torch.int32, torch.int8)
}
# 7 elements leave lanes of the vector over, in which a divisor would be 0.
CALLS["a masked lane does not divide"] = (
    lambda x, y: [x // y, x % y],
    torch.arange(7),
    torch.arange(1, 8),
)


PRECISE = {normal_tails: precise_tails}  # where eager is not


@pytest.fixture(scope="module")
def outcomes(run):
    """By call what became of it; all are one model, which costs what one of them does."""
    samples = [
        Sample(
            "a call",
            "",
            number,
            function,
            tensors,
            tuple(PRECISE.get(function, function)(*tensors)),
        )
        for number, (function, *tensors) in enumerate(CALLS.values())
    ]
    return dict(zip(CALLS, drive(samples, run), strict=True))


@pytest.mark.parametrize("name", CALLS)
def test_call_gives_eagers_numbers(name, outcomes):
    assert outcomes[name].verdict == RIGHT, outcomes[name].reason

"""Import rows of functions that no op of ours is: formulas of ops that are, each with its source.

Amounts, signs and neighbours of numbers; inverse and hyperbolic functions; modified Bessel
functions of the first kind; and the gamma function, in f64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from aotc.aot.capture.imports.call import Call, NotSupported, Operand, Row, Rows, wide
from aotc.aot.capture.imports.pointwise import OF_BOOLS
from aotc.aot.ir import build
from aotc.aot.ir.graph import Node, make
from aotc.aot.ir.types import DTYPES

LOG_2 = math.log(2.0)
NEWTON_STEPS = 2  # as torch takes them
LARGE = 1e9  # beyond, x² + 1 is x² in single precision, and x² may overflow


def _function(formula: Callable[[Node], Node]) -> Row:
    def row(call: Call, data: Node) -> Node:
        operand = wide(call.operand(data, call.dtype))
        return build.cast(call.fill(formula(operand)), call.dtype)

    return row


def _signed(formula: Callable[[Node], Node]) -> Callable[[Node], Node]:
    """An odd function from its formula for x ≥ 0; keeps -0."""

    def whole(x: Node) -> Node:
        size = formula(abs(x))
        is_below = x < 0.0
        signed = build.where(is_below, -size, size)
        return build.where(build.equal(x, 0.0), x, signed)

    return whole


def _asinh(x: Node) -> Node:
    square = x * x
    root = build.unary("sqrt", square + 1.0)
    near = build.unary("log1p", x + square / (root + 1.0))
    return build.where(x < LARGE, near, _log_of_double(x))


def _log_of_double(x: Node) -> Node:
    return build.unary("log", x) + LOG_2


def _acosh(x: Node) -> Node:
    rest = x - 1.0
    root = build.unary("sqrt", rest * (x + 1.0))
    near = build.unary("log1p", rest + root)
    whole = build.where(x > LARGE, _log_of_double(x), near)
    # Below 1, where the product under the root may overflow, there is no number.
    return build.where(x < 1.0, math.nan, whole)


def _atanh(x: Node) -> Node:
    return build.unary("log1p", x * 2.0 / (1.0 - x)) * 0.5


def _sinc(x: Node) -> Node:
    angle = x * math.pi
    ratio = build.unary("sin", angle) / angle
    return build.where(build.equal(x, 0.0), 1.0, ratio)


def _erfinv(x: Node) -> Node:
    """Giles' two polynomials, which are good for single precision; of f64, Newton's steps more."""
    rest = (1.0 - x) * (x + 1.0)
    depth = -build.unary("log", rest)
    is_near = depth < 5.0
    near = _polynomial(_NEAR, depth - 2.5)
    far = _polynomial(_FAR, build.unary("sqrt", depth) - 3.0)
    result = build.where(is_near, near, far) * x
    for _ in range(NEWTON_STEPS if x.dtype == "f64" else 0):
        excess = build.unary("erf", result) - x
        slope = build.unary("exp", -(result * result))
        result = result - excess / (slope * (2 / math.sqrt(math.pi)))
    is_end = build.equal(abs(x), 1.0)
    end = x * math.inf
    return build.where(is_end, end, result)


# Mike Giles, "Approximating the erfinv function", GPU Computing Gems, 2011; highest power first.
_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(coefficients: tuple[float, ...], x: Node) -> Node:
    total: Node | float = coefficients[0]
    for coefficient in coefficients[1:]:
        total = x * total + coefficient
    assert isinstance(total, Node)
    return total


def _log_ndtr(x: Node) -> Node:
    """log ½ erfc(-x/√2), where that vanishes by its asymptotic series."""
    place = x * -math.sqrt(0.5)
    complement = build.unary("erfc", place)
    below = build.unary("log", complement * 0.5)
    above = build.unary("log1p", build.unary("erfc", -place) * -0.5)
    square = place * place
    series = _polynomial(_TAIL, 1.0 / square)
    factor = build.unary("log", place * (2 * math.sqrt(math.pi)))
    tail = build.unary("log1p", series) - factor - square
    is_far = place > (20.0 if x.dtype == "f64" else 8.0)
    middle = build.where(is_far, tail, below)
    return build.where(x > 0.0, above, middle)


# √π x e^(x²) erfc(x) - 1 in 1 / x²; highest power first.
_TAIL = (10395 / 64, -945 / 32, 105 / 16, -15 / 8, 3 / 4, -1 / 2, 0.0)


def _hypot(call: Call, left: Operand, right: Operand) -> Node:
    """m √(1 + (n/m)²) of m = max |…| and n = min |…|, whose squares may overflow or vanish."""
    sides = [abs(wide(side)) for side in call.operands(left, right)]
    large, small = (build.pointwise(op, *sides) for op in ("maximum", "minimum"))
    ratio = small / large
    root = build.unary("sqrt", ratio * ratio + 1.0)
    length = build.where(build.equal(large, 0.0), large, large * root)
    is_endless = build.pointwise("logical_or", *(build.unary("isinf", side) for side in sides))
    whole = build.where(is_endless, math.inf, length)
    return build.cast(call.fill(whole), call.dtype)


def _chosen(condition: Node, one: int, other: int, dtype: str) -> Node:
    return make("where", (condition, build.scalar(one, dtype), build.scalar(other, dtype)))


def _next_after(call: Call, start: Operand, end: Operand) -> Node:
    """The next number of the type from `start` towards `end`; `end` where they are equal.

    On bits: a number's magnitude is its bits without the sign, and one more or less is the next.
    """
    first, last = map(call.fill, call.operands(start, end))
    bits = DTYPES[call.dtype].itemsize_bytes * 8
    short, whole = f"i{bits}", f"i{max(bits, 32)}"
    low = -(2 ** (bits - 1))
    own, other = (
        build.cast(make("bitcast", (item,), {"dtype": short}), whole) for item in (first, last)
    )
    # Whole numbers in the order of the floats, zeros of both signs as 0.
    place, aim = (build.where(item < 0, low - item, item) for item in (own, other))
    is_up = aim > place
    is_away = build.equal(is_up, own >= 0)
    beside = own + _chosen(is_away, 1, -1, whole)
    least = _chosen(is_up, 1, low + 1, whole)
    moved = build.where(build.equal(place, 0), least, beside)
    found = build.where(build.equal(place, aim), other, moved)
    number = make("bitcast", (build.cast(found, short),), {"dtype": call.dtype})
    is_unknown = build.pointwise("logical_or", *(build.unary("isnan", x) for x in (first, last)))
    return build.where(is_unknown, math.nan, number)


def _xlogy(call: Call, left: Operand, right: Operand) -> Node:
    first, second = map(wide, call.operands(left, right))
    product = first * build.unary("log", second)
    zero = build.where(build.equal(first, 0.0), 0.0, product)
    is_unknown = build.unary("isnan", second)
    return build.cast(call.fill(build.where(is_unknown, second, zero)), call.dtype)


def _shift(is_left: bool) -> Row:
    """Amounts outside of the type's bits shift everything out, as in torch."""

    def row(call: Call, data: Operand, amount: Operand) -> Node:
        value, count = call.operands(data, amount)
        last = DTYPES[call.dtype].itemsize_bytes * 8 - 1
        is_in = count <= last
        if call.dtype != "u8":
            is_in = is_in & (count >= 0)
        inside = build.where(is_in, count, last)
        shifted = build.pointwise("shift_left" if is_left else "shift_right", value, inside)
        if not is_left and call.dtype != "u8":
            return call.fill(shifted)  # by one less than the bits: the sign is left
        return call.fill(build.where(is_in, shifted, 0))

    return row


def _copysign(call: Call, size: Operand, sign: Operand) -> Node:
    magnitude = abs(call.operand(size, call.dtype))
    is_below = has_sign(call.operand(sign, call.dtype))
    return call.fill(build.where(is_below, -magnitude, magnitude))


def has_sign(x: Node) -> Node:
    """Whether a number is below 0, or -0.0, of which 1 / x is -inf."""
    return build.where(build.equal(x, 0.0), 1.0 / x, x) < 0.0


def _sign_bit(call: Call, data: Node) -> Node:
    if data.type.kind != "float":
        is_below = data < 0 if data.type.kind == "int" else None
        return is_below or call.fill(build.scalar(False, "bool"))
    return has_sign(data)


def _infinite(sign: float) -> Row:
    def row(call: Call, data: Node) -> Node:
        if data.type.kind != "float":
            return call.fill(build.scalar(False, "bool"))
        return build.equal(data, sign * math.inf)

    return row


def _skips_nan(op: str) -> Row:
    def row(call: Call, left: Operand, right: Operand) -> Node:
        first, second = call.operands(left, right)
        if first.type.kind == "bool":
            return call.fill(build.pointwise(OF_BOOLS[op], first, second))
        if first.type.kind == "int":
            return call.fill(build.pointwise(op, first, second))
        both = build.pointwise(op, first, second)
        rest = build.where(build.unary("isnan", first), second, both)
        return call.fill(build.where(build.unary("isnan", second), first, rest))

    return row


# -- modified Bessel functions of the first kind ---------------------------------------------------


FAR = 20.0
NEAR_TERMS, FAR_TERMS = 45, 20


def _near(order: int, size: Node) -> Node:
    """I(x) = (x/2)^n sum (x²/4)^k / (k! (k+n)!), from the last term on; for x ≤ FAR."""
    inside = build.minimum(size, FAR)
    quarter = inside * inside * 0.25

    def step(total: Node | float, k: int) -> Node:
        return quarter * (1.0 / (k * (k + order))) * total + 1.0

    terms = range(NEAR_TERMS, 0, -1)
    total = reduce(step, terms, 1.0)  # type: ignore[arg-type]
    assert isinstance(total, Node)
    return total if order == 0 else inside * 0.5 * total


def _far(order: int, size: Node) -> Node:
    """I(x) e^-x sqrt(2πx) = sum of c_k with c_k = -c_(k-1) (4n² - (2k-1)²) / (8kx); for x ≥ FAR."""
    inverse = 1.0 / build.maximum(size, FAR)
    total: Node | float = 1.0
    for k in range(FAR_TERMS, 0, -1):
        factor = ((2 * k - 1) ** 2 - 4 * order**2) / (8 * k)
        total = inverse * factor * total + 1.0
    assert isinstance(total, Node)
    return total * build.unary("sqrt", inverse * (1 / (2 * math.pi)))


def _bessel(order: int, is_scaled: bool) -> Row:
    """I(x), or with `is_scaled` I(x) e^-|x|."""

    def row(call: Call, data: Node) -> Node:
        x = wide(call.operand(data, call.dtype))
        size = abs(x)
        near, far = _near(order, size), _far(order, size)
        if is_scaled:
            near = near * build.unary("exp", -size)
        else:
            half = build.unary("exp", size * 0.5)  # e^x may overflow before I(x)
            far = far * half * half
        found = build.where(size > FAR, far, near)
        if order == 1:
            is_below = x < 0.0
            found = build.where(is_below, -found, found)
        return build.cast(call.fill(found), call.dtype)

    return row


# -- the gamma function ----------------------------------------------------------------------------


# C. Lanczos' series for g = 607/128 in P. Godfrey's coefficients (2001), relative error 10⁻¹⁵.
LANCZOS_SHIFT = 607.0 / 128.0
LANCZOS = (
    0.99999999999999709182, 57.156235665862923517, -59.597960355475491248, 14.136097974741747174,
    -0.49191381609762019978, 0.33994649984811888699e-4, 0.46523628927048575665e-4,
    -0.98374475304879564677e-4, 0.15808870322491248884e-3, -0.21026444172410488319e-3,
    0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip
HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)
# digamma x ≈ log x − 1/2x − Σ B(2k) / (2k x^2k), here from the highest k = 7 down.
BERNOULLI = (1 / 12, -691 / 32760, 1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
ASYMPTOTIC = 10  # from here on that series is good to f64's precision


def _log_gamma(x: Node) -> Node:
    """log |Γ(x)|, by reflection below ½; ∞ at the poles and at both infinities, 0 at 1 and 2."""
    is_left = x < 0.5
    z = build.where(is_left, 1.0 - x, x) - 1.0
    series: Node | float = LANCZOS[0]
    for place, coefficient in enumerate(LANCZOS[1:], 1):
        series = coefficient / (z + float(place)) + series
    shifted = z + (LANCZOS_SHIFT + 0.5)
    power = (z + 0.5) * (build.unary("log", shifted) - 1.0)
    rest = build.unary("log", series) + (HALF_LOG_2_PI - LANCZOS_SHIFT)
    right = power + rest
    # The distance to the nearest integer, which next to 0 is the number itself.
    nearest = build.unary("round", x)
    fraction = abs(x - nearest)
    sine = build.unary("sin", fraction * math.pi)
    left = math.log(math.pi) - (build.unary("log", sine) + right)
    whole = build.where(is_left, left, right)
    # Next to 0, where π x may be subnormal.
    size = abs(x)
    at_zero = -build.unary("log", size)
    whole = build.where(size < 1e-20, at_zero, whole)
    is_root = build.equal(x, 1.0) | build.equal(x, 2.0)
    whole = build.where(is_root, 0.0, whole)
    is_pole = is_left & build.equal(x, nearest)
    is_infinite = is_pole | build.unary("isinf", x)
    return build.where(is_infinite, math.inf, whole)


def _digamma(x: Node) -> Node:
    """Γ′/Γ, by reflection below 0; ∓∞ at ±0 and NaN at the other poles, as torch has it."""
    is_left = x < 0.0
    z = build.where(is_left, 1.0 - x, x)
    total: Node | None = None
    for _ in range(ASYMPTOTIC):
        is_small = z < float(ASYMPTOTIC)
        part = build.where(is_small, build.unary("reciprocal", z), 0.0)
        total = part if total is None else total + part
        z = build.where(is_small, z + 1.0, z)
    square = build.unary("reciprocal", z * z)
    end = 0.5 / z + square * _polynomial(BERNOULLI, square)
    right = build.unary("log", z) - end - total
    fraction = x - build.unary("trunc", x)
    turn = math.pi / build.unary("tan", fraction * math.pi)
    is_pole = build.equal(x, build.unary("trunc", x))
    left = build.where(is_pole, math.nan, right - turn)
    whole = build.where(is_left, left, right)
    # 1 / x is infinite with the sign of a zero.
    at_zero = -build.unary("reciprocal", x)
    return build.where(build.equal(x, 0.0), at_zero, whole)


TRIGAMMA_SHIFTS = 6


def _trigamma(call: Call, order: int, data: Node) -> Node:
    """The derivative of digamma as torch's kernel has it, its reflection below ½ too."""
    if order != 1:
        return _digamma_row(call, data) if order == 0 else _no_polygamma(order)
    x = wide(data)
    is_left = x < 0.5
    sine = build.unary("sin", x * math.pi)
    reflected = math.pi**2 / (sine * sine)
    z = build.where(is_left, 1.0 - x, x)
    total: Node | None = None
    for _ in range(TRIGAMMA_SHIFTS):
        part = 1.0 / (z * z)
        total = part if total is None else total + part
        z = z + 1.0
    square = 1.0 / (z * z)
    rest = 1.0 / 6 - square * (1.0 / 30 - square * (1.0 / 42))
    right = (1.0 + 1.0 / (2.0 * z) + square * rest) / z + total
    return build.cast(call.fill(build.where(is_left, reflected - right, right)), call.dtype)


def _no_polygamma(order: int) -> Node:
    raise NotSupported(f"polygamma of order {order}: only 0 and 1 have a kernel")


def _in_f64(formula: Callable[[Node], Node]) -> Row:
    def row(call: Call, data: Node) -> Node:
        return build.cast(call.fill(formula(build.cast(data, "f64"))), call.dtype)

    return row


_digamma_row = _in_f64(_digamma)
ROWS: Rows = {
    "asinh": _function(_signed(_asinh)),
    "acosh": _function(_acosh),
    "atanh": _function(_signed(_atanh)),
    "sinc": _function(_sinc),
    "special_sinc": _function(_sinc),
    "erfinv": _function(_erfinv),
    "special_log_ndtr": _function(_log_ndtr),
    "hypot": _hypot,
    "nextafter": _next_after,
    "xlogy": _xlogy,
    "special_xlogy": _xlogy,
    "bitwise_left_shift": _shift(True),
    "bitwise_right_shift": _shift(False),
    "__lshift__": _shift(True),
    "__rshift__": _shift(False),
    "copysign": _copysign,
    "signbit": _sign_bit,
    "isposinf": _infinite(1.0),
    "isneginf": _infinite(-1.0),
    "fmax": _skips_nan("maximum"),
    "fmin": _skips_nan("minimum"),
    "i0": _bessel(0, False),
    "special_i0e": _bessel(0, True),
    "special_i1": _bessel(1, False),
    "special_i1e": _bessel(1, True),
    "lgamma": _in_f64(_log_gamma),
    "digamma": _digamma_row,
    "polygamma": _trigamma,
    "special_gammaln": _in_f64(_log_gamma),
    "special_digamma": _digamma_row,
}

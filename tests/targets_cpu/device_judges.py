"""What the functions of Triton's libdevice should give, by their names there.

Numbers with a fraction are judged in mpmath's many digits, against the bounds in ulp of the tables
in the CUDA C++ Programming Guide; integers, bits and directed roundings exactly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath
from mpmath import mpf

from aotc.aot.targets.cpu.math import FUNCTIONS

DIGITS = 60
NAN, INF = math.nan, math.inf
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Format:
    """bits of the significand; exponents of the smallest normal and the largest number."""

    bits: int
    lowest: int
    highest: int

    @property
    def largest(self) -> Fraction:
        return (2 - Fraction(1, 2 ** (self.bits - 1))) * Fraction(2) ** self.highest


FORMATS = {"fp32": Format(24, -126, 127), "fp64": Format(53, -1022, 1023)}


@dataclass(frozen=True, slots=True)
class Judge:
    """exact: of operands as Python numbers, a number of Python or mpmath, given the result's format
    where `is_rounded`; ulp: bounds for (f32, f64), 0 where the result has to be equal; ranges:
    where operands are drawn from beside all sizes; integers: those of an operand beside a float.
    """

    exact: Callable[..., Any]
    ulp: tuple[float, float] = (0.0, 0.0)
    ranges: tuple[Range, ...] = ()
    integers: tuple[int, int] = (-(2**31), 2**31 - 1)
    is_rounded: bool = False


# -- rounding of exact numbers ---------------------------------------------------------------------


def rounded(value: Fraction, form: Format, direction: str) -> float:
    """The number of a format for an exact one: to nearest even, to zero, up or down."""
    if value == 0:
        return 0.0
    size = abs(value)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, form.lowest) - form.bits + 1)
    count, rest = divmod(size / unit, 1)
    half = Fraction(1, 2)
    is_up = {
        "rn": rest > half or (rest == half and count % 2 == 1),
        "rz": False,
        "ru": value > 0 and rest > 0,
        "rd": value < 0 and rest > 0,
    }[direction]
    found = (count + is_up) * unit
    if found > form.largest:
        stays = direction == "rz" or direction == ("rd" if value > 0 else "ru")
        found = form.largest if stays else INF
    return float(found) if value > 0 else -float(found)


def _square_root(value: Fraction) -> Fraction:
    """To so many digits that its rounding is that of the root."""
    with mpmath.workprec(2400):
        return _as_fraction(mpmath.sqrt(mpf(value.numerator) / value.denominator))


def _as_fraction(value: mpf) -> Fraction:
    mantissa, exponent = int(value.man), int(value.exp)
    size = Fraction(mantissa) * Fraction(2) ** exponent
    return -size if value < 0 < size else size


def _quotient(x: float, y: float) -> float:
    if y == 0:
        return NAN if x == 0 or x != x else math.copysign(INF, x) * math.copysign(1, y)
    return x / y


ARITHMETIC: dict[str, tuple[Callable[..., Fraction], Callable[..., float]]] = {
    # Exactly, and of operands that are not finite or zeros.
    "add": (lambda x, y: x + y, lambda x, y: x + y),
    "sub": (lambda x, y: x - y, lambda x, y: x - y),
    "mul": (lambda x, y: x * y, lambda x, y: x * y),
    "div": (lambda x, y: x / y, _quotient),
    "rcp": (lambda x: 1 / x, lambda x: _quotient(1.0, x)),
    "sqrt": (_square_root, lambda x: math.sqrt(x) if x >= 0 else x if x == 0 else NAN),
    "fma": (lambda x, y, z: x * y + z, lambda x, y, z: x * y + z),
}


def _arithmetic(name: str, direction: str) -> Judge:
    exactly, otherwise = ARITHMETIC[name]

    def exact(form: Format, *x: float) -> float:
        is_plain = all(map(math.isfinite, x)) and not (name in ("div", "rcp") and x[-1] == 0)
        if name == "sqrt" and not x[0] > 0:
            is_plain = False
        if not is_plain:
            return otherwise(*x)
        return rounded(exactly(*map(Fraction, x)), form, direction)

    return Judge(exact, is_rounded=True)


def _to_float(direction: str) -> Judge:
    def exact(form: Format, x: float) -> float:
        if not math.isfinite(x):
            return x
        return rounded(Fraction(x), form, direction)

    return Judge(exact, is_rounded=True)


ROUND = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}


def _to_integer(direction: str, source: str, kind: str) -> Judge:
    """Saturated; of NaN what PTX says."""
    bits, is_signed = (32 if "int" in kind else 64), not kind.startswith("u")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)

    def exact(x: float) -> int:
        if x != x:
            return 0 if bits == 32 and source == "float" else _signed(2 ** (bits - 1), bits)
        if math.isinf(x):
            return _signed(high if x > 0 else low, bits)
        return _signed(min(max(ROUND[direction](Fraction(x)), low), high), bits)

    return Judge(exact, ranges=((-300.0, 300.0), (-3e9, 5e9), (-1e19, 2e19)))


def _signed(value: int, bits: int) -> int:
    """The bits as a signed integer, as Triton declares all results."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# -- integers and bits -----------------------------------------------------------------------------


def _word(value: int, bits: int = 32) -> int:
    return value & ((1 << bits) - 1)


def _byte_perm(x: int, y: int, selector: int) -> int:
    both = (_word(y) << 32) | _word(x)
    chosen = [(both >> 8 * ((selector >> 4 * place) & 7)) & 0xFF for place in range(4)]
    return _signed(sum(byte << 8 * place for place, byte in enumerate(chosen)), 32)


def _bits(source: str, result: str) -> Callable[[Any], Any]:
    return lambda x: struct.unpack(result, struct.pack(source, x))[0]


def _low_24(x: int) -> int:
    return _signed(x << 8, 32) >> 8


def _leading(bits: int) -> Callable[[int], int]:
    return lambda x: bits - _word(x, bits).bit_length()


def _first(bits: int) -> Callable[[int], int]:
    return lambda x: (_word(x, bits) & -_word(x, bits)).bit_length()


def _reversed(bits: int) -> Callable[[int], int]:
    return lambda x: _signed(int(f"{_word(x, bits):0{bits}b}"[::-1], 2), bits)


def _nearest_integer(x: float, *, is_away: bool) -> float:
    if not math.isfinite(x):
        return x
    value = Fraction(x)
    whole = math.floor(abs(value) + Fraction(1, 2)) if is_away else abs(round(value))
    return math.copysign(float(whole), x)


def _to_long(*, is_away: bool) -> Callable[[float], int]:
    def exact(x: float) -> int:
        if not math.isfinite(x):
            return 2**63 - 1 if x > 0 else -(2**63)
        return min(max(int(_nearest_integer(x, is_away=is_away)), -(2**63)), 2**63 - 1)

    return exact


def _next_after(form: Format, x: float, y: float) -> float:
    if x != x or y != y:
        return NAN
    if x == y:
        return y
    direction = "ru" if y > x else "rd"
    if math.isinf(x):
        return math.copysign(float(form.largest), x)
    step = Fraction(1, 2**1200) * (1 if y > x else -1)
    return rounded(Fraction(x) + step, form, direction)


def _logb(x: float) -> float:
    return -INF if x == 0 else abs(x) if not math.isfinite(x) else float(math.frexp(x)[1] - 1)


def _ilogb(x: float) -> int:
    if x == 0 or x != x:
        return -(2**31)
    return 2**31 - 1 if math.isinf(x) else math.frexp(x)[1] - 1


def _ldexp(form: Format, x: float, n: int) -> float:
    if not math.isfinite(x) or x == 0:
        return x
    return rounded(Fraction(x) * Fraction(2) ** min(max(n, -3000), 3000), form, "rn")


def _remainder(x: float, y: float) -> float:
    return NAN if math.isinf(x) or y == 0 or x != x or y != y else math.remainder(x, y)


def _fmod(x: float, y: float) -> float:
    return NAN if math.isinf(x) or y == 0 or x != x or y != y else math.fmod(x, y)


def _high_inverse(x: float) -> float:
    """Subnormal numbers count as zeros, also as a result."""
    found = math.copysign(INF, x) if abs(x) < 2.0**-1022 else _quotient(1.0, x)
    return math.copysign(0.0, x) if abs(found) < 2.0**-1022 else found


EXACT: dict[str, Judge] = {
    "brev": Judge(_reversed(32)),
    "brevll": Judge(_reversed(64)),
    "clz": Judge(_leading(32)),
    "clzll": Judge(_leading(64)),
    "ffs": Judge(_first(32)),
    "ffsll": Judge(_first(64)),
    "popc": Judge(lambda x: _word(x).bit_count()),
    "popcll": Judge(lambda x: _word(x, 64).bit_count()),
    "byte_perm": Judge(_byte_perm),
    "mulhi": Judge(lambda x, y: x * y >> 32),
    "umulhi": Judge(lambda x, y: x * y >> 32),
    "mul64hi": Judge(lambda x, y: x * y >> 64),
    "umul64hi": Judge(lambda x, y: x * y >> 64),
    "mul24": Judge(lambda x, y: _signed(_low_24(x) * _low_24(y), 32)),
    "umul24": Judge(lambda x, y: _word((x & 0xFFFFFF) * (y & 0xFFFFFF))),
    "sad": Judge(lambda x, y, z: _signed(abs(x - y) + z, 32)),
    "usad": Judge(lambda x, y, z: _word(abs(x - y) + z)),
    "hadd": Judge(lambda x, y: (x + y) >> 1),
    "uhadd": Judge(lambda x, y: (x + y) >> 1),
    "rhadd": Judge(lambda x, y: (x + y + 1) >> 1),
    "urhadd": Judge(lambda x, y: (x + y + 1) >> 1),
    "abs": Judge(lambda x: _signed(abs(x), 32)),
    "llabs": Judge(lambda x: _signed(abs(x), 64)),
    "int_as_float": Judge(_bits("<i", "<f")),
    "uint_as_float": Judge(_bits("<I", "<f")),
    "float_as_int": Judge(_bits("<f", "<i")),
    "float_as_uint": Judge(_bits("<f", "<i")),
    "longlong_as_double": Judge(_bits("<q", "<d")),
    "double_as_longlong": Judge(_bits("<d", "<q")),
    "hiloint2double": Judge(
        lambda high, low: struct.unpack("<d", struct.pack("<ii", low, high))[0]
    ),
    "double2hiint": Judge(lambda x: struct.unpack("<ii", struct.pack("<d", x))[1]),
    "double2loint": Judge(lambda x: struct.unpack("<ii", struct.pack("<d", x))[0]),
    "saturatef": Judge(lambda x: min(max(x, 0.0), 1.0) if x == x else 0.0),
    "isnan": Judge(lambda x: int(x != x)),
    "isinf": Judge(lambda x: int(math.isinf(x))),
    "finite": Judge(lambda x: int(math.isfinite(x))),
    "isfinited": Judge(lambda x: int(math.isfinite(x))),
    "signbit": Judge(lambda x: int(math.copysign(1, x) < 0)),
    "fabs": Judge(abs),
    "floor": Judge(lambda x: float(math.floor(x)) if math.isfinite(x) else x),
    "ceil": Judge(lambda x: float(math.ceil(x)) if math.isfinite(x) else x),
    "trunc": Judge(lambda x: float(math.trunc(x)) if math.isfinite(x) else x),
    "round": Judge(lambda x: _nearest_integer(x, is_away=True), ranges=((-9.0, 9.0),)),
    "rint": Judge(lambda x: _nearest_integer(x, is_away=False), ranges=((-9.0, 9.0),)),
    "nearbyint": Judge(lambda x: _nearest_integer(x, is_away=False), ranges=((-9.0, 9.0),)),
    "llrint": Judge(_to_long(is_away=False), ranges=((-9.0, 9.0), (-1e19, 1e19))),
    "llround": Judge(_to_long(is_away=True), ranges=((-9.0, 9.0), (-1e19, 1e19))),
    "copysign": Judge(math.copysign),
    "nextafter": Judge(_next_after, is_rounded=True),
    "logb": Judge(_logb),
    "ilogb": Judge(_ilogb),
    "ldexp": Judge(_ldexp, integers=(-2300, 2300), is_rounded=True),
    "scalbn": Judge(_ldexp, integers=(-2300, 2300), is_rounded=True),
    "fmod": Judge(_fmod),
    "remainder": Judge(_remainder),
    # The CUDA documents name no bound: the upper half of the bits has 20 of the significand.
    "rcp64h": Judge(_high_inverse, ulp=(0.0, 2.0**33)),
}

# -- functions of real numbers ---------------------------------------------------------------------


def real(
    function: Callable[..., Any], *, is_odd_at_zero: bool = False, **limits: Any
) -> Callable[..., Any]:
    """mpmath's function; NaN where it is not real; `low`, `high`, `zero`: values at -∞, ∞ and 0,
    the last of them with the sign of that zero if it is odd there."""
    at = {-INF: limits.get("low"), INF: limits.get("high"), 0.0: limits.get("zero")}

    def exact(*x: float) -> Any:
        if any(each != each for each in x):
            return NAN
        found = at.get(x[0]) if len(x) == 1 else None
        if found is not None:
            return math.copysign(found, x[0]) if is_odd_at_zero and x[0] == 0 else found
        try:
            value = function(*map(mpf, x))
        except (ValueError, ZeroDivisionError):
            return NAN
        return NAN if isinstance(value, mpmath.mpc) else value

    return exact


def _norm(*x: mpf) -> mpf:
    return mpmath.sqrt(mpmath.fsum(each * each for each in x))


def norm(*, is_inverse: bool) -> Callable[..., Any]:
    def exact(*x: float) -> Any:
        if any(map(math.isinf, x)):
            return 0.0 if is_inverse else INF
        if any(each != each for each in x):
            return NAN
        found = _norm(*map(mpf, x))
        return found if not is_inverse else INF if found == 0 else 1 / found

    return exact


def _power(x: float, y: float) -> Any:
    if y == 0 or x == 1:
        return 1.0
    if x != x or y != y:
        return NAN
    is_whole = math.isinf(y) or y == math.floor(y)
    is_odd = is_whole and not math.isinf(y) and y % 2 == 1
    if math.isinf(y):
        if abs(x) == 1:
            return 1.0
        return INF if (abs(x) > 1) == (y > 0) else 0.0
    if x == 0 or math.isinf(x):
        size = INF if (x == 0) == (y < 0) else 0.0
        return math.copysign(size, x) if is_odd else size
    if x < 0 and not is_whole:
        return NAN
    size = mpmath.power(mpf(abs(x)), mpf(y))
    return -size if x < 0 and is_odd else size


def _erfcx(x: mpf) -> mpf:
    if x < -27:
        return mpmath.inf
    if x > 100:  # where the terms of the series become small beyond all digits that count
        square = x * x
        series = mpmath.fsum(
            mpmath.fac2(2 * k - 1) * (-1) ** k / (2 * square) ** k for k in range(12)
        )
        return series / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def _erfcinv(x: mpf) -> mpf:
    if not 0 <= x <= 2:
        return NAN
    if x in (0, 2):
        return INF if x == 0 else -INF
    if x >= 0.5:
        return mpmath.erfinv(1 - x)
    y = mpmath.sqrt(-mpmath.log(x))
    for _ in range(60):
        e = mpmath.erfc(y)
        step = mpmath.log(e / x) * e * mpmath.exp(y * y) * mpmath.sqrt(mpmath.pi) / 2
        y += step
        if abs(step) < mpf(10) ** -40:
            break
    return y


def _erfinv(x: mpf) -> mpf:
    if abs(x) > 1:
        return NAN
    if abs(x) > 0.5:
        return mpmath.sign(x) * _erfcinv(1 - abs(x))
    return mpmath.erfinv(x)


def _erfc(x: mpf) -> mpf:
    return mpmath.erfc(x) if abs(x) < 1e4 else mpf(2 * (x < 0))


def _ncdf(x: mpf) -> mpf:
    return mpmath.ncdf(x) if abs(x) < 1e4 else mpf(x > 0)


def _is_pole(x: mpf) -> bool:
    return bool(x <= 0 and x == mpmath.floor(x))


def _lgamma(x: mpf) -> mpf:
    if _is_pole(x):
        return INF
    return mpmath.loggamma(x).real if x > -1e16 else INF


def _tgamma(x: mpf) -> mpf:
    if _is_pole(x):
        return NAN if x else INF
    return INF if x > 200 else mpf(0) if x < -250 else mpmath.gamma(x)


def _bessel(function: Callable[..., Any], order: int) -> Callable[..., Any]:
    def exact(x: mpf) -> Any:
        if abs(x) > 1e30:  # too many digits; the amplitude is below what is judged
            return mpf(0)
        return function(order, x)

    return exact


def _neumann(order: int) -> Callable[..., Any]:
    found = _bessel(mpmath.bessely, order)
    return lambda x: NAN if x < 0 else found(x)


def _of_order(function: Callable[..., Any]) -> Callable[..., Any]:
    def exact(n: int, x: float) -> Any:
        is_second = function is mpmath.bessely
        if x != x or n < 0 or (is_second and x < 0):
            return NAN
        if is_second and x == 0:
            return -INF
        if abs(x) > 1e30:
            return mpf(0)
        return function(n, mpf(x))

    return exact


def _modified(order: int) -> Callable[..., Any]:
    def exact(x: mpf) -> Any:
        if abs(x) > 800:
            return mpmath.inf * (mpmath.sign(x) ** order)
        return mpmath.besseli(order, x)

    return exact


def _bounded(name: str, single: float, double: float) -> tuple[float, float]:
    """The documented bounds, or those of this target's own table where that has larger ones.

    Those functions are what models are made of, with a bound each that docs/math-accuracy.md holds.
    """
    own = [FUNCTIONS[element].get(name) for element in ("float", "double")]
    return tuple(
        max(bound, row.max_ulp if row else 0.0)
        for bound, row in zip((single, double), own, strict=True)
    )  # type: ignore[return-value]


POLE = {"zero": INF, "is_odd_at_zero": True}
NEAR, WIDE = (-4.0, 4.0), (-30.0, 30.0)
POSITIVE, UNIT = (1e-3, 30.0), (-1.0, 1.0)
EXPONENTS = (-80.0, 80.0)
# name: (function, f32 bound, f64 bound, ranges)
ROWS: Mapping[str, tuple[Callable[..., Any], float, float, tuple[Range, ...]]] = {
    "exp": (real(mpmath.exp, low=0.0), 2, 1, (NEAR, EXPONENTS)),
    "exp2": (real(lambda x: mpf(2) ** x, low=0.0), 2, 1, (NEAR, EXPONENTS)),
    "exp10": (real(lambda x: mpf(10) ** x, low=0.0), 2, 1, (NEAR, EXPONENTS)),
    "expm1": (real(mpmath.expm1, low=-1.0), 1, 1, (NEAR, EXPONENTS)),
    "log": (real(mpmath.log, zero=-INF), 1, 1, (POSITIVE, (0.5, 2.0))),
    "log2": (real(lambda x: mpmath.log(x, 2), zero=-INF), 1, 1, (POSITIVE, (0.5, 2.0))),
    "log10": (real(mpmath.log10, zero=-INF), 2, 1, (POSITIVE, (0.5, 2.0))),
    "log1p": (real(mpmath.log1p), 1, 1, ((-0.9, 4.0),)),
    "sqrt": (real(mpmath.sqrt), 0.5, 0.5, (POSITIVE,)),
    "rsqrt": (real(lambda x: 1 / mpmath.sqrt(x), high=0.0, **POLE), 2, 1, (POSITIVE,)),
    "cbrt": (real(lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), low=-INF), 1, 1, (WIDE,)),
    "rcbrt": (real(lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)), low=0.0, **POLE), 1, 1, (WIDE,)),
    "sin": (real(mpmath.sin, low=NAN, high=NAN), 2, 2, (NEAR, WIDE)),
    "cos": (real(mpmath.cos, low=NAN, high=NAN), 2, 2, (NEAR, WIDE)),
    "tan": (real(mpmath.tan, low=NAN, high=NAN), 4, 2, (NEAR, WIDE)),
    "sinpi": (real(mpmath.sinpi, low=NAN, high=NAN), 1, 2, (NEAR, WIDE)),
    "cospi": (real(mpmath.cospi, low=NAN, high=NAN), 1, 2, (NEAR, WIDE)),
    "asin": (real(mpmath.asin), 2, 2, (UNIT,)),
    "acos": (real(mpmath.acos), 2, 2, (UNIT,)),
    "atan": (real(mpmath.atan), 2, 2, (NEAR, WIDE)),
    "atan2": (math.atan2, 3, 2, (NEAR, WIDE)),
    "sinh": (real(mpmath.sinh), 3, 2, (NEAR, EXPONENTS)),
    "cosh": (real(mpmath.cosh), 2, 1, (NEAR, EXPONENTS)),
    "tanh": (real(mpmath.tanh), 2, 1, (NEAR, WIDE)),
    "asinh": (real(mpmath.asinh), 3, 3, (NEAR, WIDE)),
    "acosh": (real(mpmath.acosh), 4, 3, ((1.0, 4.0), (1.0, 90.0))),
    "atanh": (real(mpmath.atanh), 3, 2, (UNIT,)),
    "erf": (real(mpmath.erf), 2, 2, (NEAR,)),
    "erfc": (real(_erfc), 4, 5, (NEAR, (-2.0, 9.0))),
    "erfcx": (real(_erfcx, high=0.0), 4, 4, (NEAR, (-9.0, 60.0))),
    "erfinv": (real(_erfinv, zero=0.0), 2, 5, (UNIT,)),
    "erfcinv": (real(_erfcinv), 4, 6, ((0.0, 2.0), (0.0, 1e-3))),
    "normcdf": (real(_ncdf), 5, 5, (NEAR, (-14.0, 9.0))),
    "normcdfinv": (
        real(lambda x: -mpmath.sqrt(2) * _erfcinv(2 * x)), 5, 8, ((0.0, 1.0), (0.0, 1e-3)),
    ),
    "lgamma": (
        real(_lgamma, low=INF), 6, 4, ((0.0, 4.0), (0.0, 40.0), (-2.2, 0.0), (-40.0, -11.0)),
    ),
    "tgamma": (real(_tgamma, low=NAN, **POLE), 5, 10, ((0.0, 4.0), (-4.0, 34.0), (-36.0, 0.0))),
    "cyl_bessel_i0": (real(_modified(0)), 6, 6, (NEAR, EXPONENTS)),
    "cyl_bessel_i1": (real(_modified(1)), 6, 6, (NEAR, EXPONENTS)),
    "j0": (real(_bessel(mpmath.besselj, 0), low=0.0, high=0.0), 9, 7, ((-8.0, 8.0), WIDE)),
    "j1": (real(_bessel(mpmath.besselj, 1), low=0.0, high=0.0), 9, 7, ((-8.0, 8.0), WIDE)),
    "y0": (real(_neumann(0), zero=-INF, high=0.0), 9, 7, ((0.0, 8.0), WIDE)),
    "y1": (real(_neumann(1), zero=-INF, high=0.0), 9, 7, ((0.0, 8.0), WIDE)),
    # The bound of their documents for orders up to 20.
    "jn": (_of_order(mpmath.besselj), 52, 52, (NEAR, WIDE)),
    "yn": (_of_order(mpmath.bessely), 52, 52, ((0.0, 8.0), WIDE)),
    "pow": (_power, 4, 2, ((0.1, 9.0), NEAR)),
    "powi": (lambda x, n: _power(x, float(n)), 4, 2, (NEAR,)),
    "fdim": (real(lambda x, y: x - y if x > y else mpf(0)), 0.5, 0.5, (NEAR,)),
    "hypot": (norm(is_inverse=False), 3, 2, (NEAR,)),
    "rhypot": (norm(is_inverse=True), 2, 1, (NEAR,)),
    "norm3d": (norm(is_inverse=False), 3, 1, (NEAR,)),
    "rnorm3d": (norm(is_inverse=True), 2, 1, (NEAR,)),
    "norm4d": (norm(is_inverse=False), 3, 1, (NEAR,)),
    "rnorm4d": (norm(is_inverse=True), 2, 1, (NEAR,)),
    "frsqrt_rn": (real(lambda x: 1 / mpmath.sqrt(x), high=0.0, **POLE), 0.51, 0, (POSITIVE,)),
    "fma": (_arithmetic("fma", "rn").exact, 0, 0, (NEAR,)),
}  # fmt: skip
BESSEL = ("j0", "j1", "y0", "y1", "jn", "yn")
ABSOLUTE = {"fp32": 2.2e-6, "fp64": 5e-12}


def is_absolute(name: str, x: float) -> bool:
    """Where the documents bound the absolute error: far Bessel functions, zeros of `lgamma`."""
    if name == "lgamma":
        return -10.001 < x < -2.264
    return name in BESSEL and abs(x) >= 8


# Documented bounds are absolute or hold in a part of the range: as the accurate function is.
FAST = ("sin", "cos", "tan", "exp", "exp10", "log", "log2", "log10", "pow")
FAST_DIVISION = real(lambda x, y: x / y)


def judges() -> dict[str, Judge]:
    """Judges by the symbol's name without `__nv_` and, of functions of both types, without `f`."""
    table = dict(EXACT)
    for name, (function, single, double, ranges) in ROWS.items():
        table[name] = Judge(
            function,
            _bounded(name.replace("powi", "pow"), single, double),
            ranges,
            integers=(-20, 20),
            is_rounded=name == "fma",
        )
    for name in FAST:
        table[f"fast_{name}"] = table[name]
    table["fast_fdivide"] = Judge(
        lambda x, y: _arithmetic("div", "rn").exact(FORMATS["fp32"], x, y), (2.0, 0.0), (NEAR,)
    )
    for name, (stem, direction) in _directed().items():
        table[name] = _arithmetic(stem, direction)
    for direction in ROUND:
        for source in ("float", "double"):
            for kind in ("int", "uint", "ll", "ull"):
                table[f"{source}2{kind}_{direction}"] = _to_integer(direction, source, kind)
                table[f"{kind}2{source}_{direction}"] = _to_float(direction)
        table[f"double2float_{direction}"] = _to_float(direction)
    return table


def _directed() -> dict[str, tuple[str, str]]:
    names = {}
    for stem in ARITHMETIC:
        for direction in ROUND:
            for prefix in ("fmaf_", "fma_") if stem == "fma" else (f"f{stem}_", f"d{stem}_"):
                names[f"{prefix}{direction}"] = (stem, direction)
    return names


JUDGES = judges()


def judge_of(symbol: str) -> Judge | None:
    """The judge of `__nv_sinf`, if there is one."""
    name = symbol.removeprefix("__nv_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d")):
        if candidate in JUDGES:
            return JUDGES[candidate]
    return None

"""The functions of CUDA's library for devices that are not `FUNCTIONS`, by their names there.

Triton's `libdevice` writes them as `tt.extern_elementwise` with the symbol `__nv_<name>`. Those of
f32 are computed in f64 and rounded once; results and special cases are those that the CUDA Math API
Reference and the PTX ISA (conversions of NaN, saturation) document.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from aotc.aot.targets.cpu.math import special
from aotc.aot.targets.cpu.math.functions import FUNCTIONS
from aotc.aot.targets.cpu.math.vector_ir import DeviceFunction, Value, mangled, type_name

Build = Callable[..., Value]
SIGN_32, SIGN_64 = -(2**31), -(2**63)
NEAREST, TOWARDS_ZERO, UPWARDS, DOWNWARDS = "rn", "rz", "ru", "rd"
# What LLVM's `set.rounding` calls them.
DIRECTIONS = {TOWARDS_ZERO: 0, UPWARDS: 2, DOWNWARDS: 3}
TO_NEAREST = 1
TO_INTEGER = {NEAREST: "roundeven", TOWARDS_ZERO: "trunc", UPWARDS: "ceil", DOWNWARDS: "floor"}
BITS = {"float": "i32", "double": "i64"}


def wide(x: Value) -> Value:
    return x.cast("fpext", "double") if x.element == "float" else x


def in_f64(build: Build) -> Build:
    """The function of f32 by that of f64, rounded once."""
    return lambda *x: build(*map(wide, x)).cast("fptrunc", "float")


def as_i32(condition: Value) -> Value:
    return condition.cast("zext", "i32")


# -- integers --------------------------------------------------------------------------------------


def _counted(name: str) -> Build:
    """An intrinsic that counts bits, as an i32; of 0 it is the number of bits."""
    flag = "" if name == "ctpop" else ", i1 false"

    def build(x: Value) -> Value:
        callee = f"llvm.{name}.{mangled(x.element, x.text.lanes)}"
        found = x.text.emit(x.element, f"call {x.type} @{callee}({x}{flag})")
        return found if x.element == "i32" else found.cast("trunc", "i32")

    return build


def _first_set(x: Value) -> Value:
    found = _counted("cttz")(x) + 1
    return x.equals(0).select(found.like(0), found)


def _high_product(instruction: str, double: str) -> Build:
    """The upper half of a product, of operands widened by `sext` or `zext`."""

    def build(x: Value, y: Value) -> Value:
        bits = int(x.element[1:])
        product = x.cast(instruction, double) * y.cast(instruction, double)
        return product.logical_right(bits).cast("trunc", x.element)

    return build


def _permuted(x: Value, y: Value, selector: Value) -> Value:
    """Four of the eight bytes of x and, behind them, y: each by three bits of the selector."""
    both = x.cast("zext", "i64") | (y.cast("zext", "i64") << 32)
    result = x.like(0)
    for place in range(4):
        shift = (selector.logical_right(4 * place) & 7) << 3
        byte = both.logical_right(shift.cast("zext", "i64")).cast("trunc", "i32") & 0xFF
        result = result | (byte << (8 * place))
    return result


def _low_24_bits(x: Value) -> Value:
    return (x << 8) >> 8


def _difference(signed: str) -> Build:
    def build(x: Value, y: Value, more: Value) -> Value:
        most, least = (x.text.intrinsic(f"{signed}{name}", x, y) for name in ("max", "min"))
        return most - least + more

    return build


# -- bits of floats --------------------------------------------------------------------------------


def _cast(element: str) -> Build:
    return lambda x: x.cast("bitcast", element)


def _from_halves(high: Value, low: Value) -> Value:
    bits = (high.cast("zext", "i64") << 32) | low.cast("zext", "i64")
    return bits.cast("bitcast", "double")


def _high_half(x: Value) -> Value:
    return x.cast("bitcast", "i64").logical_right(32).cast("trunc", "i32")


def _sign(x: Value) -> Value:
    return as_i32(x.cast("bitcast", BITS[x.element]) < 0)


def _is_finite(x: Value) -> Value:
    return as_i32(x.abs() < math.inf)


def _high_inverse(x: Value) -> Value:
    """1 / x in the upper half of its bits; subnormal numbers count as zeros."""

    def flushed(y: Value) -> Value:
        return (y.abs() < 2.0**-1022).select(y.like(0.0).copysign(y), y)

    found = flushed(1.0 / flushed(x)).cast("bitcast", "i64") & -(2**32)
    return x.is_nan().select(x, found.cast("bitcast", "double"))


def _saturated(x: Value) -> Value:
    """Within [0, 1]; NaN is 0."""
    return (x > 0.0).select((x < 1.0).select(x, 1.0), x.like(0.0))


def _next_after(x: Value, y: Value) -> Value:
    """The next number from x towards y: bits are ordered as sizes are."""
    kind = BITS[x.element]
    bits = x.cast("bitcast", kind)
    grows = (x < y) ^ (x < 0.0)
    moved = grows.select(bits + 1, bits - 1)
    smallest = y.like(0.0).copysign(y).cast("bitcast", kind) | 1
    moved = x.equals(0.0).select(smallest, moved)
    result = x.equals(y).select(y, moved.cast("bitcast", x.element))
    return (x.is_nan() | y.is_nan()).select(x.like(math.nan), result)


# -- conversions -----------------------------------------------------------------------------------


def _to_integer(rounding: str, element: str, *, signed: bool, of_nan: int = 0) -> Build:
    """A float as the nearest integer that there is, by an intrinsic that rounds."""

    def build(x: Value) -> Value:
        whole = x.text.intrinsic(rounding, x)
        lanes = x.text.lanes
        name = f"llvm.fpto{'s' if signed else 'u'}i.sat"
        name = f"{name}.{mangled(element, lanes)}.{mangled(x.element, lanes)}"
        found = x.text.call(name, element, whole)
        return x.is_nan().select(found.like(of_nan), found) if of_nan else found

    return build


def _from_integer(instruction: str, element: str) -> Build:
    return lambda x: x.cast(instruction, element)


# -- directed rounding -----------------------------------------------------------------------------


def _constrained(name: str, *operands: Value, result: str = "") -> Value:
    """An operation that the thread's rounding decides, which LLVM leaves where it stands."""
    text, element = operands[0].text, operands[0].element
    suffix = mangled(element, text.lanes)
    if result:
        suffix = f"{mangled(result, text.lanes)}.{suffix}"
    kind = type_name(result or element, text.lanes)
    given = ", ".join(str(x) for x in operands)
    more = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'
    callee = f"@llvm.experimental.constrained.{name}.{suffix}"
    return text.emit(result or element, f"call {kind} {callee}({given}, {more}) strictfp")


def _halves(x: Value, signed: bool) -> tuple[Value, Value]:
    """An i64 as two numbers of f64 without an error, whose sum it is."""
    low = (x & 0xFFFFFFFF).cast("uitofp", "double")
    high = (x >> 32) if signed else x.logical_right(32)
    return high.cast("sitofp" if signed else "uitofp", "double") * 2.0**32, low


def directed(build: Build, direction: str, result: str) -> Build:
    """`build`, of operations on f64, and its result's rounding to f32, in one direction.

    Of two roundings in one direction the second is as if it were the only one.
    """

    def made(*x: Value) -> Value:
        text = x[0].text
        given = [wide(value) for value in x]
        text.lines.append(f"  call void @llvm.set.rounding(i32 {DIRECTIONS[direction]}) strictfp")
        found = build(*given)
        if result == "float":
            found = _constrained("fptrunc", found, result="float")
        text.lines.append(f"  call void @llvm.set.rounding(i32 {TO_NEAREST}) strictfp")
        return found

    return made


def _inverse(x: Value) -> Value:
    return _constrained("fdiv", x.like(1.0), x)


DIRECTED: dict[str, tuple[int, Build]] = {
    **{
        name: (2, lambda x, y, name=name: _constrained(f"f{name}", x, y))
        for name in ("add", "sub", "mul", "div")
    },
    "sqrt": (1, lambda x: _constrained("sqrt", x)),
    "rcp": (1, _inverse),
    "fma": (3, lambda x, y, z: _constrained("fma", x, y, z)),
}
ROUNDED: dict[str, Build] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    # A product that no sum takes in: LLVM sees what it is of nowhere.
    "mul": lambda x, y: x.text.intrinsic("arithmetic.fence", x * y),
    "div": lambda x, y: x / y,
    "sqrt": Value.sqrt,
    "rcp": lambda x: 1.0 / x,
    "fma": Value.fma,
}


def _arithmetic() -> Iterator[tuple[str, DeviceFunction]]:
    """`fadd_rz`, `ddiv_ru`, … of both types in four roundings."""
    for name, (arity, build) in DIRECTED.items():
        for element in ("float", "double"):
            prefix, operands = element[0], (element,) * arity
            stem = f"{prefix}{name}"
            if name == "fma":
                stem = "fmaf" if element == "float" else "fma"
            yield f"{stem}_rn", DeviceFunction(operands, ROUNDED[name])
            for direction in DIRECTIONS:
                made = directed(build, direction, element)
                yield f"{stem}_{direction}", DeviceFunction(operands, made, is_apart=True)


def _conversions() -> Iterator[tuple[str, DeviceFunction]]:
    """Between floats and integers, and of f64 to f32."""
    names = {"int": ("i32", True), "uint": ("i32", False), "ll": ("i64", True)}
    names["ull"] = ("i64", False)
    for name, (integer, signed) in names.items():
        for element in ("float", "double"):
            # What PTX says of NaN: 0 if neither type has 64 bits, else the upper bit alone.
            of_nan = 0
            if integer == "i64" or element == "double":
                of_nan = SIGN_32 if integer == "i32" else SIGN_64
            for rounding, intrinsic in TO_INTEGER.items():
                build = _to_integer(intrinsic, integer, signed=signed, of_nan=of_nan)
                yield f"{element}2{name}_{rounding}", DeviceFunction((element,), build)
            instruction = "sitofp" if signed else "uitofp"
            plain = _from_integer(instruction, element)
            yield f"{name}2{element}_rn", DeviceFunction((integer,), plain)
            for direction in DIRECTIONS:
                yield (
                    f"{name}2{element}_{direction}",
                    DeviceFunction(
                        (integer,),
                        directed(_sum_of_halves(signed), direction, element),
                        is_apart=True,
                    ),
                )
    yield "double2float_rn", DeviceFunction(("double",), lambda x: x.cast("fptrunc", "float"))
    for direction in DIRECTIONS:
        build = directed(lambda x: x, direction, "float")
        yield f"double2float_{direction}", DeviceFunction(("double",), build, is_apart=True)


def _sum_of_halves(signed: bool) -> Build:
    def build(x: Value) -> Value:
        if x.element == "i32":
            x = x.cast("sext" if signed else "zext", "i64")
            return x.cast("sitofp", "double")
        high, low = _halves(x, signed)
        return _constrained("fadd", high, low)

    return build


# -- the table -------------------------------------------------------------------------------------

UNARY: dict[str, Build] = {
    "exp10": special.exp10,
    "log10": special.log10,
    "asinh": special.asinh,
    "acosh": special.acosh,
    "atanh": special.atanh,
    "cbrt": special.cbrt,
    "rcbrt": special.rcbrt,
    "sinpi": special.sinpi,
    "cospi": special.cospi,
    "erfcx": special.erfcx,
    "erfinv": special.erfinv,
    "erfcinv": special.erfcinv,
    "normcdf": special.normcdf,
    "normcdfinv": special.normcdfinv,
    "lgamma": special.lgamma,
    "tgamma": special.tgamma,
    "cyl_bessel_i0": special.i0,
    "cyl_bessel_i1": special.i1,
    "logb": special.logb,
}
WAVES: dict[str, Build] = {
    "j0": special.j0,
    "j1": special.j1,
    "y0": special.y0,
    "y1": special.y1,
}
BINARY: dict[str, Build] = {
    "fdim": special.fdim,
    "hypot": special.norm,
    "rhypot": special.rnorm,
    "remainder": special.remainder,
}
NORMS = {3: ("norm3d", "rnorm3d"), 4: ("norm4d", "rnorm4d")}


def _of_both_types() -> Iterator[tuple[str, DeviceFunction]]:
    rows = [*((name, build, 1) for name, build in {**UNARY, **WAVES}.items())]
    rows += [(name, build, 2) for name, build in BINARY.items()]
    for arity, (name, inverse) in NORMS.items():
        rows += [(name, special.norm, arity), (inverse, special.rnorm, arity)]
    for name, build, arity in rows:
        cold = special.waves if name in WAVES else None
        yield name, DeviceFunction(("double",) * arity, build, cold=cold)
        yield f"{name}f", DeviceFunction(("float",) * arity, in_f64(build), cold=cold)
    for name in ("ldexp", "scalbn"):
        yield name, DeviceFunction(("double", "i32"), special.ldexp)
        yield f"{name}f", DeviceFunction(("float", "i32"), in_f64(special.ldexp))
    yield "ilogb", DeviceFunction(("double",), special.ilogb)
    yield "ilogbf", DeviceFunction(("float",), lambda x: special.ilogb(wide(x)))
    for name, build in {"llrint": _nearest_even, "llround": _nearest}.items():
        yield name, DeviceFunction(("double",), build)
        yield f"{name}f", DeviceFunction(("float",), build)
    for name, build in {"jn": special.jn, "yn": special.yn}.items():
        yield name, DeviceFunction(("i32", "double"), build, cold=special.waves)
        yield f"{name}f", DeviceFunction(("i32", "float"), in_f64(build), cold=special.waves)
    yield "powi", DeviceFunction(("double", "i32"), _power_of_integer("double"))
    yield "powif", DeviceFunction(("float", "i32"), _power_of_integer("float"))
    yield "nextafter", DeviceFunction(("double", "double"), _next_after)
    yield "nextafterf", DeviceFunction(("float", "float"), _next_after)


_nearest_even = _to_integer("roundeven", "i64", signed=True, of_nan=SIGN_64)
_nearest = _to_integer("round", "i64", signed=True, of_nan=SIGN_64)


def _power_of_integer(element: str) -> Build:
    """In f64: not every i32 is an f32."""
    power = FUNCTIONS["double"]["pow"].build

    def build(x: Value, n: Value) -> Value:
        result = power(wide(x), n.cast("sitofp", "double"))
        return result.cast("fptrunc", "float") if element == "float" else result

    return build


def _on(operands: str, build: Build) -> DeviceFunction:
    """Operands by their first letters."""
    elements = {"f": "float", "d": "double", "i": "i32", "l": "i64"}
    return DeviceFunction(tuple(elements[letter] for letter in operands), build)


DEVICE: dict[str, DeviceFunction] = {
    "clz": _on("i", _counted("ctlz")),
    "clzll": _on("l", _counted("ctlz")),
    "popc": _on("i", _counted("ctpop")),
    "popcll": _on("l", _counted("ctpop")),
    "ffs": _on("i", _first_set),
    "ffsll": _on("l", _first_set),
    "brev": _on("i", lambda x: x.text.intrinsic("bitreverse", x)),
    "brevll": _on("l", lambda x: x.text.intrinsic("bitreverse", x)),
    "byte_perm": _on("iii", _permuted),
    "mulhi": _on("ii", _high_product("sext", "i64")),
    "umulhi": _on("ii", _high_product("zext", "i64")),
    "mul64hi": _on("ll", _high_product("sext", "i128")),
    "umul64hi": _on("ll", _high_product("zext", "i128")),
    "mul24": _on("ii", lambda x, y: _low_24_bits(x) * _low_24_bits(y)),
    "umul24": _on("ii", lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF)),
    "sad": _on("iii", _difference("s")),
    "usad": _on("iii", _difference("u")),
    "hadd": _on("ii", lambda x, y: (x & y) + ((x ^ y) >> 1)),
    "uhadd": _on("ii", lambda x, y: (x & y) + (x ^ y).logical_right(1)),
    "rhadd": _on("ii", lambda x, y: (x | y) - ((x ^ y) >> 1)),
    "urhadd": _on("ii", lambda x, y: (x | y) - (x ^ y).logical_right(1)),
    "abs": _on("i", lambda x: (x < 0).select(0 - x, x)),
    "llabs": _on("l", lambda x: (x < 0).select(0 - x, x)),
    "int_as_float": _on("i", _cast("float")),
    "uint_as_float": _on("i", _cast("float")),
    "float_as_int": _on("f", _cast("i32")),
    "float_as_uint": _on("f", _cast("i32")),
    "longlong_as_double": _on("l", _cast("double")),
    "double_as_longlong": _on("d", _cast("i64")),
    "hiloint2double": _on("ii", _from_halves),
    "double2hiint": _on("d", _high_half),
    "double2loint": _on("d", lambda x: x.cast("bitcast", "i64").cast("trunc", "i32")),
    "rcp64h": _on("d", _high_inverse),
    "saturatef": _on("f", _saturated),
    "frsqrt_rn": _on("f", in_f64(lambda x: 1.0 / x.sqrt())),
    "isnanf": _on("f", lambda x: as_i32(x.is_nan())),
    "isnand": _on("d", lambda x: as_i32(x.is_nan())),
    "isinff": _on("f", lambda x: as_i32(x.is_infinite())),
    "isinfd": _on("d", lambda x: as_i32(x.is_infinite())),
    "finitef": _on("f", _is_finite),
    "isfinited": _on("d", _is_finite),
    "signbitf": _on("f", _sign),
    "signbitd": _on("d", _sign),
    "fast_exp10f": _on("f", in_f64(special.exp10)),
    "fast_log10f": _on("f", in_f64(special.log10)),
    **dict(_arithmetic()),
    **dict(_conversions()),
    **dict(_of_both_types()),
}
"""Rows by name without `__nv_`."""

"""What the CPU target cannot lower is refused by a CompileError that names it."""

from __future__ import annotations

import pytest

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu.isa import ISAS
from aotc.aot.targets.cpu.lowering import Lowered, lower

ARGUMENTS = "%arg0: !tt.ptr<f32>, %arg1: i32, %arg2: f64"
STORED = """
    %r = "tt.make_range"() <{end = 8 : i32, start = 0 : i32}> : () -> tensor<8xi32>
    %s = "tt.splat"(%arg0) : (!tt.ptr<f32>) -> tensor<8x!tt.ptr<f32>>
    %p = "tt.addptr"(%s, %r) : (tensor<8x!tt.ptr<f32>>, tensor<8xi32>) -> tensor<8x!tt.ptr<f32>>
    %x = "tt.load"(%p) <{operandSegmentSizes = array<i32: 1, 0, 0>}>
        : (tensor<8x!tt.ptr<f32>>) -> tensor<8xf32>
    BODY
    "tt.store"(%p, %y) : (tensor<8x!tt.ptr<f32>>, tensor<8xf32>) -> ()
"""


def lowered(body: str) -> Lowered:
    """Lowers a kernel of this body; `%y` is stored where STORED surrounds it."""
    text = f"""
"builtin.module"() ({{
  "tt.func"() <{{sym_name = 1 : i32}}> ({{
  ^bb0({ARGUMENTS}):
    {body}
    "tt.return"() : () -> ()
  }}) : () -> ()
}}) : () -> ()
"""
    return lower(text, ISAS["x86-64-v3"], no_alias=True)


def stored(body: str) -> str:
    return STORED.replace("BODY", body)


def test_the_surroundings_are_supported() -> None:
    negated = '%y = "arith.negf"(%x) : (tensor<8xf32>) -> tensor<8xf32>'
    assert "fneg <8 x float>" in lowered(stored(negated)).llvm_ir


REFUSED = {
    "elementwise operation": (
        stored('%y = "math.cbrt"(%x) : (tensor<8xf32>) -> tensor<8xf32>'),
        "`math.cbrt`",
    ),
    "scalar operation": ('%0 = "arith.unknown"(%arg1) : (i32) -> i32', "`arith.unknown`"),
    "print": ('"tt.print"(%arg1) <{prefix = "x"}> : (i32) -> ()', "`tt.print` in a bundle"),
    "call": ('"tt.call"(%arg1) <{callee = @h}> : (i32) -> ()', "`tt.call` of `@h`"),
    "unknown operation without results": (
        '"tt.fire_and_forget"(%arg1) : (i32) -> ()',
        "`tt.fire_and_forget`",
    ),
    "unknown operation whose result is not read": (
        '%0 = "tt.unheard_of"(%arg1) : (i32) -> tensor<4xi32>',
        "`tt.unheard_of`",
    ),
    "assertion": ('"tt.assert"(%arg1) <{message = "x > 0"}> : (i32) -> ()', "`x > 0`) in a bundle"),
    "device function": (
        stored(
            '%y = "tt.extern_elementwise"(%x) <{symbol = "__nv_unheard_of"}>'
            " : (tensor<8xf32>) -> tensor<8xf32>"
        ),
        "`__nv_unheard_of`",
    ),
    "atomic operation": (
        '%0 = "tt.atomic_rmw"(%arg0, %arg1) <{atomic_rmw_op = 99 : i32}>'
        " : (!tt.ptr<f32>, i32) -> i32",
        "atomic operation 99",
    ),
    "combine function": (
        """%0 = "tt.reduce"(%xs) <{axis = 0 : i32}> ({
    ^bb0(%a: f32, %b: f32):
      %1 = "math.cbrt"(%a) : (f32) -> f32
      "tt.reduce.return"(%1) : (f32) -> ()
    }) : (tensor<8xf32>) -> f32""",
        "`math.cbrt` in a combine function",
    ),
    "loop of blocks": (
        """%0 = "arith.cmpi"(%arg1, %arg1) <{predicate = 0 : i64}> : (i32, i32) -> i1
    "cf.cond_br"(%0)[^bb1, ^bb2] : (i1) -> ()
  ^bb1:
    "cf.br"()[^bb2] : () -> ()
  ^bb2:
    "cf.br"()[^bb1] : () -> ()
  ^bb3:""",
        "a loop of `cf` branches",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_named(name: str) -> None:
    body, said = REFUSED[name]
    if "%xs" in body:
        zeros = '%xs = "arith.constant"() <{value = dense<0.0> : tensor<8xf32>}>'
        body = f"{zeros} : () -> tensor<8xf32>\n    {body}"
    with pytest.raises(CompileError) as caught:
        lowered(body)
    assert said in str(caught.value)
    assert "support" in str(caught.value)


def test_an_error_names_the_line_of_the_source() -> None:
    unknown = '%y = "math.cbrt"(%x) : (tensor<8xf32>) -> tensor<8xf32> loc(#loc2)'
    text = f"""
#loc1 = loc("/home/me/kernels.py":12:4)
#loc2 = loc("y"(#loc1))
"builtin.module"() ({{
  "tt.func"() <{{sym_name = 1 : i32}}> ({{
  ^bb0({ARGUMENTS.replace(",", ' loc("a"(#loc1)),')} loc("a"(#loc1))):
    {stored(unknown)}
    "tt.return"() : () -> ()
  }}) : () -> () loc(#loc1)
}}) : () -> () loc(#loc1)
"""
    with pytest.raises(CompileError, match=r"`math.cbrt`.*at /home/me/kernels.py:12"):
        lower(text, ISAS["x86-64-v3"], no_alias=True)

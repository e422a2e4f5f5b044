"""The parser of Triton IR in MLIR's generic form, on texts as MLIR prints them."""

from __future__ import annotations

import math

import pytest

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu.ttir import Dense, Function, Type, parse, parse_attribute, parse_type


def module(body: str, arguments: str = "%arg0: !tt.ptr<f32>, %arg1: i32") -> Function:
    """A module with one function of this body, which gets its `tt.return` if it has none."""
    end = "" if "tt.return" in body else '"tt.return"() : () -> ()'
    return parse(f"""
"builtin.module"() ({{
  "tt.func"() <{{function_type = (!tt.ptr<f32>, i32) -> (), sym_name = 1 : i32}}> ({{
  ^bb0({arguments}):
    {body}
    {end}
  }}) : () -> ()
}}) : () -> ()
""")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32", Type("f32")),
        ("index", Type("i64")),
        ("!tt.ptr<bf16>", Type("ptr", None, "bf16")),
        ("!tt.ptr<f32, 3>", Type("ptr", None, "f32")),
        ("tensor<4x64xi1>", Type("i1", (4, 64))),
        ("tensor<8x!tt.ptr<f16>>", Type("ptr", (8,), "f16")),
        ("tensor<8x16xf32, #blocked>", Type("f32", (8, 16))),
    ],
)
def test_types(text: str, expected: Type) -> None:
    assert parse_type(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("-7 : i32", -7),
        ("3 : i64", 3),
        ("1.500000e+00 : f32", 1.5),
        ("0x7F800000 : f32", math.inf),
        ("0xFF80 : bf16", -math.inf),
        ("0x3C00 : f16", 1.0),
        ('"__nv_tanhf"', "__nv_tanhf"),
        ("array<i32: 1, 0, 2>", [1, 0, 2]),
        ("array<i32>", []),
        ("dense<2.000000e+00> : tensor<4xf32>", Dense((2.0,))),
        ("dense<0xFF800000> : tensor<4xf32>", Dense((-math.inf,))),
        ("dense<[1, -2]> : tensor<2xi32>", Dense((1, -2))),
        ("dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>", Dense((1, 2, 3, 4))),
        ("dense<true> : tensor<4xi1>", Dense((1,))),
        ('dense<"0x01000000FEFFFFFF"> : tensor<2xi32>', Dense((1, -2))),
        ('dense<"0x0000803F000000C0"> : tensor<2xf32>', Dense((1.0, -2.0))),
        ("#tt.something<1>", "#tt.something<1>"),
    ],
)
def test_attributes(text: str, expected: object) -> None:
    found = parse_attribute(text)
    assert found == expected
    assert type(found) is type(expected)


def test_hex_nan() -> None:
    assert math.isnan(parse_attribute("0x7FC00000 : f32"))


def test_operations_know_their_operands_users_and_order() -> None:
    function = module("""
    %0 = "arith.addi"(%arg1, %arg1) <{overflowFlags = #arith.overflow<none>}> : (i32, i32) -> i32
    %1 = "tt.addptr"(%arg0, %0) : (!tt.ptr<f32>, i32) -> !tt.ptr<f32>
    """)
    add, move, end = function.blocks[0].operations
    pointer, number = function.arguments
    assert add.operands == [number, number]
    assert move.operands == [pointer, add.results[0]]
    assert add.results[0].uses == [move]
    assert move.results[0].type == Type("ptr", None, "f32")
    assert [op.position for op in (add, move, end)] == [0, 1, 2]


def test_regions_block_arguments_and_results_by_number() -> None:
    function = module(
        """
    %0:2 = "tt.reduce"(%arg0, %arg1) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %b: i32, %c: f32, %d: i32):
      %1 = "arith.addf"(%a, %c) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "tt.reduce.return"(%1, %d) : (f32, i32) -> ()
    }) {late = 3 : i64} : (tensor<4x8xf32>, tensor<4x8xi32>) -> (tensor<4xf32>, tensor<4xi32>)
    %2 = "arith.addi"(%0#1, %0#1) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
    """,
        "%arg0: tensor<4x8xf32>, %arg1: tensor<4x8xi32>",
    )
    reduce, add, _ = function.blocks[0].operations
    assert reduce.integer("axis") == 1
    assert reduce.integer("late") == 3
    assert [x.type for x in reduce.results] == [Type("f32", (4,)), Type("i32", (4,))]
    assert [x.type.element for x in reduce.body.arguments] == ["f32", "i32", "f32", "i32"]
    inner = reduce.body.operations[0]
    assert inner.parent is reduce
    assert inner.operands == [reduce.body.arguments[0], reduce.body.arguments[2]]
    assert add.operands == [reduce.results[1]] * 2
    assert [op.name for op in function.walk()] == [
        "tt.reduce", "arith.addf", "tt.reduce.return", "arith.addi", "tt.return",
    ]  # fmt: skip


def test_blocks_and_successors() -> None:
    function = module("""
    %0 = "arith.constant"() <{value = true}> : () -> i1
    "cf.cond_br"(%0)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 0, 0>}> : (i1) -> ()
  ^bb1:
    "tt.return"() : () -> ()
  ^bb2:
    "tt.return"() : () -> ()
    """)
    assert function.labels == ["^bb0", "^bb1", "^bb2"]
    branch = function.blocks[0].operations[-1]
    assert branch.successors == ["^bb1", "^bb2"]
    assert branch.integers("operandSegmentSizes") == [1, 0, 0]


def test_comments_are_passed_over() -> None:
    function = module('%0 = "arith.constant"() <{value = 4 : i32}> : () -> i32  // four\n')
    assert function.blocks[0].operations[0].attributes["value"] == 4


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('%0 = "arith.addi"(%later, %arg1) : (i32, i32) -> i32', "uses `%later` before"),
        ('%0 "arith.addi"(%arg1, %arg1) : (i32, i32) -> i32', "expected `=`"),
        ('%0 = "arith.addi"(%arg1, %arg1) (i32, i32) -> i32', "expected `:`"),
        ('%0 = "tt.splat"(%arg1) : (i32) -> tensor<?xi32>', "tensor type `tensor<?xi32>`"),
        ("= 3", "expected a name"),
    ],
)
def test_what_is_not_understood_is_named(body: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        module(body)
    assert said in str(caught.value)


def test_attributes_of_the_wrong_type_are_named() -> None:
    function = module('%0 = "tt.make_range"() <{start = "x"}> : () -> tensor<4xi32>')
    made = function.blocks[0].operations[0]
    with pytest.raises(CompileError, match=r"`start` of `tt.make_range` is 'x', expected an int"):
        made.integer("start")
    with pytest.raises(CompileError, match="expected a list"):
        made.integers("start")


def test_a_text_that_is_no_module_is_refused() -> None:
    with pytest.raises(CompileError, match=r'expected `"builtin.module"`'):
        parse("module { }")

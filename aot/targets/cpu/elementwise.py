"""Elementwise operations on lane values: one row of a table for each operation of Triton IR."""

from __future__ import annotations

from collections.abc import Sequence

from aotc.aot.errors import CompileError
from aotc.aot.targets.cpu import floats, integers
from aotc.aot.targets.cpu.lanes import (
    LINEAR_KINDS,
    Lanes,
    Rule,
    as_f32,
    from_f32,
    result_kind,
    select,
    typed,
)
from aotc.aot.targets.cpu.linear import LLVM_TYPES, Int, Lane, Pointer, integer, is_vector
from aotc.aot.targets.cpu.ttir import Operation


def _float_to_float(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    source, wanted = operation.operands[0].type.element, result_kind(operation)
    value = as_f32(lanes, lanes.operand(operands[0]), source)
    if source == "f64" and wanted != "f64":
        value = lanes.cast("fptrunc", value, "float")
    if wanted == "f64":
        return value if source == "f64" else lanes.cast("fpext", value, "double")
    return from_f32(lanes, value, wanted)


def _integer_to_float(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        wanted = result_kind(operation)
        wide = "double" if wanted == "f64" else "float"
        return from_f32(lanes, lanes.cast(name, lanes.operand(operands[0]), wide), wanted)

    return rule


def _float_to_integer(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        kind = result_kind(operation)
        source = operation.operands[0].type.element
        value = as_f32(lanes, lanes.operand(operands[0]), source)
        return typed(lanes, lanes.cast(name, value, LLVM_TYPES[kind]), kind)

    return rule


def _resize_integer(name: str) -> Rule:
    def rule(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
        a = operands[0]
        kind = result_kind(operation)
        if isinstance(a, Int) and kind in LINEAR_KINDS:
            return lanes.convert(a, kind, signed=name != "zext")
        source = int(operation.operands[0].type.element[1:])
        return typed(
            lanes,
            lanes.cast(name, lanes.operand(a), LLVM_TYPES[kind]),
            kind,
            most=(1 << source) - 1 if name == "zext" else None,
        )

    return rule


def _bitcast(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    a, wanted = operands[0], operation.results[0].type
    if isinstance(a, Pointer):
        if a.element == wanted.pointee or {a.element, wanted.pointee} == {"i1", "i8"}:
            return a._replace(element=wanted.pointee)
        if a.offset.is_uniform:
            return Pointer(lanes.operand(a), integer(0, "i64"), wanted.pointee)
        return lanes.operand(a)
    source = operation.operands[0].type.element
    operand = lanes.operand(a)
    if {source, wanted.element} <= {"bf16", "i16"} or wanted.is_pointer:
        return operand
    return typed(lanes, lanes.cast("bitcast", operand, LLVM_TYPES[wanted.element]), wanted.element)


def _pointer_to_integer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    return lanes.atom(lanes.cast("ptrtoint", lanes.operand(operands[0]), "i64"), "i64")


def _integer_to_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    made = lanes.cast("inttoptr", lanes.operand(operands[0]), "ptr")
    if is_vector(made):
        return made
    return Pointer(made, integer(0, "i64"), operation.results[0].type.pointee)


def _add_pointer(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    pointer, offset = operands
    if not isinstance(offset, Int):
        kind = operation.operands[1].type.element
        raise CompileError(
            message=f"pointer offsets of type `{kind}` are not supported by the cpu target,"
            " expected i32 or i64"
        )
    if isinstance(pointer, Pointer):
        moved = lanes.add(pointer.offset, lanes.extend(offset, "i64"))
        return pointer._replace(offset=moved)
    amount = lanes.splat(lanes.operand(lanes.extend(offset, "i64")))
    element = LLVM_TYPES[operation.results[0].type.pointee]
    base = lanes.operand(pointer)
    return lanes.writer.emit(
        f"getelementptr {element}, {base}, {amount}", base.type, [base, amount]
    )


def _select(lanes: Lanes, operation: Operation, operands: Sequence[Lane]) -> Lane:
    condition, a, b = operands
    test = lanes.operand(condition)
    if test.text in ("true", "false"):
        return a if test.text == "true" else b
    kind = result_kind(operation)
    made = select(lanes, test, lanes.operand(a), lanes.operand(b))
    if isinstance(a, Pointer) and not is_vector(made):
        return Pointer(made, integer(0, "i64"), a.element)
    most = None
    if isinstance(a, Int) and isinstance(b, Int) and a.natural and b.natural:
        largest = (1 << int(a.kind[1:]) - 1) - 1
        most = max(largest if x.most is None else x.most for x in (a, b))
    return typed(lanes, made, kind, most=most)


RULES: dict[str, Rule] = {
    **integers.RULES,
    **floats.RULES,
    "arith.extf": _float_to_float,
    "arith.truncf": _float_to_float,
    "tt.fp_to_fp": _float_to_float,
    "arith.sitofp": _integer_to_float("sitofp"),
    "arith.uitofp": _integer_to_float("uitofp"),
    "arith.fptosi": _float_to_integer("fptosi"),
    "arith.fptoui": _float_to_integer("fptoui"),
    "arith.extsi": _resize_integer("sext"),
    "arith.extui": _resize_integer("zext"),
    "arith.trunci": _resize_integer("trunc"),
    "arith.bitcast": _bitcast,
    "tt.bitcast": _bitcast,
    "tt.ptr_to_int": _pointer_to_integer,
    "tt.int_to_ptr": _integer_to_pointer,
    "tt.addptr": _add_pointer,
    "arith.select": _select,
}

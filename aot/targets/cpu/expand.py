"""Operations that are others put together, written as those before a kernel is lowered.

    dot(a, b, c) : f16                 →  truncf(dot(a, b, extf(c)) : f32)
    dot_scaled(a, sa, b, sb, c) : f32  →  dot(scaled(a, sa), scaled(b, sb), c)

Only functions that have such operations change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotc.aot.targets.cpu import scaled
from aotc.aot.targets.cpu.ttir import (
    Attribute,
    Block,
    Function,
    Operation,
    Type,
    Value,
    unsupported,
)

NARROW = ("f16", "bf16")


def expand(function: Function) -> None:
    """Replaces them in place; raises CompileError for a format that is not known."""
    changed = False
    for block in blocks_of(function):
        made: list[Operation] = []
        for operation in block.operations:
            rule = RULES.get(operation.name)
            made += [operation] if rule is None else rule(operation)
        changed = changed or len(made) != len(block.operations)
        block.operations[:] = made
    if changed:
        for position, operation in enumerate(function.walk()):
            operation.position = position


def _made(
    name: str, like: Operation, operands: Sequence[Value], kind: Type,
    attributes: dict[str, Attribute] | None = None,
) -> Operation:  # fmt: skip
    operation = Operation(name, list(operands), dict(attributes or {}), [], [], [], like.parent)
    operation.position, operation.line = like.position, like.line
    operation.results = [Value(kind, operation, 0)]
    for operand in operands:
        operand.uses.append(operation)
    return operation


def _replace(old: Value, new: Value) -> None:
    """Everything that read `old` reads `new`."""
    for user in {id(x): x for x in old.uses}.values():
        user.operands[:] = [new if x is old else x for x in user.operands]
    new.uses += old.uses
    old.uses.clear()


def _drop_uses(operation: Operation) -> None:
    for operand in operation.operands:
        operand.uses[:] = [x for x in operand.uses if x is not operation]


def _dot(operation: Operation) -> list[Operation]:
    result = operation.results[0]
    is_narrow = result.type.element in NARROW
    if len(result.type.shape or ()) == 2 and not is_narrow:
        return [operation]
    operands = operation.operands[:3]
    _drop_uses(operation)
    wide = "f32" if is_narrow else result.type.element
    made: list[Operation] = []
    for place, value in enumerate(operands):
        is_operand = place < 2 and len(result.type.shape or ()) == 2  # widened as they are copied
        if not is_operand and value.type.element != wide:
            name = "arith.extsi" if wide == "i32" else "arith.extf"
            made.append(_made(name, operation, [value], value.type._replace(element=wide)))
            operands[place] = made[-1].results[0]
    kind = result.type._replace(element=wide)
    made.append(_made("tt.dot", operation, operands, kind, operation.attributes))
    if is_narrow:
        made.append(_made("arith.truncf", operation, made[-1].results, result.type))
    _replace(result, made[-1].results[0])
    return made


def _scaled_dot(operation: Operation) -> list[Operation]:
    sizes = operation.integers("operandSegmentSizes") or [1, 1, 1, 1, 1]
    rest = list(operation.operands)
    a, b, c, a_scale, b_scale = (rest.pop(0) if size else None for size in sizes)
    if a is None or b is None or c is None:
        raise unsupported("a scaled product without an operand")
    _drop_uses(operation)
    result = operation.results[0]
    made: list[Operation] = []
    for value, scale, name, axis in ((a, a_scale, "a", 1), (b, b_scale, "b", 0)):
        made.append(_scaled(operation, value, scale, name, axis))
    if result.type.element not in (*NARROW, "f32"):
        raise unsupported(f"a scaled product of type `{result.type.element}`")
    product = _made("tt.dot", operation, [made[0].results[0], made[1].results[0], c], result.type)
    _replace(result, product.results[0])
    return [*made, *_dot(product)]


def _scaled(
    operation: Operation, value: Value, scale: Value | None, name: str, axis: int
) -> Operation:
    number = operation.integer(f"{name}_elem_type")
    form = scaled.FORMATS[number] if 0 <= number < len(scaled.FORMATS) else str(number)
    if form.startswith("f6"):
        raise unsupported(f"a scaled product of `{form}`")
    shape = list(value.type.shape or ())
    is_packed = form.startswith("f4")
    side = "lhs" if name == "a" else "rhs"
    along_depth = bool(operation.attributes.get(f"{side}_k_pack", True))
    packed_axis = axis if along_depth else 1 - axis
    if is_packed:
        shape[len(shape) - 2 + packed_axis] *= 2
    attributes: dict[str, Attribute] = {
        "format": form, "axis": axis, "packed_axis": packed_axis if is_packed else -1,
    }  # fmt: skip
    operands = [value] if scale is None else [value, scale]
    return _made(scaled.NAME, operation, operands, Type("f32", tuple(shape)), attributes)


RULES: dict[str, Callable[[Operation], list[Operation]]] = {
    "tt.dot": _dot,
    "tt.dot_scaled": _scaled_dot,
}


def blocks_of(function: Function) -> list[Block]:
    """All blocks, those of regions behind the function's own."""
    return [
        *function.blocks,
        *(b for op in function.walk() for region in op.regions for b in region),
    ]

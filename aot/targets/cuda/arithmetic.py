"""How the floating-point arithmetic of a kernel is rounded on a GPU.

Numbers below the smallest normal one are kept, as torch keeps them, and a product that is read more
than once is rounded by itself: x - x is 0. What is left to LLVM and ptxas is the multiply-add of a
product that only one sum reads. Where a kernel computes one product at several places, as only
`lower` sees, nothing is fused (`enable_fp_fusion`). Quotients of f32 are the rounded ones of
`aot/ir/ops.py`: ptxas makes a product of an approximate one, which a sum may take in.
"""

from __future__ import annotations

import re
from collections import Counter

# Kernels that wait for arithmetic: those with products, and what calls fast functions beside them.
IS_BUSY = re.compile(r"\b(?:tt|ttng|ttg)\.\w*(?:dot|mma)|__nv_fast_")
# Their value at a number below the normal ones is another than at 0, by more than such a number.
STEEP_AT_ZERO = re.compile(r"\bmath\.(?:floor|ceil|rsqrt)\b|__nv_(?:fmod|pow|atan2|rsqrt)")
FUNCTION = re.compile(r"^define .*?^\}", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"%[-\w.$]+")
DEFINITION = re.compile(
    r"^(?P<indent>\s*)(?P<result>%[-\w.$]+) = fmul (?:\w+ )*?"
    r"(?P<type>float|double|<\d+ x (?:float|double)>) (?P<operands>.*)$",
    re.MULTILINE,
)
OPERANDS = re.compile(r"(?:<[^>]*>|\([^)]*\)|[^,<(])+")  # constants of vectors have commas
# A negated product, or one of two.
PASSED_ON = re.compile(
    r"^\s*(?P<result>%[-\w.$]+) = (?:fneg|select) (?P<operands>.*)$", re.MULTILINE
)
ELEMENT = re.compile(
    r"^\s*(?P<result>%[-\w.$]+) = extractelement <[^>]*> (?P<vector>%[-\w.$]+), i\d+ (?P<at>\d+)",
    re.MULTILINE,
)
ROUNDED = {"float": "llvm.nvvm.mul.rn.f", "double": "llvm.nvvm.mul.rn.d"}


def flushes(module: str) -> bool:
    """Whether functions of a kernel take numbers below the normal ones as 0, from the text of its
    first module.

    `exp2` and the like take longer without that, so kernels that wait for arithmetic do, where they
    call no function that has another value there.
    """
    return bool(IS_BUSY.search(module)) and not STEEP_AT_ZERO.search(module)


def separated(llvm_ir: str) -> str:
    """The LLVM IR with each product that has several readers as one that nothing is fused with."""
    text = FUNCTION.sub(_separated, llvm_ir)
    for kind, name in ROUNDED.items():
        if f"@{name}(" in text and not re.search(rf"^declare .*@{name}\(", text, re.MULTILINE):
            text += f"\ndeclare {kind} @{name}({kind}, {kind})\n"
    return text


def _separated(function: re.Match[str]) -> str:
    named = Counter(NAME.findall(function[0]))  # where they are defined, too
    passed_on = {
        operand: row["result"]
        for row in PASSED_ON.finditer(function[0])
        for operand in NAME.findall(row["operands"])
    }
    elements: dict[str, list[tuple[str, str]]] = {}  # of a vector: which one, and its name
    for row in ELEMENT.finditer(function[0]):
        elements.setdefault(row["vector"], []).append((row["at"], row["result"]))

    def readers(name: str) -> int:
        """How many read a value, or the element of a vector that most read."""
        while named[name] == 2 and name in passed_on:
            name = passed_on[name]
        by_element: Counter[str] = Counter()
        for at, part in elements.get(name, ()):
            by_element[at] += readers(part)
        whole = named[name] - 1 - len(elements.get(name, ()))
        return whole + max(by_element.values(), default=0)

    def separate(match: re.Match[str]) -> str:
        if readers(match["result"]) <= 1:
            return match[0]
        return "\n".join(match["indent"] + line for line in _alone(match))

    return DEFINITION.sub(separate, function[0])


def _alone(product: re.Match[str]) -> list[str]:
    """Lines of a product that nothing is fused with; of vectors, each element by itself."""
    result, kind = product["result"], product["type"]
    left, right, *notes = (part.strip() for part in OPERANDS.findall(product["operands"]))
    if not kind.startswith("<"):
        rest = "".join(f", {note}" for note in notes)
        call = f"call {kind} @{ROUNDED[kind]}({kind} {left}, {kind} {right}){rest}"
        return [f"{result} = {call}"]
    count, element = int(kind.split()[0][1:]), kind.split()[-1][:-1]
    lines, whole = [], "poison"
    for at in range(count):
        name = f"%apart.{result[1:]}.{at}"
        for side, operand in (("l", left), ("r", right)):
            lines.append(f"{name}.{side} = extractelement {kind} {operand}, i32 {at}")
        operands = f"{element} {name}.l, {element} {name}.r"
        lines.append(f"{name}.p = call {element} @{ROUNDED[element]}({operands})")
        joined = result if at == count - 1 else f"{name}.v"
        value = f"{kind} {whole}, {element} {name}.p"
        lines.append(f"{joined} = insertelement {value}, i32 {at}")
        whole = joined
    return lines

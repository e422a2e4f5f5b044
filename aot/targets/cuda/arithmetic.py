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
    r"^(?P<head>\s*(?P<result>%[-\w.$]+) = )fmul (?:\w+ )*?(?P<type>float|double) "
    r"(?P<left>[^,]+), (?P<right>[^,\n]+)(?P<rest>.*)$",
    re.MULTILINE,
)
NEGATION = re.compile(
    r"^\s*(?P<result>%[-\w.$]+) = fneg (?:\w+ )*?(?:float|double) (?P<operand>%[-\w.$]+)",
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
    readers = Counter(NAME.findall(function[0]))  # the definition is counted too
    negated = {row["operand"]: row["result"] for row in NEGATION.finditer(function[0])}

    def separate(match: re.Match[str]) -> str:
        name = match["result"]
        while readers[name] == 2 and name in negated:
            name = negated[name]
        if readers[name] <= 2:
            return match[0]
        kind = match["type"]
        operands = f"{kind} {match['left']}, {kind} {match['right']}"
        return f"{match['head']}call {kind} @{ROUNDED[kind]}({operands}){match['rest']}"

    return DEFINITION.sub(separate, function[0])

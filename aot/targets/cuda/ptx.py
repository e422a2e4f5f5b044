"""What is changed in the PTX that LLVM writes before it is assembled."""

from __future__ import annotations

import re

from aotc.aot.targets.cuda.machines import PROGRAMMATIC_LAUNCH_CAPABILITY
from aotc.aot.targets.toolchain import ToolchainError

ENTRY = re.compile(r"^\.visible \.entry .*?^\{\n", re.DOTALL | re.MULTILINE)
WAIT = "griddepcontrol.wait"
PAIR = re.compile(
    r"^\t(?P<name>add(?=\.[su])|(?:min|max)(?:\.NaN)?)\.(?P<half>[su]16|b?f16)x2[ \t]+"
    r"(?P<result>%\w+), (?P<left>[-%\w]+), (?P<right>[-%\w]+);$",
    re.MULTILINE,
)
HALVES = """\
	{{ // {name}.{half}x2
	.reg .b16 %half<4>;
	mov.b32 	{{%half0, %half1}}, {left};
	mov.b32 	{{%half2, %half3}}, {right};
	{name}.{half} 	%half0, %half0, %half2;
	{name}.{half} 	%half1, %half1, %half3;
	mov.b32 	{result}, {{%half0, %half1}};
	}}"""


def repaired(ptx: str, capability: int, is_followed_early: bool = False) -> str:
    """The PTX as it goes to the assembler; is_followed_early: see `waiting`.

    Raises ToolchainError where it has not one entry.
    """
    ptx = halved(ptx)
    is_waiting = capability >= PROGRAMMATIC_LAUNCH_CAPABILITY
    return waiting(ptx, is_followed_early) if is_waiting else ptx


def halved(ptx: str) -> str:
    """Each pair of 16-bit integers, and each maximum of a pair of 16-bit floats, computed as two.

    ptxas, 12.8 to 13.0 at least, computes a packed sum again where registers are few, and then
    with 0 in the place of its constant (triton-lang/triton issue 11581). LLVM packs them from
    sm_90 on, in index arithmetic whose numbers it knows to be small. Of a pair of floats one of
    which is a constant -infinity, as the padding of a pooling window, it takes the maximum with
    +infinity: the constant is negated where it is read, and one of two readers is left out.
    """
    return PAIR.sub(lambda match: HALVES.format(**match.groupdict()), ptx)


def waiting(ptx: str, is_followed_early: bool = False) -> str:
    """An entry that begins by waiting until the kernels before it have ended.

    Every thread waits before it touches memory, but for what the text of a kernel that waits by
    itself loads before (`kernels/templates/launches.py`): the launch may then overlap with the end
    of the kernel before. Where nothing was launched early this costs nothing. is_followed_early:
    the kernel behind it may come as soon as all of its programs have begun. That one waits until
    this one has ended, and so until those before it have, since every thread of this one waits too.
    """
    start = "\tgriddepcontrol.launch_dependents;\n" if is_followed_early else ""
    wait = "" if WAIT in ptx else f"\t{WAIT};\n"
    text, count = ENTRY.subn(lambda match: f"{match[0]}{start}{wait}", ptx)
    if count != 1:
        reason = f"its PTX has {count} entries, expected 1"
        raise ToolchainError(step="compiling", name="ptx", reason=reason)
    return text

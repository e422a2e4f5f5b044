"""Files `code/NAME.ttir`: Triton IR with what is expected of the LLVM IR that the CPU target makes.

    // RUN: x86-64-v4 V4            lower for this instruction set; lines `V4:` are of that run
    // RUN: x86-64-v3 may-alias     the memory behind pointers may overlap; lines `CHECK:`
    // FILTER: load|store           only lines that match are compared, and `--bless` writes them

The text that is compared is the function `@kernel`. With a FILTER values are called by what makes
them and numbered as the lines name them, so that one more changes few others; without one the
directives are written by hand (`file_check.py`).

`python tests/goldens/code_files.py FOLDER` writes the whole LLVM IR of every run to a folder: run
it on two states and compare them where a change is to leave all code equal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from file_check import check, checks_of

from aotc.aot.targets.cpu.isa import isa
from aotc.aot.targets.cpu.lowering import lower

FOLDER = Path(__file__).parent / "code"
MAY_ALIAS = "may-alias"
_NAME = re.compile(r"(?:(?<=%)|^)(?!arg|slot)([a-z]+)(\d+)", re.MULTILINE)
_DEFINITION = re.compile(r"^ *%(\w+) = (\w+)(?:.*@(?:llvm|aotc)\.(\w+))?", re.MULTILINE)
_VECTOR = re.compile(r"<(?P<element>\w+ [^\s,<>]+)(?:, (?P=element))+>")


@dataclass(frozen=True)
class Run:
    """One lowering of a file."""

    isa: str
    may_alias: bool
    prefix: str

    def text(self, file: str) -> str:
        """LLVM IR of the whole module."""
        return lower(file, isa(self.isa), no_alias=not self.may_alias).llvm_ir


def runs_of(file: str) -> list[Run]:
    """The RUN lines of a file; it has one at least."""
    found = []
    for words in map(str.split, re.findall(r"^// RUN: (.*)$", file, re.MULTILINE)):
        rest = [word for word in words[1:] if word != MAY_ALIAS]
        found.append(Run(words[0], MAY_ALIAS in words, rest[0] if rest else "CHECK"))
    assert found, "no line begins with `// RUN: `"
    assert len({run.prefix for run in found}) == len(found), "two runs have the same prefix"
    return found


def kernel_of(module: str) -> str:
    """The constants and the function `@kernel` of a module."""
    return module.partition("define void @body(")[0]


def compared(file: str, run: Run) -> str:
    """The lines that are compared with the directives of a run."""
    text = kernel_of(run.text(file))
    match = re.search(r"^// FILTER: (.*)$", file, re.MULTILINE)
    if match is None:
        return text
    lines = [line for line in text.splitlines() if re.search(match[1], line)]
    found = renumbered("\n".join(lines), makers(text))
    return _VECTOR.sub(r"splat (\g<element>)", found)


def makers(text: str) -> dict[str, str]:
    """Name of a value → what makes it: an instruction, or the function that is called."""
    return {match[1]: match[3] or match[2] for match in _DEFINITION.finditer(text)}


def renumbered(text: str, makers: Mapping[str, str]) -> str:
    """Values and blocks by what makes them, numbered in the order in which they stand."""
    names: dict[str, str] = {}
    count: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] not in names:
            maker = makers.get(match[0], match[1])
            names[match[0]] = f"{maker}{count.get(maker, 0)}"
            count[maker] = count.get(maker, 0) + 1
        return names[match[0]]

    return _NAME.sub(name, text)


def is_filtered(file: str) -> bool:
    """Whether the directives are written by `--bless`."""
    return re.search(r"^// FILTER: ", file, re.MULTILINE) is not None


def compare(file: str) -> None:
    """Compare each run with its directives. Raises what `check` does."""
    for run in runs_of(file):
        check(file, compared(file, run), (run.prefix,), full_lines=is_filtered(file))


def blessed(file: str) -> str:
    """The file with its directives written anew; only where it has a FILTER."""
    prefixes = "|".join(re.escape(run.prefix) for run in runs_of(file))
    old = re.compile(rf"// ({prefixes})(-NEXT|-NOT)?: ")
    lines = [line for line in file.splitlines() if not old.match(line)]
    place = next(at for at, line in enumerate(lines) if line.startswith("// FILTER: ")) + 1
    new: list[str] = []
    for run in runs_of(file):
        found = compared(file, run).splitlines()
        new += [f"// {line}" for line in checks_of(found, run.prefix)]
    return "\n".join([*lines[:place], *new, *lines[place:], ""])


def main(arguments: Sequence[str]) -> None:
    """Write the LLVM IR of all runs to a folder."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(FOLDER.glob("*.ttir")):
        file = path.read_text()
        for run in runs_of(file):
            (folder / f"{path.stem}.{run.prefix}.ll").write_text(run.text(file))


if __name__ == "__main__":
    main(sys.argv[1:])

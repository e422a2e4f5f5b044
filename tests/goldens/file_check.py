"""Compares a text with the CHECK lines of a file, as LLVM's FileCheck does: only what a file names.

    CHECK: pattern          somewhere behind the last match, in the rest of its line or later
    CHECK-NEXT: pattern     in the line behind that of the last match
    CHECK-SAME: pattern     in the rest of the line of the last match
    CHECK-COUNT-3: pattern  three matches, one behind the other
    CHECK-NOT: pattern      nowhere between the matches before and after it, or the text's ends

Every line of a file that holds one of them is a directive, whatever stands before it. In a pattern
blanks match blanks, `{{regex}}` is a regular expression, `[[NAME:regex]]` one whose match is kept
under a name, `[[NAME]]` the text kept. A match is inside one line. `prefixes` are read in place of
CHECK where a file expects several texts. `checks_of` writes the directives of a text.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

DEFAULT_PREFIXES = ("CHECK",)
KINDS = ("", "NEXT", "SAME", "NOT", "COUNT")
_PIECE = re.compile(r"\{\{(?P<regex>.+?)\}\}(?!\})|\[\[(?P<name>\w+)(:(?P<kept>.+?))?\]\](?!\])")


class CheckFileError(Exception):
    """The directives themselves are wrong: no text could be right or wrong by them."""


class Mismatch(AssertionError):
    """The text is not what a directive expects."""


@dataclass(frozen=True, slots=True)
class Directive:
    """One CHECK line: `kind` of KINDS, how often it is to match, its pattern and its line."""

    prefix: str
    kind: str
    count: int
    pattern: str
    line: int

    def __str__(self) -> str:
        kind = f"COUNT-{self.count}" if self.kind == "COUNT" else self.kind
        return f"line {self.line}: {'-'.join(filter(None, (self.prefix, kind)))}: {self.pattern}"


@dataclass(frozen=True, slots=True)
class Place:
    """Between two characters of a text: numbers of line and column, from 0."""

    line: int
    column: int


def directives(file: str, prefixes: Sequence[str] = DEFAULT_PREFIXES) -> list[Directive]:
    """The directives of a file with these prefixes. Raises CheckFileError."""
    words = "|".join(map(re.escape, prefixes))
    line_of = re.compile(rf"(?<![\w-])({words})(?:-([\w-]+))?:(?:[ \t]+(.*?))?[ \t]*$")
    found: list[Directive] = []
    for number, text in enumerate(file.splitlines(), 1):
        match = line_of.search(text)
        if match is None:
            continue
        prefix, kind, pattern = match[1], match[2] or "", match[3] or ""
        count, counted = 1, re.fullmatch(r"COUNT-([1-9]\d*)", kind)
        if counted:
            kind, count = "COUNT", int(counted[1])
        found.append(Directive(prefix, kind, count, pattern, number))
        if kind not in KINDS:
            raise CheckFileError(f"unknown directive at {found[-1]}")
        if not pattern:
            raise CheckFileError(f"no pattern at {found[-1]}")
    if not found:
        raise CheckFileError(f"no line has one of {', '.join(f'{each}:' for each in prefixes)}")
    positive = next((each for each in found if each.kind != "NOT"), None)
    if positive is not None and positive.kind in ("NEXT", "SAME"):
        raise CheckFileError(f"nothing to match comes before {positive}")
    return found


def check(
    file: str,
    text: str,
    prefixes: Sequence[str] = DEFAULT_PREFIXES,
    *,
    full_lines: bool = False,
) -> None:
    """Compare `text` with the directives of `file`; `full_lines`: a match is a whole line.

    Raises Mismatch or CheckFileError.
    """
    state = _State(text.splitlines(), full_lines)
    for directive in directives(file, prefixes):
        state.follow(directive)
    state.end()


class _State:
    """What has matched so far."""

    def __init__(self, lines: Sequence[str], full_lines: bool) -> None:
        self.lines, self.full_lines = lines, full_lines
        self.place = Place(0, 0)
        self.kept: dict[str, str] = {}
        self.forbidden: list[Directive] = []

    def follow(self, directive: Directive) -> None:
        if directive.kind == "NOT":
            self.forbidden.append(directive)
            return
        for _ in range(directive.count):
            line, match = self._match(directive)
            self._check_forbidden(Place(line, match.start()))
            self.place = Place(line, match.end())
            self.kept |= match.groupdict()

    def end(self) -> None:
        last = len(self.lines) - 1
        self._check_forbidden(Place(last, len(self.lines[last])) if self.lines else Place(0, 0))

    def _match(self, directive: Directive) -> tuple[int, re.Match[str]]:
        regex = compiled(directive, self.kept, self.full_lines)
        lines = self._lines_of(directive.kind)
        for line in lines:
            match = regex.search(self.lines[line], self._column(line))
            if match:
                return line, match
        raise Mismatch(self._message(directive, lines))

    def _lines_of(self, kind: str) -> range:
        """Lines that a directive may match in."""
        here, count = self.place.line, len(self.lines)
        if kind == "SAME":
            return range(here, min(here + 1, count))
        if kind == "NEXT":
            return range(here + 1, min(here + 2, count))
        return range(here, count)

    def _column(self, line: int) -> int:
        return self.place.column if line == self.place.line else 0

    def _check_forbidden(self, end: Place) -> None:
        """Fail where what must not come has come between the last match and `end`."""
        for directive in self.forbidden:
            regex = compiled(directive, self.kept)
            for line in range(self.place.line, min(end.line + 1, len(self.lines))):
                last = end.column if line == end.line else len(self.lines[line])
                if regex.search(self.lines[line], self._column(line), last):
                    raise Mismatch(f"{directive}\nfound: {self.lines[line].strip()}")
        self.forbidden = []

    def _message(self, directive: Directive, lines: range) -> str:
        names = re.findall(r"\[\[(\w+)\]\]", directive.pattern)
        values = [f"with {name} = {self.kept[name]}" for name in names if name in self.kept]
        if not lines:
            return "\n".join([str(directive), *values, "found: the end of the text"])
        wanted = re.sub(r"\[\[(\w+)\]\]", self._kept_or_name, directive.pattern)
        near = difflib.get_close_matches(wanted, [self.lines[at] for at in lines], 1, 0.0)
        words = (
            "found" if len(lines) == 1 else f"found nothing from line {lines[0] + 1} on, nearest"
        )
        return "\n".join([str(directive), *values, *(f"{words}: {each.strip()}" for each in near)])

    def _kept_or_name(self, match: re.Match[str]) -> str:
        return self.kept.get(match[1], match[0])


def checks_of(lines: Sequence[str], prefix: str) -> list[str]:
    """Directives that accept these whole lines and no others."""
    found = [f"{prefix}-NEXT: {line.strip()}" for line in lines]
    if found:
        found[0] = found[0].replace("-NEXT", "", 1)
    return [*found, f"{prefix}-NOT: {{{{.}}}}"]


def compiled(
    directive: Directive, kept: Mapping[str, str], full_lines: bool = False
) -> re.Pattern[str]:
    """The pattern of a directive as a regular expression. Raises CheckFileError."""
    text = "".join(_pieces(directive, kept))
    try:
        return re.compile(rf"^[ \t]*(?:{text})[ \t]*$" if full_lines else text)
    except re.error as error:
        raise CheckFileError(f"{directive}: {error}") from None


def _pieces(directive: Directive, kept: Mapping[str, str]) -> Iterator[str]:
    end, here = 0, set[str]()
    for match in _PIECE.finditer(directive.pattern):
        yield _literal(directive.pattern[end : match.start()])
        end, name = match.end(), match["name"]
        if match["regex"]:
            yield f"(?:{match['regex']})"
        elif match["kept"]:
            here.add(name)
            yield f"(?P<{name}>{match['kept']})"
        elif name in here:
            yield f"(?P={name})"
        elif name in kept:
            yield re.escape(kept[name])
        else:
            raise CheckFileError(f"{directive}: nothing was kept as {name}")
    yield _literal(directive.pattern[end:])


def _literal(text: str) -> str:
    return r"[ \t]+".join(map(re.escape, re.split(r"[ \t]+", text)))

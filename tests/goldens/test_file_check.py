"""The checks of expected texts: what each directive accepts, what it refuses, what is an error."""

from __future__ import annotations

import pytest
from file_check import CheckFileError, Mismatch, check, checks_of, directives

TEXT = """\
define void @kernel(ptr %arg0) {
  %1 = load <16 x float>, ptr %arg0
  %2 = fmul <16 x float> %1, %1
  %3 = fadd <16 x float> %2, %1
  store <16 x float> %3, ptr %arg0
  ret void
}
"""


@pytest.mark.parametrize(
    "file",
    [
        "CHECK: fmul",
        "; CHECK: fmul <16 x float>\nthis line is no directive\n; CHECK: ret",
        "CHECK: %2   =  fmul",
        "CHECK: fmul\nCHECK-NEXT: fadd\nCHECK-NEXT: store",
        "CHECK: %3\nCHECK-SAME: %2\nCHECK-SAME: %1",
        "CHECK-NOT: fdiv\nCHECK: ret\nCHECK-NOT: ret",
        "CHECK: ret\nCHECK-NOT: fmul",
        "CHECK-NOT: fdiv",
        "CHECK-COUNT-2: %1\nCHECK-SAME: %1",
        "CHECK-COUNT-3: {{= f?(mul|add|load)}}",
        "CHECK: [[X:%[0-9]+]] = load\nCHECK: fmul {{.*}} [[X]], [[X]]",
        "CHECK: [[A:%.]], [[A]]\nCHECK: [[A:%.]] = fadd\nCHECK-NEXT: [[A]]",
        "CHECK: load <{{[0-9]{2}}} x float>",
        "CHECK: fmul <[[N:[0-9]]]",
        "CHECK: {{^  ret void$}}",
    ],
)
def test_accepts(file):
    check(file, TEXT)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("CHECK: fdiv", "line 1: CHECK: fdiv\nfound nothing from line 1 on, nearest: "),
        ("CHECK: fadd\nCHECK: fmul", "line 2: CHECK: fmul\nfound nothing from line 4 on"),
        ("CHECK: fmul\nCHECK-NEXT: store", "CHECK-NEXT: store\nfound: %3 = fadd"),
        ("CHECK: }\nCHECK-NEXT: {{.}}", "found: the end of the text"),
        ("CHECK: fmul\nCHECK-SAME: fadd", "CHECK-SAME: fadd\nfound: %2 = fmul"),
        ("CHECK: load\nCHECK-NOT: fmul\nCHECK: fadd", "CHECK-NOT: fmul\nfound: %2 = fmul"),
        ("CHECK-NOT: define\nCHECK: ret", "found: define"),
        ("CHECK: fmul\nCHECK-NOT: %1\nCHECK: fadd", "CHECK-NOT: %1\nfound: %2"),
        ("CHECK: ret\nCHECK-NOT: }", "found: }"),
        ("CHECK-COUNT-2: fmul", "line 1: CHECK-COUNT-2: fmul"),
        ("CHECK: [[X:%.]] = fmul\nCHECK: [[X]] = fadd", "with X = %2\nfound nothing"),
        ("CHECK: define void @kernel(ptr %arg0) {  %1", "found nothing"),
        ("CHECK: fmul <1. x float>", "found nothing"),
        ("CHECK: [[A:%.]] = load {{.*}} [[A]]", "found nothing"),
    ],
)
def test_refuses(file, message):
    with pytest.raises(Mismatch) as caught:
        check(file, TEXT)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("", "no line has one of CHECK:"),
        ("CHECKS: fmul\nA-CHECK: fmul", "no line has one of CHECK:"),
        ("CHECK-NXT: fmul", "unknown directive at line 1: CHECK-NXT"),
        ("CHECK-COUNT-0: fmul", "unknown directive"),
        ("CHECK:\n", "no pattern"),
        ("CHECK-NEXT: fmul", "nothing to match comes before line 1"),
        ("CHECK-NOT: x\nCHECK-SAME: fmul", "nothing to match comes before line 2"),
        ("CHECK: [[X]]", "nothing was kept as X"),
        ("CHECK: {{(}}", "unterminated subpattern"),
    ],
)
def test_wrong_directives_are_errors(file, message):
    with pytest.raises(CheckFileError) as caught:
        check(file, TEXT)
    assert message in str(caught.value)


def test_prefixes_choose_directives():
    file = "V3: fmul\nV4: fdiv\nCHECK: ret"
    check(file, TEXT, ("V3", "CHECK"))
    assert [each.prefix for each in directives(file, ("V3", "CHECK"))] == ["V3", "CHECK"]
    with pytest.raises(Mismatch):
        check(file, TEXT, ("V4", "CHECK"))


def test_an_empty_text():
    check("CHECK-NOT: {{.}}", "")
    with pytest.raises(Mismatch, match="the end of the text"):
        check("CHECK: {{.}}", "")


def test_full_lines():
    check("CHECK: ret void", TEXT, full_lines=True)
    with pytest.raises(Mismatch):
        check("CHECK: ret", TEXT, full_lines=True)


def test_written_directives_accept_their_text_only():
    lines = TEXT.splitlines()[1:4]
    file, text = "\n".join(checks_of(lines, "A")), "\n".join(lines)
    check(file, text, ("A",), full_lines=True)
    swapped = text.replace("%2, %1", "%1, %2")
    for bad in (swapped, text + ", align 4", text + "\n  ret void", "\n".join(lines[:2])):
        with pytest.raises(Mismatch):
            check(file, bad, ("A",), full_lines=True)
    assert checks_of([], "A") == ["A-NOT: {{.}}"]

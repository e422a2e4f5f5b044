"""The words: one name for one meaning, and the field's where the field has one.

A row of WORDS is a word that may not stand in some files, with what to write instead. Identifiers
count by their parts: `is_turned` has the word `turned`.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
CODE = ("aot/", "runtime/", "cache/", "kernels/")
EVERYWHERE = ("",)
THIS = "tests/test_words.py"
# What other programs said: results on record and what the fuzzer found.
RECORDS = (
    "docs/fuzz.md",
    "docs/inductor-tests.md",
    "docs/inductor-tests-dynamic.md",
    "docs/many-machines.md",
    "docs/robustness.md",
)


class Word(NamedTuple):
    pattern: str
    instead: str
    where: tuple[str, ...] = EVERYWHERE
    but: tuple[str, ...] = ()  # files and folders in which it has another, plain meaning


WORDS = (
    Word(r"respell\w*|spelling\w*|spelled|spells", "form, lowering to FX, rewriting"),
    Word(r"lent|(?<!Van )loans?", "borrowed"),
    Word("told", "hashed; noted, raised, reported"),
    Word(r"rehears\w*", "validation against the golden output"),
    Word(r"cures?|cured", "remedy, hint"),
    Word(r"houses?|rooms|floors? test", "package, folder, layer, architecture"),
    Word(r"prelude", "support code"),
    Word(r"recall\w*|remember\w*", "capture cache; keep", but=("runtime/drivers/",)),
    Word(r"shortened", "approximate"),
    Word(r"laws?|articles?", "rules"),
    Word(r"(?<!text[-_])anchors?", "root op"),  # text-anchor is an attribute of SVG
    Word(r"wiring|wired", "buffer assignment"),
    Word(r"sooner", "faster"),
    Word(r"overhangs?", "tail, partial tile"),
    Word(r"is_early", "programmatic dependent launch"),
    Word(r"taps?", "kernel offset"),
    Word(r"answered in kind", "returns the caller's array type"),
    Word(r"(model's|our) picks?", "the cost model's choice", CODE),
    Word(r"demands?(?<!on demand)", "access", CODE),
    Word(r"turned(?! (out|away|into))", "transposed, rotated", CODE),
    Word(  # but for attention sinks
        r"sinks?",
        "consumer, root store",
        ("aot/schedule/", "aot/lower/", "aot/plan/"),
        ("aot/schedule/attention.py", "aot/lower/attention/", "aot/lower/placed/attention.py"),
    ),
    Word(
        r"(?<!embedding_)bags?",
        "embedding_bag",
        CODE,
        ("aot/capture/imports/", "aot/capture/decompositions/lookups.py"),
    ),
    Word(r"call decides", "dynamic"),
    Word(r"calls? (keeps?|leaves?) (to|behind)", "state"),
    Word(r"native_?session", "driver's session", CODE),
    Word(r"identity of (a|the) bundle", "bundle digest"),
    Word(r"refuse[sd]?( [a-z]+){0,4} by (its |their )?name", "raises the error, naming it"),
    Word(r"refuse_place|kept_slots|place_slots", "memory, state slots", CODE),
)


def texts() -> dict[str, str]:
    listed = ["*.py", "*.md", "*.h", "*.c", "*.toml", "scripts"]
    found = subprocess.run(
        ["git", "ls-files", "-z", "--", *listed],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = [name for name in found.stdout.split("\0") if name and name not in (THIS, *RECORDS)]
    files = [ROOT / name for name in names or ()]
    return {
        name: path.read_text(errors="replace")
        for name, path in zip(names, files, strict=True)
        if path.is_file() and not path.is_symlink()
    }


TEXTS = texts()


def found(word: Word, name: str, text: str) -> list[str]:
    if not name.startswith(word.where) or name.startswith(word.but or ("\0",)):
        return []
    # A part of a name ends where a letter does, so that `_` separates like a space.
    pattern = re.compile(rf"(?<![A-Za-z])(?:{word.pattern})(?![A-Za-z])", re.IGNORECASE)
    lines = enumerate([name, *text.splitlines()])  # a file's own name too
    return [f"{name}:{at}: {line.strip()}" for at, line in lines if pattern.search(line)]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.instead)
def test_a_word_stands_only_where_it_may(word):
    if not TEXTS:
        pytest.skip("the files are listed by git, and this is no checkout")
    wrong = [line for name, text in TEXTS.items() for line in found(word, name, text)]
    assert not wrong, f"write {word.instead} instead of {word.pattern}:\n" + "\n".join(wrong)


def test_the_search_finds_parts_of_names():
    word = Word("turned", "")
    assert found(word, "a.py", "def f(is_turned):\n    TURNED_ROWS = 1\n    returned = 2") == [
        "a.py:1: def f(is_turned):",
        "a.py:2: TURNED_ROWS = 1",
    ]

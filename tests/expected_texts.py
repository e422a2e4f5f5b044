"""Expected texts are files: `expect_text` compares with one, `--bless` accepts what was found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BLESS = "--bless"
BLESSED = "blessed"  # property of a test: a file that it wrote


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(BLESS, action="store_true", help="write the expected texts anew")


@pytest.fixture
def is_blessing(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be written instead of compared."""
    return bool(request.config.getoption(BLESS))


@pytest.fixture
def expect_text(request: pytest.FixtureRequest, is_blessing: bool) -> Callable[[Path, str], None]:
    """`expect_text(path, text)` compares with the file at `path`; with `--bless` it writes the file
    where that differs, which the summary of the run lists."""
    root = request.config.rootpath
    command = f"pytest {request.node.path.relative_to(root).as_posix()} {BLESS}"

    def check(path: Path, text: str) -> None:
        expected = path.read_text() if path.is_file() else None
        if expected == text:
            return
        name = path.relative_to(root).as_posix()
        lines = list(
            difflib.unified_diff(
                (expected or "").splitlines(), text.splitlines(), name, "found", lineterm=""
            )
        )
        if not is_blessing:
            why = "does not exist" if expected is None else "differs"
            diff = "\n".join(lines)
            pytest.fail(f"{name} {why}:\n{diff}\nto accept what was found: {command}", False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        report_blessed(request, name, lines if expected is not None else None)

    return check


@pytest.fixture
def golden(request: pytest.FixtureRequest, expect_text: Callable) -> Callable[[str], None]:
    """`golden(text)` compares with `golden/<test file>/<test name>.txt` beside the test."""
    test_file = Path(str(request.node.path))
    name = re.sub(r"[^\w.\-]+", "-", request.node.name).strip("-")
    path = test_file.parent / "golden" / test_file.stem.removeprefix("test_") / f"{name}.txt"

    def check(text: str) -> None:
        expect_text(path, text)

    return check


def report_blessed(request: pytest.FixtureRequest, name: str, diff: Sequence[str] | None) -> None:
    """Let the summary of the run say that the file is new (None) or how it changed."""
    counts = [sum(line[:1] == sign for line in (diff or ())[2:]) for sign in "+-"]
    how = "new" if diff is None else f"+{counts[0]} -{counts[1]} lines"
    request.node.user_properties.append((BLESSED, f"{name} ({how})"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for found in terminalreporter.stats.values() for each in found]
    properties = [getattr(each, "user_properties", ()) for each in reports]
    blessed = sorted({text for rows in properties for name, text in rows if name == BLESSED})
    if blessed:
        terminalreporter.section(f"{len(blessed)} expected texts were written: read their diff")
        terminalreporter.write("\n".join([*blessed, ""]))

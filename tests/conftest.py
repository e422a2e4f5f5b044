"""The `golden` fixture: expected texts that lie beside the test, and one switch to accept them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

BLESS = "--bless"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(BLESS, action="store_true", help="write the expected texts anew")


@pytest.fixture
def is_blessing(request: pytest.FixtureRequest) -> bool:
    """Whether expected texts are to be written instead of compared."""
    return bool(request.config.getoption(BLESS))


def compare_or_bless(path: Path, text: str, is_blessing: bool) -> None:
    """Compare `text` with the file at `path`, or write it; a difference fails with a diff."""
    if is_blessing:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return
    if not path.is_file():
        pytest.fail(f"{path} does not exist: look at the text and run `pytest {BLESS}`", False)
    expected = path.read_text()
    if expected == text:
        return
    lines = difflib.unified_diff(
        expected.splitlines(), text.splitlines(), "expected", "found", lineterm=""
    )
    diff = "\n".join(lines)
    pytest.fail(f"{path} differs:\n{diff}\nif this is right, run `pytest {BLESS}`", False)


@pytest.fixture
def golden(request: pytest.FixtureRequest, is_blessing: bool) -> Callable[[str], None]:
    """`golden(text)` compares with `golden/<test file>/<test name>.txt` beside the test."""
    test_file = Path(str(request.node.path))
    name = re.sub(r"[^\w.\-]+", "-", request.node.name).strip("-")
    path = test_file.parent / "golden" / test_file.stem.removeprefix("test_") / f"{name}.txt"

    def check(text: str) -> None:
        compare_or_bless(path, text, is_blessing)

    return check

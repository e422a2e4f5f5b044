"""The site builds without a warning, with nothing that is fetched from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_warnings_are_errors_and_there_are_none(site):
    assert (site / "index.html").is_file()
    assert (site / "reference" / "errors" / "index.html").is_file()


def test_pages_outside_of_docs_and_files_are_brought_in(site):
    assert (site / "project" / "runtime" / "FORMAT" / "index.html").is_file()
    assert (site / "project" / "examples" / "docker" / "Dockerfile").is_file()


def test_a_reader_s_browser_fetches_nothing(site):
    fetched = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?https?:[^\s>]*")
    pages = {path: fetched.findall(path.read_text()) for path in site.rglob("*.html")}
    assert {path: found for path, found in pages.items() if found} == {}

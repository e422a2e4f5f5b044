"""The README's example does what it says, in the order of the page."""

from pathlib import Path

import pytest
from page_blocks import Page

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.torch
def test_example_of_the_readme(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    Page(README, tmp_path, cache, in_process=True).run()

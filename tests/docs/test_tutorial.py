"""The tutorial, in order, in an empty folder, by the processes that a reader starts."""

from pathlib import Path

import pytest
from page_blocks import Page

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"


@pytest.mark.torch
@pytest.mark.slow
def test_tutorial_does_what_it_shows(tmp_path, cache, is_blessing):
    Page(PAGE, tmp_path, cache, in_process=False).run(is_blessing)

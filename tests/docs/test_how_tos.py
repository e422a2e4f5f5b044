"""Each how-to guide, in order, in an empty folder."""

from pathlib import Path

import pytest
from page_blocks import Page

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"


LONG = {"ci-with-a-tuning-record", "debug-a-wrong-number", "language-model"}


def guides():
    for path in sorted(FOLDER.glob("*.md")):
        marks = [pytest.mark.nightly] * (path.stem in LONG)
        yield pytest.param(path.stem, marks=marks)


@pytest.mark.torch
@pytest.mark.parametrize("name", guides())
def test_guide(name, tmp_path, cache, monkeypatch, is_blessing):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    monkeypatch.syspath_prepend(tmp_path)
    Page(FOLDER / f"{name}.md", tmp_path, cache, in_process=True).run(is_blessing)

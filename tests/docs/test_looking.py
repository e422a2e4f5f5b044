"""The page about looking at a bundle: its commands on the tiny model, and on one with a relu."""

import shutil
from pathlib import Path

import pytest
from page_blocks import Page

PAGE = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.mark.torch
def test_the_page(aotc, bundle, spec, tmp_path, cache, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    text = Path(spec).read_text()
    assert "gelu" in text
    (tmp_path / "tiny.py").write_text(text.replace("gelu", "relu"))
    assert aotc("build", tmp_path / "tiny.py", "-o", tmp_path / "after.aotc", "--quiet")[0] == 0
    shutil.copy(spec, tmp_path / "model.py")
    for name in ("model.aotc", "before.aotc"):
        (tmp_path / name).symlink_to(bundle)
    Page(PAGE, tmp_path, cache, in_process=True).run()
    made = {path.name for path in tmp_path.iterdir()}
    assert made >= {"report.html", "calls.svg", "kernels.svg", "trace.json", "differences.json"}

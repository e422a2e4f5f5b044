"""Dynamic bundles are compared with those of one shape; the table finds its place in the page."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from benchmarks.dynamic import DTYPES, PAGE, Figures, Settings, main, with_table

TINY = ["--small", "--rounds", "1", "--seconds", "0.001", "--shapes", "2"]


@pytest.mark.nightly
def test_it_runs(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path))
    assert main([*TINY, "perceptron"]) in (0, 1)  # no figure of this machine counts
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("| perceptron | 256 |")
    assert lines[-1].startswith("worst: ")
    assert len(lines) == 3


@pytest.mark.parametrize("target", DTYPES)
def test_the_page_has_a_place_for_the_table(target, monkeypatch):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a device")
    settings = Settings(target, "off", True, 1, 0.1, 1)
    row = Figures("m", "3, 4", 10.0, 10.5)
    text = with_table(PAGE.read_text(), settings, [row])
    assert "| m | 3, 4 | 10.0 | 10.5 | 1.05 |" in text
    assert with_table(text, settings, [row]) == text

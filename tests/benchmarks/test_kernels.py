"""The benchmark of the kernel library: its page, and one operation measured on the CPU."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from click.testing import CliRunner

from benchmarks import kernels


def test_a_run_measures_what_has_no_figure_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(kernels.ELEMENTS, "cpu", 1 << 12)
    monkeypatch.setattr(kernels, "ROUNDS", 1)
    arguments = ["--device", "cpu", "--only", "rope", "--length", "16", "-o", str(tmp_path)]
    monkeypatch.setattr(kernels, "_contenders", lambda row: {"aotc": row.ours, "eager": row.eager})
    done = CliRunner().invoke(kernels.main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "kernels-speed.json").read_text())
    cell = found["operations"]["rope"]["16"]
    assert not cell["notes"]
    assert set(cell["speeds"]["forward + backward"]) == {"aotc", "eager"}
    assert (tmp_path / "kernels-speed" / "rope.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "kernels-speed.md").read_text()
    assert "| forward: rows × length | aotc | eager | aotc of a copy |" in page
    monkeypatch.setattr(kernels, "measure", None)  # a second run measures nothing
    assert CliRunner().invoke(kernels.main, arguments).exit_code == 0


def test_a_wrong_contender_is_not_timed(monkeypatch):
    monkeypatch.setitem(kernels.ELEMENTS, "cpu", 1 << 10)
    monkeypatch.setattr(kernels, "ROUNDS", 1)
    (row,) = (each for each in kernels.OPERATIONS if each.name == "gelu")
    wrong = {"eager": row.eager, "torch.compile": lambda x: x * 1.5}
    monkeypatch.setattr(kernels, "_contenders", lambda row: wrong)
    found = kernels.measure(row, 64, kernels.DTYPES["bf16"], "cpu")
    assert list(found["speeds"]["forward"]) == ["eager"]
    assert "not that of eager" in found["notes"]["torch.compile"]

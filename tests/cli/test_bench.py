"""`aotc bench`: contenders in turns, percentiles, exit codes; times themselves are not asserted."""

import json

import pytest

from aotc.aot.cli.contest import Result

QUICK = ("--rounds", "2", "--seconds", "0.02")


def test_a_bundle_alone(aotc, bundle):
    code, out, errors = aotc("bench", bundle, *QUICK, "--json")
    assert code == 0, errors
    record = json.loads(out)
    assert record["schema"] == "aotc.bench/1"
    (ours,) = record["results"]
    assert ours["kind"] == "aotc"
    assert ours["calls"] >= 2
    assert 0 < ours["p50_us"] <= ours["p90_us"] <= ours["p99_us"]
    quantiles = ours["quantiles_us"]
    assert quantiles == sorted(quantiles)
    assert len(quantiles) == 201
    assert quantiles[100] == pytest.approx(ours["p50_us"], abs=1e-3)
    assert quantiles[180] == pytest.approx(ours["p90_us"], abs=1e-3)


def test_beside_eager(aotc, bundle, spec):
    pytest.importorskip("torch")
    code, out, errors = aotc("bench", bundle, spec, "--against", "eager", *QUICK)
    assert code == 0, errors
    assert [line.split()[0] for line in out.splitlines()] == ["contender", "aotc", "eager"]


def test_a_comparison_needs_the_model(aotc, bundle):
    code, _, errors = aotc("bench", bundle, "--against", "eager")
    assert code == 2
    assert "no SPEC was given" in errors


def test_what_needs_a_compiler_is_skipped_with_a_reason(aotc, bundle, spec, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ("--against", "compile", "--against", "aoti")
    code, out, _ = aotc("bench", bundle, spec, *options, *QUICK)
    assert code == 0
    assert "compile was skipped: torch.compile needs a C++ compiler" in out
    assert "aoti was skipped: AOTInductor needs a C++ compiler" in out


@pytest.mark.parametrize(("percent", "code"), [("0", 1), ("100", 0)])
def test_slower_than_allowed_is_exit_1(aotc, bundle, spec, monkeypatch, percent, code):
    pytest.importorskip("torch")
    rows = [Result("aotc", (150.0,)), Result("eager", (100.0,))]
    monkeypatch.setattr("aotc.aot.cli.bench.contest", lambda *_, **__: rows)
    options = ("--against", "eager", "--fail-if-slower", percent)
    assert aotc("bench", bundle, spec, *options)[0] == code


def test_percentiles_interpolate():
    result = Result("aotc", (4.0, 1.0, 3.0, 2.0))
    assert [result.percentile_us(percent) for percent in (0, 50, 100)] == [1.0, 2.5, 4.0]

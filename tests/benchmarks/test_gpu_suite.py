"""The GPU benchmark's resources without a GPU: how its steps run, and the page of their results."""

import json
import time

import pytest

from benchmarks.gpu import page
from benchmarks.gpu.parts import MODELS
from benchmarks.suite import Step, Suite

WRITE = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{}')"
# Says that it is ready, waits for its turn, writes when that began and ended.
WAIT = """
import json, pathlib, sys, time
out = pathlib.Path(sys.argv[1])
out.with_suffix(".ready").touch()
sys.stdin.readline()
began = time.monotonic()
time.sleep(0.05)
out.write_text(json.dumps([began, time.monotonic()]))
"""


def step(suite, name, code):
    return Step("part", name, ("-c", code, str(suite.result("part", name))))


@pytest.fixture
def suite(tmp_path):
    return Suite(tmp_path, 60.0)


def test_a_step_with_a_result_is_not_run_again(suite):
    suite.one_by_one([step(suite, "a", WRITE)])
    suite.result("part", "a").write_text('{"mine": 1}')
    suite.one_by_one([step(suite, "a", WRITE)])
    assert suite.read("part", "a") == {"mine": 1}


def test_output_becomes_the_result_of_a_step_without_a_file_of_its_own(suite):
    code = "import json; print('noise'); print(json.dumps({'value': 3}, indent=1))"
    suite.together([Step("part", "a", ("-c", code), has_own_file=False)])
    assert suite.read("part", "a")["value"] == 3
    assert suite.read("part", "a")["step_seconds"] > 0


def test_a_step_that_fails_says_why_and_leaves_no_result(suite, capsys):
    suite.together([step(suite, "a", "raise ValueError('why')"), step(suite, "b", WRITE)])
    assert suite.read("part", "a") == {}
    assert suite.result("part", "b").is_file()
    assert "ValueError: why" in capsys.readouterr().out


def test_turns_begin_when_all_are_ready_and_do_not_overlap(suite):
    slow = "import time; time.sleep(0.4)" + WAIT
    suite.in_turns([step(suite, "a", WAIT), step(suite, "b", slow), step(suite, "c", WAIT)])
    turns = [json.loads(suite.result("part", name).read_text()) for name in "abc"]
    assert [end for _, end in turns[:-1]] <= [begin for begin, _ in turns[1:]]
    assert not list(suite.work.glob("*.ready"))


def test_a_failed_preparation_does_not_hold_up_the_others(suite, capsys):
    suite.in_turns([step(suite, "a", "raise ValueError('why')"), step(suite, "b", WAIT)])
    assert suite.result("part", "b").is_file()
    assert "ValueError: why" in capsys.readouterr().out


def test_what_runs_when_the_time_is_up_is_ended(tmp_path, capsys):
    suite = Suite(tmp_path, 1.0)
    began_s = time.monotonic()
    suite.together([step(suite, "a", "import time; time.sleep(60)")])
    assert time.monotonic() - began_s < 30
    assert "out of time" in capsys.readouterr().out
    suite.one_by_one([step(suite, "b", WRITE)])
    assert "no time left" in capsys.readouterr().out
    assert suite.read("part", "b") == {}


def results(suite, name):
    """The smallest results of one model."""
    limits = {"bytes_per_s": 4e12, "operations_per_s": 8e14}
    times = {"aotc": 1.0, "eager": 4.0, "max-autotune": 2.0}
    records = {
        "forward": {
            "ms": times,
            "calls_ms": {kind: {"p50": 1.0, "p90": 1.5, "p99": 2.0} for kind in times},
            "host_us": 5.0,
            "difference": 0.01,
            "failed": {"compile": "RuntimeError('x')"},
        },
        "start": {"seconds": {"aotc": [0.5], "eager": [2.5]}, "ours": {"load": 0.3}, "failed": {}},
        "floors": {
            "limits": limits,
            "least_bytes": 2_000_000_000,
            "launches": [{"operations": 1_000_000}],
            "launches_us": 900.0,
            "call_us": 1100.0,
            "kernels": [{"name": "gemv", "launches": 1, "time_us": 900.0, "limit": 0.5}],
        },
    }
    for part, record in records.items():
        suite.result(part, name).write_text(json.dumps(record))


def test_the_page_has_ratios_floors_and_failures_of_what_was_measured(suite, tmp_path):
    results(suite, MODELS[0].name)
    suite.result("facts", "machine").write_text('{"device": "a device"}')
    page.write(suite, tmp_path / "docs")
    text = (tmp_path / "docs" / "benchmarks-gpu.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(f"| {MODELS[0].title} |")]
    assert "2.00×" in lines[0]  # the best peer takes 2 ms, ours 1 ms
    assert "5.0×" in lines[1]  # 2.5 s of a start against 0.5 s
    assert "0.500" in lines[2]  # 2 GB at 4 TB/s
    assert "50%" in lines[2]
    assert "torch.compile failed: `RuntimeError('x')`" in text
    assert MODELS[1].title not in text
    assert "a device" in text
    record = json.loads((tmp_path / "docs" / "benchmarks-gpu.json").read_text())
    assert record["figures"][f"floors-{MODELS[0].name}"]["least_bytes"] == 2_000_000_000


def test_a_page_of_nothing_can_be_written(suite, tmp_path):
    page.write(suite, tmp_path / "docs")
    assert "##" not in (tmp_path / "docs" / "benchmarks-gpu.md").read_text()

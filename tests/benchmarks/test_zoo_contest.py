"""The zoo's benchmark without its models: groups of cores, pinned steps, records, pages."""

import json
import os

import pytest

from benchmarks.cores import groups, listed, physical
from benchmarks.suite import Step, Suite
from benchmarks.zoo.builds import Build, render
from benchmarks.zoo.contest import figures, read_record, write_record
from benchmarks.zoo.measure import Figures

# Writes the processors that it may use, those of a process of its own, and when it ran.
WHERE = """
import json, os, pathlib, subprocess, sys, time
began = time.monotonic()
time.sleep(0.2)
child = subprocess.run([sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"],
                       capture_output=True, text=True)
cores = sorted(os.sched_getaffinity(0))
inherited = sorted(map(int, child.stdout.split()))
pathlib.Path(sys.argv[1]).write_text(json.dumps([cores, inherited, began, time.monotonic()]))
"""


def steps(suite, names):
    return [Step("part", name, ("-c", WHERE, str(suite.result("part", name)))) for name in names]


@pytest.mark.parametrize(
    ("size", "at_most", "expected"),
    [
        (2, None, [(0, 1), (2, 3), (8, 9)]),
        (2, 2, [(0, 1), (2, 3)]),
        (4, 9, [(0, 1, 2, 3)]),
        (8, None, [(0, 1, 2, 3, 8, 9, 11)]),  # fewer than asked for: all that there are
    ],
)
def test_groups_are_disjoint_and_whole(size, at_most, expected):
    assert groups(size, at_most, (0, 1, 2, 3, 8, 9, 11)) == expected


def test_lists_of_processors_are_read_as_the_kernel_writes_them():
    assert listed("0-2,8\n") == {0, 1, 2, 8}
    assert set(physical()) <= os.sched_getaffinity(0)


def test_steps_keep_to_cores_of_their_own(tmp_path):
    suite = Suite(tmp_path, 60.0)
    cores = sorted(os.sched_getaffinity(0))
    own = [(cores[0],), (cores[-1],)][: min(2, len(cores))]
    suite.on_cores(steps(suite, "abc"), own)
    rows = [json.loads(suite.result("part", name).read_text()) for name in "abc"]
    for given, inherited, _, _ in rows:
        assert tuple(given) in own
        assert inherited == given
    for one in rows:
        for other in rows:
            if one is not other and one[0] == other[0]:
                assert one[3] <= other[2] or other[3] <= one[2], "two steps shared a core"


def test_when_the_time_is_up_what_runs_is_ended_and_the_rest_not_begun(tmp_path, capsys):
    suite = Suite(tmp_path, 0.5)
    forever = [Step("part", name, ("-c", "import time; time.sleep(60)")) for name in "ab"]
    suite.on_cores(forever, [(min(os.sched_getaffinity(0)),)])
    said = capsys.readouterr().out
    assert "part a:" in said
    assert "out of time" in said
    assert "part b: no time left" in said


def test_figures_come_from_the_steps_that_have_ended(tmp_path):
    suite = Suite(tmp_path, 60.0)
    built = Figures("bert", "", 1e-6, True, 3, 4, 1.0)
    suite.result("built", "bert").write_text(json.dumps(built.record()))
    assert figures(suite, "bert") == built
    suite.result("times", "bert").write_text('{"forward_us": {"aotc": 1.0, "eager": 3.0}}')
    assert figures(suite, "bert").speedup() == 3.0


def test_a_record_is_read_as_it_was_written(tmp_path):
    rows = [Figures("bert", "", 1e-6, True, 3, 4, 1.0, {"aotc": 1.0}, {"aoti": "why"})]
    write_record(tmp_path / "record.json", rows)
    assert read_record(tmp_path / "record.json") == {"bert": rows[0]}
    assert read_record(tmp_path / "missing.json") == {}


def test_the_page_of_builds_sums_what_was_built_twice():
    rows = [
        Build("bert", "cold", 6.0, 10, 0, {"capture": 4.0, "tune": 2.0}),
        Build("vit", "cold", 4.0, 5, 5, {"capture": 1.0, "tune": 3.0}),
        Build("bert", "warm", 1.0, 0, 10, {"capture": 0.75, "tune": 0.25}),
        Build("vit", "warm", 1.0, 0, 10, {"capture": 0.5, "tune": 0.5}),
        Build("cut off", "cold", 1.0, 5, 0),
    ]
    page = render("small", rows, {"cores": "2"})
    assert "2 models: cold 10.0 s, warm 2.0 s, 5.0×" in page
    assert "by stage: capture 1.2, tune 0.8" in page
    assert "| bert | 10 | 6.00 | 1.00 | 6.0× | 0.75 | 0.25 |" in page

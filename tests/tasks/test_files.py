"""Tuning by files: tasks are written, measured by a command anywhere, and results are read."""

from __future__ import annotations

import json

import pytest

from aotc.aot.measure.processor import device_name
from aotc.aot.measure.program import Measurement, Times
from aotc.aot.tune.record import parse_record


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def tune(aotc, bundle, folder):
    def call(*options, device=None):
        on = ("--on", device or device_name(), "--cache-dir", folder / "cache", "--quiet")
        return aotc("tune", bundle, *on, *options)

    return call


@pytest.fixture
def tasks(tune, folder):
    """The folder of tasks, written once."""
    path = folder / "tasks"
    if not path.exists():
        code, text, errors = tune("--tasks-to", path, "--json")
        assert code == 0, errors
        assert json.loads(text)["count"] == len(list(path.iterdir())) > 0
    return path


def test_tasks_are_measured_elsewhere_and_make_a_record(aotc, tune, tasks, folder, tmp_path):
    results = tmp_path / "results"
    code, text, errors = aotc("measure", tasks, "-o", results, "--quiet")
    assert code == 0, errors
    count = len(list(tasks.iterdir()))
    assert f"measured {count} of {count}" in text
    assert f"measured 0 of {count}" in aotc("measure", tasks, "-o", results, "--quiet")[1]
    record = tmp_path / "record"
    out = ("-o", tmp_path / "out", "--results-from", results, "--record", record)
    code, _, errors = tune(*out)
    assert code == 0, errors
    lines = parse_record(record.read_text(), "the record")
    assert len(lines) == count
    assert {device for _, _, device in lines} == {device_name()}
    assert aotc("verify", tmp_path / "out")[0] == 0


def test_equal_tasks_are_equal_files(tune, tasks, tmp_path):
    """Also when the kernels were compiled by somebody else."""
    again = tmp_path / "again"
    code, _, errors = tune("--tasks-to", again, "--cache-dir", tmp_path / "other-cache")
    assert code == 0, errors
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in tasks.iterdir()
    }


def test_a_missing_result_is_named_and_nothing_is_written(tune, tasks, tmp_path):
    cache = ("--cache-dir", tmp_path / "cache")
    code, _, errors = tune("-o", tmp_path / "out", "--results-from", tmp_path / "none", *cache)
    assert code == 4
    assert f"lacks the results of {len(list(tasks.iterdir()))} tasks" in errors
    assert not (tmp_path / "out").exists()


def test_tasks_for_another_device_are_refused(aotc, tune, tmp_path):
    code, _, errors = tune("--tasks-to", tmp_path / "tasks", device="NVIDIA H200")
    assert code == 0, errors
    code, _, errors = aotc("measure", tmp_path / "tasks", "-o", tmp_path / "results", "--quiet")
    assert code == 4
    assert device_name() in errors
    assert "expected the device `nvidia-h200`" in errors


def test_a_task_that_was_altered_is_refused(aotc, tasks, tmp_path):
    task = next(tasks.iterdir())
    data = task.read_bytes()
    broken = tmp_path / task.name
    for at in (3, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:at])
        code, _, errors = aotc("measure", broken, "-o", tmp_path / "results", "--quiet")
        assert code == 6, errors
    family = Measurement.from_bytes(data).replace(family="tpu")
    broken.write_bytes(family.to_bytes())
    code, _, errors = aotc("measure", broken, "-o", tmp_path / "results", "--quiet")
    assert code == 2
    assert "`tpu` is not known" in errors


def test_results_are_read_as_they_were_written():
    rows = [(1.5, ""), (float("inf"), "gives other numbers"), (0.1, "")]
    assert Times.from_bytes(Times.of(rows).to_bytes(), "a file").values == rows

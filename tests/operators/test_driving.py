"""How samples are driven: what a refusal names, and what a run that was ended still knows."""

import multiprocessing
import os

import pytest
import torch

from aotc.aot import errors
from benchmarks import machine
from benchmarks.operators import jobs
from benchmarks.operators.drive import BROKEN, REFUSED, RIGHT, Outcome, drive, interpreted
from benchmarks.operators.jobs import Piece, Setting, outcomes_of, shares
from benchmarks.operators.journal import Journal
from benchmarks.operators.samples import Sample, database, samples_of

HEAD = {"commit": "abc", "samples": "the first 3"}
FOUND = [Outcome("add", "f32", 0, RIGHT), Outcome("nonzero", "f32", 1, REFUSED, "it depends")]


def test_the_records_of_torch_leave_its_switches_open_to_assignment():
    assert database()
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32


def test_a_run_that_was_ended_drives_no_piece_again(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, HEAD).add("f32 add", FOUND)
    with path.open("a") as file:
        file.write('["f32 sub", [{"operator": "su')  # ended while it wrote this
    again = Journal(path, HEAD)
    assert again.found == {"f32 add": FOUND}
    again.add("f32 sub", FOUND[:1])
    assert Journal(path, HEAD).found == {"f32 add": FOUND, "f32 sub": FOUND[:1]}


def test_a_run_of_another_commit_begins_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, HEAD).add("f32 add", FOUND)
    assert not Journal(path, HEAD | {"commit": "def"}).found


def test_jobs_change_nothing_but_the_time(tmp_path):
    pieces = [Piece("f32", (record, "nonzero"), 1) for record in ("add", "amax")]
    setting = Setting("", tmp_path)
    alone = {piece: drive(piece.samples(), interpreted) for piece in pieces}
    assert dict(outcomes_of(pieces, 2, setting)) == alone
    assert [each.verdict for each in alone[pieces[0]]] == [RIGHT, REFUSED]


def serve_until_mul(pipe, cores, setting):
    """In place of a process that drives samples: one that `mul` ends."""
    while True:
        piece = pipe.recv()
        if "mul" in piece.records:
            os._exit(7)
        pipe.send([Outcome(record, piece.dtype, 0, RIGHT) for record in piece.records])


def test_a_process_that_dies_costs_one_record(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "CONTEXT", multiprocessing.get_context("fork"))
    monkeypatch.setattr(jobs, "GRACE_SECONDS", 0.1)
    monkeypatch.setattr(jobs, "_serve", serve_until_mul)
    piece = jobs.Piece("f32", ("add", "mul", "sub"), 2)
    ((_, outcomes),) = jobs.outcomes_of([piece], 1, jobs.Setting("cpu", tmp_path))
    found = [(each.operator, each.verdict) for each in outcomes]
    assert found == [("add", RIGHT), ("mul", BROKEN), ("mul", BROKEN), ("sub", RIGHT)]
    assert "ended with 7" in outcomes[1].reason


def test_cores_are_dealt_out():
    assert shares([0, 1, 2, 3, 4], 2) == [[0, 2, 4], [1, 3]]
    assert shares([5], 2) == [[5], [5]]


def test_an_export_says_its_commit(tmp_path):
    assert machine.commit(tmp_path) == "unknown"
    (tmp_path / ".git_archival.txt").write_text("$Format:%h$\n")
    assert machine.commit(tmp_path) == "unknown"
    (tmp_path / ".git_archival.txt").write_text("abc1234\n")
    assert machine.commit(tmp_path) == "abc1234"


def test_a_refusal_of_changed_inputs_is_only_of_the_samples_that_own_them():
    tensors = (torch.ones(2), torch.ones(2))
    samples = [Sample(str(place), "f32", 0, list, tensors, tensors) for place in range(3)]
    tried = []

    def refusing(batch, runner):
        tried.append([sample.operator for sample in batch])
        if "1" in tried[-1]:
            raise errors.MutationUnsupported(names="`tensors_2`, `tensors_3`")
        found = [tensor.numpy() for sample in batch for tensor in sample.expected]
        return found, list(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.operators.drive._results", refusing)
        outcomes = drive(samples, pytest.fail)
    assert [outcome.verdict for outcome in outcomes] == [RIGHT, REFUSED, RIGHT]
    assert tried == [["0", "1", "2"], ["0", "2"]]
    assert "its inputs when it runs" in outcomes[1].reason.replace(",", "")


def test_samples_are_the_same_however_many_are_asked_for():
    (alone,), (first, *_) = samples_of("add", "f32", 1), samples_of("add", "f32", 4)
    assert all(map(torch.equal, alone.tensors, first.tensors))


def test_what_a_call_changes_is_a_result_of_its_sample():
    sample = samples_of("nn.functional.batch_norm", "f32", 1)[0]
    before = [tensor.clone() for tensor in sample.tensors]
    found = sample.function(*sample.tensors)
    assert all(map(torch.equal, sample.tensors, before))
    assert [each.shape for each in sample.expected] == [(5, 5, 5), (5,), (5,)]
    assert all(map(torch.equal, found, sample.expected))

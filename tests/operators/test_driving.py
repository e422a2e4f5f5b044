"""How samples are driven: what a refusal names, and what a run that was ended still knows."""

import pytest
import torch

from aotc.aot import errors
from benchmarks.operators.drive import REFUSED, RIGHT, Outcome, drive
from benchmarks.operators.journal import Journal
from benchmarks.operators.samples import Sample, samples_of

HEAD = {"commit": "abc", "samples": "the first 3"}
FOUND = [Outcome("add", "f32", 0, RIGHT), Outcome("nonzero", "f32", 1, REFUSED, "it depends")]


def test_a_run_that_was_ended_drives_no_piece_again(tmp_path):
    path = tmp_path / "journal.jsonl"
    assert Journal(path, HEAD).outcomes("f32 add", lambda: FOUND) == FOUND
    with path.open("a") as file:
        file.write('["f32 sub", [{"operator": "su')  # ended while it wrote this
    again = Journal(path, HEAD)
    assert again.outcomes("f32 add", pytest.fail) == FOUND
    assert again.outcomes("f32 sub", lambda: FOUND[:1]) == FOUND[:1]
    assert Journal(path, HEAD).outcomes("f32 sub", pytest.fail) == FOUND[:1]


def test_a_run_of_another_commit_begins_anew(tmp_path):
    path = tmp_path / "journal.jsonl"
    Journal(path, HEAD).outcomes("f32 add", lambda: FOUND)
    other = Journal(path, HEAD | {"commit": "def"})
    assert other.outcomes("f32 add", lambda: FOUND[1:]) == FOUND[1:]


def test_a_refusal_of_changed_inputs_is_only_of_the_samples_that_own_them():
    tensors = (torch.ones(2), torch.ones(2))
    samples = [Sample(str(place), "f32", 0, list, tensors, tensors) for place in range(3)]
    tried = []

    def refusing(batch, runner):
        tried.append([sample.operator for sample in batch])
        if "1" in tried[-1]:
            raise errors.MutationUnsupported(names="`tensors_2`, `tensors_3`")
        return [tensor.numpy() for sample in batch for tensor in sample.expected]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.operators.drive._results", refusing)
        outcomes = drive(samples, pytest.fail)
    assert [outcome.verdict for outcome in outcomes] == [RIGHT, REFUSED, RIGHT]
    assert tried == [["0", "1", "2"], ["0", "2"]]
    assert "its inputs when it runs" in outcomes[1].reason.replace(",", "")


def test_samples_are_the_same_however_many_are_asked_for():
    (alone,), (first, *_) = samples_of("add", "f32", 1), samples_of("add", "f32", 4)
    assert all(map(torch.equal, alone.tensors, first.tensors))

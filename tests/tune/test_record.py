"""The tuning record: round trips, merging, refusals."""

import errno
import os
from pathlib import Path

import pytest

from aotc.aot.errors import TuningRecordInvalid
from aotc.aot.tune.record import (
    HEAD,
    Choice,
    Line,
    merge,
    parse_record,
    print_record,
    read_record,
    write_record,
)
from aotc.runtime.errors import EnvironmentFault

EIGHT, FOUR = Choice((("XBLOCK", 8),)), Choice((("XBLOCK", 4),), "split_k")
LINE = Line("a" * 64, "cpu-x86-64-v4", "epyc-x2", EIGHT, 12.5, FOUR, 13.0)
ALONE = Line("b" * 64, "cpu-x86-64-v3", "epyc-x2", Choice(()), 1.25)


def record_of(*lines):
    return {line.key: line for line in lines}


def test_what_is_printed_is_parsed():
    record = record_of(LINE, ALONE)
    assert parse_record(print_record(record), "r") == record


def test_lines_are_sorted_whatever_their_order():
    assert print_record(record_of(ALONE, LINE)) == print_record(record_of(LINE, ALONE))


def test_of_two_lines_for_one_place_the_faster_wins():
    faster = Line(*LINE.key, Choice((("XBLOCK", 16),)), 9.0)
    assert merge([LINE], [faster])[LINE.key] == faster
    assert merge([faster], [LINE])[LINE.key] == faster


def test_the_union_of_two_files_is_a_record():
    one, other = print_record(record_of(LINE)), print_record(record_of(ALONE))
    union = one + other.removeprefix(HEAD + "\n") + "# a comment\n\n"
    assert parse_record(union, "r") == record_of(LINE, ALONE)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "an empty file"),
        ("# aotc tuning record 9\n", 1, "# aotc tuning record 9"),
        (f"{HEAD}\nfew columns\n", 2, "2 columns"),
        (f"{HEAD}\n{str(LINE).replace('XBLOCK=8', 'XBLOCK')}\n", 2, "NAME=NUMBER"),
        (f"{HEAD}\n\n{str(LINE).replace('12.50', 'fast')}\n", 3, "fast"),
        (f"{HEAD}\n{str(LINE).replace('12.50', 'nan')}\n", 2, "time `nan`"),
        (f"{HEAD}\n{str(LINE).replace('12.50', '-1')}\n", 2, "time `-1`"),
        (f"{HEAD}\n{str(LINE).replace('12.50', 'inf')}\n", 2, "time `inf`"),
        (f"{HEAD}\n{str(LINE).replace('form=split_k', 'form=')}\n", 2, "has no name"),
    ],
)
def test_bad_records_are_refused_with_their_line(text, line, message):
    with pytest.raises(TuningRecordInvalid) as raised:
        parse_record(text, "tuning.txt")
    assert raised.value.line == line
    assert message in str(raised.value)
    assert raised.value.exit_code == 4


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (Choice(()), "-"),
        (Choice((), "gemv"), "form=gemv"),
        (FOUR, "form=split_k,XBLOCK=4"),
        (Choice((("BLOCK_M", 64), ("num_warps", 8))), "BLOCK_M=64,num_warps=8"),
    ],
)
def test_a_choice_is_its_form_and_config(choice, text):
    assert str(choice) == text
    assert Choice.parse(text) == choice


def test_files_that_are_no_records_are_refused(tmp_path, monkeypatch):
    assert read_record(None) == read_record(tmp_path / "new") == {}
    (tmp_path / "bytes").write_bytes(HEAD.encode() + b"\n\xb5\n")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_text(HEAD + "\n")
    monkeypatch.setattr("aotc.aot.tune.record.LIMIT_BYTES", 8)
    for name, message in (
        ("bytes", "bytes:2: it has bytes that are not text"),
        ("fifo", "fifo:1: it is no plain file"),
        ("large", "large:1: it has 23 bytes, expected at most 8"),
    ):
        monkeypatch.setattr("aotc.aot.tune.record.LIMIT_BYTES", 8 if name == "large" else 1 << 20)
        with pytest.raises(TuningRecordInvalid, match=message):
            read_record(tmp_path / name)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EnvironmentFault, match="cannot read"):
        read_record(tmp_path / "loop")


def test_a_record_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "record"
    write_record(path, record_of(LINE))
    (tmp_path / "link").symlink_to("record")
    write_record(tmp_path / "link", record_of(ALONE))
    assert read_record(path) == record_of(ALONE)
    assert (tmp_path / "link").is_symlink()

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentFault, match="no space left"):
        write_record(path, record_of(LINE))
    monkeypatch.undo()
    assert read_record(path) == record_of(ALONE)

    def mounted(_self, _target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(Path, "replace", mounted)
    write_record(path, record_of(LINE))
    assert read_record(path) == record_of(LINE)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "record"]

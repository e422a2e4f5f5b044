"""What `scripts/robustness` tries, with small counts; and that it would find something."""

import errno
import json
import os
import signal
import threading
from pathlib import Path

import pytest

from aotc.cache import Key, Store
from aotc.cache.collect import collect, collect_all, rows
from aotc.cache.errors import CacheUnreadable
from aotc.runtime.errors import NotABundle

from . import damage, disk, faults, inputs, kills, page, starter
from .spread import Found, spread


def test_every_kind_of_input_is_refused_by_type_or_read_right(tmp_path):
    found = spread(inputs.read_altered([], tmp_path), 1500, 2, 60)
    assert found.counts["done"] == 1500
    assert found.counts["refused"] > 500
    assert found.counts["accepted"] > 50
    assert not found.wrong, found.wrong


def test_bits_of_a_bundle(tmp_path):
    bundles = [damage.small(tmp_path)]
    places = damage.bits_of(bundles)[::29]
    found = spread(damage.flip_bits(bundles, places, tmp_path), len(places), 2, 60)
    found.add(spread(damage.flip_payloads(bundles, tmp_path), 100, 2, 60))
    assert found.counts["refused"] == len(places) + 100
    assert not found.wrong, found.wrong


def test_failing_calls_are_typed_and_leave_nothing(tmp_path):
    listed = faults.cases(tmp_path)
    assert {name for name, *_ in listed} == faults.OPERATIONS.keys()
    chosen = listed[::53]
    found = spread(faults.fail_calls(chosen, tmp_path), len(chosen), 2, 120)
    assert found.counts["typed error"] > len(chosen) // 3
    assert found.counts["done"] == len(chosen)
    assert not found.wrong, found.wrong


def test_a_full_disk_is_typed_and_leaves_nothing(tmp_path):
    if not disk.is_possible(tmp_path):
        pytest.skip("this user may not mount a tmpfs here")
    found = spread(disk.fill(tmp_path), 60, 2, 60)  # what is put, for each number of free pages
    assert found.counts["done"] == 60
    assert not found.wrong, found.wrong


def test_a_collection_at_the_end_of_a_build_never_fails_and_one_that_is_asked_for_says_why(
    tmp_path, monkeypatch
):
    store, key = Store(tmp_path / "cache"), Key.of("binaries", kernel="k")
    store.put(key, {"a.o": b"code"})
    real = os.listdir

    def unreadable(path):
        if "binaries" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(os, "listdir", unreadable)
    assert collect(store) == 0
    with pytest.raises(CacheUnreadable, match=r"binaries-v.*input/output error"):
        collect_all(store, None)
    monkeypatch.undo()
    assert store.get(key) is not None


def test_an_entry_whose_record_cannot_be_looked_at_is_not_taken_for_torn(tmp_path, monkeypatch):
    store, key = Store(tmp_path / "cache"), Key.of("binaries", kernel="k")
    store.put(key, {"a.o": b"code"})
    real = Path.lstat

    def failing(path):
        if path.name == "entry.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(Path, "lstat", failing)
    collect_all(store, None)
    monkeypatch.undo()
    assert [row.digest for row in rows(store)] == [key.digest]


def test_what_is_wrong_is_counted():
    def dies(numbers, found):
        for number in numbers:
            if number == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    def raises(numbers, _found):
        for _ in numbers:
            raise ValueError("not a typed error")

    died = spread(dies, 8, 2, 60)
    assert died.wrong == ["ended by SIGKILL at number 3"]
    assert "not a typed error" in spread(raises, 1, 1, 60).wrong[0]
    row = page.Row("name", 8, died, "", 1.0)
    assert "**1**" in page.line_of(row)
    assert "- name: ended by SIGKILL at number 3" in page.page([row], Path("rows.json"))


def test_no_build_is_forked_from_a_process_with_threads():
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="threads, expected one"):
            starter._start({"after_s": None})
    finally:
        held.set()
        thread.join()


def test_a_process_that_starts_no_builds_is_waited_for_a_bounded_time(tmp_path, monkeypatch):
    monkeypatch.setattr(starter, "BUILD_S", 0.1)
    monkeypatch.setattr(starter, "GRACE_S", 0.1)
    with pytest.raises(starter.NoEnd, match="no answer within 0 s"):
        starter.Starter(tmp_path / "spec.py", tmp_path)


def test_numbers_of_a_journal_are_not_tried_again(tmp_path):
    journal = tmp_path / "journal"
    lines = ({"number": n, "counts": {"killed": 1}, "most": {}, "wrong": []} for n in range(3))
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = spread(kills.kill_builds(tmp_path / "no spec", tmp_path, journal), 3, 0, 60)
    assert found.counts == {"killed": 3, "done": 3}


def test_a_row_takes_the_place_of_an_earlier_one(tmp_path):
    path = tmp_path / "rows.json"
    found = Found(wrong=["one"])
    page.write_rows(path, [page.Row("a", 1, found, "", 1.0, "old"), page.Row("b", 1, None, "", 0)])
    old = page.read_rows(path)
    assert old[0] == page.Row("a", 1, found, "", 1.0, "old")
    new = page.Row("a", 2, Found(), "", 1.0, "new")
    assert page.merge(old, [new], ["c", "b", "a"]) == [old[1], new]
    page.put_text(tmp_path / "rows.md", "Title", ["text"])
    page.write_rows(path, [new])
    text = page.page([new], path)
    assert "1. new" in text
    assert "## Title\n\ntext" in text


def test_an_input_is_judged():
    def accepts(_data):
        return b"other"

    def breaks(_data):
        raise KeyError("field")

    def refuses(_data):
        raise NotABundle(path="x", detail="y")

    found = Found()
    for read in (accepts, breaks, refuses):
        inputs.judge(inputs.Kind((), read, ()), b"data", "an input", found)
    assert [text.split(": ")[1] for text in found.wrong] == [
        "read as other values than it has",
        "KeyError",
    ]


def test_an_operation_that_leaves_something_is_found(tmp_path):
    def act(folder):
        (folder / "half").write_bytes(b"1")
        with open(folder / "whole", "wb") as file:  # noqa: PTH123
            file.write(b"2")

    def sound(folder):
        return "" if (folder / "whole").exists() else "half-made"

    operation = faults.Operation(lambda _: None, act, sound, (OSError,))
    injector = faults.Injector()
    assert faults._once(operation, tmp_path, injector) is None
    at = len(injector.calls) - 1 - injector.calls[::-1].index("file open")
    assert faults._once(operation, tmp_path, faults.Injector(at, errno.ENOSPC)) == "half-made"
    strict = faults.Operation(lambda _: None, act, sound)
    assert "OSError" in str(faults._once(strict, tmp_path, faults.Injector(at, errno.ENOSPC)))

"""`aotc cache`: options on both sides, JSON of results and errors, what bad input gets."""

import json
import os
import time

import pytest

from aotc.aot.project import project_table
from aotc.cache import Key, Store

KEYS = [
    Key.of("binaries", function="matmul_8x8", source="ab" * 32, architecture="sm_90", config="B=1"),
    Key.of("binaries", function="cpu support_code", compiler="cd" * 32),
    Key.of("tuning", spec="ef" * 32, mode="quick", target="cuda-sm_90", device="nvidia-h200"),
    Key.of("captures", spec="model.py:build_model"),
    Key.of("programs", graph="01" * 32, target="cpu"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("AOTC_CACHE_DIR", raising=False)
    monkeypatch.delenv("AOTC_CACHE_MAX_SIZE", raising=False)
    monkeypatch.chdir(tmp_path)
    project_table.cache_clear()
    store = Store(tmp_path / "cache")
    for number, key in enumerate(KEYS):
        store.put(key, {"k.o": bytes(1000)})
        os.utime(store.path(key) / "entry.json", (time.time() - 100 * number,) * 2)
    yield store.root
    project_table.cache_clear()


@pytest.fixture
def cache(aotc, folder):
    def call(*words, folder=folder):
        code, out, errors = aotc("cache", *words, "--cache-dir", folder, "--json")
        return code, json.loads(out), errors

    return call


# Command → arguments and the exit code.
COMMANDS = {
    "dir": ((), 0),
    "size": ((), 0),
    "ls": ((), 0),
    "verify": ((), 0),
    "gc": ((), 0),
    "prune": (("--older-than", "30d"), 0),
    "clear": ((), 0),
    "export": (("{out}", "--force"), 0),
    "explain": ((), 0),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_may_stand_before_or_after_the_subcommand(aotc, folder, tmp_path, name):
    arguments, code = COMMANDS[name]
    words = [word.format(out=tmp_path / "a.tar") for word in arguments]
    shared = ("--cache-dir", folder, "--json")
    for line in ((*shared, name, *words), (name, *words, *shared), (name, *shared, *words)):
        found, out, errors = aotc("cache", *line)
        assert (found, errors) == (code, "")
        record = json.loads(out)
        assert record["schema"] == f"aotc.cache.{name}/1"
    assert aotc("cache", name, *words, "--cache-dir", folder)[0] == 0


def test_the_option_after_the_subcommand_wins(aotc, folder):
    line = ("cache", "--cache-dir", "/dev/null", "size", "--cache-dir", folder)
    assert aotc(*line)[0] == 0


def test_ls_says_what_each_entry_is(aotc, cache, folder):
    _, record, _ = cache("ls")
    rows = {row["kind"]: row for row in record["entries"] if row["target"] or row["kind"] != "bin"}
    assert rows["tuning"]["target"] == "cuda-sm_90 nvidia-h200"
    assert rows["captures"]["what"] == "capture of model model.py:build_model"
    out = aotc("cache", "ls", "--cache-dir", folder)[1]
    assert "kernel matmul_8x8 (B=1), source abababab" in out
    assert "cpu support code" in out
    assert "program of graph 01010101" in out
    assert "choice for kernel efefefef, quick" in out
    assert len(aotc("cache", "ls", "--kind", "tuning", "--cache-dir", folder)[1].splitlines()) == 2


def test_ls_of_times_that_no_clock_should_show(cache, folder):
    for path, time_s in zip(folder.rglob("entry.json"), (0, -1e9, 9e9, 1e11), strict=False):
        os.utime(path, (time_s, time_s))
    assert len(cache("ls")[1]["entries"]) == len(KEYS)


def test_verify_ends_with_6_where_an_entry_is_damaged(aotc, cache, folder):
    path = Store(folder).path(KEYS[0]) / "k.o"
    path.chmod(0o600)
    path.write_bytes(b"other")
    code, record, _ = cache("verify")
    assert (code, record["entries"], record["sound"]) == (6, 5, 4)
    assert record["findings"][0]["state"] == "damaged"
    out = aotc("cache", "verify", "--cache-dir", folder)[1]
    assert "5 entries: 4 sound, 1 not" in out
    assert f"{KEYS[0].digest[:12]}  binaries  damaged: file `k.o` has other bytes" in out


def test_the_limit_is_a_flag_a_variable_or_a_line_of_the_project(cache, folder, monkeypatch):
    assert cache("size")[1]["max_bytes"] == 10 << 30
    (folder.parent / "pyproject.toml").write_text('[tool.aotc]\ncache-max-size = "5GiB"\n')
    project_table.cache_clear()
    assert cache("size")[1]["max_bytes"] == 5 << 30
    monkeypatch.setenv("AOTC_CACHE_MAX_SIZE", "3kB")
    assert cache("size")[1]["max_bytes"] == 3000
    assert cache("gc", "--max-size", "none")[1]["entries"] == 0
    assert cache("gc")[1]["entries"] == 3
    assert [row["kind"] for row in cache("ls")[1]["entries"]] == ["binaries", "binaries"]
    assert cache("gc", "--max-size", "0")[1]["entries"] == 2


def test_prune_by_age_kind_and_size_and_dry(cache):
    assert cache("prune", "--older-than", "250s", "--dry-run")[1]["entries"] == 2
    assert cache("prune", "--older-than", "250s")[1]["entries"] == 2
    assert cache("prune", "--kind", "tuning")[1]["entries"] == 1
    assert cache("prune", "--max-size", "2kB")[1]["entries"] == 1
    assert cache("size")[1]["entries"] == 1


def test_an_archive_goes_to_another_cache_once(aotc, cache, tmp_path):
    path = tmp_path / "a.tar"
    code, record, _ = cache("export", path)
    assert (code, record["entries"], record["skipped"]) == (0, 5, 0)
    assert cache("export", path)[0] == 2
    other = tmp_path / "other"
    assert cache("import", path, folder=other)[1]["added"] == 5
    assert cache("import", path, folder=other)[1]["present"] == 5
    code, again, _ = cache("export", tmp_path / "b.tar", folder=other)
    assert again["sha256"] == record["sha256"]
    words = ("--cache-dir", other)
    assert "5 entries: 0 added" in aotc("cache", "import", path, *words)[1]
    assert record["sha256"] in aotc("cache", "export", path, "--force", *words)[1]


# Arguments behind `aotc cache`, exit code, code of the error, words of its message or hint.
REFUSED = {
    "a file for a folder": (("size", "--cache-dir", "/dev/null"), 7, "cache-not-a-folder", ""),
    "a command": (("lst",), 2, "usage", "did you mean `ls`?"),
    "an option": (("ls", "--knd", "tuning"), 2, "usage", "did you mean `--kind`?"),
    "an option of the group": (("--cachedir", "x", "ls"), 2, "usage", "`--cache-dir`"),
    "a kind": (("ls", "--kind", "nonsense"), 2, "usage", "binaries"),
    "a size": (("gc", "--max-size", "10 apples"), 2, "setting-invalid", "10GiB"),
    "an age": (("prune", "--older-than", "soon"), 2, "usage", "30d"),
    "nothing to prune by": (("prune",), 2, "usage", "--older-than"),
    "no archive": (("import", "/nonexistent"), 2, "usage", "does not exist"),
    "a lie": (("import", "/etc/passwd"), 6, "cache-archive", "nothing was imported"),
    "an export to nowhere": (("export", "/nonexistent/a.tar"), 7, "environment", "/nonexistent"),
    "another command": (("verfy",), 2, "usage", "did you mean `verify`?"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_typed_and_json_under_json(aotc, folder, name):
    words, exit_code, code, said = REFUSED[name]
    given = () if "--cache-dir" in words else ("--cache-dir", folder)
    found, out, errors = aotc("cache", *given, *words, "--json")
    assert found == exit_code
    record = json.loads(out)
    assert (record["schema"], record["exit_code"]) == ("aotc.error/1", exit_code)
    assert record["code"] == code
    assert said in record["message"] + record["hint"]
    assert errors.startswith("error: " + record["message"])
    found, out, errors = aotc("cache", *given, *words)
    assert (found, out) == (exit_code, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_of_another_owner_is_refused(cache, folder):
    os.chown(folder, 12345, -1)
    for words in (("ls",), ("verify",), ("gc",), ("clear",), ("export", folder.parent / "a.tar")):
        code, record, _ = cache(*words)
        assert (code, record["code"]) == (7, "cache-unsafe")
    assert not (folder.parent / "a.tar").exists()


def test_a_command_that_is_no_command_of_aotc_is_suggested_too(aotc):
    code, out, errors = aotc("cach", "ls")
    assert (code, out) == (2, "")
    assert "no such command `cach`" in errors
    assert "did you mean `cache`?" in errors


def test_what_others_wrote_does_not_steer_the_terminal(aotc, tmp_path):
    folder = tmp_path / "cache"
    Store(folder).put(
        Key.of("binaries", kernel="k", source="\x1b]0;title\x07\u202e\n"), {"a.o": b"1"}
    )
    code, out, _ = aotc("cache", "ls", "--cache-dir", folder)
    assert code == 0
    assert r"\x1b]0;title\x07\u202e\n" in out
    assert all(letter.isprintable() or letter == "\n" for letter in out)
    code, out, errors = aotc("inspect", "\x1b[31mno bundle")
    assert code
    assert r"\x1b[31mno bundle" in errors
    assert "\x1b" not in errors

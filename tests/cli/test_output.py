"""Where results go: closed and full outputs, readers that went away, progress in a log, text that
the locale has no letters for; what a shell completes; examples that parse."""

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
import time

import click
import pytest

from aotc.aot.cli.completion import SHELLS, script
from aotc.aot.cli.examples import EXAMPLES
from aotc.aot.cli.printing import texts_of
from aotc.aot.cli.program import COMMANDS, program
from aotc.aot.cli.progress import Bar, Lines, progress_for
from aotc.aot.stages import StageTime
from aotc.runtime.errors import environment_fault

AOTC = [sys.executable, "-m", "aotc.aot.cli"]


def shell(line, **variables):
    """Exit code, output and errors of a line of bash in which `$AOTC` is the program."""
    words = {"AOTC": shlex.join(AOTC), "PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, env=words
    )
    assert "Traceback" not in done.stderr
    assert "a bug in aotc" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_takes_nothing(bundle, unbuffered):
    """A line for each way, in one shell: what is closed, full, or has no reader any more."""
    lines = [
        f"$AOTC inspect {bundle} > /dev/full; echo full $?",
        f"$AOTC inspect {bundle} --json > /dev/full; echo full-json $?",
        f"$AOTC inspect {bundle} >&-; echo closed $?",
        f"$AOTC inspect {bundle}/absent >&- 2>&-; echo closed-both $?",
        f"$AOTC inspect {bundle}/absent --json > /dev/full; echo full-error $?",
        f"$AOTC inspect {bundle} | true; echo pipe ${{PIPESTATUS[0]}}",
        "$AOTC --help | true; echo help ${PIPESTATUS[0]}",
    ]
    _, out, errors = shell("\n".join(lines), PYTHONUNBUFFERED=unbuffered)
    found = dict(line.split() for line in out.splitlines())
    expected = {"full": 7, "full-json": 7, "closed": 0, "closed-both": 2, "full-error": 2}
    assert {name: int(found[name]) for name in expected} == expected
    assert found["pipe"] in ("0", "141")  # 0: all was written before the reader went away
    assert found["help"] in ("0", "141")
    assert errors.count("cannot write to `standard output`: no space left on device") == 2
    assert errors.count("error: ") == 3


def test_a_reader_that_went_away_ends_the_command_as_a_signal_would(bundle):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*AOTC, "inspect", bundle], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_names_that_are_no_text_of_the_locale(bundle, tmp_path):
    place = os.fsencode(tmp_path) + b"/\xc2\xb5\xff"
    shutil.copytree(os.fsencode(bundle), place)
    for variables in (
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "POSIX"},
        {"PYTHONIOENCODING": "latin-1"},
    ):
        for options in ([], ["--json"]):
            done = subprocess.run(
                [*AOTC, "inspect", place, *options],
                capture_output=True,
                check=False,
                env={"PATH": os.environ["PATH"], **variables},
            )
            assert (done.returncode, done.stderr) == (0, b"")
            assert b"\\udcff" in done.stdout or not options


def test_a_mistyped_file_is_answered_with_the_nearest(aotc, bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bundle, tmp_path / "some" / "bundle")
    (tmp_path / "cache.tar").write_bytes(b"")
    (tmp_path / "model.py").write_text("")
    for words, meant in (
        (("inspect", "some/bundel"), "some/bundle"),
        (("run", "som/bundle"), "some/bundle"),
        (("build", "modle.py", "-o", "out"), "model.py"),
        (("cache", "import", "cahce.tar"), "cache.tar"),
        (("backends", "check", "cache.tarr"), "cache.tar"),
    ):
        code, out, errors = aotc(*words, "--json")
        assert code == 2
        assert f"did you mean `{meant}`?" in json.loads(out)["hint"]
        assert f"did you mean `{meant}`?" in errors
    (finding,) = json.loads(aotc("verify", "som/bundle", "--json")[1])["findings"]
    assert "did you mean `some/bundle`?" in finding["hint"]
    assert "did you mean" not in aotc("inspect", "nothing/like/it")[2]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EMFILE])
def test_a_path_that_the_system_refuses_is_meant(tmp_path, number):
    """A file beside it with a name that is like its own would be no help."""
    (tmp_path / "bundle").mkdir()
    path = str(tmp_path / "bundle2")
    error = environment_fault("write", path, OSError(number, os.strerror(number)))
    assert "did you mean" not in texts_of(error)[1]
    error = environment_fault("read", path, OSError(errno.ENOENT, "no such file"))
    assert "did you mean" in texts_of(error)[1]


def test_help_without_a_command_is_no_error(aotc):
    for words in ((), ("cache",), ("backends",)):
        code, out, errors = aotc(*words)
        assert (code, out) == (2, "")
        assert errors.startswith("Usage: aotc")
        assert "error" not in errors.partition("Commands:")[0]
        assert "hint:" not in errors
    assert json.loads(aotc("cache", "--json")[1])["code"] == "usage"


def test_help_of_subcommands_is_whole(aotc):
    for group in ("cache", "backends"):
        code, out, _ = aotc(group, "--help")
        assert code == 0
        assert "..." not in out.partition("Commands:")[2]


def test_json_errors_have_code_fields_and_hint(aotc, tmp_path):
    for words, code, fields in (
        (("inspect", tmp_path / "x"), "bundle-not-found", {"path": str(tmp_path / "x")}),
        (("inspekt",), "usage", {"did_you_mean": "inspect", "command": "aotc"}),
        (("inspect", "x", "--jsn"), "usage", {"did_you_mean": "--json", "option": "--jsn"}),
        (("inspect",), "usage", {"parameter": "bundle", "command": "aotc inspect"}),
        (("explain", "nonsense"), "unknown-code", {"wanted": "nonsense"}),
    ):
        record = json.loads(aotc(*words, "--json")[1])
        assert list(record) == ["schema", "code", "exit_code", "message", "hint", "fields"]
        assert record["code"] == code
        assert fields.items() <= record["fields"].items()


def test_progress_in_a_log_is_a_line_a_stage(capsys, monkeypatch):
    monkeypatch.setattr(Lines, "tick_s", 0.01)
    lines = Lines()
    lines.begin("tune")
    while capsys.readouterr().err == "":
        time.sleep(0.01)
    lines.end(StageTime("tune", 0.5, "done"))
    lines.stop()
    assert "tune" in capsys.readouterr().err
    monkeypatch.undo()
    assert Lines.tick_s == 15
    assert Bar.tick_s == 1


@pytest.mark.parametrize(
    ("variables", "is_bar"),
    [({}, True), ({"CI": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": "1"}, True)],
)
def test_what_a_terminal_shows(monkeypatch, aotc, variables, is_bar):
    for name in ("CI", "TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert (type(progress_for(False)) is Bar) == is_bar
    errors = aotc("inspekt")[2]
    assert ("\033[" in errors) == (not variables)


def leaves(command, path):
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from leaves(command.get_command(click.Context(command), name), f"{path} {name}")
    else:
        yield path, command


def all_commands():
    return dict(leaves(program, "aotc"))


def test_every_command_has_examples_and_they_parse():
    found = all_commands()
    for path, command in found.items():
        text = f"{command.help}\n{command.epilog}"
        assert f"{path} " in text or f"{path}\n" in f"{text}\n", f"{path} has no example"
    for path, rows in EXAMPLES.items():
        command = found[f"aotc {path}"]
        for line, _ in rows:
            words = shlex.split(line.partition(" |")[0].partition(" >")[0].partition(" <")[0])
            count = len(path.split()) + 1
            assert " ".join(words[:count]) == f"aotc {path}"
            with click.Context(command) as context:
                command.make_parser(context).parse_args(words[count:])


def test_every_option_says_what_it_is():
    for path, command in all_commands().items():
        for each in command.params:
            if isinstance(each, click.Option):
                assert each.help, f"{path} {each.opts}"


@pytest.mark.parametrize("name", SHELLS)
def test_completion_scripts_are_read_by_their_shell(aotc, name, tmp_path):
    code, out, _ = aotc("completion", name)
    assert (code, out) == (0, script(name))
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    path = tmp_path / "completion"
    path.write_text(out)
    done = subprocess.run([program, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_bash_completes_commands_options_and_codes(tmp_path):
    """The script in bash itself, as the shell calls it behind a tabulator."""
    place = tmp_path / "aotc"
    place.write_text(f'#!/bin/sh\nexec {shlex.join(AOTC)} "$@"\n')
    place.chmod(0o700)
    lines = ["complete() { :; }", script("bash"), 'ask() { COMP_WORDS=("$@");',
             "COMP_CWORD=$(($# - 1)); COMPREPLY=(); _aotc_completion aotc;",
             'echo "${COMPREPLY[*]}" | tr "\\n" " "; echo; }',
             "ask aotc ins", "ask aotc inspect --ker", "ask aotc cache pru",
             "ask aotc completion f", "ask aotc build --tune q",
             "ask aotc explain frozen-"]  # fmt: skip
    _, out, _ = shell("\n".join(lines), PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert [line.split() for line in out.splitlines()] == [
        ["inspect"], ["--kernels"], ["prune"], ["fish"], ["quick"], ["frozen-miss"],
    ]  # fmt: skip


def test_completing_a_command_imports_no_command(tmp_path):
    code = (
        "import os, sys; os.environ.update(COMP_WORDS='aotc ', COMP_CWORD='1',"
        " _AOTC_COMPLETE='bash_complete')\n"
        "from aotc.aot.cli.program import run\n"
        "try: run([])\n"
        "except SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('aotc.aot.cli.cache')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "[]"
    assert {line.partition(",")[2] for line in lines[:-1]} >= set(COMMANDS)

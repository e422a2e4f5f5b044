"""Every command in odd surroundings: no home, nothing to write to, streams that are closed or full,
ASCII alone, a folder that is gone. Each ends as elsewhere, or with the error of what it lacks.

A run of the default suite pairs each command with some of the surroundings, the nightly one with
all.
"""

import os
import subprocess
import sys

import pytest
import working

# Surroundings → what they are, and the exit codes that they may have beside a command's own.
PLACES = {
    "no home": ({"unset": ["HOME", "XDG_CACHE_HOME"], "hooks": ["nobody"],
                 "environment": {"AOTC_CACHE_DIR": ""}}, ()),
    "home absent": ({"environment": {"HOME": "{area}/read-only/absent", "AOTC_CACHE_DIR": ""}}, ()),
    "home read-only": ({"environment": {"HOME": "{area}/read-only", "AOTC_CACHE_DIR": ""}}, ()),
    "cache read-only": ({"environment": {"AOTC_CACHE_DIR": "{area}/read-only"}}, ()),
    "plain terminal": ({"environment": {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "20"}}, ()),
    "narrow": ({"environment": {"COLUMNS": "1", "LINES": "1"}}, ()),
    "ascii": ({"environment": {"LC_ALL": "C"}, "hooks": ["ascii"]}, ()),
    "comma": ({"environment": {"LC_ALL": "comma.UTF-8", "LOCPATH": "{area}"}, "hooks": ["comma"]},
              ()),
    "stdin closed": ({"hooks": ["stdin closed"]}, ()),
    "stdout closed": ({"hooks": ["stdout closed"]}, ()),
    "stderr closed": ({"hooks": ["stderr closed"]}, ()),
    "stdout full": ({"hooks": ["stdout full"]}, (7,)),
    "stderr full": ({"hooks": ["stderr full"]}, ()),
    "stdout without a reader": ({"hooks": ["stdout without a reader"]}, (141,)),
    "both without a reader": ({"hooks": ["both without a reader"]}, (141,)),
    "cwd deleted": ({"hooks": ["cwd deleted"]}, ()),
    "umask": ({"hooks": ["umask"]}, ()),
    "no temporary folder": ({"environment": {"TMPDIR": "{area}/read-only/absent"}}, ()),
    "temporary folder read-only": ({"environment": {"TMPDIR": "{area}/read-only"}}, ()),
    "temporary folder full": ({"environment": {"TMPDIR": "{area}/full"}, "hooks": ["full"]}, (7,)),
}  # fmt: skip
CACHE_UNWRITABLE = ("home absent", "home read-only", "cache read-only")  # what `import` cannot do
EACH = 1  # surroundings of a command in the default suite
NAMES = list(working.WORDS)
PAIRS = [(name, place) for name in NAMES for place in PLACES]
CHOSEN = {
    (name, list(PLACES)[(EACH * row + column) % len(PLACES)])
    for row, name in enumerate(NAMES)
    for column in range(EACH)
    if name not in working.WITH_TORCH or column == 0
}


@pytest.fixture(scope="module")
def usual(server, area):
    """Command → its exit code where nothing is odd."""
    known = {}

    def code(name, words):
        if name not in known:
            known[name] = server.run(words, area)[0]
            working.clear(area)
        return known[name]

    return code


def absolute(area, words):
    """The words with the paths of the folder from the root."""
    names = {*(path.name for path in area.iterdir()), *working.MADE}
    for word in words:
        head, at, rest = word.rpartition("@")
        head, rest = (
            ("oci-layout:", word[11:]) if word.startswith("oci-layout:") else (head + at, rest)
        )
        yield f"{head}{area}/{rest}" if rest.partition(":")[0] in names else word


def check(server, area, usual, name, place):
    given, codes = PLACES[place]
    if place == "comma" and not (area / "comma.UTF-8").is_dir():
        pytest.skip("no localedef here")
    words = [*name.split(), *absolute(area, working.WORDS[name])]
    expected = usual(name, words)
    environment = {
        key: value.replace("{area}", str(area))
        for key, value in given.get("environment", {}).items()
    }
    code, out, errors, stayed = server.run(words, area, **{**given, "environment": environment})
    working.clear(area)
    allowed = {expected, *codes}
    if name == "cache import" and place in CACHE_UNWRITABLE:
        allowed = {7}
    assert code in allowed, errors[-2000:]
    for word in ("Traceback", "a bug in aotc", "Exception ignored", "\x1b"):
        assert word not in out + errors, errors[-2000:]
    assert not stayed
    assert not (area / "~").exists()
    if code == 7:
        assert "\nerror: " in f"\n{errors}", errors
        assert "\nhint: " in errors, errors


@pytest.mark.parametrize(("name", "place"), [pair for pair in PAIRS if pair in CHOSEN])
def test_a_command_in_odd_surroundings(server, area, usual, name, place):
    check(server, area, usual, name, place)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "place"), [pair for pair in PAIRS if pair not in CHOSEN])
def test_every_command_in_all_odd_surroundings(server, area, usual, name, place):
    check(server, area, usual, name, place)


@pytest.mark.parametrize("columns", [20, 200])
def test_the_bar_keeps_to_one_line_of_the_terminal(columns, capsys, monkeypatch):
    from aotc.aot.cli import progress

    monkeypatch.setattr(progress, "_columns", lambda: columns)
    bar = progress.Bar()
    bar.begin("tune")
    bar.advance(3, 40, "a_kernel_with_a_long_name" * 4)
    bar.stop()
    drawn = [each.replace("\x1b[K", "") for each in capsys.readouterr().err.split("\r")]
    assert max(map(len, drawn)) == (19 if columns == 20 else 142)


def test_a_user_without_a_home_has_a_cache(monkeypatch, tmp_path):
    import pwd

    from aotc.runtime import settings

    def no_name(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", no_name)
    for name in ("HOME", "XDG_CACHE_HOME", "AOTC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert settings.cache_dir().value == f"{tmp_path}/aotc-cache-{os.geteuid()}"


OLD = "import sys\nsys.version_info = (3, 9, 18, 'final', 0)\n"
BARE = "import sys\nsys.modules['click'] = None\n"


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        (f"{OLD}import aotc.runtime", 1, "aotc needs Python 3.11"),
        (f"{OLD}from aotc.aot.cli import main\nmain()", 7, "this is Python 3.9, expected 3.11"),
        (f"{BARE}from aotc.aot.cli import main\nmain()", 7, "`click` is not installed"),
    ],
    ids=["the runtime", "the command line", "without click"],
)
def test_an_installation_that_cannot_work_says_why(text, code, expected):
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert expected in done.stderr
    assert code == 1 or "Traceback" not in done.stderr

"""Every option and argument of every command with every kind of wrong value, generated from the
table of commands: the exit code is one of the table, the error typed, lower case, with a hint, and
nothing is left half-written. Nothing says `a bug in aotc`."""

import json
import shutil
import struct
import sys
from pathlib import Path

import click
import pytest
import unprivileged

from aotc.aot.cli.program import COMMANDS, program
from aotc.runtime.bundle.manifest import FORMAT

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("runtime", "fallback", "pack"))]
NO_JSON = ("sbom", "completion", "backends include-dir", "backends new")
# Command → words with which it works; where that takes long, with which it ends before that.
WORDS = {
    "build": ("absent.py", "-o", "out"),
    "init": ("absent.py", "-o", "made.py"),
    "inspect": ("good",),
    "report": ("good", "-o", "page.html"),
    "diff": ("good", "good"),
    "stubs": ("good",),
    "tune": ("absent", "-o", "out"),
    "measure": ("folder",),
    "run": ("good",),
    "verify": ("good",),
    "sign": ("good", "--key", "key.pem", "-o", "signed.json"),
    "push": ("good", "oci-layout:layout:v2"),
    "pull": ("oci-layout:layout:v1", "-o", "pulled"),
    "sbom": ("good",),
    "keygen": ("fresh",),
    "bench": ("absent",),
    "profile": ("absent",),
    "warm": ("absent.py",),
    "reduce": ("absent.py", "-o", "left.py"),
    "backends check": ("file.txt",),
    "backends include-dir": (),
    "backends ls": (),
    "backends new": ("fresh", "--output", "fresh"),
    "doctor": (),
    "explain": (),
    "completion": ("bash",),
    "cache export": ("archive.tar",),
    "cache import": ("file.txt",),
    "cache prune": ("--max-size", "1GB"),
    **{f"cache {name}": () for name in ("clear", "dir", "explain", "gc", "ls", "size", "verify")},
}
VALUES = (
    "absent", "folder", "file.txt", "locked.txt", "locked/inside", "", "-1", "9" * 30, "nonsense",
    "x=@absent", "x=@file.txt", "cut", "newer", "..", "x" * 300, "\udcff\x1b[31m",
)  # fmt: skip
# Command → values with which an argument makes it work for long, or ask the network.
LONG = dict.fromkeys(("build", "warm", "reduce"), ("good", "altered", "raises.py", "foreign"))
# Kind of a bundle → the exit code of every command that reads it; None where they differ.
BUNDLES = {"absent": 2, "folder": 6, "file.txt": 2, "locked/inside": 7, "": 2, "x" * 300: 7,
           "cut": 6, "newer": 5, "..": 6}  # fmt: skip
# What is wrong only together, or with one more option.
CONTRADICTIONS = (
    ("run", "good", "--tolerance", "1"),
    ("run", "good", "--output", "output_0=@a.npy", "--output", "output_0=@b.npy"),
    ("bench", "good", "--fail-if-slower", "5"),
    ("bench", "good", "--against", "eager"),
    ("report", "good", "-o", "page.html", "--device", "cpu"),
    ("tune", "good"),
    ("tune", "good", "-o", "out", "--on", "cpu"),
    ("tune", "good", "--tasks-to", "tasks"),
    ("tune", "good", "-o", "out", "--ray", "auto", "--tasks-to", "tasks", "--on", "cpu"),
    ("tune", "good", "-o", "out", "--target", "cpu-nonsense"),
    ("build", "net.py", "-o", "out", "--on", "cuda"),
    ("build", "net.py", "net.py", "-o", "out"),
    ("build", "net.py"),
    ("measure", "good"),
    ("cache", "prune"),
    ("cache", "explain", "0123"),
    ("cache", "export", "file.txt"),
    ("stubs", "good", "-o", "file.txt"),
    ("init", "net.py", "-o", "net.py", "--force"),
    ("inspect", "good", "good"),
    ("inspect",),
    ("inspect", "good", "--kernals"),
    ("cache", "sizes"),
    ("nonsense",),
)


def leaves(group, path=()):
    """Name → command of all that run."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def lines_of(name, command):
    """(parameter, value) → words, one of them wrong."""
    start, words = name.split(), list(WORDS[name])
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    for place, argument in enumerate(arguments):
        for value in VALUES:
            rest = [*words[:place], *words[place + 1 :]]
            if value.startswith("-"):
                yield (argument.name, value), [*start, *rest[place:], "--", *rest[:place], value]
            else:
                yield (argument.name, value), [*start, *rest[:place], value, *rest[place:]]
    for option in command.params:
        if option in arguments or option.is_flag or option.name == "help":
            continue
        rest = list(words)
        for word in option.opts:
            if word in rest:
                del rest[rest.index(word) : rest.index(word) + 2]
        for value in VALUES:
            yield (option.opts[-1], value), [*start, *rest, option.opts[-1], value]


@pytest.fixture(scope="module")
def answers(bundle, cache, tmp_path_factory):
    """Command → {(parameter, value): words, exit code, output, errors, changed paths}."""
    import device_bundle
    from test_serving import broken, flipped

    from aotc.aot.cli.program import run

    area = tmp_path_factory.mktemp("area")
    shutil.copytree(bundle, area / "good")
    broken(bundle, area / "cut", "manifest.msgpack", lambda data: data[:99])
    broken(bundle, area / "altered", "plan.msgpack", flipped)
    version = struct.pack("<H", FORMAT[0] + 1)
    broken(bundle, area / "newer", "manifest.msgpack", lambda data: data[:8] + version + data[10:])
    device_bundle.write(area / "foreign", targets=(device_bundle.target(),))
    for name in ("folder", "locked", "read-only"):
        (area / name).mkdir()
    for name in ("file.txt", "locked.txt"):
        (area / name).write_text("text\n")
    (area / "net.py").write_text("import torch\nmodel = torch.nn.Linear(3, 4)\n")
    (area / "raises.py").write_text("raise RuntimeError('no')\n")
    (area / "binary").write_bytes(bytes(range(256)))
    (area / "link").symlink_to("nowhere")
    if run(["keygen", str(area / "key")]) != 0:
        (area / "key.pem").write_text("no key\n")
    assert run(["push", str(bundle), f"oci-layout:{area}/layout:v1"]) == 0
    rows = [
        (name, each, words if name in NO_JSON or "--" in words else [*words, "--json"])
        for name, command in leaves(program)
        for each, words in lines_of(name, command)
    ]
    rows += [("", words, list(words)) for words in CONTRADICTIONS]
    given = {"lines": [words for *_, words in rows], "folder": str(area)}
    given["answers"] = str(tmp_path_factory.mktemp("answers") / "answers.json")
    for name, mode in (("locked.txt", 0), ("locked", 0), ("read-only", 0o555)):
        (area / name).chmod(mode)
    ran = unprivileged.run(
        [sys.executable, HERE / "wrong_uses.py"],
        given=json.dumps(given),
        AOTC_CACHE_DIR=area / "cache", HOME=area, AOTC_REMOTE_CACHE_TIMEOUT="1",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = {}
    texts = json.loads(Path(given["answers"]).read_text())
    for (name, each, words), answer in zip(rows, texts, strict=True):
        found.setdefault(name, {})[each] = (words, *answer)
    for name in ("locked.txt", "locked", "read-only"):
        (area / name).chmod(0o755)
    return found


NAMES = [name for name, command in leaves(program) if any(
    not getattr(each, "is_flag", False) for each in command.params)]  # fmt: skip


def test_every_command_stands_in_the_table():
    assert {name.split()[0] for name in WORDS} == set(COMMANDS)
    assert {name for name, _ in leaves(program)} == set(WORDS)


def wrong(words, code, out, errors, changed):
    """What is wrong with how a command ended; empty where nothing is."""
    if code not in range(8) or "Traceback" in errors or "a bug in aotc" in errors:
        return f"exit {code}: {errors[-300:]}"
    if "\x1b" in out.replace("\\u001b", "") + errors:
        return "control characters are printed"
    if code in (0, 1):
        return ""
    made = [path for path in changed if path.endswith("/CACHEDIR.TAG")]  # a cache, still empty
    changed = [path for path in changed if not any(each.startswith(path) for each in made)]
    if changed:
        return f"left {changed}"
    if words[-1] != "--json":
        return "" if errors.startswith("error: ") or words[0] == "verify" else "no error is printed"
    error = json.loads(out)
    if error["schema"] != "aotc.error/1":
        return "" if words[0] == "verify" and all(
            each["hint"] for each in error["findings"] if each["status"] == "failed"
        ) else "no error"  # fmt: skip
    message = error["message"]
    if set(error) != {"schema", "code", "exit_code", "message", "hint", "fields"}:
        return f"fields {sorted(error)}"
    if error["exit_code"] != code or error["code"] == "internal":
        return f"{error['code']}, exit {error['exit_code']} instead of {code}"
    if message[:1].isupper() or message.endswith("."):
        return f"form: {message}"
    return "" if error["hint"] else f"no hint: {error['code']}: {message}"


@pytest.mark.parametrize("name", NAMES)
def test_wrong_values_are_refused_well(answers, name):
    found = {
        f"{parameter} {value[:40]!r}": problem
        for (parameter, value), row in answers[name].items()
        if (problem := wrong(*row))
    }
    assert not found, "\n".join(f"{key}: {text}" for key, text in found.items())


@pytest.mark.parametrize("words", CONTRADICTIONS, ids=" ".join)
def test_contradictions_are_usage_errors(answers, words):
    _, code, out, errors, changed = answers[""][words]
    assert code == 2, out + errors
    assert not wrong(words, code, out, errors, changed)


READERS = [name for name, command in leaves(program)
           if any(each.name == "bundle" for each in command.params)]  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_exit_codes_of_what_is_no_bundle(answers, name):
    found = {value: answers[name]["bundle", value][1] for value in BUNDLES}
    assert found == BUNDLES


def test_nonsense_is_never_taken_silently(answers):
    """Options whose value is any text take `nonsense`; no other one does."""
    taken = {
        f"{name} {parameter}"
        for name, rows in answers.items()
        if name
        for (parameter, value), row in rows.items()
        if value == "nonsense" and row[1] == 0
    }
    free = {"--out", "--output", "--trace", "--cache", "--cache-dir", "name", "path", "--tasks-to"}
    assert not [each for each in taken if each.rpartition(" ")[2] not in free], taken


def test_messages_name_the_nearest(aotc, bundle):
    for words, expected in (
        (("inspct", bundle), "did you mean `inspect`"),
        (("inspect", bundle, "--kernal"), "did you mean `--kernels`"),
        (("cache", "sise"), "did you mean `size`"),
        (("inspect", f"{bundle}s"), f"did you mean `{bundle}`"),
        (("inspect", ""), "variable of the shell"),
        (("stubs", bundle, "-o"), "see `aotc stubs --help`"),
        (("cache", "prune", "--max-size"), "see `aotc cache prune --help`"),
        (("explain", "input-dtyp"), "did you mean `input-dtype`"),
        (("tune", bundle, "-o", "out", "--target", "cuda:sm90"), "is not known"),
        (("build", __file__, "-o", "out", "--target", "cuda:sm90"), "did you mean `cuda:sm_90`"),
        (("build", bundle, "-o", "out"), f"`aotc run {bundle}`"),
        (("init", bundle, "-o", "out.py"), f"`aotc run {bundle}`"),
    ):
        code, _, errors = aotc(*words)
        assert code == 2
        assert expected in errors

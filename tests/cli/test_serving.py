"""Every command where torch, triton and numpy are not installed, on sound and on broken bundles:
the exit code is that of the table in `aotc --help`, and none is 70."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from aotc.aot.cli.program import COMMANDS

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("runtime", "fallback", "pack")]


OURS = ("aot", "cache", "kernels", "runtime")
NEEDED = ("click", "filelock")

# Runs in the serving environment: command lines from standard input, results to standard output.
DRIVER = """
import contextlib, io, json, sys
from aotc.aot.cli.program import run

for name in ("torch", "triton", "numpy"):
    try:
        __import__(name)
    except ModuleNotFoundError:
        continue
    raise SystemExit(f"{name} is installed here")
answers = []
for words in json.load(sys.stdin):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = run(words)
    answers.append((code, out.getvalue(), errors.getvalue()))
print(json.dumps(answers))
"""

READING = (
    ("verify", "{bundle}"),
    ("verify", "{bundle}", "--json"),
    ("verify", "{bundle}", "--golden"),
    ("verify", "{bundle}", "--compat"),
    ("verify", "{bundle}", "--integrity"),
    ("inspect", "{bundle}", "--kernels", "--files"),
    ("inspect", "{bundle}", "--json"),
    ("diff", "{bundle}", "{bundle}"),
    ("diff", "{bundle}", "{bundle}", "--json"),
    ("report", "{bundle}", "-o", "/dev/null"),
    ("report", "{bundle}", "-o", "/dev/null", "--measure"),
    ("run", "{bundle}"),
    ("run", "{bundle}", "--seed", "1", "--json"),
    ("bench", "{bundle}", "--rounds", "1", "--seconds", "0.01"),
    ("profile", "{bundle}", "--repetitions", "1"),
)
# Bundle → the exit code of commands that run it, and those of commands that do less.
BUNDLES = {
    "good": (0, {}),
    "altered code": (6, {"inspect": 0, "--compat": 0}),
    "altered plan": (6, {"--compat": 0}),
    "altered weights": (6, {"inspect": 0, "--compat": 0}),
    "cut manifest": (6, {}),
    "without code": (6, {"inspect": 0}),
    "absent": (2, {}),
    "a folder": (6, {}),
    "a file": (2, {}),
    "foreign": (5, {"inspect": 0, "diff": 0, "--measure": 5, "report": 0, "--integrity": 0}),
    "of torch's ops": (5, {"inspect": 0, "diff": 0, "--measure": 5, "report": 0, "--integrity": 0}),
}
# What needs no bundle, or one that is good.
OTHERS = {
    ("explain",): 0,
    ("explain", "--json"): 0,
    ("explain", "native-op-invalid"): 0,
    ("explain", "nonsense"): 2,
    ("completion", "zsh"): 0,
    ("completion", "csh"): 2,
    ("init", "{file}", "-o", "{folder}/made.py"): 7,
    ("init", "{folder}", "-o", "{folder}/made.py"): 7,
    ("init", "/nonexistent.py", "-o", "{folder}/made.py"): 2,
    ("stubs", "{good}"): 0,
    ("stubs", "{good}", "-o", "{file}"): 2,
    ("stubs", "{good}", "-o", "{folder}/typed.txt"): 2,
    ("stubs", "{good}", "-o", "/nonexistent/typed.py"): 7,
    ("stubs", "{cut manifest}"): 6,
    ("doctor",): 0,
    ("doctor", "--json"): 0,
    ("cache", "size"): 0,
    ("cache", "ls", "--json"): 0,
    ("cache", "explain"): 0,
    ("cache", "dir"): 0,
    ("cache", "clear"): 0,
    ("cache", "--cache-dir", "/dev/null", "size"): 7,
    ("backends", "ls"): 0,
    ("backends", "include-dir"): 0,
    ("backends", "check", "{file}"): 1,
    ("backends", "check", "/nonexistent"): 2,
    ("backends", "new", "fresh", "--output", "{folder}/fresh"): 0,
    ("backends", "new", "fresh", "--output", "{file}/fresh"): 7,
    ("build", "{file}", "-o", "{folder}/out"): 7,
    ("warm", "{file}"): 7,
    ("reduce", "{file}", "-o", "{folder}/out.py"): 7,
    ("tune", "{good}", "-o", "{folder}/out"): 7,
    ("bench", "{good}", "{file}", "--against", "eager"): 7,
    ("run", "{good}", "--device", "cuda"): 2,
    ("run", "{good}", "--threads", "-1"): 2,
    ("run", "{good}", "--input", "x=@/nonexistent.npy"): 2,
    ("run", "{good}", "--output", "output_0=@/nonexistent/y.npy"): 7,
    ("run", "{good}", "--output", "output_0=@{folder}/y.npy"): 0,
    ("run", "{good}", "--expect", "output_0=@{folder}/y.npy"): 0,
    ("run", "{good}", "--import", "torch"): 2,
    ("run", "{good}", "--import", "{folder}/imports_torch.py"): 3,
    ("run", "{good}", "--import", "json"): 0,
    ("profile", "{good}", "--trace", "/nonexistent/trace.json"): 7,
    ("profile", "{good}", "--trace", "{folder}/trace.json"): 0,
    ("verify", "{good}", "--digest", "sha256:" + 64 * "0"): 6,
    ("verify", "{good}", "--key", "{file}"): 7,
    ("sign", "{good}", "--key", "{file}"): 7,
    ("keygen", "{folder}/key"): 7,
    ("sbom", "{good}"): 0,
    ("sbom", "{cut manifest}"): 6,
    ("push", "{good}", "oci-layout:{folder}/layout:v1"): 0,
    ("push", "{altered code}", "oci-layout:{folder}/layout:v2"): 6,
    ("push", "{good}", "127.0.0.1:9/model:v1"): 7,
    ("push", "{good}", "nonsense"): 2,
    ("pull", "oci-layout:{folder}/layout:v1", "-o", "{folder}/pulled"): 0,
    ("pull", "oci-layout:{folder}/layout:v2", "-o", "{folder}/pulled2"): 2,
    ("run", "oci-layout:{folder}/layout:v1"): 0,
    ("diff", "{good}", "{foreign}"): 1,
    ("diff", "{good}", "{foreign}", "--ignore", "nonsense"): 2,
    ("diff", "{good}", "{altered code}"): 6,
    ("diff", "{absent}", "{good}"): 2,
    ("report", "{good}", "-o", "/nonexistent/report.html"): 7,
    ("report", "{good}", "-o", "{folder}/report.html", "--json"): 0,
    ("report", "{good}", "-o", "/dev/null", "--profile", "{file}"): 2,
    ("report", "{good}", "-o", "/dev/null", "--bench", "/nonexistent"): 2,
    ("measure", "/nonexistent"): 2,
    ("measure", "{file}"): 2,
    ("cache", "gc"): 0,
    ("cache", "verify"): 0,
    ("cache", "prune", "--max-size", "1GiB"): 0,
    ("cache", "export", "{folder}/cache.tar"): 0,
    ("cache", "import", "{folder}/cache.tar"): 0,
    ("cache", "import", "{file}"): 6,
    ("verify", "{good}", "--device", "cuda"): 2,
    ("verify", "{foreign}", "--device", "cuda:1"): 5,
    ("nonsense",): 2,
}


def broken(good: Path, to: Path, name: str, change) -> Path:
    """A copy of a bundle in which one file's bytes are changed; None deletes it."""
    shutil.copytree(good, to)
    for path in (to, *to.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    found = next(to.rglob(name))
    data = change(found.read_bytes())
    if data is None:
        found.unlink()
    else:
        found.write_bytes(data)
    return to


def flipped(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]


@pytest.fixture(scope="module")
def places(bundle, tmp_path_factory):
    """Name → path of every bundle and file of the tables."""
    import device_bundle
    import small_torch_bundle

    folder = tmp_path_factory.mktemp("serving")
    (folder / "spec.py").write_text("import torch\n")
    (folder / "imports_torch.py").write_text("import torch\n")
    (folder / "empty").mkdir()
    small_torch_bundle.write(folder / "fallback")
    return {
        "good": bundle,
        "altered code": broken(bundle, folder / "code", "kernels.so", flipped),
        "altered plan": broken(bundle, folder / "plan", "plan.msgpack", flipped),
        "altered weights": broken(bundle, folder / "weights", "weights.safetensors", flipped),
        "cut manifest": broken(bundle, folder / "cut", "manifest.msgpack", lambda data: data[:99]),
        "without code": broken(bundle, folder / "without", "kernels.so", lambda data: None),
        "absent": folder / "nothing",
        "a folder": folder / "empty",
        "a file": folder / "spec.py",
        "foreign": device_bundle.write(folder / "foreign", targets=(device_bundle.target(),)),
        "of torch's ops": folder / "fallback",
        "file": folder / "spec.py",
        "folder": folder,
    }


@pytest.fixture(scope="module")
def answers(places, tmp_path_factory):
    """Command line → (exit code, standard output, errors), all in one serving environment."""
    place = tmp_path_factory.mktemp("environment")
    venv.create(place, with_pip=False, symlinks=True)
    packages = next(place.glob("lib/python*/site-packages"))
    root = HERE.parents[1]
    (packages / "aotc").mkdir()
    for name in OURS:
        (packages / "aotc" / name).symlink_to(root / name)
    for name in NEEDED:
        folder = Path(importlib.import_module(name).__file__).parent
        (packages / name).symlink_to(folder)
    lines = [
        tuple(word.format(bundle=places[bundle]) for word in command)
        for bundle in BUNDLES
        for command in READING
    ]
    lines += [tuple(word.format(**places) for word in command) for command in OTHERS]
    ran = subprocess.run(
        [place / "bin" / "python", "-I", "-c", DRIVER],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=False,
        env={"AOTC_CACHE_DIR": str(place / "cache"), "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    return dict(zip(lines, json.loads(ran.stdout), strict=True))


def test_every_command_is_in_the_tables():
    assert {command[0] for command in (*READING, *OTHERS)} >= set(COMMANDS)


@pytest.mark.parametrize("name", BUNDLES)
def test_exit_codes_of_bundles(answers, places, name):
    code, others = BUNDLES[name]
    wrong = []
    for command in READING:
        words = tuple(word.format(bundle=places[name]) for word in command)
        special = [others[word] for word in reversed(command) if word in others]
        expected = special[0] if special else code
        found, out, errors = answers[words]
        if found != expected or "Traceback" in errors or (expected and not out + errors):
            wrong.append((" ".join(command), found, expected, errors[-300:]))
    assert not wrong


@pytest.mark.parametrize("command", OTHERS, ids=" ".join)
def test_exit_codes_of_commands(answers, places, command):
    found, _, errors = answers[tuple(word.format(**places) for word in command)]
    assert found == OTHERS[command], errors
    assert "Traceback" not in errors

"""`--digest` on every command that reads a bundle; what the digest covers is checked before use."""

import hashlib
import shutil

import pytest

from aotc.runtime.bundle.manifest import EXTRAS_NAME, Extras
from aotc.runtime.bundle.opened import Bundle

# Command → arguments after the bundle.
READING = {
    "run": (),
    "verify": (),
    "inspect": (),
    "bench": ("--rounds", "1", "--seconds", "0.01"),
    "profile": ("--repetitions", "1"),
    "report": ("-o", "{out}"),
    "stubs": ("-o", "{out}.py"),
    "tune": ("-o", "{out}"),
    "push": ("oci-layout:{out}:v1",),
    "sbom": ("-o", "{out}"),
    "sign": ("-o", "{out}", "--key", "{key}"),
}


@pytest.fixture
def copy(bundle, tmp_path):
    """The session's bundle, writable."""
    shutil.copytree(bundle, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path / "copy"


def words(command, tmp_path):
    key = tmp_path / "key.pem"
    if command == "sign" and not key.exists():
        pytest.importorskip("cryptography")
        from aotc.aot.distribution.signing import make_keys

        make_keys(str(tmp_path / "key"))
    return [word.format(out=tmp_path / "out", key=key) for word in READING[command]]


def test_the_table_has_every_command_that_takes_a_digest():
    import importlib

    from aotc.aot.cli.program import COMMANDS

    found = set()
    for name, (module, _) in COMMANDS.items():
        command = importlib.import_module(f"aotc.aot.cli.{module}").command
        names = {option for row in command.params for option in row.opts}
        if "bundle" in {row.name for row in command.params}:
            assert "--digest" in names, name
            found.add(name)
    assert found == set(READING)


@pytest.mark.parametrize("command", READING)
def test_another_digest_is_refused(aotc, bundle, tmp_path, command):
    code, out, errors = aotc(
        command, bundle, *words(command, tmp_path), "--digest", "sha256:" + "0" * 64
    )
    assert code == 6, errors
    assert "has the bundle digest sha256:" in out + errors
    assert not (tmp_path / "out").exists()
    code, _, errors = aotc(command, bundle, *words(command, tmp_path), "--digest", "sha256:12")
    assert code == 2, errors


@pytest.mark.parametrize("command", ["run", "verify", "inspect", "bench", "profile", "report"])
def test_its_own_digest_is_accepted(aotc, bundle, tmp_path, command):
    with Bundle(bundle) as opened:
        digest = opened.digest
    code, _, errors = aotc(command, bundle, *words(command, tmp_path), "--digest", digest)
    assert code == 0, errors


@pytest.mark.parametrize("is_listed", [False, True], ids=["altered", "altered with its list"])
def test_tune_runs_no_source_that_the_digest_does_not_cover(aotc, copy, tmp_path, is_listed):
    mark = tmp_path / "ran"
    for source in (copy / "sources").glob("*.py"):
        text = f"import os\nos.system('touch {mark}')\n" + source.read_text()
        source.write_text(text)
    if is_listed:
        extras = Extras.from_bytes((copy / EXTRAS_NAME).read_bytes())
        entries = []
        for entry in extras.files:
            data = (copy / entry.name).read_bytes()
            sha256 = hashlib.sha256(data).digest()
            entries.append(entry.replace(nbytes=len(data), sha256=sha256))
        (copy / EXTRAS_NAME).write_bytes(Extras(tuple(entries)).to_bytes())
    code, _, errors = aotc("tune", copy, "-o", tmp_path / "out")
    assert code == 6, errors
    assert not mark.exists()
    assert not (tmp_path / "out").exists()
    code, out, _ = aotc("verify", copy)
    assert code == 6, out


@pytest.mark.parametrize("name", ["golden.safetensors", "provenance.json", EXTRAS_NAME])
def test_what_judges_is_covered(aotc, copy, name):
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    assert aotc("verify", copy)[0] == 6
    if name != "provenance.json":
        code, _, errors = aotc("verify", copy, "--golden")
        assert code == 6, errors
        assert aotc("run", copy)[0] == 6


def test_where_a_bundle_came_from_counts_and_nothing_else_changes(
    aotc, spec, bundle, cache, tmp_path
):
    """A comment in the model's file, or `--debug`: another digest, the same program."""

    def built(name, text, *options):
        (tmp_path / name).mkdir()
        path = tmp_path / name / spec.name
        path.write_text(text)
        words = ("build", path, "-o", tmp_path / name / "out", "--quiet", "--cache-dir", cache)
        code, _, errors = aotc(*words, *options)
        assert code == 0, errors
        return contents_of(tmp_path / name / "out")

    text = spec.read_text()
    plain, commented = built("plain", text), built("commented", text + "# a comment\n")
    debug = built("debug", text, "--debug")
    listing = {"manifest.msgpack", "extras.msgpack"}
    assert changed(plain, commented) == listing | {"provenance.json"}
    assert {name.split("/")[0] for name in changed(plain, debug)} == listing | {"debug"}
    with Bundle(tmp_path / "plain" / "out") as one, Bundle(tmp_path / "commented" / "out") as two:
        assert one.digest != two.digest
        assert one.manifest.files == two.manifest.files
        assert one.manifest.weights == two.manifest.weights


def contents_of(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def changed(one, other):
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def test_altered_weights_are_refused_before_golden_runs_code(aotc, copy, monkeypatch):
    from aotc.runtime.programs.program import Program

    def refuse(*_, **__):
        raise AssertionError("code ran on weights that were altered")

    monkeypatch.setattr(Program, "__call__", refuse)
    data = bytearray((copy / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "weights.safetensors").write_bytes(data)
    assert aotc("verify", copy, "--golden")[0] == 6

"""The commands: results on stdout, exit codes, JSON schemas, what they import."""

import ast
import json
import pickle
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from aotc.aot import version
from aotc.aot.cli.program import COMMANDS
from aotc.aot.host_array import HostArray, npy_bytes, read_npy
from aotc.cache.errors import CacheError
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest
from aotc.runtime.errors import AotcError

ROOT = Path(__file__).parents[2]

READING = {
    "inspect": ("inspect", "{bundle}"),
    "report": ("report", "{bundle}", "-o", "/dev/null"),
    "run": ("run", "{bundle}"),
    "verify": ("verify", "{bundle}"),
    "diff": ("diff", "{bundle}", "{bundle}"),
    "doctor": ("doctor",),
    "cache.size": ("cache", "size"),
    "cache.ls": ("cache", "ls"),
    "cache.explain": ("cache", "explain"),
    "cache.dir": ("cache", "dir"),
    "cache.verify": ("cache", "verify"),
    "explain": ("explain",),
}


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, cache):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))


def fresh(code):
    """Standard output of a new interpreter that runs `code`."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", READING)
def test_json_is_one_object_with_its_schema_first(aotc, bundle, name):
    arguments = [word.format(bundle=bundle) for word in READING[name]]
    code, out, _ = aotc(*arguments, "--json")
    assert code == 0
    assert next(iter(json.loads(out).items())) == ("schema", f"aotc.{name}/1")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_stands_in_the_overview(aotc, name):
    code, out, errors = aotc(name, "--help")
    assert (code, errors) == (0, "")
    assert out.startswith("Usage: aotc " + name)
    assert f"  {name} " in aotc("--help")[1]


def test_help_and_inspect_import_nothing_heavy(bundle):
    code = (
        "import sys; from aotc.aot.cli.program import run; "
        f"run(['--help']); run(['inspect', {str(bundle)!r}]); "
        "print([name for name in ('torch', 'triton', 'numpy') if name in sys.modules])"
    )
    assert fresh(code).splitlines()[-1] == "[]"


def test_run_and_verify_need_no_numpy(bundle):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'numpy'))); "
        "from aotc.aot.cli.program import run; "
        f"print(run(['verify', {str(bundle)!r}]), run(['run', {str(bundle)!r}]))"
    )
    assert fresh(code).splitlines()[-1] == "0 0"


def test_a_build_without_the_extra_says_which_line_is_missing():
    code = (
        "import importlib.util, sys; real = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name, *rest: None if name == 'torch' else real(name); "
        "from aotc.aot.cli.program import run; sys.stderr = sys.stdout; "
        "print(run(['build', 'package.module:model', '-o', '/nonexistent/out']))"
    )
    out = fresh(code)
    assert 'pip install "aotc[build]"' in out
    assert out.splitlines()[-1] == "7"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nonsense",), 2, "no such command"),
        (("build",), 2, "missing"),
        (("inspect", "/nonexistent"), 2, "no bundle at `/nonexistent`"),
        (("inspect", "/"), 6, "is not a bundle"),
        (("explain", "nonsense"), 2, "no error has the code `nonsense`"),
        (("build", "nothing.py", "-o", "{out}"), 2, "nothing.py"),
        (("run", "{bundle}", "--device", "cuda"), 2, "expected one of: cpu"),
        (("run", "{bundle}", "--input", "y=@x.npy"), 2, "with NAME one of `x`"),
        (("run", "{bundle}", "--input", "x=@/nonexistent.npy"), 2, "cannot read"),
        (("cache", "--cache-dir", "/dev/null", "size"), 7, "is not a folder"),
    ],
)
def test_bad_command_lines(aotc, bundle, tmp_path, arguments, code, message):
    words = [word.format(bundle=bundle, out=tmp_path / "out") for word in arguments]
    found, out, errors = aotc(*words)
    assert found == code
    assert out == ""
    assert errors.startswith("error: ")
    assert message in errors


def test_explain_covers_every_code_with_an_exit_code_of_the_table(aotc):
    from aotc.aot.cli.explain import error_classes

    for code, kind in error_classes().items():
        assert kind.exit_code in (1, 2, 3, 4, 5, 6, 7, 70), code
        found, out, _ = aotc("explain", code)
        assert found == 0
        assert out.startswith(f"{code} (exit {kind.exit_code})")


def test_explain_knows_every_code_of_the_sources_and_no_two_are_alike():
    from aotc.aot.cli.explain import error_classes

    root = Path(__file__).parent.parent.parent
    files = [
        path for package in ("aot", "cache", "runtime") for path in (root / package).rglob("*.py")
    ]
    classes = (
        node
        for path in files
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    fields = {"code", "template", "exit_code"}
    found = {
        each.name
        for each in classes
        for line in each.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) in fields
    }
    # Of two classes with one code the second is left out.
    assert found <= {each.__name__ for each in error_classes().values()}


def test_errors_that_make_a_field_themselves_travel_between_processes():
    from aotc.aot.cli.explain import error_classes
    from aotc.aot.errors import KernelCallInvalid, UnknownTarget
    from aotc.aot.huggingface.errors import SizesInvalid

    called = {"function": "softmax", "argument": "x", "found": 1, "expected": 2}
    made = [
        KernelCallInvalid(**called),
        KernelCallInvalid(advice="give 2; ", **called),
        UnknownTarget(target="cuda:sm90", known="cpu, cuda:sm_90"),
        SizesInvalid(max_length=1, max_prompt=2, batch=1, limit=3),
        SizesInvalid(max_length=1, max_prompt=2, batch=1),
    ]
    for error in made:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.fields) == (type(error), str(error), error.fields)
    own = {kind for kind in error_classes().values() if "__init__" in vars(kind)}
    assert own - {type(error) for error in made} <= {AotcError, CacheError}


def test_codes_stay():
    """Scripts of users ask for them: a class that is renamed keeps its code by saying it."""
    from aotc.aot.cli.explain import error_classes

    listed = (Path(__file__).parent / "error_codes.txt").read_text().split()
    assert set(listed) <= set(error_classes())


def test_inspect_shows_signature_kernels_groups_and_memory(aotc, bundle):
    _, out, _ = aotc("inspect", bundle, "--kernels", "--files")
    assert "input    x: f32[12, 48]" in out
    assert "fusion groups" in out
    assert "arena" in out
    assert "plan.msgpack" in out
    record = json.loads(aotc("inspect", bundle, "--json")[1])
    (entry,) = record["entries"]
    assert entry["inputs"] == [{"name": "x", "dtype": "f32", "shape": [12, 48], "bytes": 2304}]
    assert record["targets"][0]["entries"][0]["launches"]
    groups = record["targets"][0]["groups"]
    assert groups
    assert {group["kind"] for group in groups} <= {"row", "matmul", "pointwise"}


def test_run_writes_and_compares_numpy_files(aotc, bundle, tmp_path):
    out = tmp_path / "y.npy"
    code, _, _ = aotc("run", bundle, "--seed", "7", "--output", f"output_0=@{out}")
    assert code == 0
    array = read_npy(out)
    assert (array.dtype, array.shape) == ("f32", (12, 80))
    expect = ("--expect", f"output_0=@{out}")
    assert aotc("run", bundle, "--seed", "7", *expect)[0] == 0
    code, text, _ = aotc("run", bundle, "--seed", "8", *expect)
    assert code == 1
    assert "DIFFERS, max error" in text
    out.write_bytes(npy_bytes(HostArray("f32", (2, 480), array.data)))
    code, text, _ = aotc("run", bundle, "--seed", "7", *expect)
    assert code == 1
    assert "DIFFERS, is f32[12, 80], expected f32[2, 480]" in text


def copy_of(bundle, tmp_path):
    shutil.copytree(bundle, tmp_path / "copy")
    return tmp_path / "copy"


def overwrite(path, data):
    path.chmod(0o600)
    path.write_bytes(data)


def test_verify_finds_an_altered_byte_in_any_file(aotc, bundle, tmp_path):
    copy = copy_of(bundle, tmp_path)
    for path in sorted(path for path in copy.rglob("*") if path.is_file()):
        data = path.read_bytes()
        overwrite(path, data[:-1] + bytes([data[-1] ^ 1]))
        code, out, _ = aotc("verify", copy, "--integrity")
        assert code == 6, path
        assert "FAILED" in out
        assert path.name in out
        overwrite(path, data)
    assert aotc("verify", copy)[0] == 0


def test_verify_of_golden_numbers_that_are_not_there_is_not_a_success(aotc, bundle, tmp_path):
    copy = copy_of(bundle, tmp_path)
    (copy / "golden.safetensors").unlink()
    assert aotc("verify", copy)[0] == 0
    code, out, _ = aotc("verify", copy, "--golden")
    assert code == 2
    assert "the bundle has no golden file" in out


def test_verify_finds_wrong_numbers(aotc, bundle, monkeypatch):
    monkeypatch.setattr("aotc.runtime.comparison.relative_difference", lambda *arrays: 0.5)
    code, out, _ = aotc("verify", bundle, "--golden")
    assert code == 1
    assert "FAILED, output_0, max error 0.5 relative to max |expected|" in out


def test_verify_says_what_this_machine_lacks(aotc, bundle, monkeypatch):
    monkeypatch.setattr("aotc.runtime.drivers.cpu.driver.processor_features", lambda: frozenset())
    code, out, _ = aotc("verify", bundle)
    assert code == 5
    assert "FAILED, target `cpu-" in out
    assert "instruction set is this CPU without" in out
    assert "golden" not in out


def test_a_bundle_without_extras_still_runs_and_verifies(aotc, bundle, tmp_path):
    copy = copy_of(bundle, tmp_path)
    listed = {
        entry.name for entry in Manifest.from_bytes((copy / MANIFEST_NAME).read_bytes()).files
    }
    keep = {*listed, MANIFEST_NAME, "weights.safetensors"}
    for path in [path for path in copy.rglob("*") if path.is_file()]:
        if path.relative_to(copy).as_posix() not in keep:
            path.unlink()
    code, out, _ = aotc("verify", copy)
    assert code == 0
    assert "skipped" in out
    assert aotc("run", copy, "--seed", "1")[0] == 0
    code, _, errors = aotc("run", copy)
    assert code == 2
    assert "input `x` is missing" in errors


def test_doctor_prints_each_setting_with_its_origin(aotc, cache):
    _, out, _ = aotc("doctor", "--json")
    rows = {row["name"]: row for row in json.loads(out)["settings"]}
    assert rows["AOTC_CACHE_DIR"]["value"] == str(cache)
    assert rows["AOTC_CACHE_DIR"]["origin"] == "environment"
    assert rows["AOTC_TUNE"]["origin"] == "default"


REPEATED = '''
import torch


class Steps(torch.nn.Module):
    """The same layer for one step after the other, as torch.export leaves a recurrent one."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.RNNCell(8, 16)

    def forward(self, frames):
        state = frames.new_zeros(frames.shape[0], 16)
        for step in range(frames.shape[1]):
            state = self.cell(frames[:, step], state)
        return state


model = Steps()
example_inputs = (torch.randn(2, 6, 8),)
dynamic_shapes = ({0: torch.export.Dim("batch", max=4)},)
'''


def test_inspect_prints_one_line_for_kernels_and_groups_that_repeat(aotc, tmp_path, cache):
    spec, out = tmp_path / "steps.py", tmp_path / "steps"
    spec.write_text(REPEATED)
    assert aotc("build", spec, "-o", out, "--quiet")[0] == 0
    _, text, _ = aotc("inspect", out)
    (target,) = json.loads(aotc("inspect", out, "--json")[1])["targets"]
    assert "input    frames: f32[batch, 6, 8]" in text.splitlines()
    kernels, groups = text.partition("fusion groups")[::2]
    ranges = target["entries"][0]["ranges"]
    rows = [line.split() for line in kernels.splitlines() if line.startswith("  ")]
    at = rows[0].index("launches")
    assert rows[0][at - 1] == "kernels"
    # The sizes in the second column are three words: `batch = 1..4`.
    shown = [(int(row[at + 1]), int(row[at + 2]), int(row[at + 3])) for row in rows[1:]]
    assert len(shown) < len([symbol for each in ranges for symbol in each["launches"]])
    assert sum(count for count, _, _ in shown) == sum(len(each["launches"]) for each in ranges)
    assert sum(calls for _, calls, _ in shown) == sum(
        sum(each["launches"].values()) for each in ranges
    )
    code_bytes = {row["symbol"]: row["code_bytes"] for row in target["kernels"]}
    assert sum(nbytes for _, _, nbytes in shown) == sum(
        code_bytes[symbol] for each in ranges for symbol in each["launches"]
    )
    lines = groups.splitlines()[2:]
    assert len(lines) == len(set(lines)) < len(target["groups"])


def test_releases_are_tested_within_the_bounds_of_the_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = dict(re.match(r"([a-z]+)(.*)", row).groups() for row in extras["build"])
    for name, ((major, minor), (last_major, last_minor)) in version.TESTED.items():
        assert named[name] == f">={major}.{minor},<{last_major}.{last_minor + 1}"


@pytest.mark.parametrize(
    ("torch", "triton", "untested"),
    [
        ("2.15.0+cpu", "3.6.0", ["torch 2.15.0+cpu"]),
        ("2.10.1", "4.0.0", ["torch 2.10.1", "triton 4.0.0"]),
        ("2.13.0a0+git3a5c2f8", "3.9.0", []),
        ("2.11.0", "", []),
    ],
)
def test_releases_that_are_not_tested_are_named_once(
    aotc, tmp_path, monkeypatch, torch, triton, untested
):
    installed = {"torch": torch, "triton": triton}
    monkeypatch.setattr(version, "installed_version", lambda name, otherwise: installed[name])
    record = json.loads(aotc("doctor", "--json")[1])
    assert record["tested"] == {name: version.tested_text(name) for name in version.TESTED}
    advice = [line for line in record["advice"] if "is tested with" in line]
    assert [line.partition(" is installed")[0] for line in advice] == untested
    assert f"tested: {version.tested_text('torch')}" in aotc("doctor")[1]
    (tmp_path / "empty.py").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        code, _, errors = aotc("build", tmp_path / "empty.py", "-o", tmp_path / "out")
    assert code == 2
    assert re.findall(r"warning: (.+) is installed", errors) == untested


def test_an_unknown_target_is_refused_before_torch_is_imported(tmp_path):
    (tmp_path / "spec.py").write_text("raise SystemExit('imported')")
    for command in ("build", "warm", "reduce"):
        words = [command, str(tmp_path / "spec.py"), "--target", "gpu"]
        words += [] if command == "warm" else ["-o", str(tmp_path / "out")]
        out = fresh(
            "import sys; from aotc.aot.cli.program import run; "
            f"print(run({words!r}), 'torch' in sys.modules)"
        )
        assert out.split() == ["2", "False"], command


def test_a_digest_of_another_form_is_an_argument(aotc, bundle):
    code, _, errors = aotc("verify", bundle, "--digest", "sha256:12")
    assert code == 2
    assert "`digest` is 'sha256:12', expected `sha256:` and 64 hex digits" in errors
    assert "doctor" not in errors


def test_explain_prints_braces_as_the_error_does(aotc):
    assert '{"cache.keys": {2: length}}' in aotc("explain", "spec-states-invalid")[1]
    _, text, _ = aotc("explain", "--json")
    assert not [
        row for row in json.loads(text)["codes"] if "{{" in f"{row['template']}{row['hint']}"
    ]


def test_cache_commands_list_explain_and_clear(aotc, build, tmp_path, monkeypatch):
    monkeypatch.delenv("AOTC_CACHE_DIR")
    folder = tmp_path / "cache"
    use = ("cache", "--cache-dir", folder)
    assert aotc(*use, "dir")[1] == f"{folder}\n"
    report = build(tmp_path / "v4", "--target", "cpu-x86-64-v4", cache_dir=folder)
    entries = json.loads(aotc(*use, "ls", "--json")[1])["entries"]
    kernels = [entry for entry in entries if "source" in entry["fields"]]
    assert len(kernels) == report["kernels"] + report["weights_kernels"]
    assert "no similar key was stored" in aotc(*use, "explain")[1]
    build(tmp_path / "v3", "--target", "cpu-x86-64-v3", cache_dir=folder)
    misses = json.loads(aotc(*use, "explain", "--json")[1])["misses"]
    assert misses
    every, shown = (aotc(*use, "explain", *more)[1] for more in (["--all"], []))
    heads = [re.findall(r"^([0-9a-f]{12})  ", text, re.MULTILINE) for text in (every, shown)]
    assert heads[0] == [miss["digest"][:12] for miss in misses]
    more = sum(map(int, re.findall(r"and (\d+) more of this kind", shown)))
    assert len(heads[1]) + more == len(misses)
    assert more > 0
    for miss in misses:
        assert "architecture" in {row["field"] for row in miss["differing"]}
    assert "entries deleted" in aotc(*use, "clear")[1]
    assert json.loads(aotc(*use, "size", "--json")[1])["entries"] == 0


def test_settings_come_from_the_project_file_and_bad_ones_are_named(
    aotc, spec, tmp_path, monkeypatch
):
    from aotc.aot.project import project_table

    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[tool.aotc]\ntune = "perhaps"\n')
    project_table.cache_clear()
    code, _, errors = aotc("build", spec, "-o", tmp_path / "out")
    (tmp_path / "pyproject.toml").write_text("[tool.aotc]\ntunes = 1\n")
    project_table.cache_clear()
    unknown = aotc("build", spec, "-o", tmp_path / "out")
    project_table.cache_clear()
    assert code == 2
    assert "`AOTC_TUNE` is 'perhaps' (from pyproject)" in errors
    assert unknown[0] == 2
    assert "`tunes`" in unknown[2]


def test_npy_files_are_those_of_numpy(tmp_path):
    numpy = pytest.importorskip("numpy")
    for dtype, kind in (("f32", "<f4"), ("f16", "<f2"), ("i64", "<i8"), ("bool", "|b1")):
        array = numpy.arange(12).reshape(3, 4).astype(kind)
        numpy.save(tmp_path / "theirs.npy", array)
        ours = read_npy(tmp_path / "theirs.npy")
        assert ours == HostArray(dtype, (3, 4), array.tobytes())
        (tmp_path / "ours.npy").write_bytes(npy_bytes(ours))
        assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "theirs.npy").read_bytes()


def test_a_file_of_numpy_that_is_not_taken_says_how_to_write_it(aotc, bundle, tmp_path):
    numpy = pytest.importorskip("numpy")
    ones = numpy.ones((12, 48), numpy.float32)
    path = tmp_path / "x.npy"
    for array, found, advice in (
        (numpy.asfortranarray(ones), "Fortran order", "numpy.ascontiguousarray"),
        (ones.astype("<c8"), "expected one of: f64, f32", "array.astype"),
    ):
        numpy.save(path, array)
        code, _, errors = aotc("run", bundle, "--input", f"x=@{path}")
        assert code == 2
        assert found in errors
        assert advice in errors
    numpy.savez(tmp_path / "x.npz", x=ones)
    code, _, errors = aotc("run", bundle, "--input", f"x=@{tmp_path / 'x.npz'}")
    assert code == 2
    assert "archive" in errors


def test_an_array_without_elements_keeps_its_shape(aotc, bundle, tmp_path):
    from aotc.aot.host_array import ELEMENTS
    from aotc.runtime.arrays.dtypes import DTYPES

    (tmp_path / "x.npy").write_bytes(npy_bytes(HostArray("f32", (0, 48), b"")))
    code, _, errors = aotc("run", bundle, "--input", f"x=@{tmp_path / 'x.npy'}")
    assert code == 2
    assert "shape [0, 48], expected [12, 48]" in errors
    for dtype, row in DTYPES.items():
        view = HostArray(dtype, (2, 0, 3), b"").buffer()
        assert (view.shape, view.itemsize) == ((2, 0, 3), row.itemsize_bytes)
    assert set(ELEMENTS) == {"H" if row.name == "f16" else row.buffer for row in DTYPES.values()}


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{}", b"PK" * 50])
def test_files_that_are_no_arrays_are_refused(aotc, bundle, tmp_path, data):
    (tmp_path / "x.npy").write_bytes(data)
    code, _, errors = aotc("run", bundle, "--input", f"x=@{tmp_path / 'x.npy'}")
    assert code == 2
    assert "cannot read" in errors


def test_arrays_of_another_type_or_shape_differ_by_infinity():
    from aotc.aot.host_array import HostArray, difference

    one = HostArray("f32", (1,), struct.pack("<f", 1))
    assert difference(one, one) == 0
    assert difference(one, HostArray("f32", (1, 1), one.data)) == float("inf")
    assert difference(one, HostArray("i32", (1,), one.data)) == float("inf")

"""Native functions in compiled graphs: built, run without torch, found or embedded, failing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy
import pytest
import torch

from aotc import runtime
from aotc.aot import native_op
from aotc.runtime.backends import errors
from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.errors import BundleAltered, InputDtype
from aotc.runtime.verify import verify
from tests.backends import models

pytestmark = [pytest.mark.torch, pytest.mark.triton]


@pytest.fixture(scope="module")
def many(compile_library):
    return compile_library("many.cpp", "many")


@pytest.fixture
def built(aotc, cache, tmp_path, many):
    """Builds a model of `models.py`; the bundle's path."""

    def call(text, *options):
        spec = tmp_path / "spec.py"
        spec.write_text(text.format(many=str(many)))
        out = tmp_path / "bundle"
        code, _, words = aotc("build", spec, "-o", out, "--quiet", "--cache-dir", cache, *options)
        assert code == 0, words
        return out

    return call


def plan_of(bundle):
    (path,) = bundle.glob("targets/*/plan.msgpack")
    return Plan.from_msgpack(path.read_bytes()).at()


def test_every_signature(built, many, on_path):
    bundle = built(models.MANY, "--embed-backends")
    plan = plan_of(bundle)
    functions = [native.function for native in plan.natives]
    assert sorted(functions) == ["aligned", "positive", "positive", "sorted", "split"]
    assert {finding.status for finding in verify(bundle)} == {"ok"}
    x = numpy.random.default_rng(1).standard_normal((48, 64), numpy.float32)
    whole = numpy.random.default_rng(2).integers(0, 99, (7, 5), numpy.int32)
    with runtime.load(bundle) as program:
        for _ in range(2):
            y, t, z, ordered, up, down = program(x, whole)
            assert (t == (abs(x) + 1).T).all()
            assert (ordered == numpy.sort(whole.ravel())).all()
            assert (up == numpy.where(x > 0, 4, 1)).all()
            assert (down == numpy.where(x > 0, 0, -3)).all()
            assert y.shape == (48,)
            assert z.shape == (64,)
            x = x[::-1].copy()


def test_without_torch_in_a_process_of_its_own(built):
    bundle = built(models.FAILING, "--embed-backends")
    code = (
        "import sys\nfrom aotc import runtime\n"
        f"program = runtime.load({str(bundle)!r})\n"
        "out = program(bytes(4 * 256 * 512))\n"
        "assert out.tolist() == [1024.0] * 256, out.tolist()[:4]\n"
        "assert not {'torch', 'triton', 'numpy'} & set(sys.modules)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "AOTC_BACKEND_PATH"}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr


def test_found_on_the_machine_by_its_digest(built, many, on_path, compile_library, monkeypatch):
    bundle = built(models.FAILING)
    assert not (bundle / "backends").exists()
    monkeypatch.delenv("AOTC_BACKEND_PATH", raising=False)
    with pytest.raises(errors.NativeAbsent, match="calls native back end `many` 0"):
        runtime.load(bundle)
    assert [row.code for row in runtime.check(bundle)] == ["native-absent"]
    on_path(compile_library("many.cpp", "many", "-O2"), many)
    with pytest.raises(errors.NativeDiffers, match=r"has sha256 .*, expected"):
        runtime.load(bundle)
    assert [row.code for row in runtime.check(bundle)] == ["native-differs"]
    on_path(many)
    assert runtime.check(bundle) == []
    with runtime.load(bundle) as program:
        assert (program(numpy.zeros((256, 512), "f4")) == 1024).all()


def test_an_embedded_library_that_was_altered(built):
    bundle = built(models.FAILING, "--embed-backends")
    library = bundle / "backends" / "libmany.so"
    data = bytearray(library.read_bytes())
    data[-1] ^= 1
    library.chmod(0o644)
    library.write_bytes(data)
    with pytest.raises(BundleAltered, match=r"libmany\.so` was altered"):
        runtime.load(bundle)


def test_a_function_that_fails_ends_the_call(built):
    bundle = built(models.FAILING, "--embed-backends")
    good, bad = numpy.ones((256, 512), "f4"), numpy.ones((256, 512), "f4")
    bad[200, 7] = -1
    where = 200 * 512 + 7
    with runtime.load(bundle, threads=2) as program:
        out = numpy.full(256, 7, "f4")
        for _ in range(3):
            with pytest.raises(
                errors.FunctionFailed, match=f"`many::positive` failed: element {where} is below 0"
            ):
                program(bad, out=out)
            assert (out == 7).all()  # the launch after it did not run
            assert (program(good) == 2048).all()  # nothing is left of the failure
        bound = program.bind(bad)
        with pytest.raises(errors.FunctionFailed):
            bound()


def test_sessions_fail_by_themselves(built):
    bundle = built(models.FAILING, "--embed-backends")
    wrong = []

    def work(value):
        x = numpy.full((256, 512), value, "f4")
        with program.session() as session:
            for _ in range(20):
                try:
                    wrong.append((session(x) != 512 * 2 * (value + 1)).any())
                except errors.FunctionFailed:
                    wrong.append(value >= 0)

    with runtime.load(bundle, threads=2) as program:
        threads = [threading.Thread(target=work, args=(value,)) for value in (1, -1, 2, -2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(wrong) == 80
    assert not any(wrong)


def test_tiles(built):
    bundle = built(models.TILES, "--embed-backends", "--allow-mismatch")
    with runtime.load(bundle, threads=2) as program:
        rows, _ = program(numpy.zeros((256, 512), "f4"))
    tiles = rows[0, 1]
    assert tiles > 1
    assert sorted(set(rows[:, 0])) == list(range(tiles))
    assert set(rows[:, 2]) == {1}  # each tile has one thread


def test_aotc_tune_keeps_the_libraries(built, aotc, cache, tmp_path):
    bundle = built(models.FAILING, "--embed-backends")
    out = tmp_path / "tuned"
    code, _, words = aotc("tune", bundle, "-o", out, "--quiet", "--cache-dir", cache)
    assert code == 0, words
    assert (out / "backends" / "libmany.so").is_file()
    with runtime.load(out) as program:
        assert (program(numpy.zeros((256, 512), "f4")) == 1024).all()


def test_devices_whose_plans_cannot(aotc, cache, tmp_path, many):
    spec = tmp_path / "spec.py"
    spec.write_text(models.FAILING.format(many=str(many)))
    code, _, words = aotc(
        "build", spec, "-o", tmp_path / "x", "--quiet", "--cache-dir", cache,
        "--target", "cuda:sm_90",
    )  # fmt: skip
    assert code == 3
    assert "native function `many::positive` takes no tensors of device `cuda`" in words
    assert "spec.py" in words


def test_eager_ops(many):
    op = native_op("eager_ops::transpose", many, lambda x: x.new_empty(x.t().shape), "transpose")
    x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    assert torch.equal(op(x[:, ::2]), x[:, ::2].t())
    assert op(x.to("meta")).shape == (4, 3)
    with pytest.raises(InputDtype, match=r"many::transpose\.out` has dtype f32"):
        op(x.float())


def test_ops_that_cannot_be(many):
    from aotc.aot.errors import NativeOpInvalid

    with pytest.raises(NativeOpInvalid, match="is not `library::op`"):
        native_op("add", many, lambda x: x)
    with pytest.raises(errors.FunctionUnknown):
        native_op("eager_ops::absent", many, lambda x: x)
    for _ in range(2):  # a model's module may be imported again
        native_op("eager_ops::bits", many, lambda x: x)
    with pytest.raises(NativeOpInvalid, match="and would be `bits"):
        native_op("eager_ops::bits", many, lambda x, by: x, "split")
    with pytest.raises(NativeOpInvalid, match="aten::relu"):
        native_op("aten::relu", many, lambda x: x, "bits")


def test_a_library_of_the_digest_with_another_workspace(built, many, monkeypatch):
    """What the plan reserved is held against what the function asks for."""
    bundle = built(models.MANY, "--embed-backends")
    plan = plan_of(bundle)
    from aotc.runtime.backends.discovery import bind
    from aotc.runtime.backends.library import open_file

    libraries = {"many": open_file(str(many))}
    for native in plan.natives:
        fewer = type(native)(native.backend, native.function, native.tensors, native.scalars, 0)
        if native.workspace_bytes:
            with pytest.raises(errors.NativeDiffers, match="a workspace of 140 bytes"):
                bind([fewer], libraries, "bundle")
        else:
            bind([fewer], libraries, "bundle")
        rest = (native.tensors[:1], native.scalars)
        other = type(native)(native.backend, native.function, *rest)
        with pytest.raises(errors.NativeDiffers, match="of another signature"):
            bind([other], libraries, "bundle")


def test_incompatible_runtimes_refuse_by_the_feature(built):
    from aotc.runtime.bundle.manifest import Manifest

    bundle = built(models.FAILING)
    manifest = Manifest.from_bytes((bundle / "manifest.msgpack").read_bytes())
    assert "native-back-ends" in manifest.features
    assert manifest.targets[0].abi == PLAN_ABI


def test_the_tuner_chooses_between_a_function_and_a_triton_kernel(built, aotc, tmp_path):
    record = tmp_path / "record.txt"
    assert plan_of(built(models.EITHER)).natives  # the function, without measuring
    built(models.EITHER, "--tune", "quick", "--record", record, "--force")
    (line,) = [line for line in record.read_text().splitlines() if "form=native" in line]
    assert "form=triton" in line  # both were measured
    x = numpy.random.default_rng(3).standard_normal((256, 512), numpy.float32)
    for form in ("native", "triton"):
        chosen = _with_choice(line, form)
        record.write_text(record.read_text().replace(line, chosen))
        line = chosen
        bundle = built(models.EITHER, "--frozen", "--record", record, "--force", "--embed-backends")
        plan = plan_of(bundle)
        assert bool(plan.natives) == (form == "native")
        with runtime.load(bundle) as program:
            assert numpy.allclose(program(x), (abs(x) + 1) * 2)
        _, text, _ = aotc("inspect", bundle)
        assert (f"form={form}" in text, "\nnative   many 0" in text) == (True, form == "native")


def _with_choice(line, form):
    """The record's line with the fastest and the second exchanged, unless `form` is the fastest."""
    words = line.split()
    places = [number for number, word in enumerate(words) if "form=" in word]
    first, second = places
    if f"form={form}" not in words[first]:
        words[first], words[second] = words[second], words[first]
    return " ".join(words)


def test_the_triton_kernel_where_there_is_no_function(aotc, cache, tmp_path, many):
    spec = tmp_path / "spec.py"
    spec.write_text(models.EITHER.format(many=str(many)))
    out = tmp_path / "bundle"
    arguments = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache]
    code, _, words = aotc(*arguments, "--target", "cuda:sm_90")
    assert code == 0, words
    plan = plan_of(out)
    assert not plan.natives
    assert "many.positive" in [kernel.name for kernel in plan.kernels]


WRONG_KERNELS = {
    "no kernel": ("lambda x: x + 1", "not one call of a kernel"),
    "more than it": ("lambda x: in_triton(x * 2)", "not one call of a kernel"),
    "other results": ("lambda x: in_triton(x)[:1]", "not one call of a kernel"),
}


@pytest.mark.parametrize("case", WRONG_KERNELS)
def test_triton_ops_that_are_no_kernel(aotc, cache, tmp_path, many, case):
    text, expected = WRONG_KERNELS[case]
    spec = tmp_path / "spec.py"
    model = models.EITHER.format(many=str(many)).replace("triton=in_triton", f"triton={text}")
    spec.write_text(model)
    code, _, words = aotc("build", spec, "-o", tmp_path / "x", "--quiet", "--cache-dir", cache)
    assert code == 3
    assert expected in words


COMPILED = """
import torch
from aotc import aot

positive = aot.native_op("many::positive", backend={many!r}, fake=lambda x: torch.empty_like(x))


def model(x):
    return positive(x.relu()) * 2


x = torch.randn(32, 64)
with torch.no_grad():
    found = torch.compile(model, backend="aotc")(x)
assert torch.equal(found, (x.relu() + 1) * 2)
"""


def test_in_torch_compile(cache, many):
    environment = {**os.environ, "AOTC_CACHE_DIR": str(cache)}
    code = COMPILED.format(many=str(many))
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert "inductor" not in ran.stdout + ran.stderr

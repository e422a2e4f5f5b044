"""New weights for a loaded program: what a build with them gives, or an error and the old ones."""

import json
import threading

import pytest
import torch
from refit_models import Drawn, Everything, fill
from safetensors.torch import save_file, save_model

from aotc import runtime
from aotc.aot.options import BuildOptions
from aotc.aot.pipeline import build
from aotc.runtime.errors import (
    BundleAltered,
    ProgramClosed,
    WeightsAbsent,
    WeightsMismatch,
    WeightsUnreadable,
)

SPEC = """
import sys
sys.path.insert(0, {folder!r})
from refit_models import *
torch.manual_seed(0)
model = fill({make}, {kind!r}, {seed}).eval()
example_inputs = ({example},)
"""
IDS = "torch.arange(12).reshape(2, 6)"
MODELS = {
    "everything": ("Everything()", IDS),
    "halves": ("Drawn(3).bfloat16()", "torch.ones(4, 8, 24, dtype=torch.bfloat16)"),
    "drawn": ("nn.Sequential(Scaled(24), Conv(24, 16, 1, True), Gated(16, True))",
              "torch.ones(4, 8, 24)"),
}  # fmt: skip


@pytest.fixture(scope="module")
def made(cache, tmp_path_factory):
    """A function: the bundle of a model with weights of a kind and a seed, built once."""
    folder, known = tmp_path_factory.mktemp("refit"), {}

    def bundle(name, kind="random", seed=1, targets=("cpu-x86-64-v3",), has_weights=True):
        key = (name, kind, seed, targets, has_weights)
        if key not in known:
            make, example = MODELS[name]
            path = folder / f"{name}_{kind}_{seed}_{len(known)}.py"
            text = SPEC.format(
                folder=__file__.rpartition("/")[0], make=make, kind=kind, seed=seed, example=example
            )
            path.write_text(text)
            out = path.with_suffix("")
            options = BuildOptions(cache_folder=cache, has_weights=has_weights)
            build(str(path), out, targets, options)
            known[key] = out
        return known[key]

    return bundle


def state(name, kind="random", seed=2):
    from refit_models import Conv, Gated, Scaled, nn  # noqa: F401

    names = {"Everything": Everything, "Drawn": Drawn, **locals()}
    return fill(eval(MODELS[name][0], names), kind, seed)


def stored(program):
    return bytes(program._loaded.file.view)


def example(name):
    return eval(MODELS[name][1], {"torch": torch})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["random", "ones"])
def test_a_program_on_new_weights_is_a_fresh_build_with_them(made, name, kind):
    old, new = runtime.load(made(name)), runtime.load(made(name, kind, 2))
    x = example(name)
    first, before = old(x), stored(old)
    assert before != stored(new)
    old.load_weights(state(name, kind).state_dict())
    assert stored(old) == stored(new)
    assert torch.equal(old(x), new(x))
    old.reset_weights()
    assert stored(old) == before
    assert torch.equal(old(x), first)


def test_weights_of_files_in_any_layout(made, tmp_path):
    model = state("everything")
    tensors = {name: each.clone() for name, each in model.state_dict().items()}
    new = runtime.load(made("everything", "random", 2))
    names = sorted(tensors)
    save_model(model, tmp_path / "tied.safetensors", metadata={"format": "pt"})
    save_file(tensors, tmp_path / "whole.safetensors")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, some in enumerate((names[:5], names[5:])):
        save_file({name: tensors[name] for name in some}, parts / f"{number}.safetensors")
    shards = {name: f"{int(name not in names[:5])}.safetensors" for name in names}
    index = {"metadata": {"total_size": 1.5}, "weight_map": shards}
    (parts / "model.safetensors.index.json").write_text(json.dumps(index))
    for path in (tmp_path / "tied.safetensors", tmp_path / "whole.safetensors", parts):
        program = runtime.load(made("everything"))
        program.load_weights(path)
        assert stored(program) == stored(new)


def refused(program, source, kind):
    with pytest.raises(WeightsMismatch) as caught:
        program.load_weights(source)
    return caught.value.names[kind]


def test_what_does_not_fit_is_named_and_nothing_changes(made):
    program, x = runtime.load(made("everything")), example("everything")
    expected, before = program(x), stored(program)
    good = state("everything").state_dict()
    fewer = {name: each for name, each in good.items() if name not in ("q.bias", "norm.weight")}
    assert set(refused(program, fewer, "missing")) == {"norm.weight", "q.bias"}
    assert refused(program, {**good, "lora": torch.ones(2)}, "extra") == ["lora"]
    (text,) = refused(program, {**good, "q.weight": torch.ones(3, 4)}, "unfit")
    assert "q.weight" in text
    (text,) = refused(program, {**good, "q.weight": good["q.weight"].half()}, "unfit")
    assert "f16" in text
    assert refused(program, {**good, "places": torch.arange(6) + 1}, "fixed") == ["places"]
    assert refused(program, {**good, "factor": torch.tensor(2.0)}, "fixed") == ["factor"]
    (text,) = refused(program, {**good, "head.weight": torch.ones(50, 32)}, "tied")
    assert "tokens.weight" in text
    assert stored(program) == before
    assert torch.equal(program(x), expected)


def test_files_that_lie(made, tmp_path):
    program = runtime.load(made("everything"))
    before = stored(program)
    path = tmp_path / "weights.safetensors"
    save_file({k: v.clone() for k, v in state("everything").state_dict().items()}, path)
    good = path.read_bytes()
    header_bytes = int.from_bytes(good[:8], "little")
    header = json.loads(good[8 : 8 + header_bytes])

    def written(change):
        rows = json.loads(json.dumps(header))
        change(rows)
        text = json.dumps(rows).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + good[8 + header_bytes :])

    def at(name, **fields):
        return lambda rows: rows[name].update(fields)

    size = len(good) - 8 - header_bytes
    lies = [
        at("q.weight", data_offsets=[size - 16, size + 4080]),
        at("q.weight", data_offsets=[4096, 0]),
        at("q.weight", data_offsets=[-4096, 0]),
        at("q.weight", data_offsets=[0, 1 << 62]),
        at("q.weight", data_offsets=[0.0, 4096]),
        at("q.weight", shape=[32, -32]),
        at("q.weight", shape=[1 << 40, 1 << 40]),
        at("q.weight", shape="32"),
        at("q.weight", dtype=7),
        lambda rows: rows.update({"q.weight": 3}),
    ]
    for lie in lies:
        written(lie)
        with pytest.raises(WeightsUnreadable):
            program.load_weights(path)
    for data in (b"", b"\0" * 7, b"\xff" * 100, good[:-1], good[: header_bytes // 2]):
        path.write_bytes(data)
        with pytest.raises(WeightsUnreadable):
            program.load_weights(path)
    folder = tmp_path / "index"
    folder.mkdir()
    outside = folder / "model.safetensors.index.json"
    for shards in ({"q.weight": "../weights.safetensors"}, {"q.weight": "/etc/passwd"}, {}, 3):
        outside.write_text(json.dumps({"weight_map": shards}))
        with pytest.raises(WeightsUnreadable):
            program.load_weights(folder)
    for source in (tmp_path / "none", tmp_path, 5, None):
        with pytest.raises(WeightsUnreadable):
            program.load_weights(source)
    assert stored(program) == before


def test_calls_of_other_threads_see_the_old_weights_or_the_new_ones(made):
    program, x = runtime.load(made("everything")), example("everything")
    tensors, seen, ends = state("everything").state_dict(), [], threading.Event()
    old = program(x)
    new = runtime.load(made("everything", "random", 2))(x)
    bound = program.bind(x)

    def work(call):
        while not ends.is_set():
            found = call()
            seen.append(torch.equal(found, old) or torch.equal(found, new))

    session = program.session()
    calls = [lambda: program(x), lambda: session(x), lambda: bound().clone()]
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for each in threads:
        each.start()
    for _ in range(20):
        program.load_weights(tensors)
        program.reset_weights()
    ends.set()
    for each in threads:
        each.join()
    assert len(seen) > 20
    assert all(seen)


def test_two_programs_of_a_bundle_change_by_themselves(made):
    one, two = runtime.load(made("everything")), runtime.load(made("everything"))
    x = example("everything")
    expected = two(x)
    one.load_weights(state("everything").state_dict())
    assert not torch.equal(one(x), expected)
    assert torch.equal(two(x), expected)
    one.close()
    with pytest.raises(ProgramClosed):
        one.load_weights({})
    with pytest.raises(ProgramClosed):
        one.reset_weights()


def test_a_bundle_for_several_families(made):
    targets = ("cpu-x86-64-v3", "cuda:sm_90")
    old = runtime.load(made("drawn", targets=targets), device="cpu")
    new = runtime.load(made("drawn", seed=2, targets=targets), device="cpu")
    old.load_weights(state("drawn").state_dict())
    assert stored(old) == stored(new)


def test_a_bundle_whose_weights_are_outside(made, tmp_path, monkeypatch, aotc):
    whole, bundle = made("everything"), made("everything", has_weights=False)
    assert not (bundle / "weights.safetensors").exists()
    save_model(state("everything", seed=1), tmp_path / "model.safetensors")
    with pytest.raises(WeightsAbsent):
        runtime.load(bundle)
    expected, x = runtime.load(whole), example("everything")
    program = runtime.load(bundle, weights=tmp_path)
    assert stored(program) == stored(expected)
    assert torch.equal(program(x), expected(x))
    program.load_weights(state("everything").state_dict())
    assert torch.equal(program(x), runtime.load(made("everything", "random", 2))(x))
    program.reset_weights()
    assert torch.equal(program(x), expected(x))
    with pytest.raises(BundleAltered):  # not those of the build
        runtime.load(bundle, weights=state("everything").state_dict())
    monkeypatch.setenv("AOTC_WEIGHTS", str(tmp_path / "model.safetensors"))
    assert aotc("verify", bundle)[0] == 0
    image, pulled = f"oci-layout:{tmp_path}/images:v1", tmp_path / "pulled"
    assert aotc("push", bundle, image)[0] == 0
    assert aotc("verify", image)[0] == 0
    assert aotc("pull", image, "-o", pulled)[0] == 0
    files = [{each.name for each in folder.rglob("*")} for folder in (bundle, pulled)]
    assert files[0] == files[1]
    assert torch.equal(runtime.load(pulled)(x), expected(x))

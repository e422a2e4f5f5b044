"""Bundles of several entry points: one copy of the weights, one state, each with its own sizes."""

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from entry_models import DECODER, FUNCTIONS, HEAD, WRONG, WRONG_SPEC  # noqa: E402  needs torch

from aotc.aot.capture.spec import load_specs  # noqa: E402
from aotc.aot.cli.program import run  # noqa: E402
from aotc.aot.entries import agreed  # noqa: E402
from aotc.aot.errors import EntryStatesDiffer, SpecEntriesInvalid  # noqa: E402
from aotc.aot.ir import build as b  # noqa: E402
from aotc.aot.ir.constants import stored_constant  # noqa: E402
from aotc.aot.ir.graph import Constant, Graph  # noqa: E402
from aotc.aot.ir.types import TensorType  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.bundle.manifest import Manifest  # noqa: E402
from aotc.runtime.bundle.weights import read_header  # noqa: E402
from aotc.runtime.errors import (  # noqa: E402
    BundleMalformed,
    EntryNotNamed,
    EntryUnknown,
    InputShape,
    ProgramClosed,
    SessionBusy,
)
from aotc.runtime.extras import read_golden  # noqa: E402

pytestmark = pytest.mark.torch
ENTRIES = ("prefill", "decode", "peek")  # of DECODER


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    """`built(name)`: bundle and spec file of DECODER or FUNCTIONS."""
    folder, known = tmp_path_factory.mktemp("entries"), {}

    def make(name, text):
        if name not in known:
            spec = folder / f"{name}.py"
            spec.write_text(text)
            line = ["build", spec, "-o", folder / name, "--quiet", "--cache-dir", cache]
            assert run([str(word) for word in line]) == 0
            known[name] = folder / name, spec
        return known[name]

    return make


@pytest.fixture
def decoder(built):
    path, spec = built("decoder", DECODER)
    return path, load_specs(str(spec))[0].module


def assert_follows(session, model, steps, seed):
    """Calls of all entries in any order give eager's numbers."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for step in range(steps):
            name = ("prefill", "decode", "peek")[int(torch.randint(3, (), generator=draw))]
            rows = {"prefill": 2 + (step * 7 + seed) % 15, "decode": 1, "peek": 3}[name]
            inputs = [torch.randn(rows, 8, generator=draw)]
            if name == "decode":
                inputs.append(torch.randint(16, (1,), generator=draw))
            call = getattr(session, name) if step % 2 else session[name]
            torch.testing.assert_close(call(*inputs), getattr(type(model), name)(model, *inputs))


def test_entries_share_weights_and_states(decoder):
    path, model = decoder
    with load(path) as program:
        assert list(program.entries) == ["prefill", "decode", "peek"]
        for seed in range(3):
            model.cache.zero_()
            with program.session() as session:
                assert_follows(session, model, 12, seed)
                cache = torch.from_numpy(numpy.array(session.state["cache"]))
                torch.testing.assert_close(cache, model.cache)
    data = (path / "weights.safetensors").read_bytes()
    sizes = [each.nbytes for each in read_header(data, "weights").values()]
    assert sizes.count(model.project.bias.nbytes) == 1  # stored once for all entries
    assert len(sizes) == 2


def test_threads_and_forks_have_states_of_their_own(decoder):
    path, _model = decoder
    x, place = torch.randn(1, 8), torch.tensor([3])
    with load(path) as program:
        program.decode(x, place)
        cache = numpy.array(program.state["cache"])
        assert cache[3].any()
        assert not numpy.array(program.session().state["cache"]).any()
        found = []
        thread = threading.Thread(target=lambda: found.append(numpy.array(program.state["cache"])))
        thread.start()
        thread.join()
        assert not found[0].any()
        with program.session() as one:
            one.decode(x, place)
            with one.fork() as other:
                torch.testing.assert_close(other.peek(torch.ones(3, 8)), one.peek(torch.ones(3, 8)))
                other.prefill(torch.randn(9, 8))
                assert (numpy.array(one.state["cache"]) == cache).all()


def test_bound_calls_and_outputs_of_ones_own(decoder):
    path, _model = decoder
    with load(path) as program, torch.no_grad():
        x = torch.randn(3, 8)
        bound = program.peek.bind(x)
        torch.testing.assert_close(bound(), torch.zeros(3, 16))
        out = torch.empty(3, 16)
        assert program["peek"](x, out=out) is out
        result = program.peek.flatten(out)
        assert result == (out,)


def test_bound_calls_among_other_calls_of_their_session(decoder):
    """Other arrays of the same shapes, other entries, and more shapes than are kept."""
    path, model = decoder
    draw = torch.Generator().manual_seed(0)
    with load(path) as program, program.session() as session, torch.no_grad():
        model.cache.zero_()
        inputs = {rows: torch.randn(rows, 8, generator=draw) for rows in (2, 5, 9)}
        bound = {rows: session.prefill.bind(x) for rows, x in inputs.items()}
        token, place = torch.randn(1, 8, generator=draw), torch.tensor([1])
        decode = session.decode.bind(token, place)
        for step in range(40):
            rows = (2, 5, 9)[int(torch.randint(3, (), generator=draw))]
            inputs[rows].normal_(generator=draw)
            torch.testing.assert_close(bound[rows](), model.prefill(inputs[rows]))
            assert_follows(session, model, step % 4 + 1, step)
            other = torch.randn(rows, 8, generator=draw)
            torch.testing.assert_close(session.prefill(other), model.prefill(other))
            if step % 3 == 0:
                torch.testing.assert_close(decode(), model.decode(token, place))
            if step % 10 == 9:
                for rows in range(2, 17):  # all that the entry takes
                    other = torch.randn(rows, 8, generator=draw)
                    torch.testing.assert_close(session.prefill(other), model.prefill(other))
        session.close()
        with pytest.raises(ProgramClosed):
            decode()


def test_what_is_no_entry_is_named(decoder):
    path, _ = decoder
    with load(path) as program:
        with pytest.raises(EntryNotNamed, match="`prefill`, `decode`, `peek`"):
            program(torch.randn(3, 8))
        with pytest.raises(EntryNotNamed):
            _ = program.inputs
        with pytest.raises(EntryUnknown, match="`nope`"):
            program["nope"]
        with pytest.raises(AttributeError, match="nope"):
            _ = program.session().nope
        session = program.session()
        with pytest.raises(InputShape):
            session.decode(torch.randn(2, 8), torch.tensor([0]))
        with pytest.raises(Exception, match="`n` is 17"):
            session.prefill(torch.randn(17, 8))
        session.decode(torch.randn(1, 8), torch.tensor([0]))  # and goes on
        with session._turn, pytest.raises(SessionBusy):
            session.peek(torch.randn(3, 8))


def test_functions_and_a_main_entry(built):
    path, spec = built("functions", FUNCTIONS)
    first, second = load_specs(str(spec))
    with load(path) as program, torch.no_grad():
        for rows in (1, 4, 32):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(program(x)["y"], first.module(x)["y"])
            torch.testing.assert_close(program.forward(x)["y"], first.module(x)["y"])
        assert [str(dim) for dim in program.dims if dim.input is not None] == ["rows = 1..32"]
        assert [str(dim) for dim in program.twice.dims] == ["twice_rows = 1..8"]
        x, y = torch.randn(8, 6), torch.randn(8, 6)
        for found, expected in zip(program.twice(x, y), second.module(x, y), strict=True):
            torch.testing.assert_close(found, expected)
        with pytest.raises(Exception, match="twice_rows"):
            program.twice(torch.randn(9, 6), torch.randn(9, 6))


def test_commands_take_an_entry(decoder, capsys):
    path, _ = decoder
    assert run(["verify", str(path)]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}.output_0" in text for name in ("prefill", "decode", "peek"))
    assert run(["run", str(path)]) == 2
    assert "expected one by name" in capsys.readouterr().err
    assert run(["run", str(path), "--entry", "nope"]) == 2
    assert run(["run", str(path), "--entry", "decode", "--json"]) == 0
    capsys.readouterr()
    assert run(["inspect", str(path), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in record["entries"]] == ["prefill", "decode", "peek"]
    assert run(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.count("entry    decode") == 2
    assert run(["profile", str(path), "--entry", "peek", "--repetitions", "1"]) == 0
    assert run(["bench", str(path), "--entry", "peek", "--rounds", "1", "--seconds", "0.01"]) == 0
    assert read_golden(path, entry="peek").inputs.keys() == {"x"}
    with pytest.raises(EntryNotNamed):
        read_golden(path)


def test_a_report_has_times_and_errors_of_all_entries(decoder, tmp_path, capsys):
    path, _ = decoder
    page = tmp_path / "report.html"
    manifest = Manifest.from_bytes((path / "manifest.msgpack").read_bytes())
    (target,) = (row.name for row in manifest.targets)
    assert run(["report", str(path), "-o", str(page)]) == 0
    text = page.read_text()
    assert all(f">{target}: {name}</h2>" in text for name in ENTRIES)
    assert text.count("estimated by the cost model, not measured") >= 3
    assert "Ranges of sizes" in text
    assert run(["report", str(path), "-o", str(page), "--measure"]) == 0
    text = page.read_text()
    assert "not measured" not in text
    assert text.count("<dd>measured by aotc profile</dd>") == 3
    capsys.readouterr()
    files = []
    for name in ENTRIES:
        assert run(["profile", str(path), "--entry", name, "--repetitions", "1", "--json"]) == 0
        out = capsys.readouterr().out
        # Sizes of the example, where the entry's are dynamic.
        assert all(row["nbytes"] for row in json.loads(out)["launches"]), out
        assert json.loads(out)["entry"] == name
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(out)
    words = [word for file in files[:2] for word in ("--profile", str(file))]
    assert run(["report", str(path), "-o", str(page), *words]) == 0
    assert page.read_text().count("<dd>measured by aotc profile</dd>") == 2


def test_tuning_keeps_all_entries(decoder, tmp_path, cache):
    path, model = decoder
    out = tmp_path / "tuned"
    line = ["tune", path, "-o", out, "--quiet", "--cache-dir", cache, "--tune-budget", "5"]
    assert run([str(word) for word in line]) == 0
    model.cache.zero_()
    with load(out) as program, program.session() as session:
        assert_follows(session, model, 6, seed=7)


def test_new_weights_are_those_of_all_entries(decoder):
    path, model = decoder
    with load(path) as program, torch.no_grad():
        names = {"project.weight": torch.randn(8, 8), "project.bias": torch.randn(8)}
        program.load_weights({name: each.numpy() for name, each in names.items()})
        was = {name: each.clone() for name, each in model.state_dict().items()}
        try:
            model.load_state_dict({**was, **names})
            model.cache.zero_()
            with program.session() as session:
                assert_follows(session, model, 8, seed=3)
        finally:
            model.load_state_dict(was)


@pytest.mark.parametrize("entries", WRONG)
def test_tables_that_are_none(entries, tmp_path):
    spec = tmp_path / "wrong.py"
    spec.write_text(WRONG_SPEC.replace("{entries}", entries))
    with pytest.raises(SpecEntriesInvalid, match="entry_points") as caught:
        load_specs(str(spec))
    assert WRONG[entries] in str(caught.value)


DIFFERENT = (
    HEAD
    + """
class Model(torch.nn.Module):
    def __init__(self, rows, start):
        super().__init__()
        self.register_buffer("kept", torch.full((rows,), start))

    def forward(self, x):
        self.kept.add_(x)
        return self.kept.sum()


def exported(rows, start):
    x = torch.ones(rows)
    return EntryPoint(program=torch.export.export(Model(rows, start), (x,)))


entry_points = {{"one": exported(3, 1.0), "other": exported({rows}, {start})}}
"""
)


@pytest.mark.parametrize(("rows", "start", "said"), [(4, 1.0, "f32"), (3, 2.0, "initial values")])
def test_states_of_one_name_are_one_thing(rows, start, said, tmp_path):
    from aotc.aot.capture.capture import capture

    spec = tmp_path / "different.py"
    spec.write_text(DIFFERENT.format(rows=rows, start=start))
    with pytest.raises(EntryStatesDiffer, match=said):
        agreed([capture(each) for each in load_specs(str(spec))])


def test_computed_weights_are_compared_by_what_they_are_computed_from():
    """Of equal parts by equal arithmetic: a large model's weights are not computed for it."""

    def computed(array, factor):
        leaf = Constant("w", TensorType("f32", (3,)), array, ("w",))
        node = b.constant("w", leaf.type) * factor
        made = stored_constant("scaled", node, {"w": leaf})
        return replace(made, values=computing)

    def computing():
        raise AssertionError("computed")

    def entry(name, constant):
        graph = Graph((), (b.constant("scaled", constant.type),), (), ("y",), {"scaled": constant})
        return SimpleNamespace(entry=name, graph=graph, dims=(), guards=())

    array = numpy.ones(3, numpy.float32)
    one = entry("one", computed(array, 2.0))
    found = agreed([one, entry("other", computed(array.copy(), 2.0))])
    assert set(found[1].graph.constants) == {"scaled"}
    for other in (computed(array, 3.0), computed(array + 1, 2.0)):  # only these are computed
        with pytest.raises(AssertionError, match="computed"):
            agreed([one, entry("other", other)])


BROKEN = {
    "no entry": lambda entries: entries.clear(),
    "a name twice": lambda entries: entries[1].update(name="prefill"),
    "a name that is none": lambda entries: entries[0].update(name="a/b"),
    "fewer than the plan's": lambda entries: entries.pop(),
    "more than the plan's": lambda entries: entries.append({**entries[0], "name": "more"}),
    "other dims": lambda entries: entries[2].update(dims=[], sizes=[]),
    "another range": lambda entries: entries[2]["dims"][0].update(high=17),
    "a formula of no value": lambda entries: entries[2]["outputs"][0].update(shape=[[9, "n"]]),
    "other inputs": lambda entries: entries[1]["inputs"].pop(),
    "another order": lambda entries: entries.reverse(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_manifests_that_lie_of_entries(name, decoder, tmp_path):
    import shutil

    from aotc.runtime.bundle.frame import frame

    path = tmp_path / "broken"
    shutil.copytree(decoder[0], path)
    file = path / "manifest.msgpack"
    tree = Manifest.from_bytes(file.read_bytes()).to_map()
    BROKEN[name](tree["entries"])
    path.chmod(0o755)
    file.chmod(0o644)
    file.write_bytes(frame(tree))
    with pytest.raises(BundleMalformed):
        load(path)

"""States whose sizes a session fixes: beside eager with buffers of those very sizes."""

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from cached_decoder import WIDTH, build_model, dynamic_shapes, example_inputs, state_shapes  # noqa: E402

from aotc.aot import retune  # noqa: E402
from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.errors import SpecStatesInvalid, StateNotUniform, StateShared  # noqa: E402
from aotc.aot.plan import assign_buffers  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite_each  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.sources import read_sources  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402
from aotc.runtime import errors, load  # noqa: E402
from aotc.runtime.bundle.opened import Bundle  # noqa: E402
from aotc.runtime.verify import verify  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, cache, request):
    from aotc.aot.cli.program import run

    out = tmp_path_factory.mktemp("sizes") / "b"
    line = ["build", request.path.parent / "cached_decoder.py", "-o", out, "--quiet"]
    assert run([str(word) for word in (*line, "--cache-dir", cache)]) == 0
    return out


@pytest.fixture(scope="module")
def program(bundle):
    with load(bundle) as program:
        yield program


def step(module, session, at, rows):
    """Rows from place `at` on, through both; the numbers of both."""
    batch = module.keys.shape[0]
    x, positions = torch.randn(batch, rows, WIDTH), torch.arange(at, at + rows)
    with torch.no_grad():
        return session(x, positions), module(x, positions)


def assert_follows(module, session, at, counts):
    for rows in counts:
        torch.testing.assert_close(*step(module, session, at, rows), rtol=1e-5, atol=1e-5)
        at += rows
    for name, buffer in module.named_buffers():
        found = torch.empty_like(buffer)
        session.state.read(name, found)
        torch.testing.assert_close(found, buffer, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("batch", "length", "counts"),
    [
        (2, 32, (5, 1, 1)), (1, 1, (1,)), (8, 64, (64,)), (3, 17, (16, 1)), (5, 9, (1, 8)),
        (1, 64, (30, 34)),
    ],
)  # fmt: skip
def test_a_session_has_the_sizes_that_it_asks_for(program, batch, length, counts):
    with program.session(batch=batch, length=length) as session:
        assert session.sizes == {"batch": batch, "length": length}
        assert_follows(build_model(batch, length), session, 0, counts)
        session.reset()
        assert_follows(build_model(batch, length), session, 0, counts)


def test_a_size_that_is_not_named_is_the_examples(program):
    with program.session(length=8) as session:
        assert session.sizes == {"batch": 2, "length": 8}
        assert [spec.shape for spec in session.state.specs] == [
            (2, 2, 8, 8), (2, 2, 8, 8), (2, 8), (),
        ]  # fmt: skip
    assert program.state["marks"].shape == (2, 32)
    assert str(program.states[0]) == "f32[batch, 2, length, 8]"


def test_verify_and_the_program_itself_have_the_examples_sizes(bundle, program):
    assert {finding.status for finding in verify(bundle)} == {"ok"}
    program.reset()
    assert_follows(build_model(), program, 0, (5, 3))


@pytest.mark.parametrize(
    ("sizes", "kind", "text"),
    [
        ({"width": 3}, errors.SessionSizeUnknown, "no size `width`, expected batch = 1..8, 2"),
        ({"batch": 9}, errors.SessionSizeInvalid, "`batch` of a session is 9, expected .* 1 to 8"),
        ({"length": 0}, errors.SessionSizeInvalid, "is 0, expected .* 1 to 64"),
        ({"length": 8.0}, errors.SessionSizeInvalid, "is 8.0"),
        ({"length": True}, errors.SessionSizeInvalid, "is True"),
        ({"rows": 3}, errors.SessionSizeUnknown, "`rows`"),
    ],
)  # fmt: skip
def test_sizes_that_no_session_has_are_refused(program, sizes, kind, text):
    with pytest.raises(kind, match=text):
        program.session(**sizes)


def test_a_call_of_other_sizes_is_refused_and_leaves_the_states(program):
    with program.session(batch=3, length=8) as session:
        module = build_model(3, 8)
        assert_follows(module, session, 0, (4,))
        with pytest.raises(
            errors.SessionSizeDiffers, match=r"`batch` is 2 \(input `x`, dim 0\), .* 3,"
        ):
            session(torch.zeros(2, 1, WIDTH), torch.tensor([4]))
        with pytest.raises(errors.IndexOutOfRange, match="index 8"):
            session(torch.zeros(3, 1, WIDTH), torch.tensor([8]))
        session.reset()
        assert_follows(build_model(3, 8), session, 0, (8,))


def test_forks_go_on_by_themselves(program):
    with program.session(batch=2, length=12) as session:
        module = build_model(2, 12)
        assert_follows(module, session, 0, (4,))
        branches = []
        for _ in range(3):
            twin = build_model(2, 12)
            twin.load_state_dict(module.state_dict())
            branches.append((session.fork(), twin))
        assert_follows(module, session, 4, (1, 2))
        for place, (branch, twin) in enumerate(branches):
            assert_follows(twin, branch, 4, (place + 1, 1))
            branch.close()
        assert_follows(module, session, 7, (5,))


def test_a_view_is_the_memory_itself(program):
    session = program.session(batch=2, length=8)
    view = session.state.view("marks")
    seen, again = torch.from_dlpack(view), numpy.asarray(view)
    assert seen.data_ptr() == again.ctypes.data
    assert int(seen.max()) == -1
    assert_follows(build_model(2, 8), session, 0, (3,))
    assert seen.tolist() == again.tolist() == [[0, 1, 2, -1, -1, -1, -1, -1]] * 2
    again[0, 5] = 7
    assert session.state["marks"].tolist()[0][5] == 7
    with pytest.raises(BufferError):
        view.__dlpack__(copy=True)
    session.close()
    del session, view, again
    assert seen.tolist()[0][5] == 7, "the memory outlives the session"


def test_a_bound_call_has_the_sizes_of_its_session(program):
    x, positions = torch.randn(2, 1, WIDTH), torch.tensor([0])
    with program.bind(x, positions) as bound, torch.no_grad():
        torch.testing.assert_close(bound(), build_model()(x, positions), rtol=1e-5, atol=1e-5)


def test_rows_are_written_where_they_lie(program):
    """Nothing is as large as a cache, where one is far larger than all that a call needs, and rows
    are all that is written to one."""
    plan = program.plan.at([1, 64, 1])
    assert max(buffer.nbytes for buffer in plan.buffers) < plan.states[0].nbytes / 4
    found = writers(program, [1, 64, 1])
    assert [kernel for state, kernel in found if state < 3] == ["scatter_rows"] * 3


def writers(program, sizes):
    """The number of each state that a launch writes to, and the launch's kernel."""
    plan = program.plan.at(sizes)
    return [
        (number, program.plan.kernels[launch.kernel].name)
        for launch, parameters in zip(plan.launches, plan.parameters, strict=True)
        for (space, number), (kind, _) in zip(launch.args, parameters, strict=True)
        if (space, kind) == ("state", "write")
    ]


def refused(kind, text, shapes=state_shapes, change=lambda module: None):
    module = build_model()
    change(module)
    with pytest.raises(kind, match=text):
        capture(spec_of(module, example_inputs(), "m", dynamic_shapes, shapes))


def test_state_shapes_that_name_no_buffer_are_refused():
    refused(SpecStatesInvalid, "names `cache`, expected a buffer: `keys`", {"cache": {0: 1}})
    refused(SpecStatesInvalid, "of a buffer of 4 dims", {"keys": {4: 1}})
    refused(SpecStatesInvalid, "names list", [{0: 1}])
    program = torch.export.export(build_model(), example_inputs())
    with pytest.raises(SpecStatesInvalid, match="an exported program"):
        spec_of(program, None, "m", None, state_shapes)


def test_what_no_other_size_can_start_with_is_refused():
    refused(StateNotUniform, "`keys` .* holds 0.0 and 1.0",
            change=lambda module: module.keys[1, 0, 3, 2].fill_(1))  # fmt: skip


def test_a_buffer_of_two_names_is_refused():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 4))
            self.others = [self.keys]

        def forward(self, x):
            self.keys.add_(x)
            return self.others[0].sum()

    length = torch.export.Dim("length", max=9)
    spec = spec_of(Twice(), torch.ones(2, 1), "m", None, {"keys": {1: length}})
    with pytest.raises(StateShared, match="`keys`"):
        capture(spec)


def test_capture_leaves_the_buffers():
    module = build_model()
    before = {name: (buffer, buffer.clone()) for name, buffer in module.named_buffers()}
    captured = capture(spec_of(module, example_inputs(), "m", dynamic_shapes, state_shapes))
    assert [dim.name for dim in captured.dims] == ["batch", "length", "rows"]
    assert [str(probe) for probe in captured.probes] == [
        "batch = 1, length = 1, rows = 1", "batch = 8, length = 64, rows = 64",
    ]  # fmt: skip
    for name, (buffer, value) in before.items():
        assert getattr(module, name) is buffer
        assert torch.equal(buffer, value)


class Reads(torch.nn.Module):
    """A table that calls only read: its owner sets it."""

    def __init__(self, length=8):
        super().__init__()
        self.register_buffer("table", torch.full((length, 4), 0.5))
        self.register_buffer("unused", torch.zeros(length))

    def forward(self, x):
        return (x * self.table.sum(0)).sum(1)


def test_what_calls_only_read_is_a_state_that_stays():
    dims = {"table": {0: torch.export.Dim("length", max=64)}}
    dims["unused"] = dims["table"]
    captured = capture(spec_of(Reads(), torch.randn(2, 4), "m", None, dims))
    graph, _ = rewrite_each(captured.graph, {"cpu": CPU})["cpu"]
    assert [state.name for state in graph.states] == ["table"]
    assert graph.new_states == graph.inputs[1:]
    plan = schedule(graph, CPU)
    assert not [group for group in plan.groups if group.kind == "call"]
    assert [slot.initial_bytes for slot in assign_buffers(plan, graph).states] == [4]


class Assigned(torch.nn.Module):
    """Buffers that are set, in place of their elements, one of them of a fixed size."""

    def __init__(self, length=8):
        super().__init__()
        self.register_buffer("ring", torch.zeros(length, 4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x):
        self.ring = torch.cat([self.ring[1:], x])
        self.count = self.count + 1
        return self.ring.sum(0) * self.count + self.last


def test_buffers_that_are_set_are_states_too():
    length = torch.export.Dim("length", min=3, max=64)
    module = Assigned()
    captured = capture(spec_of(module, torch.randn(1, 4), "m", None, {"ring": {0: length}}))
    assert sorted(state.name for state in captured.graph.states) == ["count", "ring"]
    assert list(dict(module.named_buffers())) == ["ring", "count", "last"]
    assert "ring" not in vars(module)
    ring = captured.golden_outputs[
        1 + [state.name for state in captured.graph.states].index("ring")
    ]
    numpy.testing.assert_array_equal(ring[-1], captured.golden_inputs[0][0])


class Sliced(torch.nn.Module):
    """Rows written and read as slices from either end, by as many places as an input has."""

    def __init__(self, length=8):
        super().__init__()
        for name in ("first", "last", "ring", "column"):
            self.register_buffer(name, torch.zeros(2, length, 4))

    def forward(self, x):
        rows = x.shape[1]
        self.first[:, :rows] = x
        self.last[:, -rows:] = x * 2
        self.ring.copy_(torch.cat([self.ring, x], 1)[:, rows:])
        self.column[:, 1] = x[:, 0]
        return self.first[:, :rows].sum(2), self.last.sum(1), self.ring.mean(1), self.column.sum(1)


SLICED = """
import sys

sys.path.insert(0, {folder!r})
from test_sizes import Sliced, torch

model = Sliced()
example_inputs = (torch.randn(2, 5, 4),)
length, rows = torch.export.Dim("length", min=2, max=512), torch.export.Dim("rows", max=512)
dynamic_shapes = ({{1: rows}},)
state_shapes = {{name: {{1: length}} for name in ("first", "last", "ring", "column")}}
"""


def test_slices_of_as_many_rows_as_the_call_has(tmp_path, cache, request):
    from aotc.aot.cli.program import run

    spec, out = tmp_path / "sliced.py", tmp_path / "b"
    spec.write_text(SLICED.format(folder=str(request.path.parent)))
    line = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    with load(out) as program:
        for length, counts in ((8, (5, 8, 1)), (2, (1, 2)), (300, (300, 299)), (11, (3,))):
            module, generator = Sliced(length), torch.Generator().manual_seed(length)
            with program.session(length=length) as session, torch.no_grad():
                for rows in counts:
                    x = torch.randn(2, rows, 4, generator=generator)
                    torch.testing.assert_close(session(x), module(x))
                with pytest.raises(errors.SizeGuard, match=r"first.shape\[1\]"):
                    session(torch.randn(2, length + 1, 4))
        names = [state.name for state in program.states]
        whole = {names[state] for state, kernel in writers(program, [512, 1]) if kernel == "copy"}
        assert whole == {"ring"}, "only what moves as a whole is written as a whole"


def test_what_a_bundle_is_tuned_from_has_the_sizes(bundle):
    with Bundle(str(bundle)) as opened:
        found = read_sources(opened, opened.manifest.targets[0].name)
        golden = retune._golden(opened)
    for variant in found.variants:
        assert [str(slot.nbytes) for slot in variant.assignment.states] == [
            "64*batch*length", "64*batch*length", "8*batch*length", "8",
        ]  # fmt: skip
    assert [tensor.shape for tensor in golden["forward"].inputs] == [(2, 5, WIDTH), (5,)]

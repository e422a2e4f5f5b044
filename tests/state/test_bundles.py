"""Bundles with states: what a session keeps, who shares it, and what is refused."""

import _thread
import struct
import threading
from dataclasses import replace
from functools import partial

import pytest
import small_state_bundle
from small_state_bundle import FIRST, INPUT

from aotc.runtime import check, load
from aotc.runtime.bundle.manifest import MANIFEST_NAME, Manifest, TensorSpec
from aotc.runtime.bundle.plan import Plan, StateSlot
from aotc.runtime.errors import (
    BundleMalformed,
    InputDtype,
    InputShape,
    ProgramClosed,
    StateBusy,
    StateUnknown,
)
from aotc.runtime.verify import verify

SECOND = struct.pack("<6f", *INPUT)
THIRD = bytes(range(24))


@pytest.fixture
def bundle(tmp_path):
    small_state_bundle.write(tmp_path / "b")
    return tmp_path / "b"


@pytest.fixture
def program(bundle):
    with load(bundle) as program:
        yield program


def floats(data):
    return struct.unpack("<6f", bytes(data))


def test_calls_of_a_thread_follow_each_other(program):
    assert [floats(program(data)) for data in (SECOND, THIRD)] == [FIRST, INPUT]
    assert bytes(program.state["last"]) == THIRD


def test_sessions_are_independent(program):
    first, second = program.session(), program.session()
    first(SECOND)
    program(THIRD)
    assert floats(first.state["last"]) == INPUT
    assert floats(second.state["last"]) == FIRST
    assert floats(second(THIRD)) == FIRST
    assert floats(first(THIRD)) == INPUT


def test_reset_gives_the_initial_values(program):
    program.state["spare"] = struct.pack("<q", 5)
    program(SECOND)
    program.reset()
    assert floats(program(THIRD)) == FIRST
    assert bytes(program.state["spare"]) == bytes(8)


def test_states_are_read_and_set_by_name(program):
    state = program.session().state
    assert state.keys() == ["last", "spare"]
    assert len(state) == 2
    assert "last" in state
    assert [str(spec) for spec in state.specs] == ["f32[2, 3]", "i64[]"]
    view = state["last"]
    assert view.tolist() == [[9, 8, 7], [6, 5, 4]]
    state["last"] = THIRD
    assert view.tolist() == [[9, 8, 7], [6, 5, 4]], "what was read is a copy"
    assert bytes(state.read("last", bytearray(24))) == THIRD


def test_what_does_not_fit_a_state_is_named(program):
    state = program.state
    with pytest.raises(StateUnknown, match="`first`, expected `last`, `spare`"):
        state["first"]
    with pytest.raises(InputShape, match="state `last`"):
        state["last"] = memoryview(bytes(24)).cast("B").cast("f", [3, 2])
    with pytest.raises(InputDtype, match="state `last`"):
        state["last"] = memoryview(bytes(24)).cast("i")
    assert floats(state["last"]) == FIRST


def test_a_refused_call_leaves_the_state(program):
    program(SECOND)
    with pytest.raises(InputShape):
        program(memoryview(bytes(24)).cast("B").cast("f", [3, 2]))
    assert floats(program.state["last"]) == INPUT


def test_each_thread_has_its_own(program):
    program(SECOND)
    found = []

    def serve():
        found.append(floats(program(THIRD)))
        found.append(bytes(program.state["last"]))

    for _ in range(2):  # the second thread may get the first one's number
        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
    assert found == [FIRST, THIRD] * 2
    assert floats(program(THIRD)) == INPUT


def test_a_thread_that_ends_gives_its_memory_back(program):
    opened = program._loaded.executable.sessions_open
    thread = threading.Thread(target=lambda: program(SECOND))
    thread.start()
    thread.join()
    assert program._loaded.executable.sessions_open == opened


def test_close_closes_the_sessions_of_all_threads(bundle):
    program = load(bundle)
    executable = program._loaded.executable
    called, closed = _thread.allocate_lock(), _thread.allocate_lock()
    called.acquire()
    closed.acquire()

    def serve():
        program(SECOND)
        called.release()
        closed.acquire()

    thread = threading.Thread(target=serve)
    thread.start()
    called.acquire()
    assert executable.sessions_open == 2
    program.close()
    assert executable.sessions_open == 0
    assert executable.closed
    closed.release()
    thread.join()
    for question in (lambda: program.state, program.reset, lambda: program(SECOND)):
        with pytest.raises(ProgramClosed):
            question()


def test_a_call_inside_a_call_is_refused(program):
    session = program._sessions.take()
    with session._turn, pytest.raises(StateBusy):
        program(SECOND)
    program._sessions.give(session)
    assert floats(program(SECOND)) == FIRST


def test_a_bound_call_keeps_a_state_of_its_own(program):
    out = bytearray(24)
    bound = program.bind(SECOND, out=out)
    program(THIRD)
    bound()
    assert floats(out) == FIRST
    bound()
    assert floats(out) == INPUT
    bound.reset()
    assert floats(bound.state["last"]) == FIRST


def test_a_closed_session_has_no_state(program):
    session = program.session()
    session.close()
    bind = partial(session.bind, SECOND)
    for use in (lambda: session.state["last"], session.reset, session.fork, bind):
        with pytest.raises(ProgramClosed, match="the session was closed"):
            use()


def test_an_error_says_whether_session_or_program_was_closed(bundle):
    with load(bundle) as program:
        session, bound = program.session(), program.bind(SECOND)
        session.close()
        with pytest.raises(ProgramClosed, match="the session was closed"):
            session(SECOND)
        bound()
    for use in (session, program):
        with pytest.raises(ProgramClosed, match="the program was closed"):
            use(SECOND)
    with pytest.raises(ProgramClosed, match="the program was closed"):
        bound()


def test_verify_starts_from_the_initial_state(bundle):
    assert check(bundle) == []
    for _ in range(2):
        assert {finding.status for finding in verify(bundle)} == {"ok"}


def test_inspect_lists_states(bundle, capsys):
    from aotc.aot.cli.program import run

    assert run(["inspect", str(bundle)]) == 0
    text = capsys.readouterr().out
    assert "state    last: f32[2, 3], 24 B" in text
    assert "state    spare: i64[], 8 B" in text


def with_states(states):
    """The small bundle's plan with other states."""
    return Plan.of(small_state_bundle.plan().replace(states=states))


def test_a_plan_that_starts_with_no_weight_is_refused():
    plan = with_states((StateSlot(24, "other"), StateSlot(8)))
    with pytest.raises(BundleMalformed, match=r"states\[0\].initial"):
        plan.validate([(1, 1)], ("state.last",), "plan", None)


@pytest.mark.parametrize("features", [[], ["state", "torch"], ["dynamic-shapes", "state"]])
def test_a_plan_has_the_features_of_what_it_holds(features):
    tree = Plan.of(small_state_bundle.plan()).to_map()
    assert tree["features"] == ["state"]
    with pytest.raises(BundleMalformed, match="features"):
        Plan.from_map({**tree, "features": features})


def test_an_argument_beyond_the_states_is_refused():
    with_states((StateSlot(24),)).validate([(1, 1)], (), "plan", None)
    with pytest.raises(BundleMalformed, match="state 0"):
        with_states(()).validate([(1, 1)], (), "plan", None)


@pytest.mark.parametrize("nbytes", [(16, 8), (24,), (24, 8, 8)])
def test_a_plan_of_other_states_than_the_manifests_is_refused(tmp_path, nbytes):
    contents = small_state_bundle.contents()
    target = replace(contents.targets[0], plan=with_states(tuple(map(StateSlot, nbytes))))
    from aotc.aot.pack import pack

    pack(replace(contents, targets=(target,)), tmp_path / "b")
    with pytest.raises(BundleMalformed, match="states"):
        load(tmp_path / "b")


def test_the_feature_says_that_there_are_states(bundle):
    manifest = Manifest.from_bytes((bundle / MANIFEST_NAME).read_bytes())
    assert manifest.features == ("state",)
    tree = manifest.to_map()
    tree["features"] = []
    assert [spec.name for spec in manifest.states] == ["last", "spare"]
    without = manifest.replace(features=())
    with pytest.raises(BundleMalformed, match="`state`"):
        without.to_bytes()


ROWS = {  # element type → what numpy makes of a state, and the DLPack type's name in torch
    "f64": ("float64", "float64"),
    "f32": ("float32", "float32"),
    "f16": ("float16", "float16"),
    "bf16": ("uint16", "bfloat16"),  # numpy has none: its bits, as everywhere
    "i64": ("int64", "int64"),
    "i32": ("int32", "int32"),
    "i16": ("int16", "int16"),
    "i8": ("int8", "int8"),
    "u8": ("uint8", "uint8"),
    "bool": ("bool", "bool"),
}


@pytest.mark.parametrize("dtype", ROWS)
@pytest.mark.parametrize("shape", [(2, 3), (3,), (), (0, 2)])
def test_a_state_comes_in_its_own_type(tmp_path, dtype, shape):
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    of_numpy, of_torch = ROWS[dtype]
    values = torch.arange(0, 6 if len(shape) == 2 else 3).remainder(2 if dtype == "bool" else 7)
    values = values[: torch.Size(shape).numel()].reshape(shape).to(getattr(torch, of_torch))
    small_state_bundle.write(tmp_path / "b", TensorSpec("spare", dtype, shape))
    with load(tmp_path / "b") as program, program.session() as session:
        session.state["spare"] = values
        array = numpy.asarray(session.state["spare"])
        assert array.dtype == of_numpy
        assert array.shape == shape or 0 in shape
        bits = values.view(torch.uint8) if dtype == "bool" else values
        bits = bits.view(torch.uint16) if dtype == "bf16" else bits
        assert array.tobytes() == bits.numpy().tobytes()
        assert bytes(session.state["spare"]) == array.tobytes()
        if dtype in ("f16", "bf16"):
            read = session.state["spare"]
            for _ in range(2):  # each a copy
                again = torch.from_dlpack(read)
                assert again.dtype == values.dtype
                assert torch.equal(again, values)
            assert read.tolist() == values.tolist()
            session.state["spare"] = read
            assert bytes(session.state["spare"]) == array.tobytes()

"""Models with buffers that they change, built, and called again and again beside eager torch."""

import copy
import threading

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from state_models import MODELS, seeded  # noqa: E402  needs torch

from aotc.aot.capture.capture import capture  # noqa: E402
from aotc.aot.capture.spec import spec_of  # noqa: E402
from aotc.aot.errors import MutationUnsupported  # noqa: E402
from aotc.aot.plan import assign_buffers  # noqa: E402
from aotc.aot.rewrites.rewrite import rewrite_each  # noqa: E402
from aotc.aot.schedule import schedule  # noqa: E402
from aotc.aot.targets.cpu.target import CPU  # noqa: E402
from aotc.aot.targets.families import find_target  # noqa: E402
from aotc.runtime import load  # noqa: E402

pytestmark = pytest.mark.torch
CALLS = 5
SPEC = """
import sys

sys.path.insert(0, {folder!r})
from state_models import MODELS

make, inputs = MODELS[{name!r}]
model = make()
example_inputs = inputs(0)
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, cache, request):
    """`bundle(name)`: the model's bundle."""
    folder = tmp_path_factory.mktemp("states")

    def make(name, *flags):
        from aotc.aot.cli.program import run

        out = folder / f"{name}{len(flags)}"
        if not out.exists():
            spec = folder / f"{name}.py"
            spec.write_text(SPEC.format(folder=str(request.path.parent), name=name))
            line = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache, *flags]
            assert run([str(word) for word in line]) == 0
        return out

    return make


def tensors(value):
    return list(torch.utils._pytree.tree_leaves(value))


def stateful(name):
    make, inputs = MODELS[name]
    return copy.deepcopy(make()), inputs


def assert_close(found, expected):
    # Kernels round to 16 bits only what they store.
    limit = (
        2e-2 if expected.dtype == torch.bfloat16 or expected.bfloat16().equal(expected) else 1e-5
    )
    torch.testing.assert_close(found, expected.clone(), rtol=limit, atol=limit)


def assert_follows(call, module, inputs, steps):
    with torch.no_grad():
        for step in steps:
            found, expected = tensors(call(*inputs(step))), tensors(module(*inputs(step)))
            for left, right in zip(found, expected, strict=True):
                assert_close(left, right)


@pytest.mark.parametrize("name", MODELS)
def test_calls_follow_eager(bundle, name):
    module, inputs = stateful(name)
    with load(bundle(name)) as program:
        assert_follows(program, module, inputs, range(CALLS))
        buffers = dict(module.named_buffers())
        for spec in (each for each in program.states if each.name in buffers):
            out = torch.empty_like(buffers[spec.name])
            program.state.read(spec.name, out)
            assert_close(out, buffers[spec.name])
        program.reset()
        assert_follows(program, stateful(name)[0], inputs, range(2))


def test_a_decoder_follows_eager_and_moves_no_cache(tmp_path, cache, request):
    from aotc.aot.capture.spec import load_spec
    from aotc.aot.cli.program import run

    path = request.path.parents[2] / "examples" / "decoder_step.py"
    line = ["build", path, "-o", tmp_path / "b", "--quiet", "--cache-dir", cache]
    assert run([str(word) for word in line]) == 0
    module = load_spec(str(path)).module

    def inputs(step):
        return torch.randn(1, 1, 64, generator=seeded(step)), torch.tensor([step])

    with load(tmp_path / "b") as program:
        names = [program.plan.kernels[launch.kernel].name for launch in program.plan.at().launches]
        assert names.count("scatter_rows") == 2  # keys and values of a layer together
        assert len(program.states) == 4
        assert "copy" not in names
        assert_follows(program.session(), module, inputs, range(6))


def test_what_does_not_change_is_no_state(bundle):
    with load(bundle("several")) as program:
        names = {spec.name for spec in program.states}
    assert names == {"old", "twin", "seen", "narrow", "step", "empty"}


def test_two_sessions_are_two_sequences(bundle):
    with load(bundle("written")) as program:
        sessions = [program.session() for _ in range(2)]
        modules = [stateful("written")[0] for _ in range(2)]
        inputs = MODELS["written"][1]
        for step in range(CALLS):
            for session, module, first in zip(sessions, modules, (0, 3), strict=True):
                assert_follows(session, module, inputs, [first + step])


def test_threads_are_sequences(bundle):
    failures = []
    with load(bundle("written")) as program:

        def serve(first):
            try:
                module, inputs = stateful("written")
                assert_follows(program, module, inputs, range(first, first + 20))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures


def test_a_state_is_set_from_torch(bundle):
    module, inputs = stateful("swap")
    with load(bundle("swap")) as program:
        with torch.no_grad():
            module.left.fill_(7)
        program.state["left"] = module.left
        program.state["right"] = numpy.asarray(module.right)
        assert_follows(program, module, inputs, range(2))


def scheduled(name):
    make, inputs = MODELS[name]
    captured = capture(spec_of(make(), inputs(0)))
    graph, _ = rewrite_each(captured.graph, {"cpu": CPU})["cpu"]
    return captured, schedule(graph, find_target("cpu").traits)


def test_rows_are_written_where_they_lie():
    captured, plan = scheduled("written")
    kept = [group.label for group in plan.groups if group.kind == "call" and not group.updates]
    in_place = [group for group in plan.groups for pair in group.updates if pair[0].op == "input"]
    # `both` is read before it is written.
    assert [state.name for state in captured.graph.states] == [
        "rows", "columns", "sums", "both", "sliced",
    ]  # fmt: skip
    assert len(in_place) == 4
    assert len(kept) == 1
    assert [group.label for group in plan.groups[-1:]] == kept


def test_rows_that_follow_each_other_are_written_where_they_lie():
    """`seen` is read between its writes, and copied; `rows` is not."""
    captured, plan = scheduled("chained")
    assert [state.name for state in captured.graph.states] == ["rows", "seen"]
    places = assign_buffers(plan)
    in_place = [
        operand.value
        for launch in places.launches
        for operand in launch.operands[-launch.stored :]
        if operand.space == "state"
    ]
    assert in_place.count(0) == 3
    assert in_place.count(1) == 1


def test_copies_into_states_come_last():
    _, plan = scheduled("swap")
    assert [group.label for group in plan.groups[-2:]] == ["copy", "copy"]


def test_what_nobody_reads_is_replaced_where_it_lies():
    _, plan = scheduled("replaced")
    assert not any(group.kind == "call" for group in plan.groups)


def test_capture_leaves_the_model_as_it_was():
    make, inputs = MODELS["several"]
    module = make()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    captured = capture(spec_of(module, inputs(0)))
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, before[name])
    names = [state.name for state in captured.graph.states]
    after = dict(zip(names, captured.golden_outputs[-len(names) :], strict=True))
    assert after["step"] == 4


def test_initial_zeros_are_not_stored(bundle):
    with load(bundle("written")) as program:
        assert {slot.initial for slot in program.plan.states} == {None}
        weights = program.manifest.weights
    assert weights is None


class ChangesInput(torch.nn.Module):
    def forward(self, x):
        return x.add_(1)


class Grows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return x * self.total


def test_a_changed_input_is_refused_by_name():
    with pytest.raises(MutationUnsupported, match="`x`"):
        capture(spec_of(ChangesInput(), (torch.ones(3),)))


def test_the_model_is_probed_at_other_sizes_with_its_states(tmp_path):
    from aotc.aot.capture.spec import Spec

    dims = ({0: torch.export.Dim("rows", min=2, max=64)},)
    spec = Spec("grows", "grows", (torch.ones(3, 2),), {}, Grows(), dynamic_shapes=dims)
    found = capture(spec)
    assert [dim.name for dim in found.dims] == ["rows"]
    assert len(found.probes) == 2
    for probe in found.probes:
        output, total = probe.outputs
        assert numpy.allclose(total, probe.inputs[0].sum())
        assert numpy.allclose(output, probe.inputs[0] * total)
    assert not spec.module.total.any(), "the caller's model is as it was"


def test_wrong_states_are_found_by_validation(bundle, monkeypatch):
    """A build whose code leaves other states than eager does is refused."""
    from aotc.aot import validation
    from aotc.aot.errors import GoldenMismatch

    run = validation.run_in_a_row

    def disturbed(target, library, plan, weights, calls):
        run(target, library, plan, weights, calls)
        calls[0].results[calls[0].outputs][...] += 1  # the first state

    monkeypatch.setattr(validation, "run_in_a_row", disturbed)
    with pytest.raises((GoldenMismatch, AssertionError)):
        bundle("swap", "--debug")

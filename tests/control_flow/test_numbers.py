"""Models with control flow beside eager torch, built for this processor, and their graphs."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import flow_models  # noqa: E402

from aotc.aot.cli.program import run  # noqa: E402
from aotc.aot.ir.control import nodes_within  # noqa: E402
from aotc.aot.ir.narrow import dims_of  # noqa: E402
from aotc.aot.ir.reference import interpret  # noqa: E402
from aotc.aot.ir.text import parse_graph, print_graph  # noqa: E402
from aotc.runtime import load  # noqa: E402

FOLDER = Path(__file__).parent
SEEDS = range(4)
# In f64 what differs is the order of a sum; 16-bit results differ by a rounding.
EXACT, ROUNDED = {"rtol": 1e-9, "atol": 1e-9}, {"rtol": 2e-2, "atol": 2e-2}


def leaves(value):
    return [torch.as_tensor(each) for each in torch.utils._pytree.tree_leaves(value)]


def written(name, folder):
    """The spec of a case."""
    spec = folder / "model.py"
    text = "import flow_models\n", f"globals().update(flow_models.spec({name!r}))\n"
    spec.write_text(f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + "".join(text))
    return spec


# Like others in what is generated of them; torch itself reverses a scan.
LIKE_OTHERS = {
    "branch_of_views", "loop_over_whole_numbers", "loop_until_data_says", "lookups_in_a_map",
    "recurrence_along_another_dim", "recurrence_in_reverse", "running_sums",
    "scan_in_a_loop_that_drops_results",
}  # fmt: skip
NAMES = [
    pytest.param(name, marks=[pytest.mark.nightly] if name in LIKE_OTHERS else [])
    for name in flow_models.CASES
]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_gives_what_eager_gives(name, tmp_path, cache):
    spec, out = written(name, tmp_path), tmp_path / "model.aotc"
    arguments = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache]
    assert run([str(each) for each in arguments]) == 0
    case, model = flow_models.CASES[name], flow_models.Model(name).eval()
    with load(out) as program, torch.no_grad():
        for size in case.sizes:
            for seed in SEEDS:
                torch.manual_seed(seed)
                given = case.draw(size)
                expected, found = leaves(model(*given)), leaves(program(*given))
                for one, other in zip(found, expected, strict=True):
                    near = ROUNDED if other.dtype == torch.bfloat16 else EXACT
                    torch.testing.assert_close(one, other, **near)


@pytest.mark.parametrize("name", [
    "branches_within_branches", "loops_within_loops", "branch_in_a_scan", "lookup_in_a_branch",
    "recurrence",
])  # fmt: skip
def test_the_graph_has_a_text_and_a_meaning(name, tmp_path):
    graph = captured(name, tmp_path).graph
    assert any(node.op == "control" for node in graph.nodes())
    again = parse_graph(print_graph(graph), graph.constants, dims=dims_of(graph))
    assert again.outputs == graph.outputs
    if any(node.sizes() for node in nodes_within(graph)):
        return
    case, model = flow_models.CASES[name], flow_models.Model(name).eval()
    for seed in SEEDS:
        torch.manual_seed(seed)
        given = case.draw(case.sizes[-1])
        found = interpret(graph, [each.numpy() for each in given])
        with torch.no_grad():
            expected = leaves(model(*given))
        for one, other in zip(found, expected, strict=True):
            numpy.testing.assert_allclose(one, other.numpy(), rtol=1e-9, atol=1e-9)


def captured(name, folder):
    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import load_spec

    return capture(load_spec(str(written(name, folder))))

"""Control flow on a real device: branches, loops, scans and maps beside eager torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import flow_models  # noqa: E402

FOLDER = Path(flow_models.__file__).parent
CASES = (
    "branch_of_data_and_size", "branch_of_several_results", "loop_of_several_types",
    "loop_that_swaps", "loop_that_writes_rows", "loops_within_loops", "recurrence",
    "branch_in_a_scan", "products", "short_floats",
)  # fmt: skip


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds a case for this machine's device."""
    folder = tmp_path_factory.mktemp("flow")

    def make(name):
        spec, out = folder / f"{name}.py", folder / f"{name}.aotc"
        spec.write_text(
            f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\nimport flow_models\n"
            f"globals().update(flow_models.spec({name!r}))\n"
        )
        command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", out, "--force"]
        command += ["--target", "cuda", "--cache-dir", folder / "cache"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return out

    return make


@pytest.mark.parametrize("name", CASES)
def test_a_model_gives_what_eager_gives(built, name):
    case, model = flow_models.CASES[name], flow_models.Model(name).eval()
    with load(built(name)) as program, torch.no_grad():
        for size in case.sizes:
            for seed in range(3):
                torch.manual_seed(seed)
                given = case.draw(size)
                found = leaves(program(*(each.cuda() for each in given)))
                program.synchronize()
                for one, other in zip(found, leaves(model(*given)), strict=True):
                    is_short = other.dtype == torch.bfloat16
                    near = (
                        {"rtol": 2e-2, "atol": 2e-2} if is_short else {"rtol": 1e-9, "atol": 1e-9}
                    )
                    torch.testing.assert_close(one.cpu(), other, **near)


def test_a_stream_of_the_callers(built):
    model = flow_models.Model("branch_in_a_scan").eval()
    x, flag = flow_models.CASES["branch_in_a_scan"].draw(4)
    with load(built("branch_in_a_scan")) as program, torch.no_grad():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            given = (x.cuda(non_blocking=True) * 2, flag.cuda())
            found = [each + 0 for each in leaves(program(*given))]
        stream.synchronize()
        for one, other in zip(found, leaves(model(x * 2, flag)), strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-9, atol=1e-9)

"""Entry points on a device: one set of states, one copy of the weights, any order of calls."""

import subprocess
import sys
from pathlib import Path

import pytest

from aotc.runtime import load

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

sys.path.insert(0, str(Path(__file__).parents[1] / "entries"))
from entry_models import DECODER  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("entries")
    spec = folder / "decoder.py"
    spec.write_text(DECODER)
    command = [sys.executable, "-m", "aotc.aot.cli", "build", spec, "-o", folder / "bundle"]
    command += ["--target", "cuda", "--target", "cpu", "--cache-dir", folder / "cache"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    from aotc.aot.capture.spec import load_specs

    return folder / "bundle", load_specs(str(spec))[0].module


def check(found, expected):
    torch.testing.assert_close(found.cpu(), expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("seed", range(3))
def test_calls_in_any_order_and_on_any_stream(built, seed):
    path, model = built
    draw = torch.Generator().manual_seed(seed)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    model.cache.zero_()
    with load(path, device="cuda") as program, program.session() as session, torch.no_grad():
        for step in range(24):
            name = ("prefill", "decode", "peek")[int(torch.randint(3, (), generator=draw))]
            rows = {"prefill": 2 + (step * 7 + seed) % 15, "decode": 1, "peek": 3}[name]
            inputs = [torch.randn(rows, 8, generator=draw)]
            if name == "decode":
                inputs.append(torch.randint(16, (1,), generator=draw))
            on_device = [each.cuda() for each in inputs]
            torch.cuda.synchronize()
            found = session[name](*on_device, stream=streams[step % 3])
            torch.cuda.synchronize()
            check(found, getattr(type(model), name)(model, *inputs))
        check(torch.from_dlpack(session.state.view("cache")), model.cache)


def test_bound_calls_and_new_weights(built):
    path, model = built
    with load(path, device="cuda") as program, torch.no_grad():
        x = torch.randn(3, 8).cuda()
        bound = program.peek.bind(x)
        check(bound(), torch.zeros(3, 16))
        was = {name: each.clone() for name, each in model.state_dict().items()}
        names = {"project.weight": torch.randn(8, 8), "project.bias": torch.randn(8)}
        program.load_weights({name: each.numpy() for name, each in names.items()})
        try:
            model.load_state_dict({**was, **names})
            model.cache.zero_()
            with program.session() as session:
                prompt = torch.randn(9, 8)
                check(session.prefill(prompt.cuda()), model.prefill(prompt))
                check(session.peek(x), model.peek(x.cpu()))
        finally:
            model.load_state_dict(was)

"""Programs that are split over two and four GPUs: numbers, many calls, other streams, and a rank
that does not come."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotc.runtime import load
from aotc.runtime.drivers.cuda.errors import RankSilent, StateInParts

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two GPUs"
)

SPEC = """
import torch, torch.nn as nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.gate = nn.Linear(512, 2048), nn.Linear(512, 2048)
        self.down, self.norm = nn.Linear(2048, 512), nn.LayerNorm(512)
        self.head = nn.Linear(512, 1024, bias=False)
        self.register_buffer("seen", torch.zeros(8, 512))

    def forward(self, x, at):
        for _ in range(3):
            x = self.norm(x + self.down(torch.relu(self.up(x)) * self.gate(x)))
        self.seen.index_copy_(0, at, x[:1])
        return self.head(x) + self.seen.sum()


torch.manual_seed(0)
model = Net().eval()
example_inputs = (torch.randn(4, 512), torch.tensor([1]))
dynamic_shapes = ({0: torch.export.Dim("rows", min=1, max=600)}, None)
"""


@pytest.fixture(scope="module", params=[2, 4])
def bundle(request, tmp_path_factory):
    if torch.cuda.device_count() < request.param:
        pytest.skip(f"needs {request.param} GPUs")
    folder = tmp_path_factory.mktemp("split")
    (folder / "spec.py").write_text(SPEC)
    command = [sys.executable, "-m", "aotc.aot.cli", "build", folder / "spec.py"]
    command += ["-o", folder / "bundle", "--target", "cuda", "--cache-dir", folder / "cache"]
    command += ["--tensor-parallel", request.param]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder / "bundle"


@pytest.fixture(scope="module")
def net():
    from types import SimpleNamespace

    scope: dict = {}
    exec(SPEC, scope)  # the spec above
    return SimpleNamespace(model=scope["model"], double=scope["Net"])


def expected(net, calls):
    """What eager gives in f64 for calls in a row."""
    model = net.double().eval()
    model.load_state_dict(net.model.state_dict())
    model.double()
    with torch.no_grad():
        return [model(x.double().cpu(), at.cpu()) for x, at in calls]


def calls_of(sizes):
    generator = torch.Generator().manual_seed(3)
    return [
        (torch.randn(rows, 512, generator=generator).cuda(), torch.tensor([at % 8]).cuda())
        for at, rows in enumerate(sizes)
    ]


def test_numbers_are_eagers_at_any_sizes(bundle, net):
    calls = calls_of([4, 1, 600, 17, 4, 333])
    with load(bundle, device="cuda") as program, program.session() as session:
        found = [session(*call) for call in calls]
        for each, wanted in zip(found, expected(net, calls), strict=True):
            torch.testing.assert_close(each.cpu().double(), wanted, rtol=2e-3, atol=2e-3)


def test_ten_thousand_calls_have_the_same_bits(bundle):
    ((x, at),) = calls_of([4])
    with load(bundle, device="cuda") as program, program.session() as session:
        first = session(x, at).clone()
        differing = torch.zeros((), dtype=torch.int64, device="cuda")
        for _ in range(10_000):
            differing += (session(x, at) != first).any()
        session.synchronize()
        assert int(differing) == 0


def test_streams_and_host_arrays(bundle, net):
    calls = calls_of([5, 9])
    wanted = expected(net, calls)
    with load(bundle, device="cuda") as program, program.session() as session:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        first = session(*calls[0], stream=stream)
        stream.synchronize()
        second = session(calls[1][0].cpu().numpy(), calls[1][1].cpu().numpy())
        torch.testing.assert_close(first.cpu().double(), wanted[0], rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(torch.tensor(second).double(), wanted[1], rtol=2e-3, atol=2e-3)


def test_new_weights_reach_every_rank(bundle, net):
    doubled = {name: 2 * value for name, value in net.model.state_dict().items()}
    ((x, at),) = calls_of([4])
    with load(bundle, device="cuda") as program:
        program.load_weights({name: value.numpy() for name, value in doubled.items()})
        found = program(x, at)
        other = net.double().eval()
        other.load_state_dict(doubled)
        with torch.no_grad():
            wanted = other.double()(x.cpu().double(), at.cpu())
        torch.testing.assert_close(found.cpu().double(), wanted, rtol=2e-3, atol=2e-2)


def test_states_are_forked_and_begin_again(bundle):
    ((x, at),) = calls_of([4])
    with load(bundle, device="cuda") as program, program.session() as session:
        first = session(x, at)
        with session.fork() as other:
            assert torch.equal(session(x, at), other(x, at))
        session.reset()
        assert torch.equal(session(x, at), first)
        with pytest.raises(StateInParts):
            session.state["seen"]


def test_a_rank_that_does_not_come_is_an_error_and_no_hang(bundle):
    ((x, at),) = calls_of([4])
    with load(bundle, device="cuda") as program, program.session() as session:
        session(x, at)
        session.synchronize()
        session._on_driver._others[0].run = lambda stream: None
        session(x, at)
        with pytest.raises(RankSilent):
            session.synchronize()


def test_memory_is_given_back_on_every_device(bundle):
    def used():
        return [torch.cuda.mem_get_info(each)[0] for each in range(torch.cuda.device_count())]

    ((x, at),) = calls_of([4])
    load(bundle, device="cuda").close()
    before = used()
    for _ in range(3):
        with load(bundle, device="cuda") as program:
            program(x, at)
    assert all(abs(a - b) < 16 << 20 for a, b in zip(used(), before, strict=True))

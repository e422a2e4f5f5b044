"""Control flow among the rest of a program: data checks, states, entry points, new weights, a
server without torch, Ctrl-C, and what is refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.cli.program import run  # noqa: E402
from aotc.runtime import load  # noqa: E402
from aotc.runtime.errors import AssertionFailed, DivisionByZero, IndexOutOfRange  # noqa: E402

HEAD = """
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from aotc.aot import EntryPoint
I64 = torch.int64
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory, cache):
    """Builds a spec given as text, each once; answers the bundle's path."""
    folder = tmp_path_factory.mktemp("flow")

    def make(name, text, *options):
        spec, out = folder / f"{name}.py", folder / f"{name}.aotc"
        if out.exists():
            return out
        spec.write_text(HEAD + textwrap.dedent(text))
        arguments = ["build", spec, "-o", out, "--quiet", "--cache-dir", cache, *options]
        assert run([str(each) for each in arguments]) == 0
        return out

    return make


CHECKED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.arange(10.0).reshape(5, 2))

    def forward(self, places, flag, turns):
        looked = torch.cond(
            flag, lambda places: self.table[places], lambda places: places[:, None] * 1.0 +
            self.table[:1], (places,))
        divided = torch.cond(flag, lambda turns: 8 // turns, lambda turns: turns * 2, (turns,))
        row = lambda at: self.table.index_select(0, places.index_select(0, at.reshape(1)))
        step = lambda at, total: (at + 1, total + row(at).reshape(2))
        total = while_loop(lambda at, total: at < turns, step,
                           (torch.zeros((), dtype=I64), torch.zeros(2)))
        return looked, divided, *total

model = Model()
example_inputs = (torch.tensor([1, 4, 0]), torch.tensor(True), torch.tensor(2))
"""


def test_data_of_a_branch_is_checked_where_the_branch_is_taken(built):
    given = lambda places, flag, turns: (  # noqa: E731
        numpy.array(places), numpy.array(flag), numpy.array(turns),
    )  # fmt: skip
    with load(built("checked", CHECKED)) as program:
        looked, divided, at, total = program(*given([1, 4, 0], True, 2))
        numpy.testing.assert_array_equal(looked, [[2, 3], [8, 9], [0, 1]])
        numpy.testing.assert_array_equal(total, [10, 12])
        assert (divided, at) == (4, 2)
        # The last place is looked up by the first branch alone, and by no turn of two.
        program(*given([1, 4, 7], False, 2))
        with pytest.raises(IndexOutOfRange, match="7"):
            program(*given([1, 4, 7], True, 2))
        with pytest.raises(IndexOutOfRange, match="7"):
            program(*given([1, 4, 7], False, 3))
        with pytest.raises(IndexOutOfRange, match="3"):  # of places, by the loop
            program(*given([1, 4, 2], False, 4))
        program(*given([1, 4, 0], False, 0))
        with pytest.raises(DivisionByZero):
            program(*given([1, 4, 0], True, 0))
        program(*given([1, 4, 0], True, 2))  # an error leaves the session as it was
    with load(built("unchecked", CHECKED, "--unchecked-indices")) as program:
        assert not program.plan.at().checks
        program(*given([1, 4, 7], True, 2))


ASSERTED = """
class Model(nn.Module):
    def forward(self, x, flag):
        def first(x):
            torch._assert_async(x.sum() > 0, "the sum is positive")
            return x + 1
        return torch.cond(flag, first, lambda x: x - 1, (x,))

model = Model()
example_inputs = (torch.ones(3), torch.tensor(True))
"""


def test_an_assertion_of_a_branch(built):
    with load(built("asserted", ASSERTED)) as program:
        low, yes, no = -numpy.ones(3, "float32"), numpy.array(True), numpy.array(False)
        numpy.testing.assert_array_equal(program(low, no), low - 1)
        with pytest.raises(AssertionFailed, match="the sum is positive"):
            program(low, yes)


DECODER = """
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("memory", torch.zeros(8, 4))
        self.register_buffer("count", torch.zeros((), dtype=I64))

    def forward(self, x):
        step = lambda state, row: (torch.tanh(self.linear(state) + row), state * 1.0)
        last, rows = scan(step, self.memory[0].clone(), x)
        self.memory.copy_(torch.cat([last[None], self.memory[:-1]]))
        self.count.add_(1)
        return last, rows

    def score(self, x):
        return torch.cond(self.count > 1, lambda x: self.linear(x) + self.memory[0],
                          lambda x: x * 2, (x,)), self.count + 0

model = Decoder().eval()
entry_points = {"forward": EntryPoint(example_inputs=(torch.randn(3, 4),)),
                "score": EntryPoint(example_inputs=(torch.randn(2, 4),), method="score")}
"""


def decoder():
    scope = {}
    exec(HEAD + DECODER.partition("model =")[0], scope)
    return scope["Decoder"]().eval()


def test_states_entry_points_and_new_weights(built):
    model = decoder()
    x, y = torch.randn(3, 4), torch.randn(2, 4)
    with load(built("decoder", DECODER)) as program:
        program.load_weights({
            name: value.detach().numpy() for name, value in model.named_parameters()
        })  # fmt: skip
        with program.session() as session, torch.no_grad():
            for _ in range(4):
                for one, other in zip(session(x), model(x), strict=True):
                    torch.testing.assert_close(torch.as_tensor(one), other)
                for one, other in zip(session.score(y), model.score(y), strict=True):
                    torch.testing.assert_close(torch.as_tensor(one), other)


SERVER = """
import json, struct, sys
from aotc.runtime import load

program = load(sys.argv[1])
values = [float(number) for number in range(32)]
for flag in (1, 0):
    found = program(struct.pack("32d", *values), bytes([flag]))
    print(json.dumps(list(struct.unpack("32d", bytes(found)))))
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""

SERVED = """
class Model(nn.Module):
    def forward(self, x, flag):
        step = lambda at, x: (at + 1, x * 0.5 + 1)
        loop = lambda x: while_loop(lambda at, x: at < 3, step,
                                    (torch.zeros((), dtype=I64), x))[1]
        return torch.cond(flag, loop, lambda x: x + 1, (x,))

model = Model()
example_inputs = (torch.randn(32, dtype=torch.float64), torch.tensor(True))
"""


def test_a_server_without_torch(built):
    command = [sys.executable, "-c", SERVER, str(built("served", SERVED))]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    first, other = map(json.loads, ran.stdout.splitlines())
    x = numpy.arange(32.0)
    numpy.testing.assert_allclose(first, x / 8 + 1.75)
    numpy.testing.assert_allclose(other, x + 1)


def test_commands_show_blocks(built, tmp_path, capsys):
    path = str(built("served", SERVED))

    def said(*arguments):
        assert run([str(each) for each in arguments]) == 0
        return capsys.readouterr().out

    kernels = said("inspect", path, "--kernels")
    rows = [line.split()[:2] for line in kernels.splitlines()]
    marks = [row[1] for row in rows if row[:1] == ["control"]]
    assert marks == ["if", "while", "end", "else", "end"]
    steps = json.loads(said("inspect", path, "--json"))["targets"][0]["entries"][0]["steps"]
    assert [step["word"] for step in steps if step["kind"] == "control"] == marks
    assert "ok" in said("verify", path)
    profile = json.loads(said("profile", path, "--repetitions", 3, "--json"))
    assert len(profile["launches"]) == len(steps)
    assert "control while" not in said("profile", path, "--repetitions", 3)
    said("report", path, "-o", tmp_path / "report.html")
    assert "while" in (tmp_path / "report.html").read_text()
    again = tmp_path / "again"
    said("tune", path, "-o", again, "--tune-budget", "0.1", "--quiet")
    assert "ok" in said("verify", again)
    other = built("asserted", ASSERTED)
    assert run(["diff", path, str(other), "--all"]) == 1
    assert "control while calls" in capsys.readouterr().out


ENDLESS = """
class Model(nn.Module):
    def forward(self, x):
        return while_loop(lambda at, x: x.sum() > 0, lambda at, x: (at + 1, x * 1.0),
                          (torch.zeros((), dtype=I64), x))

model = Model()
example_inputs = (-torch.ones(3),)
"""


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal, though a shell's background process ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_loop_without_an_end_is_interrupted(built, interruptible):
    with load(built("endless", ENDLESS)) as program:
        timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            program(numpy.ones(3, "float32"))
        timer.join()
        at, x = program(-numpy.ones(3, "float32"))
        assert at == 0
        numpy.testing.assert_array_equal(x, -numpy.ones(3))


WITH_TORCH = """
class Model(nn.Module):
    def forward(self, x, flag):
        first = lambda x: torch.linalg.qr(x)[0].contiguous() * 2
        one = torch.cond(flag, first, lambda x: x.sin(), (x,))
        step = lambda at, x: (at + 1, torch.linalg.qr(x)[0].contiguous() + x)
        return one, while_loop(lambda at, x: at < 3, step, (torch.zeros((), dtype=I64), x))[1]

model = Model()
example_inputs = (torch.randn(4, 3, dtype=torch.float64), torch.tensor(True))
"""


def test_torch_runs_ops_in_blocks(built):
    x = torch.randn(4, 3, dtype=torch.float64)
    with load(built("with_torch", WITH_TORCH, "--fallback", "torch")) as program:
        for flag in (True, False):
            one, other = map(torch.as_tensor, program(x, torch.tensor(flag)))
            torch.testing.assert_close(
                one, torch.linalg.qr(x)[0].contiguous() * 2 if flag else x.sin()
            )
            expected = x
            for _ in range(3):
                expected = torch.linalg.qr(expected)[0] + expected
            torch.testing.assert_close(other, expected)
        assert program.fallback_calls == {"aten::linalg_qr": 7}


REFUSED = {
    "an op without an import": (
        "torch.cond(flag, lambda x: torch.linalg.qr(x)[0].contiguous(), lambda x: x.sin(), (x,))",
        "linalg_qr",
    ),
    "random numbers": (
        "torch.cond(flag, lambda x: torch.rand_like(x), lambda x: x.sin(), (x,))",
        "random numbers",
    ),
    "complex numbers": (
        "torch.view_as_real(torch.cond(flag, lambda x: x * 2, lambda x: x + 1, "
        "(torch.view_as_complex(x.reshape(3, 1, 2)),)))",
        "complex",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_names_the_op(name, tmp_path, capsys):
    text, word = REFUSED[name]
    spec = tmp_path / "model.py"
    model = f"class Model(nn.Module):\n    def forward(self, x, flag):\n        return {text}\n"
    rest = "model = Model()\nexample_inputs = (torch.randn(3, 2), torch.tensor(True))\n"
    spec.write_text(HEAD + model + rest)
    assert run(["build", str(spec), "-o", str(tmp_path / "out"), "--quiet"]) == 3
    said = capsys.readouterr().err
    assert word in said, said
    assert "model.py:" in said


QUANTISED = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.other = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        step = lambda state, row: (torch.tanh(self.linear(state) + self.other(row)), state * 1.0)
        return scan(step, torch.zeros(2, 64), x)

model = Model().eval()
example_inputs = (torch.randn(5, 2, 64),)
"""


def test_weights_of_bodies_are_quantised_in_their_kernels(built):
    plain, narrow = (
        built(f"quantised_{kind}", QUANTISED, *(["--quantize", kind] if kind else []))
        for kind in ("", "int8")
    )
    sizes = []
    for path in (plain, narrow):
        with load(path) as program:
            launches = program.plan.at().launches
            sizes.append(sum(weight_bytes(path).values()))
            products = [
                launch for launch in launches if any(space == "weight" for space, _ in launch.args)
            ]
            assert len(products) == 2  # of all rows before the loop, of the state in it
    assert sizes[1] < sizes[0] / 2


def weight_bytes(path):
    from aotc.runtime.bundle.opened import Bundle
    from aotc.runtime.bundle.weights import MappedFile, read_header

    with Bundle(str(path)) as opened:
        entry = opened.manifest.weights
        mapped = MappedFile(opened.directory.open_sized(entry.name, entry.nbytes), entry.nbytes)
        return {name: row.nbytes for name, row in read_header(mapped.view, "weights").items()}

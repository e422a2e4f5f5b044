"""`backend="aotc"` on CUDA tensors: numbers beside f64, streams, memory that is not aligned, and
what is refused. Everything is asked with `fallback="error"`, so that nothing else computes."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from aotc.aot.dynamo.programs import counters  # noqa: E402

STRICT = {"fallback": "error"}


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """Caches of the test's own and a Dynamo that has met nothing."""
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "aotc"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def perceptron(dtype=torch.float32, width=96):
    layers = [torch.nn.Linear(width, 200), torch.nn.GELU(), torch.nn.LayerNorm(200)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(200, 72)).to("cuda", dtype)


def distance(found, expected):
    """Largest error relative to the largest expected number."""
    return float((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def gradients_beside_f64(module, x, compiled):
    """For the result and each gradient: the errors of ours and of eager, relative to f64."""
    wide = copy.deepcopy(module).double()
    rows = []
    for each, given in ((compiled, x), (module, x), (wide, x.double())):
        given = given.detach().clone().requires_grad_()
        module.zero_grad()
        result = each(given)
        result.square().sum().backward()
        owner = wide if each is wide else module
        rows.append([result, given.grad, *(p.grad.clone() for p in owner.parameters())])
    ours, eager, exact = rows
    return [(distance(a, e), distance(b, e)) for a, b, e in zip(ours, eager, exact, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 7, 64])
def test_forward_and_backward_are_as_near_to_f64_as_eager(dtype, rows):
    module = perceptron(dtype)
    compiled = torch.compile(module, backend="aotc", options=STRICT)
    x = torch.randn(rows, 96, device="cuda", dtype=dtype)
    for ours, eager in gradients_beside_f64(module, x, compiled):
        assert ours <= 4 * eager + 4 * torch.finfo(dtype).eps
    assert counters()["graphs"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_windows_beyond_the_edge_of_16_bit_floats(dtype):
    """ptxas took the padding of one half of a pair for +infinity (`pooling 202611278200082`)."""
    pool = torch.compile(lambda x: torch.nn.functional.max_pool2d(x, 2, 1, 1, 2), backend="aotc",
                         options=STRICT)  # fmt: skip
    for shape in ((2, 31, 7, 2), (1, 3, 9, 8)):
        x = torch.randn(shape, device="cuda").to(dtype)
        assert torch.equal(pool(x), torch.nn.functional.max_pool2d(x, 2, 1, 1, 2))


@pytest.mark.parametrize("width", [1001, 5003])
def test_gradients_of_a_layer_whose_rows_begin_at_any_place(width):
    module = torch.nn.Linear(768, width, bias=False).to("cuda", torch.bfloat16)
    compiled = torch.compile(module, backend="aotc", options=STRICT)
    x = torch.randn(2, 600, 768, device="cuda", dtype=torch.bfloat16)
    for ours, eager in gradients_beside_f64(module, x, compiled):
        assert ours <= 4 * eager + 4 * torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (3, 129), (17, 1000)])
def test_rows_of_odd_sizes(shape):
    function = torch.compile(lambda x: torch.softmax(x, -1) + x.tanh(), backend="aotc",
                             options=STRICT)  # fmt: skip
    x = torch.randn(shape, device="cuda")
    wanted = torch.softmax(x.double(), -1) + x.double().tanh()
    torch.testing.assert_close(function(x).double(), wanted, rtol=1e-5, atol=1e-6)


def test_open_sizes_serve_calls_of_each_size():
    function = torch.compile(lambda x: (x * 2).sum(-1), backend="aotc", dynamic=True,
                             options=STRICT)  # fmt: skip
    for rows in (3, 8, 5, 100, 3):
        x = torch.randn(rows, 40, device="cuda")
        torch.testing.assert_close(function(x), (x * 2).sum(-1))


def test_a_call_runs_on_the_current_stream():
    """It must come after what the stream holds, which takes long."""
    function = torch.compile(lambda x: x * 2 + 1, backend="aotc", options=STRICT)
    x = torch.zeros(1 << 20, device="cuda")
    function(x)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        x.fill_(3.0)
        y = function(x)
    stream.synchronize()
    assert bool((y == 7).all())


def test_two_streams_do_not_share_intermediates_at_once():
    """The graph has intermediates in its arena; calls on two streams take turns."""
    function = torch.compile(
        lambda x, w: torch.softmax(x @ w, -1) @ w, backend="aotc", options=STRICT
    )
    w = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    given = [torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    wanted = [function(x, w).clone() for x in given]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found = []
    for _ in range(50):
        for stream, x in zip(streams, given, strict=True):
            with torch.cuda.stream(stream):
                found.append(function(x, w))
    torch.cuda.synchronize()
    for number, each in enumerate(found):
        assert torch.equal(each, wanted[number % 2])


def test_arguments_that_are_not_aligned_or_not_contiguous():
    function = torch.compile(lambda x: x.exp() + 1, backend="aotc", options=STRICT)
    whole = torch.randn(4 * 64 + 1, device="cuda")
    function(whole[:256].view(4, 64))
    for x in (whole[1:].view(4, 64), whole[:256].view(64, 4).T):
        torch.testing.assert_close(function(x), x.exp() + 1)


def test_gradients_run_on_the_stream_of_their_forward_pass():
    module = perceptron()
    compiled = torch.compile(module, backend="aotc", options=STRICT)
    x = torch.randn(64, 96, device="cuda")
    compiled(x).square().sum().backward()
    wanted = module[0].weight.grad.clone()
    module.zero_grad()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    late = torch.zeros_like(x)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late.copy_(x)
        compiled(late).square().sum().backward()
    stream.synchronize()
    assert torch.equal(module[0].weight.grad, wanted)


# -- CUDA graphs of the user -----------------------------------------------------------------------


def warmed(step):
    """Three calls on a side stream, as torch asks for before a capture."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def captured(step):
    """A CUDA graph of a step, and what the step gave while it was recorded."""
    warmed(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


def test_a_capture_of_the_user_holds_the_call():
    """Replays read what the arguments hold then, and share no memory with calls between them."""
    function = torch.compile(
        lambda x, w: torch.softmax(x @ w, -1) @ w, backend="aotc", options=STRICT
    )
    w = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
    graph, y = captured(lambda: function(x, w))
    side = torch.cuda.Stream()
    for seed in range(4):
        torch.manual_seed(seed)
        given = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16)
        wanted = function(given, w)
        x.copy_(given)
        torch.cuda.synchronize()
        graph.replay()
        with torch.cuda.stream(side):
            for _ in range(5):
                function(given + 1, w)
        torch.cuda.synchronize()
        assert torch.equal(y, wanted)


def test_a_capture_at_open_sizes():
    function = torch.compile(lambda x: torch.softmax(x * 2, -1).cumsum(-1), backend="aotc",
                             dynamic=True, options={"fallback": "eager"})  # fmt: skip
    for rows in (3, 8):
        function(torch.randn(rows, 40, device="cuda"))
    x = torch.randn(5, 40, device="cuda")
    graph, y = captured(lambda: function(x))
    x.copy_(torch.randn(5, 40, device="cuda"))
    graph.replay()
    torch.testing.assert_close(y, torch.softmax(x * 2, -1).cumsum(-1))


def test_a_capture_of_a_whole_step():
    """Forward, backward and a capturable optimiser, replayed, beside the same steps op by op."""
    start, found = perceptron(), []
    data = [torch.randn(32, 96, device="cuda") for _ in range(8)]
    for backend in (None, "aotc"):
        module = copy.deepcopy(start)
        call = module if backend is None else torch.compile(module, backend=backend, options=STRICT)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3, capturable=True)
        x = data[0].clone()

        def step(call=call, optimizer=optimizer, x=x):
            optimizer.zero_grad(set_to_none=True)
            loss = (call(x) - x[:, :72]).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        graph, loss = captured(step)
        losses = []
        for each in data:
            x.copy_(each)
            graph.replay()
            losses.append(loss.item())
        found.append(torch.tensor(losses))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


def test_a_capture_of_dropout_draws_anew_at_each_replay():
    x = torch.ones(64, 256, device="cuda")
    functions = [lambda x: torch.nn.functional.dropout(x * 2, 0.5) + 1]
    functions.append(torch.compile(functions[0], backend="aotc", options=STRICT))
    rows = []
    for function in functions:
        graph, y = captured(lambda function=function: function(x))
        torch.manual_seed(7)
        own = []
        for _ in range(3):
            graph.replay()
            own.append(y.clone())
        rows.append(own)
    assert not torch.equal(rows[0][0], rows[0][1])
    for one, other in zip(*rows, strict=True):
        assert torch.equal(one, other)


# -- random numbers --------------------------------------------------------------------------------


def assert_as_eager(function, *given, options=None, seeds=(1, 2), units=16):
    """Results and gradients, seed after seed, relative to the largest; where the zeros of results
    are, and what the generator does."""
    compiled = torch.compile(function, backend="aotc", options=options or STRICT)
    for seed in seeds:
        rows = []
        for called in (function, compiled):
            arguments = [each.detach().requires_grad_() for each in given]
            torch.manual_seed(seed)
            result = called(*arguments)
            result.float().square().sum().backward()
            gradients = [each.grad for each in arguments]
            rows.append([result.detach(), *gradients, torch.cuda.get_rng_state()])
        assert torch.equal(rows[0][0] == 0, rows[1][0] == 0)
        for one, other in zip(rows[1][:-1], rows[0][:-1], strict=True):
            assert distance(one, other.double()) <= units * torch.finfo(one.dtype).eps
        assert torch.equal(rows[0][-1], rows[1][-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(5, 7), (128, 256), (3, 1001), (1 << 14, 65), (64, 1 << 14)])
def test_dropout_is_eagers(shape, dtype):
    def function(x):
        return torch.nn.functional.dropout(x.sin(), 0.3) * torch.nn.functional.dropout(x, 0.9)

    assert_as_eager(function, torch.randn(shape, device="cuda", dtype=dtype) + 3)


@pytest.mark.parametrize("turn", ["channels last", "transposed", "slice", "behind", "gaps"])
def test_masks_follow_the_memory_of_what_they_mask(turn):
    x = torch.randn(4, 8, 6, 10, device="cuda") + 3
    views = {
        "channels last": lambda x: x,
        "transposed": lambda x: x.transpose(1, 2),
        "slice": lambda x: x[:, :, ::2],
        "behind": lambda x: x.flatten()[3:],  # from an address that vectors cannot be read at
        "gaps": lambda x: x[..., :7],
    }
    if turn == "channels last":
        x = x.to(memory_format=torch.channels_last)
    assert_as_eager(lambda x: torch.nn.functional.dropout(views[turn](x), 0.5), x)


DRAWS = {
    "by chances": lambda x: x + torch.bernoulli(torch.sigmoid(x)),
    "alpha": lambda x: torch.nn.functional.alpha_dropout(x, 0.3, training=True),
    "whole channels": lambda x: torch.nn.functional.dropout2d(x, 0.5),
    "noise": lambda x: x + torch.randn_like(x) * torch.rand(10, device=x.device),
    "whole numbers": lambda x: x * torch.randint(0, 5, (10,), device=x.device),
    "order": lambda x: x + torch.randperm(10, device=x.device),
    "into another": lambda x: x * torch.empty_like(x).uniform_(0.5, 1.5),
    "exponential": lambda x: x - torch.empty(10, device=x.device).exponential_().log(),
    "normal": lambda x: x + torch.zeros(10, device=x.device).normal_(1.0, 2.0),
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
    "around what is left": lambda x: torch.nn.functional.dropout(x, 0.2)
    * torch.bernoulli(torch.sigmoid(x)) + torch.rand(10, device=x.device),
    "on the host too": lambda x: x * torch.rand(10).to(x.device) + torch.rand_like(x),
}  # fmt: skip


@pytest.mark.parametrize("kind", DRAWS)
def test_other_draws_are_eagers(kind):
    x = torch.randn(4, 8, 6, 10, device="cuda")
    assert_as_eager(DRAWS[kind], x, options={"fallback": "inductor"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention_with_dropout_is_eagers(dtype):
    def function(x):
        heads = torch.nn.functional.dropout(x, 0.1).view(2, 64, 4, 32).transpose(1, 2)
        seen = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.4)
        return torch.nn.functional.dropout(seen, 0.2)

    x = torch.randn(2, 64, 128, device="cuda", dtype=dtype)
    assert_as_eager(function, x, options={"fallback": "inductor"}, units=64)


def test_dropout_at_open_sizes():
    function = lambda x: torch.nn.functional.dropout(x.cos(), 0.4)  # noqa: E731
    compiled = torch.compile(function, backend="aotc", dynamic=True, options=STRICT)
    for rows in (3, 800, 41):
        x = torch.randn(rows, 100, device="cuda")
        found = []
        for each in (function, compiled):
            torch.manual_seed(rows)
            found.append((each(x), torch.cuda.get_rng_state()))
        torch.testing.assert_close(found[1][0], found[0][0])
        assert torch.equal(found[0][1], found[1][1])


# -- training --------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_checkpoints_draw_the_same_twice(p):
    from torch.utils.checkpoint import checkpoint

    w = torch.randn(96, 96, device="cuda") / 10

    def inner(x):
        return torch.nn.functional.dropout(torch.tanh(x @ w), p)

    def function(x):
        return checkpoint(inner, checkpoint(inner, x, use_reentrant=False), use_reentrant=False)

    compiled = torch.compile(function, backend="aotc", options=STRICT)
    x = torch.randn(32, 96, device="cuda")
    rows = []
    for each in (function, compiled):
        given = x.clone().requires_grad_()
        torch.manual_seed(3)
        result = each(given)
        result.square().sum().backward()
        rows.append((result, given.grad, torch.rand(4, device="cuda")))
    for one, other in zip(rows[1], rows[0], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_scaler_of_gradients_skips_the_steps_that_eager_skips():
    """f16 autocast: the losses, and the scale after a step whose gradients overflow."""
    start, found = perceptron(), []
    data = [torch.randn(64, 96, device="cuda") for _ in range(12)]
    for backend in (None, "aotc"):
        module = copy.deepcopy(start)
        call = module if backend is None else torch.compile(module, backend=backend, options=STRICT)
        optimizer = torch.optim.SGD(module.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**15, growth_interval=3)
        losses, scales = [], []
        for number, batch in enumerate(data):
            with torch.autocast("cuda", torch.float16):
                loss = (call(batch).float() - batch[:, :72]).square().mean()
            scaled = loss * (1e6 if number == 5 else 1)
            optimizer.zero_grad()
            scaler.scale(scaled).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
        found.append((torch.tensor(losses), scales))
    assert found[0][1] == found[1][1]
    assert min(found[0][1]) < found[0][1][4]
    torch.testing.assert_close(found[1][0], found[0][0], rtol=5e-3, atol=1e-3)


def test_tensors_of_the_cpu_go_elsewhere():
    function = torch.compile(lambda x, y: (x * 2).cpu() + y.cos(), backend="aotc",
                             options={"fallback": "eager"})  # fmt: skip
    x, y = torch.randn(8, device="cuda"), torch.randn(8)
    torch.testing.assert_close(function(x, y), (x * 2).cpu() + y.cos())


@pytest.mark.parametrize("has_gradient", [False, True])
def test_products_of_f32_follow_torchs_switch(has_gradient):
    """Compiled anew where it changes, and found again where it changes back. Triton's product drops
    the low bits of both operands, up to 2⁻¹⁰ of each; cuBLAS rounds them. A gradient is behind at
    most four products."""
    function = lambda x, w: torch.tanh(x @ w) @ w  # noqa: E731
    compiled = torch.compile(function, backend="aotc", options=STRICT)
    x, w = (torch.randn(384, 384, device="cuda") / 20 for _ in range(2))

    def results(call, dtype=torch.float32):
        given = [each.to(dtype).requires_grad_(has_gradient) for each in (x.clone(), w.clone())]
        result = call(*given)
        if not has_gradient:
            return [result]
        result.square().sum().backward()
        return [result.detach(), *(each.grad for each in given)]

    exact, counts, errors = results(function, torch.float64), [], []
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            before = counters()["graphs"]
            rows = zip(results(compiled), results(function), exact, strict=True)
            errors.append([(distance(a, e), distance(b, e)) for a, b, e in rows])
            counts.append(counters()["graphs"] - before)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert counts == [1 + has_gradient, 1 + has_gradient, 0]
    for ours, eager in errors[0] + errors[2]:
        assert ours <= 4 * eager + 1e-6
    for ours, eager in errors[1]:
        assert 1e-5 < ours <= 8 * 2.0**-10
        assert eager > 1e-5


def test_training_beside_eager():
    """bf16 autocast, AdamW: the losses are as near to eager's as roundings allow."""
    losses = []
    data = [torch.randn(64, 96, device="cuda") for _ in range(30)]
    start = perceptron()
    for backend in (None, "aotc"):
        module = copy.deepcopy(start)
        call = module if backend is None else torch.compile(module, backend=backend, options=STRICT)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
        own = []
        for batch in data:
            with torch.autocast("cuda", torch.bfloat16):
                loss = (call(batch).float() - batch[:, :72]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            own.append(loss.item())
        losses.append(torch.tensor(own))
    torch.testing.assert_close(losses[1], losses[0], rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("is_autocast", [True, False])
def test_gradients_of_large_weights_by_torchs_library(caplog, is_autocast, rounds):
    """Of 16-bit products that are the graph's own results: they are no refusals, and right."""
    caplog.set_level("INFO", logger="aotc")
    dtype = torch.float32 if is_autocast else torch.bfloat16
    layers = [torch.nn.Linear(1536, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 1536)]
    module = torch.nn.Sequential(*layers).to("cuda", dtype)
    options = {**STRICT, "round_intermediates": rounds}
    compiled = torch.compile(module, backend="aotc", options=options)
    x = torch.randn(2048, 1536, device="cuda", dtype=dtype)
    with torch.autocast("cuda", torch.bfloat16, enabled=is_autocast):
        rows = gradients_beside_f64(module, x, compiled)
    assert "torch's library for products" in caplog.text
    for ours, eager in rows:
        assert ours <= 1.5 * eager + 1e-6


def stepped(kind, dtype, backend=None):
    """Parameters after four steps, each along the sine of what they are."""
    torch._dynamo.reset()
    torch.manual_seed(1)
    drawn = [torch.randn(33, 7, device="cuda").to(dtype) for _ in range(3)]
    values = [torch.nn.Parameter(each) for each in drawn]
    optimizer = kind(values, lr=0.1)
    compiling = {"backend": backend, "options": STRICT if backend == "aotc" else None}
    step = torch.compile(optimizer.step, **compiling) if backend else optimizer.step
    for _ in range(4):
        for each in values:
            each.grad = torch.sin(each.detach())
        step()
    return torch.cat([each.detach().flatten() for each in values]).double()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_compiled_optimizer(kind):
    """As near to the steps in f64 as the same graph op by op: a compiled optimiser counts its steps
    in f32, in which 1 - 0.999 is off by 5e-5 of itself; eager counts them in Python."""
    expected = stepped(kind, torch.float64)
    op_by_op = (stepped(kind, torch.float32, "aot_eager") - expected).abs()
    ours = (stepped(kind, torch.float32, "aotc") - expected).abs()
    assert ours.max() <= 2 * op_by_op.max() + 1e-7
    assert ours.mean() <= 2 * op_by_op.mean() + 1e-8


SECOND = """
import torch
from aotc.aot.dynamo.programs import counters
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).cuda()
x = torch.randn(8, 64, device="cuda")
y = torch.compile(module, backend="aotc", options={"fallback": "error"})(x)
y.sum().backward()
torch.cuda.synchronize()
print(counters()["programs_made"], counters()["kernels_compiled"], float(y.detach().sum()))
"""


def test_a_second_process_compiles_nothing():
    command = [sys.executable, "-c", SECOND]
    texts = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert int(texts[0][0]) >= 2
    assert texts[1][:2] == ["0", "0"]
    assert texts[0][2] == texts[1][2]


def test_kept_tensors_and_intermediates_share_blocks():
    """A retained graph may be asked twice; arenas hold hardly anything between calls."""
    layers = [torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.LayerNorm(2048)]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(2048, 512)).cuda()
    compiled = torch.compile(module, backend="aotc", options=STRICT)
    x = torch.randn(1024, 512, device="cuda")
    for _ in range(3):
        loss = compiled(x).square().sum()
        first = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        second = torch.autograd.grad(loss, list(module.parameters()))
        assert all(map(torch.equal, first, second))
    held = []

    def pack(tensor):
        held.append((tensor, tensor.clone()))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = compiled(x).square().sum()
    third = torch.autograd.grad(loss, list(module.parameters()))
    assert all(map(torch.equal, first, third))
    assert all(torch.equal(*each) for each in held)
    for ours, eager in gradients_beside_f64(module, x, compiled):
        assert ours <= 4 * eager + 1e-6

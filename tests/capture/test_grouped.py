"""Histograms and products in groups beside torch, and a mixture of experts of transformers."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.torch
GROUPS, ROWS, DEPTH, WIDTH = 5, 37, 24, 72
ENDS = {  # of five groups: none empty, some empty, all in one, rows behind the last end
    "even": (7, 15, 20, 30, 37),
    "empty": (0, 0, 21, 21, 37),
    "one": (37, 37, 37, 37, 37),
    "short": (3, 3, 9, 20, 26),
}
HISTOGRAMS = ((8, 0, 7), (4, -1, 1), (10, 0, 0), (3, 0.1, 0.7), (100, -2.5, 3.1), (1, 0, 5))


TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float64: 1e-12}


def compiled(function, *example, dynamic=False):
    from aotc.aot.dynamo import aotc

    options = {"fallback": "error"}  # nothing goes to Inductor
    call = torch.compile(function, backend=aotc, dynamic=dynamic, fullgraph=True, options=options)
    return call(*example)


@pytest.fixture(autouse=True)
def fresh(monkeypatch, cache):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(cache))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rows_by_group(data, matrices, ends):
    out = torch.zeros(data.shape[0], matrices.shape[2], dtype=torch.float64)
    start = 0
    for group, end in enumerate(ends.tolist()):
        out[start:end] = data[start:end].double() @ matrices[group].double()
        start = end
    return out


def histograms(x):
    return tuple(torch.histc(x, *how) for how in HISTOGRAMS)


def test_histograms_are_torchs():
    generator = torch.Generator().manual_seed(3)
    random = torch.randn(3, 50, generator=generator) * 3
    edges = torch.linspace(-3, 8, 150)
    whole = torch.randint(-2, 9, (150,), generator=generator).float()
    whole[::7] = float("nan")
    same = torch.full((150,), 2.0)
    for x in (random, edges.reshape(3, 50), same.reshape(3, 50)):
        for how, found, expected in zip(
            HISTOGRAMS, compiled(histograms, x), histograms(x), strict=True
        ):
            assert torch.equal(found, expected), how
    ranged = lambda x: torch.histc(x, 8, 0, 7)  # noqa: E731  a range, since NaN has none
    assert torch.equal(compiled(ranged, whole), ranged(whole))


def products(data, transposed, ends, gradient):
    """All that a layer of experts and its gradients ask for, by both libraries' ops."""
    matrices, ops = transposed.transpose(-2, -1), torch.ops.transformers
    found = (
        ops.grouped_mm_fallback(data, matrices, ends),
        *ops.grouped_mm_fallback_backward(data, matrices, ends, gradient),
    )
    if data.dtype != torch.bfloat16:  # torch's own takes no other
        return found
    columns = torch._grouped_mm(transposed, data.t(), offs=ends)
    both = torch._grouped_mm(data.t(), gradient, offs=ends)
    return *found, torch._grouped_mm(data, matrices, offs=ends), columns.t(), both


def expected_products(data, transposed, ends, gradient):
    data, transposed, gradient = data.double(), transposed.double(), gradient.double()
    rows = rows_by_group(data, transposed.transpose(-2, -1), ends)
    starts = [0, *ends.tolist()[:-1]]
    parts = [slice(start, end) for start, end in zip(starts, ends.tolist(), strict=True)]
    depth = torch.stack([data[part].t() @ gradient[part] for part in parts])
    return rows, rows_by_group(gradient, transposed, ends), depth, rows, rows, depth


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_products_in_groups_are_those_of_each_group(dtype):
    pytest.importorskip("transformers.integrations.moe")
    generator = torch.Generator().manual_seed(1)
    shapes = ((ROWS, DEPTH), (GROUPS, WIDTH, DEPTH), (ROWS, WIDTH))
    data, transposed, gradient = (
        torch.randn(each, generator=generator).to(dtype) for each in shapes
    )
    for ends in ENDS.values():
        ends = torch.tensor(ends, dtype=torch.int32)
        last = int(ends[-1])
        found = compiled(products, data, transposed, ends, gradient)
        expected = expected_products(data, transposed, ends, gradient)
        for number, (left, right) in enumerate(zip(found, expected, strict=False)):
            rows = slice(last) if number in (3, 4) else slice(None)  # torch leaves the rest
            distance = (left.double() - right)[rows].abs().max() / right.abs().max()
            assert distance <= TOLERANCES[dtype], (ends.tolist(), number)


def test_as_many_rows_as_a_call_decides():
    pytest.importorskip("transformers.integrations.moe")
    op = torch.ops.transformers.grouped_mm_fallback
    matrices, ends = torch.randn(GROUPS, DEPTH, WIDTH), torch.tensor(ENDS["short"])
    call = lambda *given: op(*given) * 2  # noqa: E731
    for rows in (ROWS, 29, 300):
        data = torch.randn(rows, DEPTH)
        torch._dynamo.mark_dynamic(data, 0)
        found = compiled(call, data, matrices, ends, dynamic=None)
        expected = rows_by_group(data, matrices, ends).float() * 2
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_dynamic_rows_read_the_matrices_as_they_are_stored():
    """Prefill and decode of a mixture of experts then store them once."""
    from torch.export import Dim

    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import spec_of

    example = {"input_ids": torch.arange(14).reshape(2, 7)}
    length = {"input_ids": {1: Dim("length", min=2, max=30)}}
    graph = capture(spec_of(experts(), example, dynamic_shapes=length)).graph
    products = [node for node in graph.nodes() if node.op == "grouped_matmul"]
    assert len(products) == 2
    assert not any(isinstance(node.shape[0], int) for node in products)


def experts():
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4}
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**sizes, **heads)).eval()


def test_a_mixture_of_experts_is_captured_whole():
    from aotc.aot.capture.capture import capture
    from aotc.aot.capture.spec import spec_of

    graph = capture(spec_of(experts(), {"input_ids": torch.arange(14).reshape(2, 7)})).graph
    assert [node.op for node in graph.nodes()].count("grouped_matmul") == 2


@pytest.mark.nightly
def test_a_mixture_of_experts_is_trained_without_inductor():
    module, ids = experts(), torch.arange(14).reshape(2, 7)
    own = copy.deepcopy(module)
    module(input_ids=ids, labels=ids).loss.backward()
    compiled(lambda given: own(input_ids=given, labels=given).loss, ids).backward()
    for left, right in zip(own.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-4, atol=1e-6)

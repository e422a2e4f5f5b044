"""Data errors behind torch.compile: raised as eager raises, forward and backward."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import sites
import torch

NAMES = ("embedding", "index", "index_put", "index_add", "one_hot", "cross entropy", "remainder")
OPTIONS = {"fallback": "error"}


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_function_raises_as_eager_does(name):
    site = sites.SITES[name]
    torch._dynamo.reset()
    compiled = torch.compile(site.run, backend="aotc", options=OPTIONS)
    good = torch.tensor(site.good)
    torch.testing.assert_close(compiled(good), site.run(good))
    for number in site.bad:
        bad = good.clone()
        bad[-1] = number
        with pytest.raises(site.error):
            compiled(bad)
    torch.testing.assert_close(compiled(good), site.run(good))


def test_a_failed_step_changes_neither_gradients_nor_buffers():
    model = torch.nn.Embedding(6, 4)
    seen = torch.zeros(6)

    def step(index):
        seen.add_(1.0)
        return torch.nn.functional.cross_entropy(model(index), index % 4)

    torch._dynamo.reset()
    compiled = torch.compile(step, backend="aotc", options=OPTIONS)
    compiled(torch.tensor([0, 5, 2])).backward()
    before = model.weight.grad.clone()
    with pytest.raises(IndexError):
        compiled(torch.tensor([0, 6, 2]))
    assert torch.equal(model.weight.grad, before)
    assert torch.equal(seen, torch.ones(6))
    compiled(torch.tensor([1, 5, 2])).backward()
    assert not torch.equal(model.weight.grad, before)


def test_a_gather_with_gradients_raises_before_its_backward():
    def pick(table, index):
        return (table.sin().gather(1, index) * 2).sum()

    torch._dynamo.reset()
    compiled = torch.compile(pick, backend="aotc", options=OPTIONS)
    table = torch.randn(3, 4, requires_grad=True)
    expected = torch.autograd.grad(pick(table, torch.tensor([[3], [0], [1]])), table)
    found = torch.autograd.grad(compiled(table, torch.tensor([[3], [0], [1]])), table)
    torch.testing.assert_close(found, expected)
    with pytest.raises(RuntimeError):
        compiled(table, torch.tensor([[-1], [0], [1]]))


def test_unchecked_indices_is_an_option():
    torch._dynamo.reset()
    options = {**OPTIONS, "unchecked_indices": True}
    compiled = torch.compile(sites.SITES["embedding"].run, backend="aotc", options=options)
    assert compiled(torch.tensor([0, 99])).isfinite().all()


def test_sizes_that_a_call_decides():
    def pick(table, index):
        return table[index] + 1

    torch._dynamo.reset()
    compiled = torch.compile(pick, backend="aotc", options=OPTIONS, dynamic=True)
    for rows in (5, 7, 11):
        table = torch.randn(rows, 3)
        index = torch.arange(rows)
        torch.testing.assert_close(compiled(table, index), pick(table, index))
        with pytest.raises(IndexError, match=f"-{rows} to {rows - 1}"):
            compiled(table, index + 1)

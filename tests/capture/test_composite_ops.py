"""Rules of composite ops while a model is taken apart: few, looked up once, and gone afterwards."""

from __future__ import annotations

from contextlib import suppress

import pytest

torch = pytest.importorskip("torch")

from torch.export import decomp_utils, exported_program  # noqa: E402

from aotc.aot.capture import exporting, torch_repairs  # noqa: E402
from aotc.aot.capture.torch_repairs import ops_listed_once, rules_of_devices  # noqa: E402

LISTS = [getattr(exported_program, name) for name in torch_repairs.KEYS]


def names():
    return [[key.name for key in keys] for keys in LISTS]


@pytest.fixture
def program():
    module = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU()).eval()
    return torch.export.export(module, (torch.randn(2, 4),))


def test_rules_are_for_the_devices_of_the_graph(program, monkeypatch):
    before, seen, decomposed = names(), [], exporting._decomposed
    monkeypatch.setattr(
        exporting, "_decomposed", lambda *given: (seen.append(names()), decomposed(*given))[1]
    )
    op = torch.ops.aten.linear.default
    kernels = dict(op.py_kernels)
    found = exporting.decompose(program, {}, ())
    assert "aten.addmm" in str(found.graph)
    assert seen == [[["AutogradCPU", "AutogradMeta"], ["CPU", "Meta"]]]
    assert names() == before
    assert op.py_kernels == kernels


@pytest.mark.parametrize(("types", "count"), [({"cuda"}, 1), ({"cuda", "cpu"}, 2), ({"ve"}, None)])
def test_devices_that_are_not_known_have_rules_for_all(types, count):
    before = names()
    with suppress(KeyError), rules_of_devices(types):
        assert [len(keys) for keys in LISTS] == [count or len(keys) for keys in before]
        raise KeyError
    assert names() == before


def test_ops_are_listed_once(program, monkeypatch):
    calls, find = [], torch_repairs._FIND_OPS
    monkeypatch.setattr(torch_repairs, "_FIND_OPS", lambda: (calls.append(1), find())[1])
    exporting.decompose(program, {}, ())
    assert len(calls) == 1
    with ops_listed_once():
        assert decomp_utils._collect_all_valid_cia_ops() == find()
        assert exported_program._collect_all_valid_cia_ops() == find()

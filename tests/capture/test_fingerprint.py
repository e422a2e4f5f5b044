"""Fingerprints: what an export depends on changes them, nothing else does, guesses are not made."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest

torch = pytest.importorskip("torch")

from aotc.aot.capture.fingerprint import fingerprint  # noqa: E402  needs torch
from aotc.aot.capture.spec import load_spec, spec_of  # noqa: E402

pytestmark = pytest.mark.torch

SPEC = """
import torch
import fingerprinted_helper as helper

SCALE = 2.0
UNREAD = 1.0
TABLE = torch.arange(4.0)


def scaled(x, by=3.0):
    return x * by * SCALE


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)
        self.names = {"b", "a", "c", "long name"}
        self.slope = 0.5
        self.act = lambda x: x.relu()

    def forward(self, x):
        with torch.no_grad():
            return self.act(scaled(self.inner(x))) + helper.shift(x) * self.slope + TABLE


model = Model()
example_inputs = (torch.ones(2, 4),)
"""
HELPER = "OFFSET = 1.0\nUNREAD = 1.0\n\n\ndef shift(x):\n    return x + OFFSET\n"


@pytest.fixture
def spec(tmp_path, monkeypatch):
    """The spec and its helper's module, each loaded anew."""
    (tmp_path / "fingerprinted.py").write_text(SPEC)
    (tmp_path / "fingerprinted_helper.py").write_text(HELPER)
    monkeypatch.delitem(sys.modules, "fingerprinted_helper", raising=False)
    yield load_spec(str(tmp_path / "fingerprinted.py"))
    sys.modules.pop("fingerprinted_helper", None)


def differing(spec, before):
    after = fingerprint(spec)
    assert after is not None
    return {name for name in after if after[name] != before[name]}


def own(name):
    return sys.modules[name]


CHANGES = {
    "a weight": (lambda spec: spec.module.inner.weight.data.add_(1), {"model"}),
    "an attribute": (lambda spec: setattr(spec.module, "slope", 0.25), {"model"}),
    "a set": (lambda spec: spec.module.names.add("d"), {"model"}),
    "the mode": (lambda spec: spec.module.train(), {"model"}),
    "a hook": (
        lambda spec: spec.module.register_forward_pre_hook(lambda module, inputs: None),
        {"model", "globals", "files"},  # it is this file's
    ),
    "the example": (lambda spec: spec.arguments[0].zero_(), {"example"}),
    "a number read": (
        lambda spec: setattr(own("aotc_spec_fingerprinted"), "SCALE", 5.0),
        {"globals"},
    ),
    "a tensor read": (lambda spec: own("aotc_spec_fingerprinted").TABLE.add_(1), {"globals"}),
    "a default": (
        lambda spec: setattr(own("aotc_spec_fingerprinted").scaled, "__defaults__", (4.0,)),
        {"globals"},
    ),
    "a number that a helper reads": (
        lambda spec: setattr(own("fingerprinted_helper"), "OFFSET", 5.0),
        {"globals"},
    ),
    "nothing that is read": (
        lambda spec: setattr(own("aotc_spec_fingerprinted"), "UNREAD", 5.0),
        set(),
    ),
    "nothing that a helper reads": (
        lambda spec: setattr(own("fingerprinted_helper"), "UNREAD", 5.0),
        set(),
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_shows_where_it_belongs(spec, change, expected):
    before = fingerprint(spec)
    assert before is not None
    change(spec)
    assert differing(spec, before) == expected


@pytest.mark.parametrize("name", ["fingerprinted.py", "fingerprinted_helper.py"])
def test_a_file_is_hashed_by_its_bytes(spec, tmp_path, name):
    before = fingerprint(spec)
    with (tmp_path / name).open("a") as file:
        file.write("# another line\n")
    assert differing(spec, before) == {"files"}


def test_torch_s_switches_are_hashed(spec):
    before = fingerprint(spec)
    torch.set_default_dtype(torch.float64)
    try:
        assert differing(spec, before) == {"settings"}
    finally:
        torch.set_default_dtype(torch.float32)


def test_shared_memory_is_hashed():
    def model(is_tied):
        torch.manual_seed(0)
        pair = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        with torch.no_grad():
            pair[1].weight.copy_(pair[0].weight)
        if is_tied:
            pair[1].weight = pair[0].weight
        return spec_of(pair, (torch.ones(2, 4),))

    assert fingerprint(model(False)) == fingerprint(model(False))
    assert fingerprint(model(False)) != fingerprint(model(True))


def test_another_process_tells_the_same(tmp_path):
    """Whatever the seed of its sets' order."""
    (tmp_path / "fingerprinted.py").write_text(SPEC)
    (tmp_path / "fingerprinted_helper.py").write_text(HELPER)
    program = textwrap.dedent("""
        from aotc.aot.capture.fingerprint import fingerprint
        from aotc.aot.capture.spec import load_spec
        print(fingerprint(load_spec("fingerprinted.py")))
    """)
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].startswith("{")


class Holder(torch.nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return x + 1


class Wrapped(torch.Tensor):
    pass


UNTOLD = {
    "a function": lambda: spec_of(lambda x: x + 1, (torch.ones(2),)),
    "a lock": lambda: spec_of(Holder(threading.Lock()), (torch.ones(2),)),
    "a tensor of another kind": lambda: spec_of(
        Holder(torch.ones(2).as_subclass(Wrapped)), (torch.ones(2),)
    ),
    "a sparse tensor": lambda: spec_of(Holder(torch.ones(2, 2).to_sparse()), (torch.ones(2),)),
}


def test_dims_that_vary_are_hashed_by_what_they_mean():
    def of(*dims):
        shapes = [{0: dim} for dim in dims] + [{}] * (2 - len(dims))
        inputs = torch.ones(2, 2), torch.ones(2, 2)
        spec = spec_of(torch.nn.PairwiseDistance(), inputs, dynamic_shapes=tuple(shapes))
        return fingerprint(spec)["dims"]

    dim = torch.export.Dim
    equal = [(dim("n"), dim("n")), (dim("n", max=8), dim("n", max=8))]
    assert [of(*each) for each in equal] == [of(*each) for each in equal]
    others = [(dim("n"),), (dim("m"),), (dim("n", max=8),), (dim("n", min=2),), (2 * dim("n"),)]
    others += [(dim("n"), dim("m")), (dim("n"), dim("n")), (dim("n"), dim.AUTO), (dim.STATIC,)]
    assert len({of(*each) for each in others}) == len(others)


@pytest.mark.parametrize("make", UNTOLD.values(), ids=UNTOLD)
def test_what_cannot_be_hashed_has_none(make):
    assert fingerprint(make()) is None

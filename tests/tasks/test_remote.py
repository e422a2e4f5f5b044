"""What a node does with a task, and what is refused before there is a cluster; without Ray."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aotc.aot.errors import KernelFailed
from aotc.aot.tasks import cluster
from aotc.aot.tasks.cluster import Cluster, perform, versions
from aotc.aot.tasks.errors import ClusterExtraMissing, ClusterUnreachable
from aotc.aot.tasks.task import describe, pack, restore, unpack


@pytest.fixture(autouse=True)
def pool():
    """The worker of the node, ended after the test."""
    yield
    cluster._pool().close()
    cluster._pool.cache_clear()


def answer(function, *arguments, own=None):
    return unpack(perform(pack((own or versions(), "k", function, arguments, None))), "the answer")


def test_a_node_answers_with_the_value():
    kind, seconds, value = answer("operator:mul", 2.5, 2)
    assert (kind, value) == ("value", 5.0)
    assert seconds > 0


def test_a_task_that_ends_its_process_is_its_own_error_with_its_text():
    for call in (("os:abort",), ("operator:truediv", 1, 0)):
        kind, _, (name, fields, suffix, text) = answer(*call)
        assert kind == "error"
        assert isinstance(restore(name, fields), KernelFailed)
        assert suffix == "txt"
        assert type(text) is bytes
        assert not Path(fields["source"]).exists()  # it travels as bytes


def test_a_node_with_other_versions_runs_nothing():
    other = {**versions(), "torch": "1.0"}
    kind, _, (node, own) = answer("os:abort", own=other)
    assert (kind, node, own) == ("differs", socket.gethostname(), versions())


def test_values_come_back_as_they_were():
    value = ({"a": b"x", "b": (1, 2.5, None, True, "t")}, (), -1, float("inf"))
    assert unpack(pack(value), "a value") == value
    assert pack({"a": 1, "b": 2}) == pack({"a": 1, "b": 2})


def test_an_answer_names_no_class_but_errors_of_ours():
    error = KernelFailed(kernel="k", detail="d", source="s")
    assert str(restore(*describe(error))) == str(error)
    for kind in ("os:system", "aotc.aot.tasks.workers:Workers", "builtins:ValueError"):
        with pytest.raises(ValueError, match="is not an error of aotc's"):
            restore(kind, {})


def test_without_ray_the_extra_is_named(monkeypatch, aotc, spec, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ClusterExtraMissing):
        Cluster("127.0.0.1:1")
    code, _, errors = aotc("build", spec, "-o", tmp_path / "out", "--ray", "auto", "--quiet")
    assert code == 7
    assert 'pip install "aotc[ray]"' in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_where_nobody_listens_it_says_so_at_once(address):
    pytest.importorskip("ray", reason="ray is not installed")
    with pytest.raises(ClusterUnreachable) as caught:
        Cluster(address)
    assert caught.value.exit_code == 7
    assert address in str(caught.value)

"""Rewrites of the user's: the three forms, and what is refused with its name and texts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aotc.aot import ops, rewrite
from aotc.aot.ir.text import parse_graph, print_graph
from aotc.aot.rewrites.apply_user_rewrites import apply_user_rewrites
from aotc.aot.rewrites.registry import digest_of, only, registered
from aotc.aot.rewrites.rewrite import rewrite_each
from aotc.aot.rewrites.user_rewrites import (
    UserRewriteEndless,
    UserRewriteInvalid,
    UserRewriteRejected,
    UserRewritesUnreadable,
    load_rewrites,
)
from aotc.aot.targets.cpu.target import CPU

GRAPH = """%x = input(name='x') : f32[4, 8]
%1 = sigmoid(%x) : f32[4, 8]
%2 = mul(%x, %1) : f32[4, 8]
return o=%2
"""


@pytest.fixture(autouse=True)
def _alone():
    with only():
        yield


@pytest.fixture
def graph():
    return parse_graph(GRAPH)


def test_an_equation(graph):
    @rewrite(lambda x: x * ops.sigmoid(x))
    def swish(x):
        return ops.silu(x)

    result, log = apply_user_rewrites(graph, registered())
    assert [node.op for node in result.nodes()] == ["input", "silu"]
    assert log.counts == {"swish": 1}


def test_literals_attributes_and_a_condition():
    text = """%x = input(name='x') : f32[4, 8]
    %c = scalar(value=2.0, dtype='f32') : f32[]
    %1 = pow(%x, %c) : f32[4, 8]
    %2 = sum(%1, axes=(1,)) : f32[4, 1]
    %3 = sum(%1, axes=(0,)) : f32[1, 8]
    return rows=%2, columns=%3
    """

    def is_of_rows(root):
        return root.attr("axes") == (1,)

    def left(x, exponent: float):
        return ops.sum(ops.pow(x, exponent), axes="axes")

    @rewrite(left, when=is_of_rows)
    def halves(x, exponent: float):
        root = ops.pow(x, exponent)
        return ops.sum(root * 0.5, axes="axes") + ops.sum(root * 0.5, axes=(1,))

    graph = parse_graph("\n".join(line.strip() for line in text.splitlines()))
    result, log = apply_user_rewrites(graph, registered())
    assert log.counts == {"halves": 1}
    rows, columns = result.outputs
    assert (rows.op, columns.op) == ("add", "sum")
    assert rows.inputs[0] is rows.inputs[1]


def test_a_function_over_the_graph(graph):
    @rewrite
    def shorter(graph):
        node = graph.outputs[0].inputs[1]
        return graph.with_outputs((node,))

    result, log = apply_user_rewrites(graph, registered(), follow=graph.outputs)
    assert [node.op for node in result.nodes()] == ["input", "sigmoid"]
    assert log.counts == {"shorter": 1}
    assert log.images == {graph.outputs[0]: result.outputs[0]}


def test_the_stage_runs_them_before_and_behind_ours(graph):
    seen = []

    @rewrite
    def watch(graph):
        seen.append(graph.outputs[0].op)
        return graph

    rewrite_each(graph, {"cpu": CPU}, own=lambda graph: apply_user_rewrites(graph, registered()))
    assert seen == ["mul", "silu"]


# -- refused ---------------------------------------------------------------------------------------


def test_another_type_is_refused_with_both_texts(graph):
    @rewrite(lambda x: x * ops.sigmoid(x))
    def narrow(x):
        return ops.cast(x, dtype="f16")

    with pytest.raises(UserRewriteRejected) as caught:
        apply_user_rewrites(graph, registered())
    error = caught.value
    assert error.rule == "narrow"
    assert error.source.startswith("test_user_rewrites.py:")
    assert error.reason == "it gives f16[4, 8], expected f32[4, 8]"
    assert error.before == GRAPH.replace("return o", "return result")
    assert "cast(%x, dtype='f16') : f16[4, 8]" in error.after


@pytest.mark.parametrize(
    ("right", "reason"),
    [
        (lambda x: ops.sum(x, axes=(0,)), "it gives f32[1, 8], expected f32[4, 8]"),
        (lambda x: ops.logical_not(x), "IllegalNodeError"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
        (lambda x: "x", "expected an expression of `ops`"),
    ],
    ids=["shape", "illegal", "raises", "no expression"],
)
def test_what_cannot_stand_there_is_refused(graph, right, reason):
    rewrite(lambda x: x * ops.sigmoid(x))(right)
    with pytest.raises(UserRewriteRejected) as caught:
        apply_user_rewrites(graph, registered())
    assert reason in caught.value.reason
    assert "mul" in caught.value.before


def test_one_without_an_end_is_refused(graph):
    @rewrite(lambda x, y: ops.mul(x, y))
    def swap(x, y):
        return y * x

    with pytest.raises(UserRewriteEndless, match=r"rewrite `swap` .* does not come to an end"):
        apply_user_rewrites(graph, registered())


def test_one_that_grows_is_refused(graph):
    @rewrite(lambda x: ops.sigmoid(x))
    def grow(x):
        return ops.sigmoid(x + 1.0) * ops.sigmoid(x - 1.0)

    with pytest.raises(UserRewriteEndless) as caught:
        apply_user_rewrites(graph, registered())
    assert caught.value.count <= 10_100


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda graph: graph.with_outputs(graph.outputs * 2), "it has 2 outputs, expected 1"),
        (lambda graph: graph.with_outputs(graph.outputs), ""),
        (lambda graph: None, "it gives `NoneType`, expected a `Graph`"),
        (lambda graph: graph.outputs[3], "IndexError"),
    ],
    ids=["outputs", "same", "nothing", "raises"],
)
def test_a_function_keeps_the_signature(graph, change, reason):
    def change_graph(graph):
        return change(graph)

    rewrite(change_graph)
    if not reason:
        assert apply_user_rewrites(graph, registered())[1].counts == {}
        return
    with pytest.raises(UserRewriteRejected) as caught:
        apply_user_rewrites(graph, registered())
    assert reason in caught.value.reason
    assert caught.value.before == print_graph(graph)


def test_a_left_side_that_is_no_pattern_is_refused():
    with pytest.raises(UserRewriteInvalid, match="there is no op `swishiness`"):
        rewrite(lambda x: ops.swishiness(x))(lambda x: x)
    with pytest.raises(UserRewriteInvalid, match="begins with an op"):
        rewrite(lambda x: x)(lambda x: x)
    with pytest.raises(UserRewriteInvalid, match="takes `y`, which its left side does not bind"):
        rewrite(lambda x: ops.exp(x))(lambda x, y: y)


def test_a_condition_that_raises_is_refused(graph):
    @rewrite(lambda x: x * ops.sigmoid(x), when=lambda x: x.colour)
    def swish(x):
        return ops.silu(x)

    with pytest.raises(UserRewriteRejected, match=r"its `when` raises AttributeError: .*colour"):
        apply_user_rewrites(graph, registered())


def test_a_condition_takes_what_a_match_binds():
    def right(x):
        return ops.exp(x)

    rewrite(lambda x: ops.sum(x, axes="axes"), when=lambda x, axes, root: True)(right)
    with pytest.raises(UserRewriteInvalid, match="its `when` takes `y`, expected one of: root, x"):
        rewrite(lambda x: ops.exp(x), when=lambda y: True)(right)


def test_an_attribute_that_an_op_lacks_is_named():
    with pytest.raises(UserRewriteInvalid, match="`sum` has no attribute `axis`, expected: axes"):
        rewrite(lambda x: ops.sum(x, axis="axis"))(lambda x: x)
    with pytest.raises(TypeError, match="is given 'x', expected a function"):
        rewrite("x")


# -- files -----------------------------------------------------------------------------------------

FILE = """
from aotc.aot import ops, rewrite

@rewrite(lambda x: x * ops.sigmoid(x))
def swish(x):
    return ops.silu(x)
"""


def test_a_file_holds_rewrites_of_its_own(tmp_path, graph):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    (own,) = load_rewrites(path)
    assert (own.name, own.source) == ("swish", "mine.py:4")
    assert registered() == ()
    assert apply_user_rewrites(graph, [own])[1].counts == {"swish": 1}
    before = digest_of([own])
    path.write_text(FILE + "# changed\n")
    assert digest_of(load_rewrites(path)) != before


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it registers no rewrite"),
        ("1 / 0", "ZeroDivisionError"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        (None, "no such file"),
    ],
)
def test_a_file_without_rewrites_is_refused(tmp_path, text, reason):
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserRewritesUnreadable, match=reason):
        load_rewrites(path)


def test_two_of_one_name_in_a_file_are_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE + FILE)
    with pytest.raises(
        UserRewriteInvalid, match=r"that of another rewrite of the file \(mine.py:4"
    ):
        load_rewrites(path)


def test_the_decorator_needs_neither_torch_nor_numpy():
    code = (
        "import sys; from aotc import aot\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "@aot.rewrite(lambda x: aot.ops.exp(x))\n"
        "def same(x): return aot.ops.exp(x)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

"""`graph.json`: written by builds, read strictly, and nobody needs it."""

import json
from dataclasses import replace

import pytest
import small_bundle

from aotc.aot.facts.bundle_facts import read_facts, variants
from aotc.aot.facts.graph_file import GRAPH_FILE, GraphFile, Group, TargetGraphs, Variant
from aotc.aot.pack import pack
from aotc.runtime.errors import BundleAltered, BundleMalformed

TEXTS = ("input", "", "f32[2]", "model.py:3 in forward", "neg")
GRAPH = GraphFile(
    1,
    TEXTS,
    (
        TargetGraphs(
            "null",
            40,
            20,
            (
                Variant(
                    0,
                    (),
                    ((0, 1, 2, 3, ()), (4, 1, 2, 3, (0,))),
                    (("y", 1),),
                    (Group("pointwise", "neg", (1,), (0,), (1,), 16, 2, 2001),),
                ),
            ),
        ),
    ),
)


def with_graph(tmp_path, data, name="bundle"):
    contents = replace(small_bundle.contents(), extras={"graph.json": data})
    pack(contents, tmp_path / name)
    return tmp_path / name


def test_what_is_written_is_read(tmp_path):
    data = json.dumps(GRAPH_FILE.write(GRAPH)).encode()
    facts = read_facts(with_graph(tmp_path, data))
    assert facts.graphs == GRAPH
    lines = list(facts.graphs.lines(GRAPH.targets[0].variants[0]))
    assert [(line.call, line.type, line.source) for line in lines] == [
        ("input()", "f32[2]", "model.py:3 in forward"),
        ("neg(%0)", "f32[2]", "model.py:3 in forward"),
    ]


def test_a_build_writes_the_graph_of_each_launch_with_the_model_s_lines(bundle):
    facts = read_facts(bundle)
    (each,) = variants(facts)
    (target,) = facts.graphs.targets
    (variant,) = target.variants
    assert len(variant.groups) == len(each.plan.launches)
    names = [each.plan.kernels[step.kernel].name for step in each.plan.launches]
    rows = zip(names, variant.groups, strict=True)
    assert all(name.startswith(group.label) for name, group in rows)
    lines = list(facts.graphs.lines(variant))
    stored = [lines[node] for group in variant.groups for node in group.stores]
    assert {line.source for line in stored} == {"tiny.py:12 in forward"}
    computed = {node for group in variant.groups for node in group.nodes}
    given = {"input", "constant", "scalar"}
    assert {line.op for line in lines if line.number not in computed} <= given
    assert all(group.estimate_ns > 0 and group.bytes > 0 for group in variant.groups)


def altered(path, value):
    """The file with one value replaced."""
    tree = GRAPH_FILE.write(GRAPH)
    *above, last = path
    place = tree
    for key in above:
        place = place[key]
    place[last] = value
    return json.dumps(tree).encode()


TREE = ("targets", 0, "variants", 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{" * 40,
        b'{"version": 1}',
        b"\xff",
        altered(("version",), 2),
        altered(("texts", 0), "\x1b[31m"),
        altered(("texts", 0), "x" * 2000),
        altered((*TREE, "nodes", 0, 0), 99),
        altered((*TREE, "nodes", 0, 4), [0]),
        altered((*TREE, "nodes", 0, 4), [1]),
        altered((*TREE, "nodes", 0, 0), -1),
        altered((*TREE, "nodes", 0, 0), 1.5),
        altered((*TREE, "groups", 0, "nodes"), [7]),
        altered((*TREE, "groups", 0, "bytes"), 1 << 60),
        altered((*TREE, "outputs", 0, 1), 2),
        altered((*TREE, "entry"), 64),
    ],
)
def test_what_breaks_the_grammar_is_refused(tmp_path, data):
    bundle = with_graph(tmp_path, data)
    with pytest.raises(BundleMalformed):
        read_facts(bundle)


def test_every_byte_is_checked(tmp_path):
    bundle = with_graph(tmp_path, b'{"a": 1}', "one")
    file = bundle / "graph.json"
    file.chmod(0o644)
    file.write_bytes(b'{"a": 2}')
    with pytest.raises(BundleAltered):
        read_facts(bundle)


def test_without_its_extras_a_bundle_has_fewer_facts(tmp_path):
    bundle = with_graph(tmp_path, json.dumps(GRAPH_FILE.write(GRAPH)).encode())
    (bundle / "graph.json").unlink()
    assert read_facts(bundle).graphs is None
    (bundle / "extras.msgpack").unlink()
    facts = read_facts(bundle)
    assert (facts.graphs, facts.golden, facts.provenance) == (None, {}, {})


def test_lines_are_those_of_this_build_whatever_stands_from_an_earlier_one():
    from aotc.aot.ir.graph import made_for, make, own_sources

    attributes = {"name": "own_sources", "dtype": "f32", "shape": (3,)}
    with made_for("first.py:1 in forward"):
        left = make("input", (), attributes)
    assert left.source == "first.py:1 in forward"
    with own_sources(), made_for("second.py:2 in forward"):
        assert make("input", (), attributes) is left
        with made_for("second.py:3 in forward"):
            make("input", (), attributes)
    assert left.source == "second.py:2 in forward"

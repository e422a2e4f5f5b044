"""`aotc diff`: a bundle is the same as itself, and a change of any section is found in it."""

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise

import device_bundle
import native_bundle
import pytest
import small_bundle
import small_torch_bundle
from hypothesis import given
from hypothesis import strategies as st

from aotc.aot.cli.diff import SECTION_NAMES
from aotc.aot.diff import targets
from aotc.aot.diff.diff import NAMES, diff
from aotc.aot.diff.graphs import COMPARED_LIMIT, changes
from aotc.aot.diff.sections import SECTIONS
from aotc.aot.facts.bundle_facts import read_facts
from aotc.aot.facts.graph_file import GraphFile, Variant
from aotc.aot.pack import pack
from aotc.runtime.errors import BundleLimit


def changed_graph(facts, change):
    """The facts with the first graph of the first target changed."""
    target, *targets = facts.graphs.targets
    variant, *variants = target.variants
    target = target.replace(variants=(change(variant), *variants))
    return replace(facts, graphs=facts.graphs.replace(targets=(target, *targets)))


def changed_entry(facts, **fields):
    entry, *entries = facts.manifest.entries
    manifest = facts.manifest.replace(entries=(entry.replace(**fields), *entries))
    return replace(facts, manifest=manifest)


def changed_plan(facts, **fields):
    (name, plan), *_ = facts.plans.items()
    plan = plan.replace(fixed=plan.fixed.replace(**fields))
    return replace(facts, plans={**facts.plans, name: plan})


def noted(facts, **fields):
    """The facts with something else that the build noted of its first target."""
    name = next(iter(facts.plans))
    targets = facts.provenance["targets"]
    targets = {**targets, name: {**targets[name], **fields}}
    return replace(facts, provenance={**facts.provenance, "targets": targets})


def renamed_input(facts):
    spec, *rest = facts.manifest.entries[0].inputs
    return changed_entry(facts, inputs=(spec.replace(name="other"), *rest))


def other_op(facts):
    def change(variant):
        op, *rest = variant.nodes[-1]
        assert facts.graphs.texts[op] != "input"
        return variant.replace(nodes=(*variant.nodes[:-1], (0, *rest)))

    return changed_graph(facts, change)


def other_golden(facts):
    (name, golden), *_ = facts.golden.items()
    tolerances = dict.fromkeys(golden.tolerances, 0.5)
    return replace(facts, golden={name: golden.replace(tolerances=tolerances)})


def other_kernel(facts):
    symbol, (first, *_) = next(iter(facts.plans)), facts.plans.values()
    kernels = facts.build_facts(symbol)["kernels"]
    code = first.kernels[0].symbol
    return noted(facts, kernels={**kernels, code: {**kernels[code], "choice": "XBLOCK=1"}})


def other_estimate(facts):
    def change(variant):
        group, *groups = variant.groups
        group = group.replace(estimate_ns=group.estimate_ns + 1)
        return variant.replace(groups=(group, *groups))

    return changed_graph(facts, change)


def other_fusion(facts):
    def change(variant):
        group, *groups = variant.groups
        return variant.replace(groups=(group.replace(nodes=group.nodes[:-1]), *groups))

    return changed_graph(facts, change)


def other_weight(facts):
    (name, tensor), *_ = facts.tensors.items()
    return replace(facts, tensors={**facts.tensors, name: tensor.replace(dtype="i32")})


def other_file(facts):
    entry, *files = facts.files
    return replace(facts, files=(entry.replace(sha256=bytes(32)), *files))


# Section → a change of the facts that it, and perhaps others, has to show.
CHANGES = {
    "signature": renamed_input,
    "entries": lambda facts: changed_entry(facts, name="other"),
    "settings": lambda facts: replace(facts, manifest=facts.manifest.replace(producer="other")),
    "ops": other_op,
    "graph": other_op,
    "fusion": other_fusion,
    "kernels": other_kernel,
    "sizes": lambda facts: changed_plan(facts, arena_bytes=64),
    "times": other_estimate,
    "numbers": other_golden,
    "weights": other_weight,
    "files": other_file,
}


@pytest.fixture(scope="module")
def facts(bundle):
    return read_facts(bundle)


@pytest.fixture(scope="module")
def bundles(bundle, tmp_path_factory):
    """Bundles of all kinds: built, of a device, of torch's ops, of native functions."""
    folder = tmp_path_factory.mktemp("bundles")
    pack(small_bundle.contents(), folder / "small")
    device_bundle.write(folder / "device", targets=(device_bundle.target(),))
    small_torch_bundle.write(folder / "torch")
    native_bundle.write(folder / "native")
    return [bundle, *sorted(folder.iterdir())]


def test_the_sections_of_the_command_are_those_there_are():
    assert set(SECTION_NAMES) == set(NAMES) == set(CHANGES)


def test_a_bundle_is_the_same_as_itself(bundles, aotc):
    for path in bundles:
        assert diff(read_facts(path), read_facts(path)).is_empty
        assert aotc("diff", path, path) == (0, "same\n", "")


def test_bundles_that_differ_are_never_the_same(bundles, aotc):
    for one, other in pairwise(bundles):
        code, out, errors = aotc("diff", one, other)
        assert (code, errors) == (1, "")
        assert "files: " in out


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_each_section_is_found_in_both_directions(facts, name):
    other = CHANGES[name](facts)
    for one, two in ((facts, other), (other, facts)):
        found = diff(one, two)
        assert name in found.sections or (name == "graph" and found.graphs)
        shown = found.sections.keys() | ({"graph"} if found.graphs else set())
        assert diff(one, two, ignored=shown).is_empty
        assert json.dumps(found.record())


def test_targets_of_one_family_are_compared_with_each_other(facts):
    """A build for one processor beside one for another: only what differs is listed."""
    (name,) = facts.plans
    (renamed, _) = targets.with_paired_targets(facts, facts)
    assert renamed == facts
    other = targets._renamed(facts, {name: "cpu-other"})
    found = diff(facts, other)
    assert set(found.sections) == {"settings"}
    assert not found.graphs
    found = diff(facts, CHANGES["kernels"](other))
    assert [row.name for row in found.sections["kernels"]]
    assert all(f"{name} → cpu-other: " in row.name for row in found.sections["kernels"])
    assert len(found.sections["kernels"]) == 1
    (row,) = facts.manifest.targets
    of_gpu = other.manifest.replace(targets=(row.replace(name="cpu-other", device="cuda"),))
    found = diff(facts, replace(other, manifest=of_gpu))
    assert len(found.sections["kernels"]) > 10  # nothing is like anything


def test_times_can_be_left_out(tmp_path, aotc):
    """Two bundles whose tuning measured different times, and nothing else."""
    for time in ("1.00", "2.00"):
        notes = {"targets": {"null": {"tuning": [f"{'d' * 64} null device - {time} - -"]}}}
        extras = {"provenance.json": json.dumps(notes).encode()}
        pack(replace(small_bundle.contents(), extras=extras), tmp_path / time)
    words = ("diff", tmp_path / "1.00", tmp_path / "2.00", "--json")
    code, out, _ = aotc(*words)
    sections = json.loads(out)["sections"]
    assert (code, set(sections)) == (1, {"times", "files"})
    assert (sections["times"][0]["one"], sections["times"][0]["other"]) == ("1.00", "2.00")
    code, out, _ = aotc(*words, "--ignore", "times")
    assert (code, json.loads(out)["sections"]) == (0, {})


def test_json_lists_all_and_text_the_first(bundles, aotc):
    one, *_, other = bundles
    code, out, _ = aotc("diff", one, other, "--json")
    record = json.loads(out)
    assert (code, record["schema"], record["same"]) == (1, "aotc.diff/1", False)
    (row, *_) = record["sections"]["files"]
    assert row["kind"] == "changed"
    assert row["name"] == "bundle digest"
    short, long = (aotc("diff", one, other, *more)[1] for more in ((), ("--all",)))
    assert len(long.splitlines()) >= len(short.splitlines())


def graph_of(rows):
    """A graph of nodes of one op each; rows: (op, operands)."""
    texts = tuple(dict.fromkeys(["", *(op for op, _ in rows)]))
    nodes = tuple((texts.index(op), 0, 0, 0, operands) for op, operands in rows)
    return GraphFile(1, texts, ()), Variant(0, (), nodes, (), ())


@st.composite
def graphs(draw):
    rows = []
    for at in range(draw(st.integers(1, 30))):
        operands = draw(st.lists(st.integers(0, at - 1), max_size=2)) if at else []
        rows.append((draw(st.sampled_from("abcd")), tuple(operands)))
    return rows


@given(graphs(), st.data())
def test_what_changed_in_a_graph(rows, data):
    """Nothing of a graph and itself; a new node at the end is added; one of a new op is found."""
    assert not list(changes(graph_of(rows), graph_of(rows)))
    longer = [*rows, ("new", (len(rows) - 1,))]
    (added,) = changes(graph_of(rows), graph_of(longer))
    assert (added.kind, added.call) == ("added", f"%{len(rows)} = new(%{len(rows) - 1})")
    (removed,) = changes(graph_of(longer), graph_of(rows))
    assert removed.kind == "removed"
    at = data.draw(st.integers(0, len(rows) - 1))
    other = [*rows[:at], ("other", rows[at][1]), *rows[at + 1 :]]
    kinds = {each.kind for each in changes(graph_of(rows), graph_of(other))}
    assert {"removed", "added"} <= kinds


def test_a_node_that_reads_another_one_is_found():
    one = [("x", ()), ("y", ()), ("neg", (0,))]
    other = [("x", ()), ("y", ()), ("neg", (1,))]
    (found,) = changes(graph_of(one), graph_of(other))
    assert str(found) == "~ %2 = neg(%0) :  → neg(%1)"


def test_a_large_graph_is_compared_within_bounds():
    rows = [(f"op{at % 7}", (at - 1,) if at else ()) for at in range(20_000)]
    other = [(f"po{at % 7}", operands) for at, (_, operands) in enumerate(rows)]
    assert len(list(changes(graph_of(rows), graph_of(other)))) == 40_000


@pytest.mark.parametrize("ops", ["ac/ab", "aab/abb"])
def test_graphs_alike_in_every_second_node_are_compared_within_bounds(ops):
    """As many nodes as are compared at all; difflib takes minutes for such."""
    count = COMPARED_LIMIT
    one, other = ([(each, ()) for each in (part * count)[:count]] for part in ops.split("/"))
    found = Counter(each.kind for each in changes(graph_of(one), graph_of(other)))
    assert found["removed"] == found["added"] > 0
    kept = count - found["removed"]
    assert kept >= count // 2


@given(st.text("abcd", max_size=12), st.text("abcd", max_size=12))
def test_as_many_nodes_correspond_as_can(one, other):
    @cache
    def longest(at, to):
        if not at or not to:
            return 0
        if one[at - 1] == other[to - 1]:
            return longest(at - 1, to - 1) + 1
        return max(longest(at - 1, to), longest(at, to - 1))

    graphs = (graph_of([(op, ()) for op in "(" + each + ")"]) for each in (one, other))
    kinds = Counter(each.kind for each in changes(*graphs))
    kept = longest(len(one), len(other))
    assert kinds == Counter({"removed": len(one) - kept, "added": len(other) - kept})


def test_a_small_file_that_says_a_long_text_many_times_is_refused(tmp_path):
    notes = {"name" * 250_000: {str(at): 1 for at in range(1000)}}
    extras = {"provenance.json": json.dumps(notes).encode()}
    pack(replace(small_bundle.contents(), extras=extras), tmp_path / "bundle")
    facts = read_facts(tmp_path / "bundle")
    with pytest.raises(BundleLimit):
        diff(facts, facts)


def test_a_long_text_is_cut_in_a_table_and_whole_in_json(tmp_path, aotc):
    for letter in "ab":
        extras = {"provenance.json": json.dumps({"model": letter * 5000}).encode()}
        pack(replace(small_bundle.contents(), extras=extras), tmp_path / letter)
    code, out, _ = aotc("diff", tmp_path / "a", tmp_path / "b", "--all")
    assert (code, max(map(len, out.splitlines())) < 500) == (1, True)
    assert "a" * 5000 in aotc("diff", tmp_path / "a", tmp_path / "b", "--json")[1]


def test_sections_name_nothing_twice(facts):
    for name, section in SECTIONS.items():
        names = [row for row, _ in section(facts)]
        assert len(names) == len(set(names)), name

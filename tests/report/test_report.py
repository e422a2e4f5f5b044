"""`aotc report`: one page with all that a bundle says, in which nothing of it is markup."""

import base64
import hashlib
import json
import re
from dataclasses import replace

import device_bundle
import native_bundle
import pytest
import small_bundle
import small_torch_bundle
from hypothesis import given
from hypothesis import strategies as st
from markup_reader import read

from aotc.aot.charts.units import bytes_text, time_text
from aotc.aot.facts.bundle_facts import read_facts, variants
from aotc.aot.pack import TensorData, pack
from aotc.aot.report.report import Measured, candidate_of, report
from aotc.aot.report.steps import lifetimes, subject_of
from aotc.aot.report.target_part import _step
from aotc.runtime.bundle.manifest import TensorSpec
from aotc.runtime.bundle.plan import Buffer, Launch, Plan
from aotc.runtime.errors import BundleLimit

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(1)>"
TENSOR = HOSTILE.replace('"', "")  # which no name of a tensor has
ELEMENTS = {
    "html", "head", "meta", "title", "style", "script", "body", "a", "nav", "main", "h1", "h2",
    "h3", "section", "p", "dl", "div", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td",
    "button", "figure", "figcaption", "svg", "rect", "text", "line", "polyline", "circle", "path",
    "ul", "li", "label", "select", "option", "input", "span", "b", "details", "summary", "pre",
    "code",
}  # fmt: skip


def hostile_contents():
    """Contents in which every text that may be chosen freely is an attack."""
    contents = small_bundle.contents()
    nbytes = 24
    plan = small_bundle.copy_plan(nbytes, 24, TENSOR)
    plan = plan.replace(
        kernels=tuple(kernel.replace(name=HOSTILE) for kernel in plan.kernels),
        buffers=tuple(buffer.replace(name=HOSTILE) for buffer in plan.buffers),
    )
    (entry,) = contents.entries
    entry = entry.replace(inputs=(TensorSpec(TENSOR, "f32", small_bundle.SHAPE),))
    target = replace(contents.targets[0], plan=Plan.of(plan))
    notes = {
        "model": HOSTILE,
        HOSTILE: [HOSTILE],
        "targets": {
            "null": {
                "dot_precision": HOSTILE,
                "kernels": {"null_copy": {"choice": HOSTILE, "registers": HOSTILE, HOSTILE: 1}},
                "tuning": [" ".join(["x"] * 7), HOSTILE],
            }
        },
    }
    kernel = {
        "digest": "d",
        "name": HOSTILE,
        "forms": [["", HOSTILE, "attack.py"]],
        "candidates": [{"form": HOSTILE, "config": [[HOSTILE, 1]], "grid": [HOSTILE]}],
    }
    sources = {"kernels": [kernel], "variants": [{"launches": [{"kernel": "d"}] * 3}]}
    graph = {
        "version": 1,
        "texts": [HOSTILE, "input"],
        "targets": [
            {
                "name": "null",
                "byte_fs": 40,
                "operation_fs": 20,
                "variants": [
                    {
                        "entry": 0,
                        "ranges": [],
                        "nodes": [[1, 0, 0, 0, []], [0, 0, 0, 0, [0]]],
                        "outputs": [[HOSTILE, 1]],
                        "groups": [
                            {
                                "kind": HOSTILE[:32],
                                "label": HOSTILE,
                                "nodes": [1],
                                "reads": [0],
                                "stores": [1],
                                "bytes": 1,
                                "operations": 1,
                                "estimate_ns": 1,
                            }
                        ]
                        * 3,
                    }
                ],
            }
        ],
    }
    return replace(
        contents,
        entries=(entry,),
        targets=(target,),
        weights={TENSOR: TensorData("f32", (6,), bytes(24))},
        extras={
            "provenance.json": json.dumps(notes).encode(),
            "sources/null.json": json.dumps(sources).encode(),
            "sources/attack.py": HOSTILE.encode(),
            "graph.json": json.dumps(graph).encode(),
        },
    )


@pytest.fixture(scope="module")
def bundles(bundle, tmp_path_factory):
    """Bundles of all kinds by name."""
    folder = tmp_path_factory.mktemp("bundles")
    pack(small_bundle.contents(), folder / "small")
    pack(hostile_contents(), folder / "hostile")
    device_bundle.write(folder / "device", targets=(device_bundle.target(),))
    small_torch_bundle.write(folder / "torch")
    native_bundle.write(folder / "native")
    return {"tiny": bundle, **{path.name: path for path in sorted(folder.iterdir())}}


@pytest.fixture(scope="module")
def pages(bundles):
    return {name: report(read_facts(path)) for name, path in bundles.items()}


NAMES = ("tiny", "small", "hostile", "device", "torch", "native")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_well_formed_and_stands_by_itself(pages, name):
    page = pages[name]
    elements = read(page).elements
    assert {element for element, _ in elements} <= ELEMENTS
    ids = [each["id"] for _, each in elements if "id" in each]
    assert len(ids) == len(set(ids))
    for element, attributes in elements:
        assert not any(each.startswith("on") or each in ("style", "src") for each in attributes)
        if "href" in attributes:
            assert attributes["href"][1:] in ids, attributes["href"]
            assert attributes["href"].startswith("#")
        assert element != "script" or not attributes
    assert [element for element, _ in elements].count("script") == 1
    assert set(re.findall(r"https?://[\w./]+", page)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", NAMES)
def test_only_our_own_script_and_style_may_run(pages, name):
    page = pages[name]
    (policy,) = (
        each["content"]
        for element, each in read(page).elements
        if each.get("http-equiv") == "Content-Security-Policy"
    )
    for element in ("script", "style"):
        (text,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_the_same_bundle_gives_the_same_page(bundles, pages, aotc, tmp_path):
    for name in NAMES:
        out = tmp_path / f"{name}.html"
        code, text, errors = aotc("report", bundles[name], "-o", out)
        assert (code, errors) == (0, ""), errors
        assert str(out) in text
        assert out.read_text() == pages[name]


def test_a_page_has_all_that_the_bundle_says(pages, bundles):
    page = pages["tiny"]
    facts = read_facts(bundles["tiny"])
    for wanted in (
        facts.digest,
        *facts.tensors,
        "tiny.py:12 in forward",
        "estimated by the cost model, not measured",
        "@triton.jit",
        "Golden numbers",
        *(kernel.name for plan in facts.plans.values() for kernel in plan.kernels),
        *(entry.name for entry in facts.files),
    ):
        assert wanted in page, wanted
    assert "call of a kernel" in page
    assert "torch aten::sort.stable" in pages["torch"]


def test_deleted_extras_leave_a_page_with_less(bundles, tmp_path, aotc):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(bundles["tiny"], copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    for name in ("graph.json", "provenance.json", "golden.safetensors"):
        (copy / name).unlink()
    shutil.rmtree(copy / "sources")
    assert aotc("report", copy, "-o", tmp_path / "report.html")[0] == 0
    page = (tmp_path / "report.html").read_text()
    assert "its graph.json was deleted" in page
    assert "no golden numbers" in page


def test_times_of_a_profile_are_used_and_named(bundles, aotc, tmp_path):
    code, text, _ = aotc("profile", bundles["tiny"], "--json", "--repetitions", "1")
    assert code == 0
    (tmp_path / "profile.json").write_text(text)
    words = ("report", bundles["tiny"], "-o", tmp_path / "page.html")
    assert aotc(*words, "--profile", tmp_path / "profile.json")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "measured by aotc profile" in page
    launch = json.loads(text)["launches"][0]
    assert time_text(launch["time_us"]) in page
    facts = read_facts(bundles["tiny"])
    rows = [{**row, "time_us": 1e308} for row in json.loads(text)["launches"]]
    endless = {**json.loads(text), "launches": rows, "limits": {}}
    assert report(facts, Measured(profiles=(endless,))) == report(facts)
    other = {**json.loads(text), "target": "another"}
    assert report(facts, Measured([other])) == report(facts)


def test_measuring_here_gives_times_and_errors(bundles, aotc, tmp_path):
    code, _, errors = aotc("report", bundles["tiny"], "-o", tmp_path / "page.html", "--measure")
    assert code == 0, errors
    page = (tmp_path / "page.html").read_text()
    assert "measured by aotc profile" in page
    assert "not measured" not in page
    assert "DIFFERS" not in page


def test_an_error_above_the_allowed_one_is_marked(bundles):
    facts = read_facts(bundles["tiny"])
    ((name, tolerance),) = next(iter(facts.golden.values())).tolerances.items()
    for factor, text in ((0.5, "<td>ok</td>"), (2.0, "<b>DIFFERS</b>")):
        row = {"subject": name, "difference": factor * tolerance}
        assert text in report(facts, Measured(golden=[row]))


def test_a_benchmark_is_drawn(bundles, aotc, tmp_path):
    code, text, _ = aotc("bench", bundles["tiny"], "--rounds", "1", "--seconds", "0.01", "--json")
    assert code == 0
    (tmp_path / "bench.json").write_text(text)
    words = ("report", bundles["tiny"], "-o", tmp_path / "page.html")
    assert aotc(*words, "--bench", tmp_path / "bench.json")[0] == 0
    page = (tmp_path / "page.html").read_text()
    assert "times of calls" in page
    row = json.loads(text)["results"][0]
    median_us = row["quantiles_us"][100]  # rounded to ns, which p50_us is not
    assert median_us == round(row["p50_us"], 3)
    assert f"median {time_text(median_us)}" in page


def test_options_that_would_be_ignored_are_refused(bundles, aotc, tmp_path):
    code, text, _ = aotc("profile", bundles["tiny"], "--json", "--repetitions", "1")
    file, page = tmp_path / "profile.json", tmp_path / "page.html"
    file.write_text(text)
    for name, words, wanted in (
        ("tiny", ("--device", "cpu"), "give --measure with it"),
        ("tiny", ("--measure", "--profile", file), "leave one out"),
        ("torch", ("--profile", file), "expected a profile of this bundle"),
        ("tiny", ("--profile", tmp_path / "absent.json"), "does not exist"),
        ("tiny", ("--bench", file), "write it with `aotc bench BUNDLE --json > FILE`"),
    ):
        code, out, errors = aotc("report", bundles[name], "-o", page, *words)
        assert (code, out) == (2, ""), errors
        assert wanted in errors
        assert not page.exists()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"schema": "aotc.bench/1"}', '{"schema": "aotc.profile/2"}', "\xff"]
)
def test_another_file_is_no_profile(bundles, aotc, tmp_path, text):
    (tmp_path / "profile.json").write_bytes(text.encode("latin-1"))
    words = ("report", bundles["tiny"], "-o", tmp_path / "page.html")
    code, _, errors = aotc(*words, "--profile", tmp_path / "profile.json")
    assert code == 2
    assert "expected a record of aotc.profile/1" in errors
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "launches",
    [None, 3, [1, 2, 3], [{"name": "x"}], [{"time_us": "NaN"}] * 3, [{"time_us": -1}] * 3],
)
def test_a_profile_of_anything_is_no_error(bundles, launches):
    facts = read_facts(bundles["tiny"])
    profile = {"target": next(iter(facts.plans)), "launches": launches, "limits": launches}
    assert report(facts, Measured([profile])) == report(facts)


def test_buffers_in_use_together_never_share_memory(bundles):
    """What is read off the steps is what the planner meant."""
    for name in NAMES:
        for each in variants(read_facts(bundles[name])):
            rows = lifetimes(each.plan)
            for at, one in enumerate(rows):
                for other in rows[:at]:
                    apart = one.first > other.last or other.first > one.last
                    low, high = sorted((one.buffer, other.buffer), key=lambda row: row.offset)
                    assert apart or low.offset + low.nbytes <= high.offset


@given(st.lists(st.tuples(st.integers(-1, 8), st.integers(0, 9), st.integers(1, 5)), max_size=8))
def test_a_buffer_is_in_use_from_its_launch_to_the_last_step_that_names_it(rows):
    """By its definition: at each byte the buffer that was stored last."""
    step = Launch(0, (1, 1, 1), tuple(("arena", 64 * at) for at in range(14)))
    names = ["buffer" if first < 0 else f"{first}.buffer" for first, _, _ in rows]
    plan = small_bundle.copy_plan(24, 24).replace(
        buffers=tuple(
            Buffer(name, 64 * at, 64 * count)
            for name, (_, at, count) in zip(names, rows, strict=True)
        ),
        steps=(step,) * 9,
    )
    found = {number: set() for number in range(len(rows))}
    for at in range(len(plan.steps)):
        for block in range(14):
            holders = [
                (first, number)
                for number, (first, low, count) in enumerate(rows)
                if first <= at and low <= block < low + count
            ]
            if holders:
                found[max(holders)[1]].add(at)
    expected = [(plan.buffers[at], min(used), max(used)) for at, used in found.items() if used]
    assert [(each.buffer, each.first, each.last) for each in lifetimes(plan)] == expected


def graph_of_one_group(nodes, text):
    """`graph.json` of a bundle whose every launch computes all nodes of a graph."""
    every = list(range(1, nodes))
    group = {"kind": "row", "label": "l", "nodes": every, "reads": [0], "stores": [nodes - 1],
             "bytes": 1, "operations": 1, "estimate_ns": 1}  # fmt: skip
    rows = [[1, 0, 0, 0, []], *([[0, 0, 0, 0, [0]]] * (nodes - 1))]
    variant = {"entry": 0, "ranges": [], "nodes": rows, "outputs": [], "groups": [group] * 40}
    target = {"name": "null", "byte_fs": 40, "operation_fs": 20, "variants": [variant]}
    return {"version": 1, "texts": [text, "input"], "targets": [target]}


LONG = {
    "names": {"provenance.json": {"name" * 250_000: {str(at): 1 for at in range(1000)}}},
    "nodes": {"graph.json": graph_of_one_group(2000, "x" * 1000)},
    "sources": {
        "sources/null.json": {
            "kernels": [{"digest": "d", "forms": [["", "", "long.py"]]}],
            "variants": [{"launches": [{"kernel": "d"}] * 40}],
        },
        "sources/long.py": "x = 1\n" * 1_000_000,
    },
}


@pytest.mark.parametrize("name", LONG)
def test_a_small_file_that_says_a_long_text_many_times_is_refused(tmp_path, name):
    contents = small_bundle.contents()
    plan = small_bundle.copy_plan(24, 24)
    first, second, _ = plan.steps
    kernel, *_ = plan.kernels
    plan = plan.replace(
        kernels=tuple(kernel.replace(symbol=f"k{at}") for at in range(40)),
        steps=(first, *(second.replace(kernel=at) for at in range(39))),
    )
    extras = {
        file: each.encode() if isinstance(each, str) else json.dumps(each).encode()
        for file, each in LONG[name].items()
    }
    target = replace(contents.targets[0], plan=Plan.of(plan))
    pack(replace(contents, targets=(target,), extras=extras), tmp_path / "bundle")
    facts = read_facts(tmp_path / "bundle")
    assert sum(map(len, extras.values())) < 10_000_000
    with pytest.raises(BundleLimit, match="letters"):
        report(facts)


def test_every_step_knows_its_group_and_its_kernel(bundles):
    facts = read_facts(bundles["tiny"])
    for each in variants(facts):
        subject = subject_of(facts, each)
        for step in subject.steps:
            assert step.group is not None
            assert step.lines
            assert step.source in {row["digest"] for row in facts.sources[each.target]["kernels"]}


def test_a_step_takes_few_bytes_of_the_page(bundles):
    """The largest model of the zoo has a thousand steps of a dozen operations, each with its line:
    5 MB at most, which `python -m benchmarks.pages` measures with the time to open it."""
    facts = read_facts(bundles["tiny"])
    subject = subject_of(facts, next(variants(facts)))
    step = max(subject.steps, key=lambda each: len(each.lines))
    line = max(step.lines, key=lambda each: len(each.call))
    sizes = [len(_step(subject, replace(step, lines=(line,) * count), "target-0"))
             for count in (1, 12)]  # fmt: skip
    assert sizes[1] - sizes[0] <= 11 * (len(line.call) + len(line.type) + len(line.source) + 40)
    assert sizes[0] <= 1000
    text = _step(subject, step, "target-0")
    for each in step.lines:
        assert f"%{each.number} = " in text
        assert each.source in text


def test_numbers_as_people_read_them():
    assert [bytes_text(each) for each in (0, 999, 1000, 1234, 5_000_000)] == [
        "0 B", "999 B", "1 kB", "1.23 kB", "5 MB",
    ]  # fmt: skip
    assert time_text(0.123) == "0.123 µs"
    assert time_text(123456) == "123 ms"


def test_the_report_finds_the_candidate_of_a_choice():
    assert candidate_of("form=a,BLOCK=16,is_followed_early=1") == "form=a,BLOCK=16"
    assert candidate_of("BLOCK=16") == "BLOCK=16"
    assert candidate_of("-") == "-"

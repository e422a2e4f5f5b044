"""`Program.stats`: what calls have done, and its text for Prometheus."""

import array
import json
import re
import threading

import pytest

from aotc import runtime
from aotc.runtime.programs.statistics import BOUNDS_S, Tally

NUMBERS = array.array("q", range(192))


def test_calls_of_every_kind_are_counted_with_their_errors(native):
    with runtime.load(native, stats=True) as program:
        program(NUMBERS)
        with program.session() as session, program.bind(NUMBERS) as bound:
            session(NUMBERS)
            session.bind(NUMBERS)()
            bound()
            bound()
            stats = program.stats()
        with pytest.raises(runtime.InputError):
            program(array.array("q", range(3)))
        for _ in range(2):
            with pytest.raises(runtime.InputError):
                program(NUMBERS, NUMBERS)
        (entry,) = program.stats().entries
        assert (entry.calls, entry.errors) == (5, {"input-shape": 1, "input-count": 2})
        assert entry.seconds > 0
        assert entry.buckets[-1] == 5
        assert list(entry.buckets) == sorted(entry.buckets)
        assert stats.sessions == 3
        assert stats.arena_bytes == 3 * 8 * 192
        assert program.stats().sessions == 1
        json.dumps(program.stats().as_map())


def test_a_program_that_nobody_asked_runs_the_plain_classes(native, monkeypatch):
    with runtime.load(native) as program:
        assert type(program.session()) is runtime.Session
        assert not program.stats().is_counting
        assert "aotc_calls_total" not in runtime.metrics_text(program)
    monkeypatch.setenv("AOTC_STATS", "1")
    with runtime.load(native) as program:
        program(NUMBERS)
        assert program.stats().entries[0].calls == 1
    with runtime.load(native, stats=False) as program:
        assert not program.stats().is_counting
    with pytest.raises(runtime.AotcError, match="AOTC_STATS"):
        runtime.load(native, stats=3)


def test_buckets_hold_what_is_no_longer_than_their_bound():
    tally = Tally()
    for seconds in (BOUNDS_S[0], BOUNDS_S[0] / 2, BOUNDS_S[1], 1e9):
        tally.ended(seconds)
    counts, sum_s, errors = tally.read()
    assert counts[:3] == [2, 1, 0]
    assert counts[-1] == 1
    assert sum_s > 1e9
    assert errors == {}


def test_no_call_of_several_threads_is_lost(native):
    with runtime.load(native, stats=True) as program:
        threads = [
            threading.Thread(target=lambda: [program(NUMBERS) for _ in range(200)])
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert program.stats().entries[0].calls == 800


@pytest.mark.torch
def test_shapes_and_memory_of_dynamic_sizes(bundles):
    with runtime.load(bundles[0], stats=True) as program:
        for batch, length in ((1, 3), (2, 5), (1, 3)):
            ids = memoryview(bytes(8 * batch * length)).cast("q", [batch, length])
            program(ids, array.array("f", [1.0] * batch))
        stats = program.stats()
        assert stats.entries[0].shapes == (
            {"batch": 1, "length": 3},
            {"batch": 2, "length": 5},
        )
        assert stats.weights_bytes >= 4 * (50 * 16 + 16 * 4 + 4)
        assert stats.fallback_calls == {}


# A line of a sample by the specification of the text format 0.0.4.
NAME = "[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{{LABEL}(?:,{LABEL})*\}})? (\S+)")


def text_of(native):
    name = 'a "b" \\ c\nd'
    with runtime.load(native, stats=True) as program, runtime.Deployment(native) as other:
        program(NUMBERS)
        with pytest.raises(runtime.InputError):
            program(NUMBERS, NUMBERS)
        return name, runtime.metrics_text({name: program, "other": other})


def test_the_text_is_of_the_exposition_format(native):
    _, text = text_of(native)
    assert text.endswith("\n")
    types, seen = {}, []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.fullmatch(line)
            assert found, line
            float(found[2])
            family = re.sub("_(bucket|sum|count)$", "", found[1])
            seen.append(family if types.get(family) == "histogram" else found[1])
    assert set(seen) == set(types)
    assert [a for a, b in zip(seen, seen[1:] + [""], strict=True) if a != b] == list(types)


def test_the_parser_of_prometheus_reads_it(native):
    parser = pytest.importorskip("prometheus_client.parser")
    name, text = text_of(native)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    calls = {each.labels["model"]: each.value for each in families["aotc_calls"].samples}
    assert calls == {name: 1}
    (error,) = families["aotc_errors"].samples
    assert (error.labels["code"], error.value) == ("input-count", 1)
    histogram = families["aotc_call_seconds"]
    assert histogram.type == "histogram"
    bounds = [float(s.labels["le"]) for s in histogram.samples if s.name.endswith("_bucket")]
    assert bounds == sorted(bounds)
    assert len(bounds) == len(BOUNDS_S) + 1
    assert {each.labels["model"] for each in families["aotc_swaps"].samples} == {"other"}

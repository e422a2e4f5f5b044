"""The rules of Chrome's trace event format that readers rely on, Perfetto's importer too."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

METADATA = {
    "process_name": "name",
    "thread_name": "name",
    "process_sort_index": "sort_index",
    "thread_sort_index": "sort_index",
}


@dataclass(frozen=True)
class Found:
    """Slices in their order, arrows as pairs of the slices that they join, names."""

    slices: list
    arrows: list
    processes: dict
    threads: dict


def check_trace(trace):
    """What the trace holds; fails where a rule is broken."""
    assert set(trace) <= {"displayTimeUnit", "otherData", "traceEvents"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    processes, threads, slices, flows = {}, {}, [], defaultdict(dict)
    for event in trace["traceEvents"]:
        assert type(event["pid"]) is int
        assert event["pid"] > 0  # 0 is the idle task to some readers
        assert type(event["tid"]) is int
        assert event["name"]
        if event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}
            if event["name"] == "process_name":
                assert processes.setdefault(event["pid"], event["args"]["name"])
            if event["name"] == "thread_name":
                assert threads.setdefault((event["pid"], event["tid"]), event["args"]["name"])
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert event["cat"]
            slices.append(event)
        elif event["ph"] == "C":
            assert all(type(value) in (int, float) for value in event["args"].values())
        else:
            assert event["ph"] in ("s", "f")
            assert event["ph"] == "s" or event["bp"] == "e"
            assert event["ph"] not in flows[event["id"]]
            flows[event["id"]][event["ph"]] = event
    for event in slices:
        assert event["pid"] in processes
        assert (event["pid"], event["tid"]) in threads
    _check_nesting(slices)
    arrows = []
    for ends in flows.values():
        assert set(ends) == {"s", "f"}
        assert ends["s"]["ts"] <= ends["f"]["ts"]
        assert ends["s"]["cat"] == ends["f"]["cat"]
        arrows.append(tuple(_around(slices, ends[phase]) for phase in "sf"))
    return Found(slices, arrows, processes, threads)


def _check_nesting(slices):
    """Slices of a thread lie in each other or apart."""
    tracks = defaultdict(list)
    for event in slices:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in tracks.values():
        for (start, end), (begin, stop) in pairwise(spans):
            assert begin >= end - 1e-3 or (start <= begin and stop <= end)


def _around(slices, flow):
    """The slice that an end of an arrow is bound to."""
    found = [
        each
        for each in slices
        if (each["pid"], each["tid"]) == (flow["pid"], flow["tid"])
        and each["ts"] <= flow["ts"] <= each["ts"] + each["dur"]
    ]
    assert found
    return found[-1]

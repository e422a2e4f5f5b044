"""`aotc profile`: a row a launch, shares of the measured limits, and a trace that is one."""

import json
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_rules import check_trace

from aotc.aot.profile import ptx, report
from aotc.aot.profile.occupancy import Multiprocessor
from aotc.aot.profile.report import LaunchRow, Limits, Profile
from aotc.aot.profile.trace import trace

LIMITS = Limits(bytes_per_s=4e12, operations_per_s=8e14)


def row(index, time_us, nbytes=4_000_000, operations=0, symbol="k"):
    return LaunchRow(index, f"kernel {symbol}", symbol, (8, 1, 1), time_us, nbytes, operations)


def profile_of(*rows, limits=LIMITS):
    return Profile("cuda-sm_90", "a device", tuple(rows), 10.0, limits)


def test_the_floor_is_the_nearer_of_both_limits():
    assert LIMITS.floor_us(4_000_000, 0) == pytest.approx(1.0)
    assert LIMITS.floor_us(4_000_000, 1_600_000_000) == pytest.approx(2.0)
    assert LIMITS.floor_us(4_000_000, 1_600_000_000, 0.5) == pytest.approx(4.0)


def test_shares_are_floors_over_times():
    one, other = row(0, 2.0), row(1, 4.0, 0, 1_600_000_000)
    profile = profile_of(one, other)
    assert profile.share_of_limit([one]) == pytest.approx(0.5)
    assert profile.share_of_limit([one, other]) == pytest.approx(0.5)
    assert profile_of(one, limits=None).share_of_limit([one]) is None
    assert profile.share_of_limit([row(0, 2.0, None)]) is None


def test_kernels_are_listed_by_what_they_take_together():
    profile = profile_of(row(0, 5.0, symbol="a"), row(1, 3.0, symbol="b"), row(2, 3.0, symbol="b"))
    assert {name: len(rows) for name, rows in profile.by_kernel().items()} == {"b": 2, "a": 1}
    assert next(iter(profile.by_kernel())) == "b"


def test_slow_kernels_are_ordered_by_what_a_call_would_gain():
    far = (row(0, 6.0, symbol="far"), row(1, 6.0, symbol="far"))  # 1 us each at the limit
    farther = row(2, 50.0, 4_000_000, symbol="farther")
    near, small = row(3, 3.9, symbol="near"), row(4, 2.0, 0, symbol="small")
    profile = profile_of(*far, farther, near, small, row(5, 30.0, None, symbol="unknown"))
    found = profile.slow_kernels()
    assert [(each.symbol, each.launches, each.time_us) for each in found] == [
        ("farther", 1, 50.0), ("far", 2, 12.0),
    ]  # fmt: skip
    assert [each.limit_us for each in found] == pytest.approx([1.0, 2.0])
    assert found[0].share_of_call == pytest.approx(50 / 97.9)
    assert profile.record()["slow_kernels"][0]["symbol"] == "farther"
    assert profile_of(farther, limits=None).slow_kernels() == []


def test_a_trace_has_one_slice_a_launch_one_after_the_other():
    events = trace(profile_of(row(0, 2.0), row(1, 4.0)))["traceEvents"]
    kernels = [event for event in events if event["ph"] == "X" and event["cat"] == "kernel"]
    assert [(event["ts"], event["dur"]) for event in kernels] == [(0.0, 2.0), (2.0, 4.0)]
    assert kernels[0]["args"]["percent_of_limit"] == 50.0


TIMES = st.floats(0, 1e7, allow_subnormal=False)


@given(st.lists(TIMES, max_size=12), TIMES, st.none() | TIMES, st.text(max_size=8))
def test_traces_keep_the_rules_of_their_format(times_us, call_us, host_us, name):
    rows = tuple(
        LaunchRow(at, f"{name} {at}", "symbol", (8, 1, 1), time_us, 4_000, 100)
        for at, time_us in enumerate(times_us)
    )
    made = trace(Profile("cuda-sm_90", name, rows, call_us, LIMITS, host_us), name)
    found = check_trace(json.loads(json.dumps(made, allow_nan=False)))
    launches = {(each["pid"], each["tid"]) for each in found.slices if each["cat"] == "kernel"}
    assert len(launches) == bool(rows)
    if host_us is None:
        assert not found.arrows
    else:
        # One from the host's slice to each launch, which is another process's.
        assert [end["name"] for _, end in found.arrows] == [each.name for each in rows]
        assert all(start["pid"] != end["pid"] for start, end in found.arrows)
    assert found.processes[1].endswith("on the host")


def test_a_bundle_of_the_processor(aotc, bundle, tmp_path):
    file = tmp_path / "trace.json"
    code, out, errors = aotc("profile", bundle, "--json", "--trace", file, "--repetitions", "2")
    assert code == 0, errors
    record = json.loads(out)
    assert record["schema"] == "aotc.profile/1"
    launches = record["launches"]
    assert [each["index"] for each in launches] == list(range(len(launches)))
    assert all(each["time_us"] > 0 and each["nbytes"] > 0 for each in launches)
    assert record["call_us"] > 0
    found = check_trace(json.loads(file.read_text()))
    names = [each["name"] for each in found.slices]
    assert names == ["call", *(each["name"] for each in launches)]
    assert {name for _, name in found.threads.items()} == {"caller", "launches, each by itself"}


def test_the_table_has_a_line_a_kernel_or_a_launch(aotc, bundle):
    code, out, _ = aotc("profile", bundle, "--repetitions", "1")
    assert code == 0
    assert "softmax" in out
    other = aotc("profile", bundle, "--repetitions", "1", "--launches")[1]
    tables = [each.split("\n\n")[0].splitlines() for each in (out, other)]
    assert len(tables[0]) == len(tables[1])  # the tiny model launches each kernel once


def test_columns_of_which_nothing_is_known_are_left_out(aotc, bundle):
    heads = aotc("profile", bundle, "--repetitions", "1")[1].splitlines()[0].split()
    assert heads[:5] == ["kernel", "launches", "time", "share", "each"]
    assert not {"registers", "shared", "spills"} & set(heads)  # of GPUs


def test_a_bundle_of_a_device(fake_cuda, aotc, tmp_path, monkeypatch):
    import device_bundle

    from aotc.aot.profile import peaks

    fake_cuda.kernels["copy"] = device_bundle.copy
    monkeypatch.setattr(peaks, "measure_limits", lambda device: LIMITS)
    bundle = device_bundle.write(tmp_path / "bundle")
    file = tmp_path / "trace.json"
    code, out, errors = aotc("profile", bundle, "--json", "--repetitions", "2", "--trace", file)
    assert code == 0, errors
    record = json.loads(out)
    found = check_trace(json.loads(file.read_text()))
    assert len(found.arrows) == 3
    assert set(found.processes) == {1, 2}
    assert record["host_us"] > 0
    assert (record["target"], record["limits"]["bytes_per_s"]) == ("cuda-sm_90", 4e12)
    assert [each["name"] for each in record["launches"]] == ["copy"] * 3
    known = {each["occupancy"] for each in record["launches"] if each["registers"] is not None}
    assert all(0 < each <= 1 for each in known)
    assert fake_cuda.live() == {}


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "expected"),
    [
        (256, 64, 0, 0.5),  # 4 programs by their registers
        (1024, 64, 0, 0.5),  # one
        (1024, 65, 0, 0.0),  # none: 72 registers are given to each thread
        (128, 32, 0, 1.0),  # 16 by their threads
        (32, 32, 0, 0.5),  # 32 programs and no more
        (128, 32, 100 << 10, 0.125),  # two by shared memory
        (33, 16, 0, 1.0),  # two warps, one of them of one thread
    ],
)
def test_occupancy(threads, registers, shared_bytes, expected):
    """Of an H100 and an H200, as NVIDIA's table of compute capability 9.0 has them."""
    hopper = Multiprocessor(2048, 32, 65536, 228 << 10, 1 << 10)
    assert hopper.occupancy(threads, registers, shared_bytes) == expected


def test_slow_kernels_stand_below_the_table(capsys):
    from aotc.aot.cli.profile import _print

    _print(profile_of(row(0, 40.0), row(1, 40.0), row(2, 20.0, symbol="b")), each=False)
    *_, first, second = capsys.readouterr().out.splitlines()
    assert first == (
        "slow: kernel k, launched 2 times, takes 80.0 µs, 80% of the launches, and reaches 2% of "
        "its limit; at the limit 2.0 µs"
    )
    assert second.startswith("slow: kernel b, launched once, takes 20.0 µs, 20% of the launches")


def test_the_copy_moves_what_it_says():
    offsets = [int(found or 0) for found in re.findall(r"\[%a1(?:\+(\d+))?\]", ptx.COPY)]
    moved = {offset + 16 * thread for offset in offsets for thread in range(ptx.COPY_THREADS)}
    assert moved == set(range(0, ptx.COPY_BYTES, 16))


@pytest.mark.parametrize(
    ("text", "architecture"),
    [
        (ptx.COPY, "sm_80"),
        (ptx.COPY, "sm_120"),
        (ptx.warp_text(), "sm_80"),
        (ptx.warpgroup_text(), "sm_90a"),
    ],
)
def test_the_kernels_assemble_without_spills(text, architecture, tmp_path):
    triton = pytest.importorskip("triton")
    folder = triton.__path__[0] + "/backends/nvidia/bin"
    assembler = shutil.which("ptxas", path=folder)
    if assembler is None:
        pytest.skip("this triton brings no ptxas")
    source = tmp_path / "kernel.ptx"
    source.write_text(text)
    words = [assembler, f"-arch={architecture}", "-v", str(source), "-o", str(tmp_path / "cubin")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores" in done.stderr


@pytest.mark.parametrize("groups", [None, 3, "text", {"a": 1}, [1, "b", None]])
def test_facts_of_any_form_name_no_rates(groups):
    assert report.product_rates({"groups": groups}) == {}


def test_rates_are_by_the_names_of_kernels():
    rows = [{"name": "k", "product_rate": 2.0}, {"name": ["k"]}, 7]
    assert report.product_rates({"groups": rows})["k"] == 2.0


def test_work_that_data_decides_is_not_known():
    facts = {"bytes": 5, "arithmetic": 6}
    assert report.work_of(facts) == (5, 6)
    assert report.work_of(facts | {"are_most": True}) == (None, None)
    assert report.work_of({}) == (None, None)

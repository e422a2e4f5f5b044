"""`aotc.kernels.autotune`: Triton's autotuner with our cache and tuning records."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from aotc import kernels  # noqa: E402
from aotc.aot.errors import AutotuneFrozen, TuningRecordInvalid  # noqa: E402
from aotc.kernels import autotuning  # noqa: E402

CONFIGS = [triton.Config({"BLOCK": size}, num_warps=1) for size in (16, 32, 64)]
MEASURED = []

pytestmark = pytest.mark.cpu_only("it makes the CPU the active driver of Triton")


def bench(call, quantiles):
    """As a benchmark: runs the kernel, and says that BLOCK = 32 is the fastest."""
    call()
    MEASURED.append(1)
    return [{1: 3.0, 2: 1.0, 0: 2.0}[len(MEASURED) % 3]] * 3


@triton.jit
def add_one(x, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        out + i, tl.load(x + i, mask=i < count) + tl.load(out + i, mask=i < count) + 1, i < count
    )


def grid(meta):
    return (triton.cdiv(meta["count"], meta["BLOCK"]),)


def tuned(configs=CONFIGS, key=("count",), **options):
    return kernels.autotune(configs, list(key), do_bench=bench, **options)(add_one)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(autotuning, "_used", {})
    MEASURED.clear()
    with kernels.on_cpu():
        yield


def run(kernel, count=100, dtype=torch.float32, base=0):
    x, out = torch.arange(count).to(dtype), torch.full((count,), base, dtype=dtype)
    kernel[grid](x, out, count)
    return out


def test_each_key_is_measured_once_and_a_new_tuner_finds_it():
    first = tuned(reset_to_zero=["out"])
    for _ in range(2):
        assert torch.equal(run(first), torch.arange(100) + 1.0)
    assert (len(MEASURED), first.best_config.kwargs) == (3, {"BLOCK": 32})
    run(first, 50)
    run(first, 50, torch.float64)
    assert len(MEASURED) == 9
    second = tuned(reset_to_zero=["out"])
    run(second), run(second, 50), run(second, 50, torch.float64)
    assert (len(MEASURED), second.best_config.kwargs) == (9, {"BLOCK": 32})
    run(tuned(CONFIGS[:2]))  # other configs are another choice
    assert len(MEASURED) == 11


def test_an_empty_key_and_configs_with_hooks_are_kept_too():
    """Triton's own disk cache keeps neither."""
    seen = []
    configs = [
        triton.Config(
            {"BLOCK": size}, num_warps=1, pre_hook=lambda named: seen.append(named["BLOCK"])
        )
        for size in (16, 32, 64)
    ]
    run(tuned(configs, ()))
    del seen[:]
    run(tuned(configs, ()))
    assert (len(MEASURED), seen) == (3, [32])


def test_configs_that_differ_in_no_number_stay_apart():
    configs = [triton.Config({"BLOCK": 16, "KIND": kind}, num_warps=1) for kind in ("a", "b", "c")]

    @triton.jit
    def store_kind(out, KIND: tl.constexpr, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, BLOCK), 1.0 if KIND == "b" else 0.0)

    for _ in range(2):
        out = torch.zeros(16)
        kernel = kernels.autotune(configs, [], do_bench=bench)(store_kind)
        kernel[(1,)](out)
        assert kernel.best_config.kwargs["KIND"] == "b"
        assert out.all()
    assert len(MEASURED) == 3


def test_tritons_arguments_mean_the_same():
    """Values are restored, hooks are called, configs are pruned."""
    calls = []
    kernel = tuned(restore_value=["out"])
    assert torch.equal(run(kernel, base=5), torch.arange(100) + 6.0)
    kernel = tuned(
        pre_hook=lambda named, reset_only=False: calls.append("before"),
        post_hook=lambda named, exception: calls.append("after"),
        prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[:2]},
    )
    MEASURED.clear()
    run(kernel)
    assert calls == ["before", "after"] * 2 + ["before"]
    assert len(MEASURED) == 2
    model = {"perf_model": lambda BLOCK, **named: BLOCK, "top_k": 2}
    run(tuned(prune_configs_by=model))
    assert len(MEASURED) == 2  # the same two configs: known
    names = list(inspect.signature(triton.autotune).parameters)[:7]
    assert list(inspect.signature(kernels.autotune).parameters)[:7] == names


def test_it_runs_behind_heuristics_and_tritons_decorators():
    even = triton.heuristics({"BLOCK": lambda named: 16})(add_one)
    configs = [triton.Config({}, num_warps=count) for count in (1, 2, 4)]
    kernel = kernels.autotune(configs, ["count"], do_bench=bench)(even)
    out = torch.zeros(32)
    kernel[(2,)](torch.zeros(32), out, 32)
    assert len(MEASURED) == 3
    assert kernel.best_config.num_warps == 2


def test_a_record_is_written_and_found_without_a_cache(tmp_path, monkeypatch):
    record = tmp_path / "kernels.tuning"
    run(tuned())
    assert kernels.write_choices(record) == 1
    assert record.read_text().startswith("# aotc tuning record 1\n")
    assert "BLOCK=32" in record.read_text()
    monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("AOTC_FROZEN", "1")
    kernel = tuned(record=record)
    run(kernel)
    assert (len(MEASURED), kernel.best_config.kwargs) == (3, {"BLOCK": 32})
    with pytest.raises(AutotuneFrozen, match="kernel `add_one` has no choice for key"):
        run(kernel, 73)
    with pytest.raises(AutotuneFrozen):
        run(tuned())


def test_a_line_of_another_device_is_taken_and_of_another_target_not(tmp_path, monkeypatch):
    record = tmp_path / "kernels.tuning"
    run(tuned())
    kernels.write_choices(record)
    head, *lines = record.read_text().splitlines()
    parts = next(line for line in lines if "BLOCK=32" in line).split()
    for place, measured in ((2, 3), (1, 6)):
        changed = [*parts]
        changed[place] = "elsewhere"
        changed[3] = changed[3].replace("BLOCK=32", "BLOCK=64")
        assert changed[3] != parts[3]
        record.write_text("\n".join([head, " ".join(changed)]) + "\n")
        kernel = tuned(record=record, key=("count",))
        if place == 1:
            monkeypatch.setenv("AOTC_CACHE_DIR", str(tmp_path / "empty"))
        run(kernel)
        assert len(MEASURED) == measured
        assert kernel.best_config.kwargs == {"BLOCK": 64 if place == 2 else 32}


def test_a_damaged_record_is_refused_and_a_damaged_entry_measured_again(tmp_path):
    record = tmp_path / "kernels.tuning"
    for text in (
        "nothing\n",
        "# aotc tuning record 1\na b c\n",
        "",
        "# aotc tuning record 1\n\0\n",
    ):
        record.write_text(text)
        with pytest.raises(TuningRecordInvalid, match=r"kernels\.tuning:"):
            run(tuned(record=record))
    assert not MEASURED
    run(tuned())
    (entry,) = (tmp_path / "cache").rglob("line.txt")
    entry.chmod(0o600)
    entry.write_text("x")
    with pytest.warns(UserWarning, match="is damaged"):
        run(tuned())
    assert len(MEASURED) == 6


def test_a_config_that_does_not_run_is_not_chosen():
    def failing(call, quantiles):
        bench(call, quantiles)
        return [float("inf")] * 3

    out = torch.zeros(4)
    kernels.autotune(CONFIGS, [], do_bench=failing)(add_one)[grid](out, out, 4)
    again = kernels.autotune(CONFIGS, [], do_bench=bench)(add_one)
    again[grid](out, out, 4)
    assert len(MEASURED) == 6  # infinite times were not kept


PROGRAM = """
import pathlib
import torch, triton
import triton.language as tl
from aotc import kernels

kernels.use_cpu()
calls = []

def bench(call, quantiles):
    call()
    calls.append(1)
    return [float(len(calls))] * 3

CONFIGS = [triton.Config({"BLOCK": size}) for size in (64, 128)]

@kernels.autotune(CONFIGS, key=["count"], do_bench=bench)
@triton.jit
def double(x, out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < count), mask=i < count)

x, out = torch.arange(300.0), torch.empty(300)
double[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
assert torch.equal(out, 2 * x)
print(len(calls), double.best_config.kwargs["BLOCK"])
"""


def test_processes_at_once_measure_once_and_a_later_one_nothing(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}

    def start():
        return subprocess.Popen(
            [sys.executable, program], env=environment, stdout=subprocess.PIPE, text=True
        )

    found = [process.communicate()[0].split() for process in [start(), start()]]
    assert sorted(found) == [["0", "64"], ["2", "64"]]
    assert start().communicate()[0].split() == ["0", "64"]

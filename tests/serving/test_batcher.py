"""`Batcher`: requests of several callers as one call."""

import array
import asyncio
import os
import random
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path

import pytest
from interrupting import in_another_thread, interrupt_everywhere

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from aotc import runtime  # noqa: E402
from aotc.runtime.errors import (  # noqa: E402
    BatcherClosed,
    BatcherOption,
    DeadlinePassed,
    IndexOutOfRange,
    NotBatched,
    Overloaded,
    ProgramClosed,
)


@pytest.fixture
def program(bundles):
    with runtime.load(bundles[0], stats=True) as program:
        yield program


def request(draw, length=None):
    rows, length = draw.randrange(1, 4), length or draw.randrange(1, 7)
    ids = torch.tensor([[draw.randrange(50) for _ in range(length)] for _ in range(rows)])
    return ids, torch.tensor([draw.random() for _ in range(rows)])


class Gate:
    """A program whose calls wait until they are let through."""

    def __init__(self, program):
        self.program, self.open, self.entered = program, threading.Event(), threading.Event()

    def __call__(self, *arrays):
        self.entered.set()
        assert self.open.wait(60)
        return self.program(*arrays)

    def stats(self):
        return self.program.stats()


def blocked(batcher):
    """A request that is in its call, so that those after it wait."""
    first = batcher.submit(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1))
    assert batcher._program.entered.wait(60)
    return first


def test_results_are_those_of_single_calls(program):
    draw = random.Random(0)
    asked = [request(draw) for _ in range(120)]
    expected = [program(*each) for each in asked]
    gate = Gate(program)
    with runtime.Batcher(gate, max_batch=16, max_wait_ms=1) as batcher:
        first = blocked(batcher)
        before = batcher.batches
        found = [batcher.submit(*each) for each in asked]
        gate.open.set()
        first.result(60)
        for future, single in zip(found, expected, strict=True):
            result = future.result(60)
            assert type(result) is torch.Tensor
            torch.testing.assert_close(result, single, rtol=1e-6, atol=1e-6)
        assert batcher.batches - before < len(asked) / 2
        assert (batcher.requests, batcher.waiting) == (len(asked) + 1, 0)


def test_threads_share_calls(program):
    draw = random.Random(1)
    asked = [[request(draw, 4) for _ in range(20)] for _ in range(4)]
    wrong = []
    with runtime.Batcher(program, max_batch=8, max_wait_ms=1) as batcher:

        def work(mine):
            for each in mine:
                if not torch.allclose(batcher(*each), program(*each), rtol=1e-6, atol=1e-6):
                    wrong.append(each)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in asked]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert not wrong


def test_the_caller_s_kind_of_arrays_comes_back(program):
    numpy = pytest.importorskip("numpy")
    ids = numpy.arange(6).reshape(2, 3)
    scale = numpy.ones(2, numpy.float32)
    gate = Gate(program)
    with runtime.Batcher(gate) as batcher:
        blocked(batcher)
        found = batcher.submit(ids, scale=scale)
        plain = batcher.submit(
            memoryview(bytes(ids)).cast("q", [2, 3]), array.array("f", [1.0, 1.0])
        )
        strided = batcher.submit(
            torch.arange(6).reshape(3, 2).T.contiguous().T.reshape(2, 3), torch.ones(2)
        )
        gate.open.set()
        assert type(found.result(60)) is numpy.ndarray
        assert isinstance(plain.result(60), memoryview)
        assert numpy.array_equal(numpy.asarray(plain.result()), found.result())
        assert numpy.array_equal(strided.result(60).numpy(), found.result())


def test_wrong_requests_meet_nobody_else(program):
    good, bad = torch.tensor([[1, 2]]), torch.tensor([[1, 99]])
    gate = Gate(program)
    with runtime.Batcher(gate) as batcher:
        blocked(batcher)
        with pytest.raises(runtime.InputError):
            batcher.submit(good)
        with pytest.raises(runtime.InputError):
            batcher.submit(good, torch.ones(2))
        with pytest.raises(runtime.InputError):
            batcher.submit(good.to(torch.int32), torch.ones(1))
        found = [batcher.submit(ids, torch.ones(1)) for ids in (good, bad, good)]
        gate.open.set()
        assert torch.equal(found[0].result(60), found[2].result(60))
        with pytest.raises(IndexOutOfRange, match="99"):
            found[1].result(60)


def test_the_queue_is_bounded_and_cancelled_requests_leave_it(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    gate = Gate(program)
    with runtime.Batcher(gate, max_queue=3) as batcher:
        blocked(batcher)
        waiting = [batcher.submit(*arrays) for _ in range(3)]
        with pytest.raises(Overloaded, match="3 requests wait already"):
            batcher.submit(*arrays)
        assert waiting[1].cancel()
        assert batcher.waiting == 2
        last = batcher.submit(*arrays)
        gate.open.set()
        for each in (waiting[0], waiting[2], last):
            assert torch.equal(each.result(60), program(*arrays))
        with pytest.raises(CancelledError):
            waiting[1].result()
        text = runtime.metrics_text({"m": batcher})
        assert 'aotc_overloads_total{model="m"} 1' in text
        assert 'aotc_waiting_requests{model="m"} 0' in text
    with pytest.raises(BatcherClosed):
        batcher.submit(*arrays)


def test_asyncio(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    gate = Gate(program)

    async def main():
        with runtime.Batcher(gate) as batcher:
            blocked(batcher)
            tasks = [asyncio.create_task(batcher.call_async(*arrays)) for _ in range(5)]
            while batcher.waiting < 5:
                await asyncio.sleep(0)
            tasks[2].cancel()
            while batcher.waiting == 5:
                await asyncio.sleep(0)
            gate.open.set()
            return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert isinstance(results.pop(2), asyncio.CancelledError)
    assert all(torch.equal(each, program(*arrays)) for each in results)


def test_close_answers_what_waits(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    batcher = runtime.Batcher(program, max_wait_ms=60_000)
    found = [batcher.submit(*arrays) for _ in range(3)]
    batcher.close()
    assert all(torch.equal(each.result(0), program(*arrays)) for each in found)


def test_a_deployment_is_swapped_under_a_batcher(bundles):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    with runtime.Deployment(bundles[0]) as deployment, runtime.Batcher(deployment) as batcher:
        first = batcher(*arrays)
        deployment.swap(bundles[1])
        assert not torch.equal(batcher(*arrays), first)


def test_outputs_of_other_sizes_are_copied_to_nobody(program):
    """As a bundle gives them that was swapped in with `allow_changes`."""

    class Other(Gate):
        def __call__(self, ids, scale):
            result = super().__call__(ids, scale)
            return memoryview(bytes(4)).cast("f") if len(ids) > 1 else result

    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    gate = Other(program)
    with runtime.Batcher(gate) as batcher:
        blocked(batcher)
        waiting = [batcher.submit(*arrays) for _ in range(3)]
        gate.open.set()
        for each in waiting:
            assert torch.equal(each.result(60), program(*arrays))


def test_a_request_whose_time_is_over_is_not_run(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    gate = Gate(program)
    with runtime.Batcher(gate) as batcher:
        first = blocked(batcher)
        late = batcher.submit(*arrays, timeout_s=1e-3)
        with pytest.raises(DeadlinePassed, match=r"no result after 0.002 s, expected .* 0.002 s"):
            batcher(*arrays, timeout_s=2e-3)
        with pytest.raises(DeadlinePassed):
            asyncio.run(batcher.call_async(*arrays, timeout_s=2e-3))
        in_time = batcher.submit(*arrays, timeout_s=600)
        assert batcher.waiting == 2  # those whose callers left are gone
        calls = batcher.batches
        gate.open.set()
        assert torch.equal(in_time.result(60), program(*arrays))
        with pytest.raises(DeadlinePassed):
            late.result(60)
        first.result(60)
        assert (batcher.batches - calls, batcher.timeouts) == (1, 1)


def test_a_short_time_is_not_spent_on_waiting_for_others(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    with runtime.Batcher(program, max_wait_ms=600_000) as batcher:
        assert torch.equal(batcher(*arrays, timeout_s=2), program(*arrays))


def test_a_time_out_of_the_model_s_own_is_no_deadline(program):
    class Failing(Gate):
        def __call__(self, *arrays):
            raise TimeoutError("the model's")

    with runtime.Batcher(Failing(program)) as batcher, pytest.raises(TimeoutError, match="model's"):
        batcher(torch.tensor([[1, 2]]), torch.ones(1), timeout_s=60)


MISUSE = [
    ({"max_batch": 0}, "`max_batch` is 0, expected a whole number from 1 on"),
    ({"max_batch": 2.5}, "`max_batch` is 2.5"),
    ({"max_batch": True}, "`max_batch` is True"),
    ({"max_batch": "8"}, "`max_batch` is '8'"),
    ({"max_wait_ms": -1}, "`max_wait_ms` is -1, expected a number from 0 below 1e[+]06"),
    ({"max_wait_ms": float("nan")}, "`max_wait_ms` is nan"),
    ({"max_wait_ms": float("inf")}, "`max_wait_ms` is inf"),
    ({"max_wait_ms": None}, "`max_wait_ms` is None"),
    ({"max_queue": 0}, "`max_queue` is 0"),
    ({"max_queue": None}, "`max_queue` is None"),
]


@pytest.mark.parametrize(("options", "text"), MISUSE, ids=lambda value: str(value))
def test_options_out_of_range_are_refused(program, options, text):
    with pytest.raises(BatcherOption, match=text):
        runtime.Batcher(program, **options)


def test_other_misuse(program, bundles):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    with pytest.raises(BatcherOption, match="`program` is int, expected a program or a deployment"):
        runtime.Batcher(3)
    with pytest.raises(runtime.InputError, match="none"):
        runtime.Batcher(program, entry="none")
    closed = runtime.load(bundles[0])
    closed.close()
    with pytest.raises(ProgramClosed):
        runtime.Batcher(closed)
    with runtime.load(bundles[0]) as other, runtime.Batcher(other) as batcher:
        for timeout_s in (0, -1, float("nan"), float("inf"), "1", True):
            with pytest.raises(BatcherOption, match="`timeout_s` is"):
                batcher.submit(*arrays, timeout_s=timeout_s)
        assert batcher.requests == 0
        batcher(*arrays)
        other.close()
        with pytest.raises(ProgramClosed):
            batcher(*arrays)
    batcher.close()
    batcher.close()  # as often as one likes


def test_a_callback_may_call_again(program):
    """In the batcher's own thread nobody else would answer."""
    arrays, found = (torch.tensor([[1, 2]]), torch.ones(1)), []
    with runtime.Batcher(program) as batcher:
        future = batcher.submit(*arrays)
        future.add_done_callback(lambda _: found.append(batcher(*arrays)))
    assert torch.equal(found[0], program(*arrays))


def test_a_forked_process_has_a_thread_of_its_own(program):
    arrays = (torch.tensor([[1, 2]]), torch.ones(1))
    with runtime.Batcher(program) as batcher:
        expected = batcher(*arrays).tolist()
        child = os.fork()
        if not child:
            os._exit(0 if batcher(*arrays, timeout_s=60).tolist() == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert batcher(*arrays).tolist() == expected


def test_a_program_without_a_batch_is_refused(native):
    with runtime.load(native) as program, pytest.raises(NotBatched, match="`x` is i64"):
        runtime.Batcher(program)


def test_it_is_imported_by_its_first_use_only():
    folder = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {folder!r})\nimport aotc.runtime as r\nr.load\n"
    line = [sys.executable, "-S", "-c", code + "print(*sys.modules)"]
    seen = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    assert "aotc.runtime.loading" in seen
    assert not [name for name in seen if "serving" in name or "statistics" in name]
    assert not {"concurrent", "threading", "asyncio"} & set(seen)


def test_it_serves_after_a_request_that_was_interrupted(program):
    given = request(random.Random(0), 3)
    with runtime.Batcher(program, max_wait_ms=0) as batcher:
        batcher(*given)

        def ask():
            with suppress(RuntimeError):  # of a condition of Python's whose wait was interrupted
                batcher(*given)

        def check():
            in_another_thread(lambda: batcher(*given))

        assert interrupt_everywhere(ask, check) > 20

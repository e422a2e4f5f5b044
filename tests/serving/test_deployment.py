"""`Deployment`: bundles that take each other's place under load."""

import array
import shutil
import threading
import time

import pytest

from aotc import runtime
from aotc.runtime.errors import ProgramClosed, SwapIncompatible, SwapRunning
from benchmarks.swaps import held, swap_under_load

NUMBERS = array.array("q", range(192))
EXPECTED = [15 * each for each in NUMBERS]
THREADS = 4


def call_numbers(deployment):
    assert deployment(NUMBERS).tolist() == EXPECTED


@pytest.mark.parametrize(
    "count", [60, pytest.param(1000, marks=pytest.mark.nightly)], ids=lambda count: f"{count}"
)
def test_no_request_fails_and_nothing_is_left(native, count):
    found = swap_under_load([native], call_numbers, count, THREADS)
    assert found.failed == []
    assert found.calls > count
    assert found.descriptors <= THREADS
    # Stacks and heaps of threads; a program has three at least.
    assert found.mappings <= 8 * THREADS
    assert found.nbytes < 32e6


@pytest.mark.torch
def test_every_answer_is_one_bundle_s_own(bundles):
    """Never a mixture: the same call gives the first model's numbers or the second's."""
    arrays = (memoryview(bytes(8 * 5)).cast("q", [1, 5]), array.array("f", [2.0]))
    expected = set()
    for path in bundles:
        with runtime.load(path) as program:
            expected.add(bytes(program(*arrays)))
    assert len(expected) == 2
    seen = set()

    def call(deployment):
        seen.add(bytes(deployment(*arrays)))

    assert swap_under_load(bundles, call, 40, THREADS).failed == []
    assert seen == expected


def test_a_swap_that_fails_leaves_the_old_bundle_serving(native, bundle_of_floats, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(native, damaged)
    for path in damaged.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    library = max(
        (path for path in damaged.rglob("*") if path.is_file()), key=lambda p: p.stat().st_size
    )
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)
    with runtime.Deployment(native) as deployment:
        before = held()[:2]
        with pytest.raises(runtime.BundleError):
            deployment.swap(damaged)
        with pytest.raises(runtime.BundleError):
            deployment.swap(tmp_path / "nowhere")
        with pytest.raises(runtime.BundleError, match="sha256"):
            deployment.swap(native, digest="0" * 64)
        with pytest.raises(SwapIncompatible, match="the list of inputs of entry point"):
            deployment.swap(bundle_of_floats)
        with pytest.raises(ZeroDivisionError):
            deployment.swap(native, warm_up=lambda program: 1 / 0)
        assert (deployment.swaps, deployment.failed_swaps) == (0, 5)
        call_numbers(deployment)
        assert held()[:2] == before
        seen = []
        deployment.swap(bundle_of_floats, allow_changes=True, warm_up=seen.append)
        assert seen == [deployment.program]
    with pytest.raises(ProgramClosed):
        deployment.swap(native)
    with pytest.raises(ProgramClosed):
        deployment(NUMBERS)


def test_a_warm_up_cannot_swap_or_end_its_own_deployment(native):
    with runtime.Deployment(native) as deployment:
        first = deployment.program
        calls = (lambda: deployment.swap(native), deployment.drain, deployment.close)
        for call in calls:
            with pytest.raises(SwapRunning):
                deployment.swap(native, warm_up=lambda program, call=call: call())
        assert deployment.program is first
        assert (deployment.swaps, deployment.failed_swaps) == (0, 3)
        deployment.swap(native)
        assert deployment.swaps == 1


def test_sessions_go_on_until_they_are_closed(native):
    with runtime.Deployment(native) as deployment:
        old, session, bound = deployment.program, deployment.session(), deployment.bind(NUMBERS)
        deployment.swap(native)
        with pytest.raises(ProgramClosed):
            old(NUMBERS)
        for _ in range(3):
            assert session(NUMBERS).tolist() == bound().tolist() == EXPECTED
            assert not old.closed
        other = session.fork()
        session.close()
        bound.close()
        assert other(NUMBERS).tolist() == EXPECTED
        other.close()
        assert wait_for(lambda: old.closed)


def test_a_drain_ends(native):
    with runtime.Deployment(native, drain_s=0.05) as deployment:
        old, session = deployment.program, deployment.session()
        deployment.swap(native)
        assert wait_for(lambda: old.closed)
        with pytest.raises(ProgramClosed):
            session(NUMBERS)
        session.close()
        call_numbers(deployment)


def test_a_program_drains(native):
    program = runtime.load(native)
    session = program.session()
    assert not program.drain(0.01)
    with pytest.raises(ProgramClosed):
        session(NUMBERS)
    with pytest.raises(ProgramClosed):
        program(NUMBERS)
    session.close()
    assert program.drain()
    program = runtime.load(native)
    session = program.session()
    done = []
    thread = threading.Thread(target=lambda: done.append(program.drain(60)))
    thread.start()
    assert wait_for(lambda: raises_closed(program))
    assert session(NUMBERS).tolist() == EXPECTED
    session.close()
    thread.join()
    assert done == [True]


def raises_closed(program):
    try:
        program(NUMBERS)
    except ProgramClosed:
        return True
    return False


def wait_for(holds, limit_s=20):
    end_s = time.monotonic() + limit_s
    while not holds() and time.monotonic() < end_s:
        time.sleep(0.001)
    return holds()


@pytest.fixture(scope="module")
def bundle_of_floats(tmp_path_factory):
    """Another signature."""
    import small_bundle

    return small_bundle.write_writable(tmp_path_factory.mktemp("floats") / "bundle")

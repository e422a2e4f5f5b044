"""States on the fake device: memory of their own, kept from run to run, reset, read and set."""

import pytest
from fake_cubin import text_image
from fake_program import COUNT, KERNELS, Host, ran

from aotc.runtime.bundle.plan import Image, Kernel, Launch, LaunchPlan, StateSlot
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.errors import DeviceMemoryFull

FIRST, ONES = bytes(range(COUNT)), bytes([1] * COUNT)


def adding_plan():
    """y = state + x, then state = state + x; a second state starts with zeros and is y's copy."""
    image = text_image({"add": 5})
    row = Image(0, len(image), 128, 0, 0, False)
    grid = (1, 1, 1)
    return image, LaunchPlan(
        arena_bytes=0,
        scratch_bytes=0,
        buffers=(),
        kernels=(Kernel("add", "add", row),),
        steps=(
            Launch(0, grid, (("output", 0), ("state", 0), ("input", 0))),
            Launch(0, grid, (("state", 0), ("state", 0), ("input", 0))),
            Launch(0, grid, (("state", 1), ("state", 1), ("input", 0))),
        ),
        states=(StateSlot(COUNT, "first"), StateSlot(COUNT)),
    )


@pytest.fixture
def executable(fake_cuda):
    fake_cuda.kernels.update(KERNELS)
    host = Host(FIRST)
    executable = Executable(*adding_plan(), {"first": (host.address, COUNT)}, (COUNT,), (COUNT,), 0)
    yield executable
    executable.close()
    assert fake_cuda.live() == {}


def held(session, index):
    host = Host(bytes(COUNT))
    session.states.read(index, host.address)
    return host.bytes


def plus(data, number):
    return bytes((each + number) % 256 for each in data)


def test_runs_follow_each_other(executable):
    session = executable.session()
    assert [ran(session, ONES) for _ in range(3)] == [
        plus(FIRST, 1), plus(FIRST, 2), plus(FIRST, 3),
    ]  # fmt: skip
    assert held(session, 0) == plus(FIRST, 3)
    assert held(session, 1) == bytes([3] * COUNT)


def test_sessions_have_memory_of_their_own(executable):
    first, second = executable.session(), executable.session()
    assert not set(first.states.addresses) & set(second.states.addresses)
    ran(first, ONES)
    assert held(second, 0) == FIRST
    assert ran(second, ONES) == plus(FIRST, 1)


def test_the_graph_is_not_built_again(executable, fake_cuda):
    session = executable.session()
    ran(session, ONES)
    fake_cuda.calls.clear()
    ran(session, ONES)
    session.states.reset()
    ran(session, ONES)
    assert "cuGraphExecKernelNodeSetParams_v2" not in fake_cuda.calls
    assert "cuGraphInstantiateWithFlags" not in fake_cuda.calls


def test_reset_and_write(executable):
    session = executable.session()
    ran(session, ONES)
    session.states.reset()
    assert held(session, 0) == FIRST
    assert held(session, 1) == bytes(COUNT)
    given = Host(bytes([7] * COUNT))
    session.states.write(0, given.address)
    assert ran(session, ONES) == bytes([8] * COUNT)


def test_a_state_starts_with_a_weight_that_no_launch_reads(executable):
    assert set(executable.weights) == {"first"}


def test_no_room_for_states_leaves_nothing_behind(executable, fake_cuda):
    before = fake_cuda.live()
    fake_cuda.fail("cuMemAlloc_v2", 2)
    with pytest.raises(DeviceMemoryFull):
        executable.session()
    assert fake_cuda.live() == before


def test_an_initial_value_is_repeated(fake_cuda):
    fake_cuda.kernels.update(KERNELS)
    host = Host(b"\x01\x02\x03")
    image, plan = adding_plan()
    plan = plan.replace(states=(StateSlot(COUNT, "first", 3), StateSlot(COUNT)))
    executable = Executable(image, plan, {"first": (host.address, 3)}, (COUNT,), (COUNT,), 0)
    session = executable.session()
    assert held(session, 0) == (b"\x01\x02\x03" * COUNT)[:COUNT]
    executable.close()
    assert fake_cuda.live() == {}


def test_states_are_taken_over_on_the_device(executable, fake_cuda):
    first, second = executable.session(), executable.session()
    ran(first, ONES)
    fake_cuda.calls.clear()
    second.states.take(first.states)
    assert not {"cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2"} & set(fake_cuda.calls)
    assert held(second, 0) == plus(FIRST, 1)
    ran(second, ONES)
    assert held(first, 0) == plus(FIRST, 1)


def test_a_view_is_the_states_memory_and_outlives_the_session(executable, fake_cuda):
    session = executable.session()
    address = session.states.addresses[0]
    view = session.states.view(0, "u8", (COUNT,))
    assert view.__dlpack_device__() == (2, 0)
    assert view.address == address == view.__cuda_array_interface__["data"][0]
    capsules = [view.__dlpack__(max_version=(1, 1)), view.__dlpack__()]
    session.close()
    executable.close()
    del view, capsules[0]
    assert len(fake_cuda.live()) > 0, "a consumer may still have it"
    capsules.clear()
    assert fake_cuda.live() == {}


ORDERS = ["zzz", "fzz", "zfz", "zzf", "z-z", "-fz", "ff", "z-fzz-", "zf-z"]


@pytest.mark.parametrize("order", ORDERS)
def test_neighbours_that_begin_as_zeros_are_filled_at_once(fake_cuda, order):
    """z: zeros; f: what a weight holds; -: a state without elements."""
    rows = {"z": StateSlot(COUNT), "f": StateSlot(COUNT, "first"), "-": StateSlot(0)}
    image, plan = adding_plan()
    plan = plan.replace(states=tuple(rows[each] for each in order), steps=())
    host = Host(FIRST)
    executable = Executable(
        image, plan, {"first": (host.address, COUNT)}, (COUNT,), (COUNT,), 0
    )  # fmt: skip
    before = fake_cuda.calls["cuMemsetD8Async"]
    session = executable.session()
    stretches = [each for each in order.replace("-", "").split("f") if each]
    assert fake_cuda.calls["cuMemsetD8Async"] - before == len(stretches)
    expected = {"z": bytes(COUNT), "f": FIRST}
    for index, each in enumerate(order):
        if each != "-":
            assert held(session, index) == expected[each]
    session.close()
    executable.close()
    assert fake_cuda.live() == {}

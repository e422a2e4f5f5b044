"""Graphs and lists of launches of several sessions and sizes from one blueprint: numbers, maps,
counts, faults."""

import struct
import threading

import fake_cuda as fake_cuda_module
import pytest
from fake_program import COUNT, Host, small_plan
from plan_trees import with_uses

from aotc.runtime.bundle.plan import PLAN_ABI, Plan
from aotc.runtime.drivers.cuda import blueprint, libcuda
from aotc.runtime.drivers.cuda.driver import Executable
from aotc.runtime.drivers.cuda.graph import DEPENDENCIES, Execution
from aotc.runtime.errors import AotcError

ADD, SET, PATCH = (
    "cuGraphAddKernelNode_v2", "cuGraphKernelNodeSetParams_v2", "cuGraphExecKernelNodeSetParams_v2",
)  # fmt: skip
ENCODE, INSTANTIATE = "cuTensorMapEncodeTiled", "cuGraphInstantiateWithFlags"
ISSUE, LAUNCH = "cuLaunchKernelEx", "cuGraphLaunch"
COLUMNS, WEIGHT_ROWS = 16, 4  # of bf16
ROW_BYTES = 2 * COLUMNS
LARGEST = 64
# to, from, map, its shape and strides, Triton's own
IMAGE = b"FAKE sm_90\ncopy 8 8 128 8 8 8 8 8 8\n\0"


def copy(memory, grid, values):
    """All that the map is of goes to the first argument; one program a row."""
    to, _, described, rows, columns, stride, one, *_ = values
    found = struct.unpack_from("<7Q", described.to_bytes(128, "little"))
    address, rank, inner, outer, stride_bytes, *box = found
    assert (rank, inner, stride_bytes, box) == (2, columns, 2 * stride, [16, 2])
    assert (outer, columns, one) == (rows, COLUMNS, 1)
    assert grid == (rows, 1, 1)
    memory(to, rows * ROW_BYTES)[:] = memory(address, rows * ROW_BYTES)


def varying_plan():
    """x → arena → y, each by a map of n rows; weight → w, a map of WEIGHT_ROWS, four times."""
    row = {"argument": 1, "dtype": "bf16", "start": 0, "strides": [COLUMNS, 1], "box": [2, 16]}
    own = {**row, "shape": [[0], COLUMNS], "swizzle_bytes": 32}
    of_weight = {**own, "shape": [WEIGHT_ROWS, COLUMNS]}
    rest = {"kind": "kernel", "kernel": 0}
    varying, fixed = [[0], 1, 1], [WEIGHT_ROWS, 1, 1]
    steps = [
        {**rest, "grid": varying, "args": [["arena", 0], ["input", 0]], "maps": [own]},
        {**rest, "grid": varying, "args": [["arena", [2]], ["arena", 0]], "maps": [own]},
        {**rest, "grid": varying, "args": [["output", 0], ["arena", [2]]], "maps": [own]},
        *[{**rest, "grid": fixed, "args": [["output", 1], ["weight", "w"]], "maps": [of_weight]}]
        * 4,
    ]
    variant = {
        "arena_bytes": [4],
        "zeroed_bytes": 0,
        "entry": 0,
        "ranges": [[1, LARGEST]],
        "buffers": [
            {"name": "a", "offset": 0, "nbytes": [2]},
            {"name": "b", "offset": [2], "nbytes": [2]},
        ],
        "checks": [],
        "steps": steps,
    }
    image = {"offset": 0, "nbytes": len(IMAGE), "threads": 128, "shared_bytes": 0}
    image |= {"scratch_bytes": 0, "is_programmatic": 1}
    # Values: n, 64, 64·n, 2, 128·n.
    sizes = [["number", 64, 0], ["mul", 0, 1], ["number", 2, 0], ["mul", 2, 3]]
    tree = {
        "abi": PLAN_ABI,
        "dims": 1,
        "features": ["dynamic-shapes", "tensor-maps"],
        "states": [],
        "sizes": sizes,
        "limits": [],
        "scratch_bytes": 0,
        "kernels": [{"symbol": "copy", "name": "copy", "image": image}],
        "variants": [variant],
    }
    return Plan.from_map(with_uses(tree))


class Program:
    """The plan of varying sizes on the fake device."""

    def __init__(self, fake):
        self.fake = fake
        fake.kernels["copy"] = copy
        self.plan = varying_plan()
        self.weight = bytes(range(WEIGHT_ROWS * ROW_BYTES))
        self.host = Host(self.weight)
        weights = {"w": (self.host.address, self.host.nbytes)}
        self.executable = Executable(IMAGE, self.plan, weights, (), ())
        self.shared = self.executable.shared()

    def session(self, rows):
        nbytes = rows * ROW_BYTES
        code = self.executable.at(self.plan.at([rows]), (nbytes,), (nbytes, len(self.weight)))
        return code.session(self.shared)

    def runs(self, session, rows, seed=0):
        """Two calls: of the launches one after the other, and of a graph."""
        self.run(session, rows, seed)
        self.run(session, rows, seed + 1)

    def run(self, session, rows, seed=0):
        """One call; its output and the weight."""
        device, nbytes = self.executable.gpu, rows * ROW_BYTES
        data = bytes((seed + at) % 251 for at in range(nbytes))
        given, back, copied = Host(data), Host(bytes(nbytes)), Host(bytes(len(self.weight)))
        places = [device.allocate(each) for each in (nbytes, nbytes, len(self.weight))]
        try:
            device.copy_to_device(places[0], given.address, nbytes)
            session.addresses[:] = places
            session.run()
            device.synchronize()
            device.copy_to_host(back.address, places[1], nbytes)
            device.copy_to_host(copied.address, places[2], len(self.weight))
        finally:
            for place in places:
                device.free(place)
        assert (back.bytes, copied.bytes) == (data, self.weight)

    def close(self):
        self.shared.close()
        self.executable.close()


@pytest.fixture
def program(fake_cuda):
    found = Program(fake_cuda)
    yield found
    found.close()
    assert fake_cuda.live() == {}


def made(fake, make):
    """What `make` gives, and how often it called each function."""
    before = dict(fake.calls)
    found = make()
    return found, {name: count - before.get(name, 0) for name, count in fake.calls.items()}


def test_sessions_of_several_sizes_live_side_by_side(program):
    rows = (1, 5, LARGEST, 5, 2)
    sessions = [(program.session(each), each) for each in rows]
    for seed in (1, 2):
        for number, (session, each) in enumerate(sessions):
            program.run(session, each, 10 * number + seed)
    for session, each in sessions[::2]:
        program.run(session, each, 3)
        session.close()
    for session, each in sessions[1::2]:
        program.run(session, each, 4)
        session.close()


def test_new_sizes_change_nodes_and_add_none(program, fake_cuda):
    launches = len(program.plan.variants[0].steps)
    for number, rows in enumerate((3, 4, 4, 50)):
        session = program.session(rows)
        program.run(session, rows)
        _, found = made(fake_cuda, lambda rows=rows, session=session: program.run(session, rows))
        added, changed = (0, launches) if number else (launches, 0)
        counts = (found.get(ADD, 0), found.get(SET, 0), found[INSTANTIATE])
        assert counts == (added, changed, 1)
        if number:
            assert not {"cuGraphCreate", "cuGraphAddDependencies_v2"} & {*filter(found.get, found)}
            # Two of the arena in the blueprint's frame, three in the session's, and one of that
            # which this call brings.
            assert found[ENCODE] == 5
        session.close()


def test_the_first_call_at_new_sizes_makes_no_graph(program, fake_cuda):
    launches = len(program.plan.variants[0].steps)
    for rows in (3, 50, 3):
        early = fake_cuda.early
        session, opened = made(fake_cuda, lambda rows=rows: program.session(rows))
        _, found = made(fake_cuda, lambda rows=rows, session=session: program.run(session, rows))
        assert (found[ISSUE], fake_cuda.early - early) == (launches, launches - 1)
        for name in (ADD, SET, PATCH, INSTANTIATE, LAUNCH):
            assert opened.get(name, 0) == found.get(name, 0) == 0
        for _ in range(2):
            _, found = made(
                fake_cuda, lambda rows=rows, session=session: program.run(session, rows)
            )
            assert (found.get(ISSUE, 0), found[LAUNCH]) == (0, 1)
        session.close()


def test_no_launch_is_programmatic_where_the_driver_has_no_such_edges(monkeypatch):
    fake = fake_cuda_module.FakeCuda()
    fake_cuda_module.install(monkeypatch, fake)
    monkeypatch.delitem(libcuda.library().functions, DEPENDENCIES)
    program = Program(fake)
    session = program.session(3)
    program.runs(session, 3)
    assert fake.early == 0
    session.close()
    program.close()
    assert fake.live() == {}


def test_the_launches_of_a_first_call_are_before_those_of_other_sizes(program, fake_cuda):
    """On another stream, which waits for them, since both use one arena."""
    device = program.executable.gpu
    streams = [device.stream() for _ in range(2)]
    first, second = program.session(3), program.session(5)
    for session, rows in ((first, 3), (second, 5), (first, 3)):
        given, kept = device.allocate(rows * ROW_BYTES), device.allocate(len(program.weight))
        session.addresses[:] = [given, device.allocate(rows * ROW_BYTES), kept]
        before = fake_cuda.calls["cuStreamWaitEvent"]
        session.run(streams[session is second].handle)
        waits = fake_cuda.calls["cuStreamWaitEvent"] - before
        assert waits == (session is second or fake_cuda.calls[LAUNCH])
    device.synchronize()
    for address in [*first.addresses, *second.addresses]:
        device.free(address)
    for each in (first, second, *streams):
        each.close()


def test_an_address_that_a_first_call_lacks_is_refused(program, fake_cuda):
    session = program.session(3)
    with pytest.raises(AotcError, match="address"):
        session.run()
    assert fake_cuda.calls[ISSUE] == 0
    program.runs(session, 3)
    session.close()


def test_a_call_patches_the_nodes_of_its_own_addresses(program, fake_cuda):
    session = program.session(3)
    program.run(session, 3)
    _, found = made(fake_cuda, lambda: program.run(session, 3))
    assert found[PATCH] == 6  # all launches but the one between the buffers
    session.close()


def test_threads_that_open_sessions_at_once(program):
    failed, barrier = [], threading.Barrier(4)

    def work(number):
        try:
            barrier.wait()
            for rows in (number + 1, 20 + number, 3):
                session = program.session(rows)
                with TURN:
                    program.runs(session, rows, number)
                session.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failed


TURN = threading.Lock()  # sessions that share an arena take turns


@pytest.mark.parametrize("name", [ADD, SET, INSTANTIATE, ENCODE, "cuGraphCreate", ISSUE])
def test_what_fails_once_is_made_again(fake_cuda, name):
    """In the first session or in a later one; the graph of the others stays as it was."""
    for rows in (2, 7):
        program = Program(fake_cuda)
        kept = program.session(2)
        if rows == 7:
            program.runs(kept, 2)
        failed = 0
        for nth in (1, 2, 4):
            session = program.session(rows)
            for _ in range(2):
                fake_cuda.fail(name, 1, nth)
                try:
                    program.run(session, rows, nth)
                except AotcError:
                    failed += 1
                    assert not fake_cuda.faults
                fake_cuda.faults.clear()
            program.runs(session, rows, nth)
            program.runs(kept, 2, nth)
            session.close()
        assert failed or (name, rows) in ((SET, 2), (ADD, 7), ("cuGraphCreate", 7))
        kept.close()
        program.close()
    assert fake_cuda.live() == {}


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_first_session_that_fails_leaves_nothing(fake_cuda, nth):
    program = Program(fake_cuda)
    before = fake_cuda.live()
    session = program.session(3)
    program.run(session, 3)
    fake_cuda.fail(ADD, 1, nth)
    with pytest.raises(AotcError, match="cuGraphAddKernelNode_v2"):
        program.run(session, 3)
    session.close()
    assert fake_cuda.live() == before
    session = program.session(3)
    program.runs(session, 3)
    session.close()
    program.close()
    assert fake_cuda.live() == {}


def test_sessions_of_fixed_shapes_share_a_graph(program, fake_cuda, weights):
    image, plan = small_plan()
    from fake_program import KERNELS

    fake_cuda.kernels.update(KERNELS)
    executable = Executable(image, plan, weights, (COUNT,), (COUNT,))
    graphs = len(fake_cuda.graphs)
    sessions = [executable.session() for _ in range(3)]
    assert len(fake_cuda.graphs) == graphs + 1
    for number, session in enumerate(sessions):
        given, back = Host(bytes([number] * COUNT)), Host(bytes(COUNT))
        session.copy_in(0, given.address)
        session.stage(1)
        session.run(session.stream)
        session.copy_out(1, back.address)
        session.synchronize()
        assert back.bytes == bytes([30 + number] * COUNT)
    for session in sessions:
        session.close()
    executable.close()


def test_a_chain_without_launches(fake_cuda, program):
    made_of_none = blueprint.Blueprint(program.executable, ())
    table = made_of_none.table([], {"scratch": lambda _: 0})
    execution = Execution(program.executable.gpu)
    made_of_none.instantiate(execution, table)
    execution.close()
    made_of_none.issue(table, lambda space, number: 0, 0)
    made_of_none.close()
